"""The stages of a rollout: baseline, canary, ramp, fleet; or the measurement that has to come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibration.launch.names import served_name
from experiments.capacity.decision import MEASURE_FIRST, PLAIN_VERDICTS
from experiments.capacity.demand import RATE
from experiments.rollout.figures import AcceptanceGate, LatencyGuard, requests_for
from experiments.rollout.queries import QUERIES
from simulator.units import format_number, format_seconds

if TYPE_CHECKING:
    from experiments.capacity.answer import CapacityPlan
    from simulator.scenario import Scenario

PROMPTS = "prompts.jsonl"
"""The file of prompts in the commands: a sample of the user's own traffic."""


@dataclass(frozen=True)
class RolloutGate:
    """A condition to go on. `query`: PromQL, None where the engine has no such metric."""

    name: str
    threshold: str
    why: str
    query: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"name": self.name, "threshold": self.threshold, "why": self.why, "query": self.query}


@dataclass(frozen=True)
class RolloutStage:
    """One stage: which share of traffic, what to run, what must hold to go on."""

    name: str
    share: str
    purpose: str
    commands: tuple[str, ...]
    gates: tuple[RolloutGate, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "share": self.share,
            "purpose": self.purpose,
            "commands": list(self.commands),
            "gates": [gate.to_json() for gate in self.gates],
        }


@dataclass(frozen=True)
class RolloutFacts:
    """What stages are made from."""

    scenario: Scenario
    plan: CapacityPlan
    engine: str
    output_tokens: float
    acceptance: AcceptanceGate | None
    guards: Sequence[LatencyGuard]

    @property
    def requests(self) -> int:
        """Requests of a benchmark run."""
        return 1000 if self.acceptance is None else requests_for(self.acceptance, self.output_tokens)


def stages_of(facts: RolloutFacts) -> tuple[RolloutStage, ...]:
    """The stages; none where speculation stays off."""
    verdict = facts.plan.decision.verdict
    if verdict in PLAIN_VERDICTS:
        return ()
    if verdict == MEASURE_FIRST:
        return (_measurement(facts),)
    return (_baseline(facts), _canary(facts), _ramp(facts), _fleet(facts))


def _measurement(facts: RolloutFacts) -> RolloutStage:
    return RolloutStage(
        "measure",
        "a test server",
        "The plan cannot decide. Measure the acceptance of your prompts, then plan again with it.",
        (
            *_scrapes("before"),
            bench_command(facts, "speculative"),
            *_scrapes("after"),
            "decodesim read before.metrics.txt after.metrics.txt -o acceptance.json",
            "decodesim gate before.metrics.txt after.metrics.txt --scenario scenario.yaml",
        ),
        _acceptance_gates(facts),
    )


def _baseline(facts: RolloutFacts) -> RolloutStage:
    return RolloutStage(
        "baseline",
        "a test server, without speculation",
        "What plain decoding does on your prompts. All later stages are compared with it.",
        (bench_command(facts, "baseline"), "decodesim read baseline.json"),
        (),
    )


def _canary(facts: RolloutFacts) -> RolloutStage:
    return RolloutStage(
        "canary",
        "one replica with speculation",
        "Acceptance and tails on real traffic, with one replica at risk.",
        (
            *_scrapes("before"),
            bench_command(facts, "canary"),
            *_scrapes("after"),
            "decodesim gate before.metrics.txt after.metrics.txt --scenario scenario.yaml",
            "decodesim compare baseline.json canary.json --scenario scenario.yaml",
        ),
        (*_acceptance_gates(facts), *_latency_gates(facts)),
    )


def _ramp(facts: RolloutFacts) -> RolloutStage:
    return RolloutStage(
        "ramp",
        "25 %, then 50 % of the replicas, a peak hour each",
        "The same gates under the load of a peak, when queues form and batches are large.",
        (),
        (*_acceptance_gates(facts), *_latency_gates(facts), *_load_gates(facts)),
    )


