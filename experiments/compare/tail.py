"""The P99 trap: the mean per token falls and a P99 rises. What the tail is made of, and what mends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.compare.measured import MeasuredPair
from simulator.results.catalogue import COMPARED_BY_PATH, GAP_LATENCIES

if TYPE_CHECKING:
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario, Variant

PER_TOKEN = ("tpot_s", *GAP_LATENCIES)
"""Latencies of single tokens or emissions."""
CHANGED = 0.02
"""A mean that falls and a P99 that rises by less than this is no trap."""
_NEAR = 1.15
_LONG_TAIL = 3.0
_WIDER = 1.1
_SMALLEST_BUDGET = 512


@dataclass(frozen=True)
class TailCause:
    """One cause of a longer tail. `settings` are the change of the scenario that mends it, by `--set`.

    `predicted`: figure → its simulated ratio after ÷ before under that change.
    """

    code: str
    evidence: str
    mitigation: str
    settings: tuple[str, ...] = ()
    predicted: dict[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """An entry of `tail`."""
        return {
            "code": self.code,
            "evidence": self.evidence,
            "mitigation": self.mitigation,
            "settings": list(self.settings),
            "predicted": self.predicted,
        }


def trapped(pair: MeasuredPair) -> list[str]:
    """The latencies whose mean falls while a P99 rises; empty where there is no trap."""
    falls = [
        name
        for name in PER_TOKEN
        if (mean := pair.latency(name, "mean")) is not None and mean[1] < mean[0] * (1 - CHANGED)
    ]
    if not falls:
        return []
    return [
        name
        for name in PER_TOKEN
        if (p99 := pair.latency(name, "p99")) is not None and p99[1] > p99[0] * (1 + CHANGED)
    ]


def tail_causes(pair: MeasuredPair, scenario: Scenario | None, variant: Variant | None) -> list[TailCause]:
    """What the longer tail is made of; empty where there is no trap."""
    rising = trapped(pair)
    return [*_causes(pair, rising, scenario, variant)] if rising else []


def _causes(
    pair: MeasuredPair, rising: list[str], scenario: Scenario | None, variant: Variant | None
) -> Iterator[TailCause]:
    tokens, ratio = pair.tokens_per_step or 1.0, pair.step_ratio
    shorter = _shorter_drafts(variant)
    gaps, medians = pair.latency("itl_s", "p99"), pair.latency("itl_s", "p50")
    if "itl_s" in rising and gaps is not None and ratio is not None and gaps[1] <= gaps[0] * ratio * _NEAR:
        text = (
            f"a gap is a step, which is {ratio:.2f} × as long and brings {tokens:.2f} tokens: the P99 gap is "
            f"{gaps[1] / gaps[0]:.2f} × as long, per token it is not"
        )
        yield TailCause("bunches", text, "smooth the stream in the client, or fewer drafts", shorter)
    if gaps is not None and medians is not None and gaps[1] > _LONG_TAIL * medians[1]:
        text = f"the P99 gap is {gaps[1] / medians[1]:.1f} × the median: drafts run next to prompts"
        yield TailCause("prefill-chunks", text, "fewer tokens in a step", _smaller_budget(scenario))
    spread = [pair.latency("tpot_s", statistic) for statistic in ("p50", "p99")]
    if "tpot_s" in rising and spread[0] is not None and spread[1] is not None:
        widths = [spread[1][side] / spread[0][side] for side in (0, 1)]
        if widths[1] > widths[0] * _WIDER:
            text = (
                f"P99 ÷ median of TPOT grows from {widths[0]:.2f} to {widths[1]:.2f}: requests whose drafts "
                "fail, or that have none, pay the longer steps"
            )
            yield TailCause(
                "requests-without-gain", text, "fewer drafts, or a pool without speculation", shorter
            )
    preempted = [run["load"].get("preemptions") or 0.0 for run in (pair.base, pair.spec)]
    if preempted[1] > preempted[0]:
        text = f"{preempted[1]:.0f} preemptions instead of {preempted[0]:.0f}: the drafter takes KV memory"
        yield TailCause("kv-loss", text, "fewer running requests", _fewer_requests(scenario))
    ttft = pair.latency("ttft_s", "p99")
    alone = pair.spec["load"].get("concurrency") == 1
    if ttft is not None and ttft[1] > ttft[0] * _WIDER and not alone:
        text = f"TTFT P99 is {ttft[1] / ttft[0]:.2f} × as long: requests wait for longer steps"
        yield TailCause(
            "queueing", text, "a lower load, or fewer tokens in a step", _smaller_budget(scenario)
        )


def _shorter_drafts(variant: Variant | None) -> tuple[str, ...]:
    if variant is None or variant.tree_plan is not None or variant.chain_length < 2:
        return ()
    return (f"speculation.{variant.name}.draft_length={variant.chain_length // 2}",)


def _smaller_budget(scenario: Scenario | None) -> tuple[str, ...]:
    if scenario is None:
        return ()
    from simulator.scenario import engine_preset

    tokens = engine_preset(scenario)[0].max_num_batched_tokens // 4
    return (f"engine.max_num_batched_tokens={tokens}",) if tokens >= _SMALLEST_BUDGET else ()


def _fewer_requests(scenario: Scenario | None) -> tuple[str, ...]:
    if scenario is None or scenario.workload.arrivals.kind != "closed":
        return ()
    return (f"engine.max_num_seqs={max(scenario.workload.arrivals.concurrency * 3 // 4, 1)}",)


def predicted(
    scenario: Scenario, variant: Variant, causes: list[TailCause], progress: Progress | None = None
) -> list[TailCause]:
    """The causes with the simulated effect of their mitigation on the variant."""
    from dataclasses import replace

    from experiments.alternatives import alternatives_of
    from experiments.whatif import what_if

    changes = list(dict.fromkeys(cause.settings for cause in causes if cause.settings))
    if not changes:
        return causes
    answer = what_if(scenario, alternatives_of(changes), progress)
    effects: dict[tuple[str, ...], dict[str, float | None]] = {}
    for settings, outcome in zip(changes, answer.outcomes, strict=True):
        change = outcome.variants.get(variant.name)
        effects[settings] = {
            path: ratio.value if change and (ratio := change.figures[path].ratio) is not None else None
            for path in COMPARED_BY_PATH
            if change is None or path in change.figures
        }
    return [replace(cause, predicted=effects.get(cause.settings, {})) for cause in causes]
