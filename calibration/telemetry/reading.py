"""What readers return: counts of draft rounds, latencies and load, each with the files it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from simulator.results import metrics
from simulator.results.catalogue import REPORTED_BY_CLIENTS

Severity = Literal["error", "warning", "info"]
SEVERITIES = ("error", "warning", "info")

FORMATS = {
    "vllm-bench": "vLLM benchmark",
    "sglang-response": "SGLang responses",
    "vllm-response": "vLLM responses",
    "aiperf": "AIPerf summary",
    "genai-perf": "genai-perf summary",
    "aiperf-records": "AIPerf records",
    "vllm-metrics": "vLLM metrics",
    "vllm-bench-table": "vLLM benchmark table",
    "vllm-log": "vLLM log",
    "sglang-log": "SGLang log",
    "sglang-metrics": "SGLang metrics",
    "sglang-bench": "SGLang benchmark",
    "sglang-bench-table": "SGLang benchmark table",
    "trtllm-report": "TensorRT-LLM report",
    "guidellm": "GuideLLM report",
    "aiperf-table": "AIPerf table",
    "guidellm-table": "GuideLLM table",
}
"""Format → what people call it; those that know acceptance most exactly come first."""

LATENCIES = (*REPORTED_BY_CLIENTS, "itl_token_s")
"""The latencies a reading may have: those of benchmark clients, and ITL per token, which SGLang's server
reports.
"""


def latency_name(key: str) -> str:
    """A latency as people write it: `ttft_s` → TTFT."""
    return {"itl_token_s": "ITL per token", "e2e_s": "end-to-end latency"}.get(key, key[:-2].upper())


@dataclass(frozen=True)
class Source:
    """A file, its format, and the engine and version that wrote it where the content shows them."""

    file: str
    format: str
    engine: str | None = None
    version: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The source as the answer lists it."""
        return {"file": self.file, "format": self.format, "engine": self.engine, "version": self.version}


@dataclass(frozen=True)
class Finding:
    """Something a person must know before using a number. `code` is stable, `text` is a sentence."""

    code: str
    severity: Severity
    text: str

    def to_json(self) -> dict[str, Any]:
        """The finding as the answer lists it."""
        return {"code": self.code, "severity": self.severity, "text": self.text}


@dataclass(frozen=True)
class Counts:
    """Draft rounds and what became of them; sums may be fractions where a log line was rounded.

    `rounds` drafted at least one token. `drafted` tokens: None where the source does not report them.
    `accepted_at[j]` is the number of rounds that accepted draft position j + 1; empty where unknown.
    """

    rounds: float
    accepted: float
    drafted: float | None = None
    accepted_at: tuple[float, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        """Both together. A part that one side does not know is not known of the sum."""
        if not self.rounds or not other.rounds:
            return other if not self.rounds else self
        drafted = None
        if self.drafted is not None and other.drafted is not None:
            drafted = self.drafted + other.drafted
        positions = max(len(self.accepted_at), len(other.accepted_at))
        accepted_at: tuple[float, ...] = ()
        if self.accepted_at and other.accepted_at:
            padded = [
                rates + (0.0,) * (positions - len(rates)) for rates in (self.accepted_at, other.accepted_at)
            ]
            accepted_at = tuple(map(sum, zip(*padded, strict=True)))
        return Counts(self.rounds + other.rounds, self.accepted + other.accepted, drafted, accepted_at)

    @property
    def mean_length(self) -> float:
        """Mean acceptance length, 1 + accepted ÷ rounds; NaN without a round."""
        return metrics.mean_acceptance_length(self.accepted, self.rounds)

    @property
    def rates_at(self) -> list[float]:
        """Share of rounds that accepted each draft position."""
        return [metrics.share(count, self.rounds) for count in self.accepted_at]


@dataclass(frozen=True)
class RoundBlock:
    """The rounds of one stretch of time or of one request: the unit of resampling.

    `running` is the number of running requests then, None where unknown.
    """

    counts: Counts
    running: float | None = None


@dataclass(frozen=True)
class Stated:
    """A figure as the tool itself printed it, and what the tool means by it."""

    name: str
    value: float
    definition: str

    def to_json(self) -> dict[str, Any]:
        """The figure as the answer lists it."""
        return {"name": self.name, "value": self.value, "definition": self.definition}


@dataclass(frozen=True)
class MeasuredAcceptance:
    """Acceptance of a reading.

    `counted`: the rounds of `total` were counted. Otherwise only their ratio means something: the source gave
    a mean, and `basis` says of what. `draft_length` is the most tokens drafted in a round, None where
    unknown. `in_order`: the blocks follow one another in time; otherwise each is a request.
    """

    total: Counts
    draft_length: int | None
    basis: str
    counted: bool = True
    blocks: tuple[RoundBlock, ...] = ()
    in_order: bool = True


@dataclass(frozen=True)
class Latency:
    """A latency: statistic (`mean`, `p50`, `p99`, `std`, …) → seconds.

    `count` is the number of samples, None where unknown. `within` holds the bucket in which a percentile lies
    where it was interpolated in a histogram.
    """

    values: Mapping[str, float]
    count: int | None = None
    within: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """`{"mean", "p50", …, "count"}`; statistics that are not known are left out."""
        document: dict[str, Any] = dict(self.values)
        if self.count is not None:
            document["count"] = self.count
        if self.within:
            document["within"] = {name: list(bounds) for name, bounds in self.within.items()}
        return document


@dataclass(frozen=True)
class Reading:
    """What one source, or several that belong together, reported.

    Readings of one format describe different requests, so their counts add; readings of different formats may
    describe the same requests, so theirs never do. `name` says which files, or which part. `decode_steps`
    counts the steps of all requests after their first token, with and without a draft; `decoded_tokens` the
    tokens of those steps. `load` is in SI units by name. `traits` are settings that findings ask for, such as
    `dataset`.
    """

    name: str
    sources: tuple[Source, ...]
    acceptance: MeasuredAcceptance | None = None
    stated: tuple[Stated, ...] = ()
    latencies: Mapping[str, Latency] = field(default_factory=dict)
    throughput_tokens_per_s: float | None = None
    decode_steps: float | None = None
    decoded_tokens: float | None = None
    load: Mapping[str, float] = field(default_factory=dict)
    traits: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def format(self) -> str:
        """The format of its sources."""
        return self.sources[0].format

    @property
    def label(self) -> str:
        """What people are shown of it."""
        return f"{FORMATS[self.format]} {self.name}"

    @property
    def draft_coverage(self) -> float | None:
        """Share of decode steps that had a draft; None where the steps are not known."""
        if self.acceptance is None or not self.acceptance.counted or not self.decode_steps:
            return None
        return min(metrics.draft_coverage(self.acceptance.total.rounds, self.decode_steps), 1.0)

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens that a request receives in a decode step, with a draft or without."""
        return self.decoded_tokens / self.decode_steps if self.decoded_tokens and self.decode_steps else None
