"""ACCURACY.md, written from the committed cases: `python -m calibration.validation.accuracy [FILE]`.

With `--speedups [WORD …]` nothing is written: the speedups of known acceptance are printed by source.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from calibration.text_table import TextTable
from calibration.validation.assumed_lengths import LengthEffect, length_effects
from calibration.validation.errors import FASTER, SLOWER
from calibration.validation.groups import BY, fit_record
from calibration.validation.pool import worker_pool, worthwhile_workers
from calibration.validation.reconstruction.cases import committed_cases
from calibration.validation.reconstruction.reconstruct import published_runs_of_cases
from calibration.validation.speedup_check import check_speedups, speedups_by_source
from calibration.validation.tables import (
    baselines_table,
    claims_table,
    cross_table,
    group_table,
    largest_errors,
    left_out_table,
    length_effects_table,
    quantities_table,
    reasons_table,
    sources_table,
    targets_table,
)
from calibration.validation.validate import SPEEDUPS_OTHERS, Validation, validate_runs

_MISSES = 25

_INTRODUCTION = """# Accuracy

Published measurements, simulated and compared, by `make accuracy`; not edited by hand. What the columns mean,
where acceptance comes from and what is not compared: [docs/validation.md](docs/validation.md). An error is
ln(predicted ÷ published) in per cent: 5 % is a twentieth, 69 % a factor of two, 230 % a factor of ten."""


def accuracy_page(validation: Validation, effects: Sequence[LengthEffect]) -> str:
    """The text of ACCURACY.md."""
    good = [row for row in validation.rows if row.gates]
    speedups = validation.speedups()[SPEEDUPS_OTHERS]
    coverage = validation.coverage
    simulated_cases = f"{coverage.simulated} of {coverage.of} cases"
    parts: list[tuple[str, str, TextTable]] = [
        ("Targets", _judged_rows(), targets_table(validation)),
        (
            "Speedup, compared with simpler predictors",
            "The closed form is E / (1 + o) over uniform steps of the same presets, at the simulated mean "
            "batch; the constant is the median of the published speedups themselves.",
            baselines_table(validation),
        ),
        (
            "Losses and gains by source",
            f"Acceptance given or joined, without SpecBundle. A loss was published below × {SLOWER:g}, a "
            f"gain above × {FASTER:g}; it is called if the prediction is on the same side of 1.",
            speedups_by_source(speedups),
        ),
        ("Every quantity", "", quantities_table(validation)),
        *(
            (
                f"Speedup by {name}",
                "Acceptance given or joined, without SpecBundle.",
                group_table(name, speedups, by),
            )
            for name, by in BY.items()
        ),
        ("By source", "", sources_table(good)),
        ("By quantity, GPU, engine, method and batch", "", cross_table(good)),
        ("Largest misses", "The worst row of each case.", largest_errors(good, _MISSES)),
        (
            "Lengths that no source states",
            "The usual lengths of the data set are assumed. Halving or doubling them moves predictions by:",
            length_effects_table(effects),
        ),
        (
            "Not compared",
            f"Simulated: {simulated_cases} on H100, H200 and A100 whose source is good enough for a gate "
            f"({coverage.value or 0:.0%}). Rows that were skipped:",
            reasons_table(validation),
        ),
        ("Cases without a simulated row", "", left_out_table(validation)),
        (
            "What other simulators claim",
            "All are about plain serving, none about speculation. The words are theirs; this project has not "
            "rerun them.",
            claims_table(),
        ),
    ]
    sections = (
        "\n\n".join(part for part in (f"## {title}", text, table.markdown()) if part)
        for title, text, table in parts
        if table.rows
    )
    return "\n\n".join([_INTRODUCTION, *sections]) + "\n"


def _judged_rows() -> str:
    """State which rows the targets are judged on."""
    record = fit_record()
    judged = "On serving engines on H100 and H200, acceptance given or joined, SpecBundle apart"
    if not record:
        return f"{judged}. No parameter is fitted."
    return (
        f"{judged}, on sources that the fit of the presets has not seen: {record['parameter_count']} "
        f"parameters, fitted on {record['source_count']} sources ([docs/engines.md](docs/engines.md))."
    )


def main(arguments: Sequence[str]) -> int:
    """Write the page, or print the speedups alone."""
    if arguments and arguments[0] == "--speedups":
        print(check_speedups(arguments[1:]))
        return 0
    path = Path(arguments[0] if arguments else "ACCURACY.md")
    cases = committed_cases()
    runs = published_runs_of_cases(cases)
    with worker_pool(worthwhile_workers()) as pool:
        validation = validate_runs(cases, runs, pool)
        effects = length_effects(runs, validation.rows, pool)
    path.write_text(accuracy_page(validation, effects), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
