"""What the columns of a store mean: name, unit and meaning of each, told from its name.

A metric is `ARM.PATH`, as in the JSON of `simulate`. Its sampling interval and its band, where it has them,
are columns of their own: `ARM.PATH.ci95_low`, `.ci95_high`, `.band_low`, `.band_high`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CELL, SETTING, METRIC = "cell", "setting", "metric"
INTEGER, REAL, TEXT = "integer", "real", "text"
KINDS = (INTEGER, REAL, TEXT)
"""From narrow to wide: a column is as wide as the widest of its values."""

CI95, BAND = ("ci95_low", "ci95_high"), ("band_low", "band_high")
INTERVALS: Mapping[str, str] = {
    "ci95_low": "low end of its 95 % sampling interval",
    "ci95_high": "high end of its 95 % sampling interval",
    "band_low": "low end of its band: sampling and the error of the cost model",
    "band_high": "high end of its band: sampling and the error of the cost model",
}
"""Suffix of a metric → what that column holds."""

CELL_COLUMNS: Mapping[str, tuple[str, str, str]] = {
    "key": (TEXT, "", "hash of all that the cell's figures follow from; names the cell"),
    "status": (TEXT, "", "done, failed, or does-not-fit the memory of the GPUs"),
    "error": (TEXT, "", "why a cell is not done"),
    "version": (TEXT, "", "decodesim's version, and a digest of its source and data"),
    "seconds_s": (REAL, "s", "computing time of the cell, on whatever machine it ran"),
}
"""Column of every store → (kind, unit, meaning)."""

_MEANINGS: Mapping[str, str] = {
    "verdict": "whether speculation pays, loses, or neither is certain (band)",
    "throughput_speedup": "throughput ÷ that of plain decoding; above 1 is better",
    "tpot_mean_speedup": "mean time per output token of plain decoding ÷ this variant's; above 1 is better",
    "tpot_p99_speedup": "P99 of the time per output token of plain decoding ÷ this variant's; above 1 is "
    "better",
    "e2e_mean_speedup": "mean time to the last token of plain decoding ÷ this variant's; above 1 is better",
    "goodput_speedup": "requests that meet the SLO per second ÷ those of plain decoding; above 1 is better",
    "itl_mean_ratio": "mean gap between emissions ÷ that of plain decoding",
    "itl_p99_ratio": "P99 of the gaps between emissions ÷ that of plain decoding",
    "ttft_p99_ratio": "P99 of the time to the first token ÷ that of plain decoding",
    "break_even_alpha": "acceptance α at which the variant is as fast as plain decoding",
    "break_even_acceptance_length": "mean acceptance length at that α",
    "break_even_verdict": "the scenario's α against the band of the break-even",
    "scenario_alpha": "the α of the scenario itself",
    "plain_mean_batch": "requests that decode together without speculation",
    "speedup_at": "throughput ÷ that of plain decoding, if α were",
    "overhead": "longer step of the speculative variant ÷ plain step − 1, uniform steps",
    "geometric_alpha": "break-even α of independent drafts, from step times alone",
    "linear_acceptance_rate": "break-even share of drafts accepted, from step times alone",
    "throughput_tokens_per_s": "output tokens per second",
    "request_rate_per_s": "requests that end per second",
    "goodput_requests_per_s": "requests that meet the SLO per second",
    "slo_attainment": "share of requests that meet the SLO",
    "ttft_s": "time to the first token",
    "tpot_s": "time per output token of a request, first token left out",
    "itl_s": "gap between emissions, pooled over requests",
    "itl_token_s": "gap between emissions ÷ tokens of the emission",
    "worst_gap_s": "largest gap between emissions of a request",
    "e2e_s": "time to the last token",
    "queue_s": "wait for admission",
    "mean_acceptance_length": "1 + accepted ÷ rounds with a draft: what engine logs print",
    "draft_acceptance_rate": "accepted ÷ drafted",
    "acceptance_rate_at": "share of rounds with a draft in which this position is accepted",
    "conditional_acceptance": "acceptance at this position, given that all before are accepted",
    "draft_coverage": "share of decode rounds that drafted",
    "tokens_per_round": "tokens that leave per decode round, stops included",
    "mean_batch": "requests that decode at once, mean",
    "preemptions": "requests thrown out for memory",
    "kv_peak_fraction": "largest share of the KV blocks in use",
    "steps": "engine steps of a run",
    "step_s": "engine step: mean, and its mean parts",
    "wasted_rows": "rows computed for nothing",
    "timed_out_fraction": "share of requests whose client gave up",
    "rejected_fraction": "share of requests that could not be served",
    "saturated": "1 when the load is above capacity",
    "reason": "the verdict in a sentence",
    "break_even_note": "what the break-even leaves open",
}
"""First part of a metric's path → meaning, most telling first: the order of columns."""

