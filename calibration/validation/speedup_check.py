"""The speedups of known acceptance by source, which score a change of a mechanism in a minute or two.

`python -m calibration.validation.accuracy --speedups [WORD …]` prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calibration.text_table import TextTable
from calibration.validation.baselines import CLOSED_FORM, SIMULATED, against_baselines
from calibration.validation.compare import compare_runs
from calibration.validation.errors import ErrorSummary
from calibration.validation.groups import SPEC_BUNDLE, fit_sources, grouped, held_out
from calibration.validation.pool import worker_pool, worthwhile_workers
from calibration.validation.quantities import SPEEDUP
from calibration.validation.reconstruction.cases import committed_cases
from calibration.validation.reconstruction.reconstruct import published_runs_of_cases
from calibration.validation.tables import NOTHING, rows_table, share, signed

if TYPE_CHECKING:
    from calibration.validation.reconstruction.published_run import PublishedRun
    from calibration.validation.row import ComparisonRow


def check_speedups(words: Sequence[str]) -> str:
    """The table by source as Markdown. With words, only runs whose source or case has one of them in its
    name, and every row; without, all but SpecBundle.
    """
    runs = [run for run in published_runs_of_cases(committed_cases()) if _checked(run, words)]
    with worker_pool(worthwhile_workers()) as pool:
        rows = compare_runs([_speedup_alone(run) for run in runs], pool)
    tables = [speedups_by_source(rows)]
    if words:
        tables.append(rows_table(rows))
    return "\n\n".join(table.markdown() for table in tables)


def _checked(run: PublishedRun, words: Sequence[str]) -> bool:
    has_speedup = any(figure.quantity == SPEEDUP for figure in run.published)
    if not has_speedup or run.acceptance_from not in ("given", "joined") or run.research:
        return False
    if words:
        return any(word in run.case.source_id or word in run.case.case_id for word in words)
    return run.case.source_id != SPEC_BUNDLE


def _speedup_alone(run: PublishedRun) -> PublishedRun:
    """The run without its other figures: percentiles need longer runs."""
    return replace(run, published=tuple(figure for figure in run.published if figure.quantity == SPEEDUP))


def speedups_by_source(rows: Sequence[ComparisonRow]) -> TextTable:
    """Errors of the simulated speedups of each source and of both halves, and those of the closed form."""
    compared = [row for row in rows if row.predicted is not None]
    lines = [
        (source, "fit" if source in fit_sources() else "held out", *_figures(part))
        for source, part in sorted(grouped(compared, lambda row: row.source).items())
    ]
    halves = {
        "fit": [row for row in compared if not held_out(row)],
        "held out": [row for row in compared if held_out(row)],
    }
    lines += [("all", name, *_figures(part)) for name, part in halves.items() if part]
    figures = ("bias", "median", "P90", "of sources", "losses called", "gains called")
    return TextTable(
        ("source", "half", "n", *figures, *(f"closed form: {name}" for name in figures)), tuple(lines), 2
    )


def _figures(rows: Sequence[ComparisonRow]) -> tuple[str, ...]:
    errors = against_baselines(rows)
    simulated = errors[SIMULATED]
    return (str(simulated.n), *_errors(simulated), *_errors(errors[CLOSED_FORM]))


def _errors(errors: ErrorSummary) -> tuple[str, ...]:
    return (
        NOTHING if errors.bias is None else signed(errors.bias),
        share(errors.median_abs_log_error),
        share(errors.p90_abs_log_error),
        share(errors.median_of_sources),
        f"{errors.losses_called} of {errors.below}",
        f"{errors.gains_called} of {errors.above}",
    )
