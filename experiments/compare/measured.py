"""The figures of two measured runs in one definition, and their ratios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibration.telemetry.reading import LATENCIES

ReadAnswer = Mapping[str, Any]
"""A document of `read`."""

STATISTICS = ("mean", "p50", "p99")


@dataclass(frozen=True)
class MeasuredPair:
    """A run without and one with speculation."""

    base: ReadAnswer
    spec: ReadAnswer

    def latency(self, name: str, statistic: str) -> tuple[float, float] | None:
        """A latency of both runs in seconds, None where one lacks it.

        `itl_token_s` of a chunk's latency is its mean per token: a chunk brings the tokens of a step.
        """
        pair = tuple(self._latency(reading, name, statistic) for reading in (self.base, self.spec))
        base, spec = pair
        return None if not base or not spec else (base, spec)

    @staticmethod
    def _latency(reading: ReadAnswer, name: str, statistic: str) -> float | None:
        value = reading[name].get(statistic)
        if value is None and name == "itl_token_s" and statistic == "mean":
            chunk, tokens = reading["itl_s"].get("mean"), tokens_per_chunk(reading)
            return None if chunk is None or tokens is None else float(chunk / tokens)
        return None if value is None else float(value)

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens that a request with speculation receives in a step, with a draft or without."""
        return tokens_per_chunk(self.spec)

    @property
    def step_ratio(self) -> float | None:
        """How many times as long a step takes with speculation: TPOT ratio × tokens per step."""
        tpot, tokens = self.latency("tpot_s", "mean"), self.tokens_per_step
        return None if tpot is None or tokens is None else tpot[1] / tpot[0] * tokens

    def speedup(self) -> dict[str, dict[str, float]]:
        """Metric → base, spec and speedup; above 1 is better with speculation."""
        speedups: dict[str, dict[str, float]] = {}
        throughputs = [run["throughput_tokens_per_s"] for run in (self.base, self.spec)]
        if all(throughputs):
            speedups["throughput"] = _ratio(throughputs[0], throughputs[1], throughputs[1] / throughputs[0])
        for name in LATENCIES:
            for statistic in STATISTICS:
                pair = self.latency(name, statistic)
                if pair is not None:
                    speedups[f"{name[:-2]}_{statistic}"] = _ratio(*pair, pair[0] / pair[1])
        return speedups


def _ratio(base: float, spec: float, speedup: float) -> dict[str, float]:
    return {"value": speedup, "base": base, "spec": spec}


def tokens_per_chunk(reading: ReadAnswer) -> float | None:
    """Tokens of a step: 1 without speculation, None where the source does not tell."""
    if reading["mean_acceptance_length"] is None:
        return 1.0
    if reading["tokens_per_step"] is not None:
        return float(reading["tokens_per_step"])
    coverage = reading["draft_coverage"]
    length = float(reading["mean_acceptance_length"]["value"])
    return 1 + (length - 1) * (1.0 if coverage is None else coverage)