_RANK = {name: place for place, name in enumerate(_MEANINGS)}

_STATISTICS = {"mean": "mean", "p50": "median", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9"}
_UNITS = (
    ("tokens_per_s", "tokens/s"),
    ("rate_per_s", "requests/s"),
    ("requests_per_s", "requests/s"),
    ("_per_s", "1/s"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("_tokens", "tokens"),
    ("acceptance_length", "tokens"),
    ("draft_length", "tokens"),
    ("tokens_per_round", "tokens"),
    ("concurrency", "clients"),
    ("requests", "requests"),
    ("mean_batch", "requests"),
    ("max_num_seqs", "requests"),
    ("preemptions", "requests"),
    ("tensor_parallel", "GPUs"),
    ("steps", "steps"),
    ("wasted_rows", "rows"),
)
"""End of a name → unit; what is not here is a plain number."""

_PARTS = "draft verify attention communication sampling host rejected padding ghost trimmed".split()
_OF_THE_SAME_UNIT = frozenset((*_STATISTICS, "low", "high", "median", "min", "max", *_PARTS))
"""Last parts of a name that leave the unit to the part before."""


@dataclass(frozen=True)
class Column:
    """A column of a store. `role`: CELL, SETTING or METRIC; `kind`: INTEGER, REAL or TEXT; `unit` is `1` for
    plain numbers and empty for text.
    """

    name: str
    role: str
    kind: str
    unit: str
    meaning: str

    @property
    def is_interval(self) -> bool:
        """Whether it is an end of another column's interval."""
        return self.role == METRIC and self.name.rpartition(".")[2] in INTERVALS


def described(name: str, role: str, kind: str) -> Column:
    """A column with the unit and the meaning that its name tells."""
    if role == CELL:
        kind, unit, meaning = CELL_COLUMNS[name]
        return Column(name, role, kind, unit, meaning)
    if role == SETTING:
        meaning = "seed of the cell's traffic and luck" if name == "seed" else f"the scenario's {name}"
        return Column(name, role, kind, _unit(name, kind), meaning)
    base, _, end = name.rpartition(".")
    if end in INTERVALS:
        of = described(base, METRIC, kind)
        return Column(name, role, kind, of.unit, f"{of.meaning}: {INTERVALS[end]}")
    variant, path = variant_and_path(name)
    return Column(name, role, kind, _unit(path, kind), f"{variant}: {_meaning(path)}")


def ordered(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Columns in the order that does not depend on which cell came first: of the cell, settings as the study
    has them, metrics from the most telling on, plain decoding before other variants, intervals after
    their value.
    """

    def place(column: Column) -> tuple[object, ...]:
        if column.role != METRIC:
            return ((CELL, SETTING).index(column.role), 0, False, "", "", 0)
        base, _, end = column.name.rpartition(".")
        part = list(INTERVALS).index(end) + 1 if end in INTERVALS else 0
        variant, path = variant_and_path(base if part else column.name)
        return (2, _RANK.get(_first(path), len(_RANK)), path, variant != "plain", variant, part)

    return tuple(sorted(columns, key=place))


def kind_of(value: object) -> str | None:
    """The kind that a value needs; None for nothing."""
    if isinstance(value, int):
        return INTEGER
    if isinstance(value, float):
        return REAL
    return None if value is None else TEXT


def variant_and_path(name: str) -> tuple[str, str]:
    """The variant of a metric, whose name may hold dots itself, and the rest."""
    parts = name.split(".")
    starts = (
        place for place in range(1, len(parts)) if parts[place] in _MEANINGS or parts[place] == "classes"
    )
    start = next(starts, 1)
    return ".".join(parts[:start]), ".".join(parts[start:])


def _first(path: str) -> str:
    """`tpot_s` of `tpot_s.p99` and of `classes.chat.tpot_s.p99`."""
    parts = path.split(".")
    return parts[2] if parts[0] == "classes" and len(parts) > 2 else parts[0]


def _meaning(path: str) -> str:
    first = _first(path)
    meaning = _MEANINGS.get(first, first.replace("_", " "))
    before, _, rest = path.partition(first)
    if before:
        meaning = f"{meaning}, requests of class {before.split('.')[1]}"
    detail = rest.lstrip(".")
    return f"{meaning}, {_STATISTICS.get(detail, detail)}" if detail else meaning


def _unit(path: str, kind: str) -> str:
    if kind == TEXT:
        return ""
    parts = path.split(".")
    while len(parts) > 1 and parts[-1] in _OF_THE_SAME_UNIT:
        parts.pop()
    return next((unit for end, unit in _UNITS if parts[-1].endswith(end)), "1")
