"""What the catalogue declares of a metric (`Metric`), and of a comparison with plain decoding (`Ratio`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

QUANTILE: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""The percentiles that are reported."""

STATISTICS = ("mean", *QUANTILE)
"""What is reported of every latency."""

PART_TITLES = {name: name.upper().replace("P999", "P99.9") for name in QUANTILE}
"""Percentile → how people write it."""


class Kind(Enum):
    """What a metric is taken from, which decides when it exists."""

    REQUEST_LATENCY = "one sample per request"
    GAP_LATENCY = "one sample per emission or token, pooled over requests"
    ACCEPTANCE = "rounds of requests that draft"
    SLO = "requests held against the limits of an SLO"
    RUN = "the run as a whole"


class Detail(IntEnum):
    """How prominent a figure is: which tables show it. The JSON has all figures."""

    SUMMARY = 1
    """In every table, and what a study keeps by default."""
    TABLE = 2
    """In the tables of `simulate` and in what-ifs and plans."""
    PAGE = 3
    """On pages only."""


@dataclass(frozen=True)
class Metric:
    """One entry of the catalogue. `unit` is that of the JSON (SI; `1` for a plain number), `shown_unit` the
    one that people read, where it is another. `better`: +1 where more is better, −1 where less is, 0 where
    neither.
    """

    name: str
    """First part of its path."""
    title: str
    unit: str
    definition: str
    kind: Kind = Kind.RUN
    better: int = 0
    parts: tuple[str, ...] = ()
    """What the path goes on with; none for a single number."""
    shown: Mapping[str, Detail] = field(default_factory=dict)
    """Part (empty for a single number) → which tables show it."""
    shown_unit: str | None = None
    samples: str = ""
    """What a latency has a sample of: requests, gaps, tokens."""
    limits: tuple[str, ...] = ()
    """Words of an SLO limit that each request's own value is held to."""
    is_fraction: bool = False
    by_position: bool = False
    """Its path goes on with a draft position, from 1: a list in the JSON."""
    reported_by_clients: bool = False
    """Benchmark clients of serving engines report it, and an SLO may limit its statistics."""
    is_drawn: bool = False
    """Reports draw its distribution."""

    @property
    def scale(self) -> float:
        """What a value is multiplied by for people."""
        return {"ms": 1e3, "%": 100.0}.get(self.shown_unit or "", 1.0)

    @property
    def is_latency(self) -> bool:
        """Whether it has a mean and percentiles."""
        return self.kind in (Kind.REQUEST_LATENCY, Kind.GAP_LATENCY)

    @property
    def is_void_above_capacity(self) -> bool:
        """Whether it only tells how long a run was, once the load is above capacity."""
        return self.is_latency or self.kind is Kind.SLO

    @property
    def word(self) -> str:
        """Short name, as in `--metric` and `--slo`: `throughput`, `tpot`."""
        return self.name.removesuffix("_s") if self.is_latency else self.name.partition("_")[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths; none where they depend on the draft length."""
        if self.by_position:
            return ()
        return tuple(f"{self.name}.{part}" for part in self.parts) or (self.name,)

    @property
    def label_unit(self) -> str:
        """The unit next to its title; empty where the title says it."""
        unit = self.shown_unit or self.unit
        return "" if unit in ("1", self.title) else unit

    def title_of(self, part: str) -> str:
        """`TPOT P99`, `step draft`, `throughput` (part empty)."""
        return f"{self.title} {PART_TITLES.get(part, part)}".rstrip()


@dataclass(frozen=True)
class Ratio:
    """A comparison of a speculative variant with plain decoding. `inverted`: plain ÷ speculative, for a
    metric where less is better; otherwise speculative ÷ plain. A speedup above 1 is better for speculation.
    """

    metric: Metric
    part: str = ""
    inverted: bool = False

    @property
    def path(self) -> str:
        """The figure that is compared."""
        return f"{self.metric.name}.{self.part}".rstrip(".")

    @property
    def is_speedup(self) -> bool:
        """Whether more than 1 is better for speculation."""
        return self.inverted or self.metric.better > 0

    @property
    def word(self) -> str:
        """Word of `--metric`: `throughput`, `tpot_p99`."""
        return f"{self.metric.word}_{self.part}".rstrip("_")

    @property
    def name(self) -> str:
        """Key of the JSON: `throughput_speedup`, `itl_p99_ratio`."""
        return f"{self.word}_{'speedup' if self.is_speedup else 'ratio'}"

    @property
    def title(self) -> str:
        """`TPOT P99 speedup`, `ITL P99 ratio`."""
        return f"{self.metric.title_of(self.part)} {'speedup' if self.is_speedup else 'ratio'}"

    @property
    def definition(self) -> str:
        """What is divided by what, and which way is better."""
        sides = "plain ÷ speculative" if self.inverted else "speculative ÷ plain"
        better = "above" if self.is_speedup else "below"
        return f"{self.metric.title_of(self.part)}, {sides}; {better} 1 is better"
