"""ACCURACY.md, written from the committed cases: `python -m calibration.validation.accuracy [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from calibration.validation.cases import committed_cases
from calibration.validation.groups import BY, SPEC_BUNDLE, fit_sources
from calibration.validation.quantities import SPEEDUP
from calibration.validation.tables import (
    TextTable,
    as_markdown,
    baselines_table,
    claims_table,
    cross_table,
    group_table,
    largest_errors,
    left_out_table,
    quantities_table,
    reasons_table,
    sources_table,
    targets_table,
)
from calibration.validation.validate import Validation, validate

_MISSES = 25

_INTRODUCTION = """# Accuracy

Published measurements, simulated and compared, by `make accuracy`; not edited by hand. What the columns mean,
how acceptance is come by and what is not compared: [docs/validation.md](docs/validation.md)."""


def accuracy_page(validation: Validation) -> str:
    """The text of ACCURACY.md."""
    good = [row for row in validation.rows if row.gates]
    speedups = [row for row in good if row.quantity == SPEEDUP and row.source != SPEC_BUNDLE]
    coverage = validation.coverage
    of_cases = f"{coverage.simulated} of {coverage.of} cases"
    parts: list[tuple[str, str, TextTable]] = [
        ("Targets", _held(), targets_table(validation)),
        (
            "Speedup, beside what is simpler",
            "The closed form is E / (1 + o) over uniform steps of the same presets, at the simulated mean "
            "batch; the constant is the median of the published speedups themselves.",
            baselines_table(validation),
        ),
        ("Every quantity", "", quantities_table(validation)),
        *(
            (f"Speedup by {name}", "Good sources without SpecBundle.", group_table(name, speedups, by))
            for name, by in BY.items()
            if name != "source"
        ),
        ("By source", "", sources_table(good)),
        ("By quantity, GPU, engine, method and batch", "", cross_table(good)),
        ("Largest misses", "The worst row of each case and quantity.", largest_errors(good, _MISSES)),
        (
            "Not compared",
            f"Simulated: {of_cases} on H100, H200 and A100 that are good enough for a gate "
            f"({coverage.value or 0:.0%}). Rows that were skipped:",
            reasons_table(validation),
        ),
        ("Cases without a simulated row", "", left_out_table(validation)),
        (
            "What other simulators claim",
            "All for plain serving, none for speculation; in their own words, rerun by nobody here.",
            claims_table(),
        ),
    ]
    sections = (
        "\n\n".join(part for part in (f"## {title}", text, as_markdown(table)) if part)
        for title, text, table in parts
        if table.rows
    )
    return "\n\n".join([_INTRODUCTION, *sections]) + "\n"


def _held() -> str:
    """What the targets are judged on."""
    fitted = len(fit_sources())
    seen = (
        f"the {fitted} sources that the presets were fitted on" if fitted else "none: nothing is fitted yet"
    )
    return (
        "On serving engines on H100 and H200, acceptance given or joined, SpecBundle apart, without sources "
        f"that a fit has seen ({seen})."
    )


def main(arguments: Sequence[str]) -> int:
    """Write the page."""
    path = Path(arguments[0] if arguments else "ACCURACY.md")
    path.write_text(accuracy_page(validate(committed_cases())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
