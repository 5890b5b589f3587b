"""What made a run with speculation faster or slower, each with its evidence and what to change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.compare.measured import MeasuredPair, ReadAnswer
from simulator.units import format_seconds

ALIKE = 0.05
"""Loads of two runs that differ by less than this are alike."""
_FULL_KV = 0.95
_CLIENT_BURST = 0.01
"""A median gap below this part of the mean: the client received several chunks at once."""


@dataclass(frozen=True)
class Cause:
    """`effect` is the factor on the speed of a request's tokens: above 1 it helps. The effects of acceptance,
    coverage and step growth multiply to the speedup of TPOT. That of queueing is on the whole latency. It is
    None where the files do not show it.
    """

    code: str
    effect: float | None
    evidence: str
    fix: str

    def to_json(self) -> dict[str, Any]:
        """An entry of `causes`."""
        return {"code": self.code, "effect": self.effect, "evidence": self.evidence, "fix": self.fix}


def causes_of(pair: MeasuredPair, step_parts: Mapping[str, float] | None = None) -> list[Cause]:
    """The causes, the largest effect first; those whose effect is not known last.

    `step_parts`: part of a step → its simulated growth as a share of a plain step.
    """
    causes = [*_tokens(pair), *_step(pair, step_parts or {}), *_waiting(pair), *_memory(pair), *_load(pair)]
    return sorted(causes, key=lambda cause: -abs(math.log(cause.effect)) if cause.effect else 1.0)


def _tokens(pair: MeasuredPair) -> Iterator[Cause]:
    reading, tokens = pair.spec, pair.tokens_per_step
    if reading["mean_acceptance_length"] is None or tokens is None:
        yield Cause(
            "no-acceptance",
            None,
            "the files with speculation have no counts of drafts",
            "give the server's metrics before and after the run too",
        )
        return
    length = reading["mean_acceptance_length"]["value"]
    yield Cause(
        "acceptance",
        length,
        f"a step with a draft brings {length:.2f} tokens",
        "a better drafter, or other K",
    )
    if tokens < length:
        share = reading["draft_coverage"]
        text = f"{share:.0%} of the decode steps had a draft: a step brings {tokens:.2f} tokens"
        fix = "shorter lookups (prompt_lookup_min), or a drafter that always drafts"
        yield Cause("coverage", tokens / length, text, fix)


def _step(pair: MeasuredPair, parts: Mapping[str, float]) -> Iterator[Cause]:
    ratio, tpot, tokens = pair.step_ratio, pair.latency("tpot_s", "mean"), pair.tokens_per_step
    if ratio is None or tpot is None or tokens is None:
        return
    steps = f"{format_seconds(tpot[0])} to {format_seconds(tpot[1] * tokens)}"
    evidence = f"a step takes {ratio:.2f} × as long ({steps}: TPOT × tokens a step)"
    grown = {name: share for name, share in parts.items() if abs(share) >= 0.01}
    if grown:
        listed = sorted(grown.items(), key=lambda part: -part[1])
        evidence += (
            f"; simulated: {', '.join(f'{name} {share:+.0%}' for name, share in listed)} of a plain step"
        )
    if ratio > 1:
        fix = "fewer drafts at this load (K by batch), CUDA graphs for all batches: decodesim check"
    else:
        fix = "nothing, but shorter steps mean that the runs differ in more than speculation"
    yield Cause("step-growth", 1 / ratio, evidence, fix)


def _waiting(pair: MeasuredPair) -> Iterator[Cause]:
    ttft, e2e = pair.latency("ttft_s", "mean"), pair.latency("e2e_s", "mean")
    waiting = [run["load"].get("waiting_requests") or 0.0 for run in (pair.base, pair.spec)]
    if ttft is not None and e2e is not None and abs(ttft[1] - ttft[0]) > ALIKE * e2e[0]:
        word = "longer" if ttft[1] > ttft[0] else "shorter"
        yield Cause(
            "queueing",
            e2e[0] / (e2e[0] + ttft[1] - ttft[0]),
            f"waits are {word}: TTFT {format_seconds(ttft[1])} instead of {format_seconds(ttft[0])}",
            "limit the load or raise max_num_seqs" if ttft[1] > ttft[0] else "nothing",
        )
    elif waiting[1] > max(1.0, 2 * waiting[0]):
        text = f"{waiting[1]:.0f} requests wait on average, {waiting[0]:.0f} without speculation"
        yield Cause("queueing", None, text, "limit the load or raise max_num_seqs")


def _memory(pair: MeasuredPair) -> Iterator[Cause]:
    preempted = [run["load"].get("preemptions") or 0.0 for run in (pair.base, pair.spec)]
    usage = [run["load"].get("kv_cache_usage_max") or 0.0 for run in (pair.base, pair.spec)]
    if preempted[1] > preempted[0] or (usage[1] >= _FULL_KV and usage[0] < usage[1]):
        text = f"{preempted[1]:.0f} preemptions instead of {preempted[0]:.0f}, KV up to {usage[1]:.0%} full"
        yield Cause(
            "kv-loss", None, text, "a smaller drafter, FP8 KV, or a lower max_num_seqs: decodesim memory"
        )


def _load(pair: MeasuredPair) -> Iterator[Cause]:
    for key, what in (
        ("concurrency", "clients"),
        ("prompt_tokens_mean", "prompt tokens"),
        ("output_tokens_mean", "output tokens"),
    ):
        values = [run["load"].get(key) for run in (pair.base, pair.spec)]
        if all(values) and abs(values[1] / values[0] - 1) > ALIKE:
            text = f"{values[0]:.4g} {what} without and {values[1]:.4g} with speculation"
            yield Cause("load-differs", None, text, "repeat both runs with the same prompts and load")
    for name, run in (("without", pair.base), ("with", pair.spec)):
        if _is_burst(run):
            text = f"{name} speculation the median gap is below 1 % of the mean: chunks came several at once"
            fix = "read TPOT; run the client on another machine to read ITL percentiles"
            yield Cause("client-bursts", None, text, fix)


def _is_burst(run: ReadAnswer) -> bool:
    itl = run["itl_s"]
    return bool(itl.get("mean")) and itl.get("p50") is not None and itl["p50"] < _CLIENT_BURST * itl["mean"]
