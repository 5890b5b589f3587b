"""Tables of text: the same on a terminal, on the page and in ACCURACY.md.

Errors are |ln(predicted ÷ published)| in per cent, rounded to a tenth so that all machines print the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from calibration.text_table import TextTable
from calibration.validation.baselines import against_baselines
from calibration.validation.errors import ErrorSummary, errors_of
from calibration.validation.groups import band_of, engine_of, fit_sources, gpu_of, grouped, method_of
from calibration.validation.quantities import COST_SHARE, CROSSOVER, PATHS, SPEEDUP, STEP_RATIO
from calibration.validation.row import ComparisonRow
from calibration.validation.simulator_claims import CLAIMS
from calibration.validation.targets import AccuracyTarget
from calibration.validation.validate import ACCEPTANCE, Validation
from simulator.units import format_number, format_seconds

if TYPE_CHECKING:
    from calibration.validation.assumed_lengths import LengthEffect

NOTHING = "–"


def targets_table(validation: Validation) -> TextTable:
    """The accuracy targets that have rows to judge, with the values reached."""
    rows = tuple(
        (
            target.name,
            target.statistic,
            ("≥ " if target.at_least else "≤ ") + _target_value(target, target.limit),
            _target_value(target, target.value),
            "yes" if target.met else "NO",
            str(target.n),
            str(target.sources),
        )
        for target in validation.targets
        if target.value is not None
    )
    return TextTable(("what", "statistic", "limit", "reached", "met", "n", "sources"), rows, 2)


def _target_value(target: AccuracyTarget, value: float) -> str:
    if target.statistic in ("balanced accuracy", "inside its interval", "predicted as losses"):
        return f"{value:.0%}"
    if target.statistic == "median difference":
        return f"{100 * value:.1f} points"
    return f"{value:.2f}" if target.limit > 1 else f"{value:.1%}"


def baselines_table(validation: Validation) -> TextTable:
    """Errors of speedups by the simulation, the closed form and the constant, in the parts reported apart."""
    parts = list(validation.speedups().items())
    parts.append(("shape over batch", [row for row in validation.shape_speedups if row.gates]))
    rows = []
    for name, part_rows in parts:
        for predictor, errors in against_baselines(part_rows).items():
            if errors.n:
                rows.append((name, predictor, *_errors(errors), *_signs(errors)))
    return TextTable(("speedups", "predictor", *_ERRORS, *_SIGNS), tuple(rows), 2)


def quantities_table(validation: Validation) -> TextTable:
    """Errors of every quantity by the origin of its acceptance."""
    rows = []
    for quantity, parts in validation.summary.items():
        for name in (*ACCEPTANCE, "all"):
            errors = parts[name]
            if name == "all" or (errors.n and not _only(parts, name)):
                rows.append((quantity, name, *_errors(errors), *_signs(errors), str(errors.skipped)))
    return TextTable(("quantity", "acceptance", *_ERRORS, *_SIGNS, "skipped"), tuple(rows), 2)


def _only(parts: dict[str, ErrorSummary], name: str) -> bool:
    """Whether all rows are in this part, so that the row `all` repeats it."""
    return all(parts[other].n + parts[other].skipped == 0 for other in ACCEPTANCE if other != name)


def group_table(heading: str, rows: Iterable[ComparisonRow], by: Callable[[ComparisonRow], str]) -> TextTable:
    """Errors of rows by one grouping, the largest groups first."""
    groups = grouped([row for row in rows if row.skipped is None], by)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = tuple((name, *_errors(errors_of(group_rows))) for name, group_rows in ordered)
    return TextTable((heading, *_ERRORS), lines)


def cross_table(rows: Iterable[ComparisonRow]) -> TextTable:
    """Errors by quantity, GPU, serving engine, method and batch band together."""

    def key(row: ComparisonRow) -> tuple[str, ...]:
        return row.quantity, gpu_of(row), engine_of(row), method_of(row), band_of(row)

    groups = grouped((row for row in rows if row.skipped is None), key)
    lines = tuple((*names, *_errors(errors_of(groups[names]))) for names in sorted(groups, key=_natural))
    return TextTable(("quantity", "GPU", "engine", "method", "batch", *_ERRORS), lines, 5)


def _natural(names: tuple[str, ...]) -> tuple[tuple[int, int, str], ...]:
    """Sort key that puts the batch band 9–32 before 33–128."""
    parts = []
    for part in names:
        digits = part.split("–")[0].split(" ")[0]
        parts.append((0, int(digits), part) if digits.isdigit() else (1, 0, part))
    return tuple(parts)


def sources_table(rows: Iterable[ComparisonRow]) -> TextTable:
    """Errors of the main quantities by source, and whether the presets were fitted on it."""
    main_rows = [row for row in rows if row.skipped is None and row.quantity in MAIN]
    groups = grouped(main_rows, lambda row: (row.source, row.quantity))
    lines = []
    for (source, quantity), source_rows in sorted(groups.items()):
        fitted = "fit" if source in fit_sources() else "held out"
        lines.append((source, quantity, fitted, *_errors(errors_of(source_rows), sources=False)))
    return TextTable(("source", "quantity", "half", *_SOURCE_ERRORS), tuple(lines), 3)


MAIN = (SPEEDUP, "throughput", "tpot_mean", "acceptance_length", STEP_RATIO, CROSSOVER)
"""Quantities whose misses are listed. Tails miss by more and would fill the list."""


def largest_errors(rows: Iterable[ComparisonRow], count: int) -> TextTable:
    """The rows of the main quantities with the largest errors, the worst of each case."""
    worst: dict[tuple[str, str], ComparisonRow] = {}
    for row in rows:
        worst_row = worst.get((row.source, row.case_id))
        if row.skipped is not None or row.quantity not in MAIN:
            continue
        if worst_row is None or abs(row.log_error) > abs(worst_row.log_error):
            worst[row.source, row.case_id] = row
    ordered = sorted(worst.values(), key=lambda row: -abs(row.log_error))
    return rows_table(ordered[:count])


def rows_table(rows: Iterable[ComparisonRow]) -> TextTable:
    """One line per row."""
    lines = tuple(
        (
            row.case_id,
            row.quantity + (f" ({row.part})" if row.part else ""),
            row.variant,
            load_of(row),
            value_of(row.quantity, row.published),
            row.skipped or value_of(row.quantity, row.predicted or 0.0),
            NOTHING if row.ratio is None else signed(row.ratio - 1),
            row.acceptance_from,
        )
        for row in rows
    )
    return TextTable(
        ("case", "quantity", "arm", "load", "published", "predicted", "error", "acceptance"), lines, 4
    )


def reasons_table(validation: Validation) -> TextTable:
    """Reasons for skipped rows, with their counts."""
    reasons = validation.coverage.reasons.items()
    return TextTable(("reason", "rows"), tuple((reason, str(count)) for reason, count in reasons))


def left_out_table(validation: Validation) -> TextTable:
    """The cases without a simulated row, with the reason."""
    left_out = validation.coverage.left_out
    return TextTable(("case", "why"), tuple((case, why) for (_, case), why in left_out.items()), 2)


def length_effects_table(effects: Iterable[LengthEffect]) -> TextTable:
    """How far predictions move with the assumed lengths."""
    rows = tuple(
        (effect.quantity, f"× {effect.factor:g}", str(effect.n), share(effect.median), share(effect.p90))
        for effect in effects
    )
    return TextTable(("quantity", "lengths", "rows", "median move", "P90"), rows, 2)


def claims_table() -> TextTable:
    """What other simulators claim about their accuracy."""
    return TextTable(("simulator", "claim", "source"), tuple(map(tuple, CLAIMS)), 3)


def value_of(quantity: str, value: float) -> str:
    """A figure in readable units."""
    if quantity in (SPEEDUP, STEP_RATIO):
        return f"× {value:.2f}"
    if quantity == COST_SHARE:
        return f"{value:.1%}"
    if quantity == "throughput":
        return f"{format_number(value)} tokens/s"
    if PATHS.get(quantity, "").partition(".")[0].endswith("_s"):
        return format_seconds(value)
    return f"{value:.3g}" if quantity == CROSSOVER else f"{value:.2f}"


def load_of(row: ComparisonRow) -> str:
    """The load of a row, with the draft length where it drafts."""
    load = f"{row.batch:g}" if row.batch is not None else row.load or NOTHING
    return f"{load}, K {row.draft_length}" if row.draft_length and row.variant != "plain" else load


_ERRORS = ("n", "sources", "bias", "median", "P90", "of sources")
_SOURCE_ERRORS = ("n", "bias", "median", "P90")
_SIGNS = ("right sign", "losses", "gains")


def _errors(errors: ErrorSummary, sources: bool = True) -> tuple[str, ...]:
    bias = NOTHING if errors.bias is None else signed(errors.bias)
    middle = (bias, share(errors.median_abs_log_error), share(errors.p90_abs_log_error))
    if not sources:
        return (str(errors.n), *middle)
    return (str(errors.n), str(errors.sources), *middle, share(errors.median_of_sources))


def _signs(errors: ErrorSummary) -> tuple[str, ...]:
    if errors.sign_balanced_accuracy is None:
        return ("", "", "")
    return f"{errors.sign_balanced_accuracy:.0%}", str(errors.below), str(errors.above)


def signed(value: float) -> str:
    """`+1.2%`, `−3.4%`."""
    return f"{value:+.1%}".replace("-", "−")


def share(value: float | None) -> str:
    """An error in per cent."""
    return NOTHING if value is None else f"{value:.1%}"
