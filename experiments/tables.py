"""Typed answers as rows, and rows as arrays by name: what notebooks, pandas and plots take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simulator.results.estimate import Estimate
from simulator.units import NS_PER_S

if TYPE_CHECKING:
    from simulator.results.record import RunRecord

ComparisonRow = Mapping[str, Any]
Array = npt.NDArray[np.float64] | npt.NDArray[np.object_]

_TIMES = ("arrival_ns", "admitted_ns", "first_ns", "last_ns", "ended_ns")
_COUNTS = (
    "emitted_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "decode_rounds",
    "preemptions",
    "traffic_class",
)


def rows_of(answer: object) -> Iterator[ComparisonRow]:
    """The rows of an answer: of a sequence of records one each, else what the answer lists.

    Raises TypeError for what has no rows.
    """
    from calibration.validation.validate import Validation
    from experiments.capacity.answer import Plan
    from experiments.maps.speedup import SpeedupMap
    from experiments.maps.study_map import StudyMap
    from experiments.sensitivity.sobol import Sobol
    from experiments.sensitivity.tornado import Tornado
    from experiments.whatif import WhatIf
    from simulator.breakeven.answer import BreakEven
    from simulator.memory.report import MemoryReport
    from simulator.results.result import Result

    match answer:
        case Result():
            for name, variant in answer.variants.items():
                ratios = answer.comparison[name].ratios if name in answer.comparison else {}
                verdict = answer.comparison[name].verdict.outcome if ratios else None
                yield {"arm": name, **variant.estimates, **ratios, "verdict": verdict}
        case BreakEven():
            yield from ({**row.load, **_fields(row)} for row in answer.rows)
        case Validation():
            yield from map(_fields, answer.rows)
        case MemoryReport():
            yield from (
                {"arm": variant.variant, "kv_tokens": variant.kv_tokens, **variant.to_json()}
                for variant in answer.variants
            )
        case WhatIf():
            for outcome in answer.outcomes:
                for name, change in outcome.variants.items():
                    for path, figure in change.figures.items():
                        place = {"alternative": outcome.alternative.name, "arm": name, "figure": path}
                        before, after = figure.baseline, figure.alternative
                        yield {**place, "before": before, "after": after, "ratio": figure.ratio}
        case Tornado():
            yield from (
                {**_fields(bar.input), "at_low": bar.at_low, "at_high": bar.at_high} for bar in answer.bars
            )
        case Sobol():
            for index in answer.indices:
                orders = {"first_order": index.first_order, "total_order": index.total_order}
                yield {**_fields(index.input), **orders}
        case SpeedupMap():
            for alpha, speedups in zip(answer.alpha, answer.speedup, strict=True):
                for clients, speedup in zip(answer.concurrency, speedups, strict=True):
                    yield {"arm": answer.variant, "alpha": alpha, "concurrency": clients, "speedup": speedup}
        case StudyMap():
            for cell in answer.cells:
                at = dict(zip(answer.axes, cell.place, strict=True))
                names = {"arm": cell.variant, "draft_length": cell.draft_length, answer.load: cell.load}
                found = {"break_even_alpha": cell.needed, "verdict": cell.outcome}
                yield {
                    **at,
                    **names,
                    **found,
                    **{f"speedup_at_{a:g}": s for a, s in cell.speedups.items()},
                }
        case Plan():
            for way in answer.alternatives:
                yield {"arm": way.setting.name, "draft_length": way.setting.draft_length, **_fields(way)}
        case list() | tuple() if all(is_dataclass(record) for record in answer):
            yield from map(_fields, answer)
        case _:
            raise TypeError(f"{type(answer).__name__} has no rows to make columns of")


def columns_of(rows: Iterable[ComparisonRow]) -> dict[str, Array]:
    """Column → array (rows,): numbers as float64 with NaN for what is missing, anything else as objects."""
    flat = [dict(_flat(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return {name: _array([row.get(name) for row in flat]) for name in names}


def request_columns(records: Sequence[RunRecord]) -> dict[str, Array]:
    """Requests of several runs, one after the other: times in s (NaN: it never happened), counts, and whether
    they are measured. No columns without records."""
    parts: dict[str, list[npt.NDArray[np.float64]]] = {}
    for number, record in enumerate(records):
        count = len(record.arrival_ns)
        place = np.arange(count)
        measured = (place >= record.first_measured) & (place < record.end_measured)
        times = {
            f"{name.removesuffix('_ns')}_s": np.where(at >= 0, at / NS_PER_S, np.nan)
            for name, at in ((name, getattr(record, name)) for name in _TIMES)
        }
        gaps = {
            "ttft_s": times["first_s"] - times["arrival_s"],
            "e2e_s": times["last_s"] - times["arrival_s"],
            "worst_gap_s": record.max_itl_ns / NS_PER_S,
        }
        counts = {name: getattr(record, name).astype(np.float64) for name in _COUNTS}
        run = {"replication": np.full(count, float(number)), "measured": measured.astype(np.float64)}
        for name, values in {**run, **times, **gaps, **counts}.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a record by name."""
    return {entry.name: getattr(record, entry.name) for entry in fields(record)}


def _flat(row: ComparisonRow) -> Iterator[tuple[str, Any]]:
    """Name → plain value; estimates with intervals, mappings by dotted names; other records are left out."""
    for name, value in row.items():
        if isinstance(value, Estimate):
            yield name, value.value
            for suffix, interval in (("", value.ci95), ("_band", value.band)):
                low, high = interval or (math.nan, math.nan)
                yield f"{name}{suffix}_low", low
                yield f"{name}{suffix}_high", high
        elif isinstance(value, Mapping):
            yield from _flat({f"{name}.{key}": inner for key, inner in value.items()})
        elif value is None or isinstance(value, bool | int | float | str):
            yield name, value


def _array(values: Sequence[Any]) -> Array:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool | int | float) for value in known):
        return np.array([math.nan if value is None else float(value) for value in values])
    return np.array(values, dtype=object)
