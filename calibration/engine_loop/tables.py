"""Tables of a comparison with the engine, for terminals and docs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calibration.engine_loop.compare import CellRow, LoopComparison
from calibration.engine_loop.matrix import PLAIN, REQUESTS_FOR_P99
from calibration.engine_loop.raw import TAILS, TIMES
from calibration.text_table import TextTable

_NONE = "–"


def tables_of(comparison: LoopComparison) -> dict[str, TextTable]:
    """Title → table, of all that have rows."""
    tables = {title: make(comparison) for title, make in _TABLES.items()}
    return {title: table for title, table in tables.items() if table.rows}


def targets(comparison: LoopComparison) -> TextTable:
    """Limits and what was reached."""
    rows = [
        [
            target.name,
            f"{target.limit:g}",
            _NONE if target.value is None else f"{target.value:.3g}",
            str(target.n),
            {True: "yes", False: "no", None: _NONE}[target.met],
        ]
        for target in comparison.targets
    ]
    return TextTable(("error", "limit", "reached", "n", "met"), rows)


def speedups(comparison: LoopComparison) -> TextTable:
    """Speedups against plain decoding at the same load."""
    columns = ("variant", "load", "tokens per verify", "speedup", "±", "called", "predicted blind")
    lengths = {row.cell.name: row.tokens_per_verify for row in comparison.rows}
    rows = [
        [
            row.cell.variant,
            row.cell.load_words,
            f"{lengths[row.cell.name]:.2f}",
            _both(row.measured, row.predicted, 1.0),
            _share(row.noise),
            ("right" if row.called_right else "wrong") if row.must_be_called else _NONE,
            f"{row.blind:.2f}",
        ]
        for row in comparison.speedups
    ]
    return TextTable(columns, rows, words=2)


def turning_loads(comparison: LoopComparison) -> TextTable:
    """Clients at which a gain turns into a loss."""
    rows = [
        [name, *(_NONE if load is None else f"{load:.3g}" for load in pair)]
        for name, pair in comparison.turning_loads().items()
    ]
    return TextTable(("variant", "measured", "predicted"), rows)


def noise(comparison: LoopComparison) -> TextTable:
    """Standard errors of what was measured: no error far below them can be shown."""
    plain = [(row.noise, row.error("tpot_s")) for row in comparison.rows if row.cell.variant == PLAIN]
    groups = {
        "TPOT of plain decoding": plain,
        "speedup": [(row.noise, row.error) for row in comparison.speedups],
    }
    rows = []
    for name, pairs in groups.items():
        known = [(size, error) for size, error in pairs if size is not None]
        if known:
            sizes = [size for size, _ in known]
            beyond = sum(abs(error) > 2 * size for size, error in known)
            rows.append([name, str(len(known)), *map(_share, np.quantile(sizes, (0.5, 0.9))), str(beyond)])
    columns = ("figure", "n", "standard error, median", "P90", "predictions off by more than two of them")
    return TextTable(columns, rows)


def cells(comparison: LoopComparison) -> TextTable:
    """Means of every cell."""
    columns = ("variant", "load", "rounds × requests", "TPOT, ms", "±", "TTFT, ms", "ITL, ms", "tokens/s")
    rows = [
        [
            *_place(row),
            f"{max(len(row.tpot_rounds_s), 1)} × {row.cell.requests}",
            *_figures(row, TIMES[:1], 1e3),
            _share(row.noise),
            *_figures(row, TIMES[1:], 1e3),
            *_figures(row, ("throughput_tokens_per_s",), 1.0),
        ]
        for row in comparison.rows
    ]
    return TextTable(columns, rows, words=2)


def tails(comparison: LoopComparison) -> TextTable:
    """P99 of cells with enough requests."""
    columns = ("variant", "load", "TPOT P99, ms", "TTFT P99, ms", "ITL P99, ms")
    rows = [[*_place(row), *_figures(row, TAILS, 1e3)] for row in comparison.rows if row.cell.claims_p99]
    return TextTable(columns, rows, words=2)


def _place(row: CellRow) -> list[str]:
    return [row.cell.variant, row.cell.load_words]


def _figures(row: CellRow, names: Sequence[str], scale: float) -> list[str]:
    return [_both(getattr(row.measured, name), getattr(row.predicted, name), scale) for name in names]


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.1%}"


def _both(measured: float, predicted: float | None, scale: float) -> str:
    if predicted is None:
        return f"{measured * scale:.3g} → {_NONE}"
    error = math.expm1(math.log(predicted / measured))
    return f"{measured * scale:.3g} → {predicted * scale:.3g} ({error:+.1%})"


_TABLES = {
    "Targets": targets,
    "Speedup: measured → predicted, error": speedups,
    "Noise of what was measured": noise,
    "Load at which a gain turns into a loss": turning_loads,
    "Means: measured → predicted, error": cells,
    f"P99 of cells with at least {REQUESTS_FOR_P99} requests": tails,
}