def _fleet(facts: RolloutFacts) -> RolloutStage:
    return RolloutStage(
        "fleet",
        "all replicas",
        "The alerts stay. Measure again after a new model, drafter, engine version, or kind of prompt.",
        (),
        (*_acceptance_gates(facts), *_latency_gates(facts), *_load_gates(facts)),
    )


def _acceptance_gates(facts: RolloutFacts) -> tuple[RolloutGate, ...]:
    gate = facts.acceptance
    if gate is None:
        return ()
    return (
        RolloutGate(
            "mean acceptance length",
            f"above {gate.high:.2f}",
            f"the break-even at this load is {gate.low:.2f} to {gate.high:.2f} at K = {gate.draft_length}; "
            f"the scenario expects {gate.expected:.2f}; {gate.rounds:,} draft rounds tell them apart",
            QUERIES[facts.engine].acceptance_length,
        ),
    )


def _latency_gates(facts: RolloutFacts) -> tuple[RolloutGate, ...]:
    gates = []
    for guard in facts.guards:
        before = "" if guard.plain_s is None else f", {format_seconds(guard.plain_s)} without speculation"
        basis = "the SLO" if guard.from_slo else "10 % above the simulation"
        gates.append(
            RolloutGate(
                guard.name,
                f"at most {format_seconds(guard.limit_s)}",
                f"{basis}; simulated at the peak: {format_seconds(guard.speculative_s)}{before}",
                QUERIES[facts.engine].latency.get(guard.path),
            )
        )
    return tuple(gates)


def _load_gates(facts: RolloutFacts) -> tuple[RolloutGate, ...]:
    below = facts.plan.decision.below
    if below is None:
        return ()
    unit = facts.plan.demand.unit
    text = "the plan enables speculation below this load: turn it off above, or set the K schedule"
    return (RolloutGate("load of all replicas", f"below {format_number(below)} {unit}", text),)


def _scrapes(when: str) -> tuple[str, ...]:
    return (f"curl -s http://SERVER:8000/metrics > {when}.metrics.txt",)


def bench_command(facts: RolloutFacts, name: str) -> str:
    """The benchmark of one replica at its share of the peak, by the engine's own client."""
    deployment = facts.plan.speculative or facts.plan.plain
    load = deployment.load if deployment is not None else facts.plan.demand.peak
    model = served_name(facts.scenario.target.model)
    is_rate = facts.plan.demand.kind == RATE
    pace = f"--request-rate {load:.3g}" if is_rate else f"--max-concurrency {max(1, round(load))}"
    if facts.engine == "sglang":
        return (
            f"python -m sglang.bench_serving --backend sglang --host SERVER --port 8000 --model {model} "
            f"--dataset-name custom --dataset-path {PROMPTS} --num-prompts {facts.requests} {pace} "
            f"--output-file {name}.jsonl --output-details"
        )
    return (
        f"vllm bench serve --host SERVER --port 8000 --model {model} --dataset-name custom "
        f"--dataset-path {PROMPTS} --num-prompts {facts.requests} {pace} "
        "--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,95,99 "
        f"--save-result --save-detailed --result-filename {name}.json"
    )


def alert_rules(facts: RolloutFacts) -> list[Mapping[str, Any]]:
    """Prometheus alert rules: what ends the rollout."""
    rules: list[Mapping[str, Any]] = []
    queries = QUERIES[facts.engine]
    gate = facts.acceptance
    if gate is not None and queries.acceptance_length is not None:
        expression = f"{queries.acceptance_length} < {gate.low:.3f}"
        rules.append(_rule("SpeculationAcceptanceLow", expression, "acceptance is below the break-even"))
    for guard in facts.guards:
        if guard.path in queries.latency:
            expression = f"{queries.latency[guard.path]} > {guard.limit_s:.4g}"
            name = f"Speculation{guard.name.replace(' ', '').replace('P99', 'P99')}High"
            rules.append(_rule(name, expression, f"{guard.name} is above its limit"))
    return rules


def _rule(name: str, expression: str, summary: str) -> Mapping[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": "10m",
        "labels": {"severity": "page"},
        "annotations": {"summary": f"{summary}: turn speculation off"},
    }
