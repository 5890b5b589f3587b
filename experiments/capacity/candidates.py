"""Candidates to serve the demand: variant, draft length and GPUs, with the replicas that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from experiments.capacity.demand import RATE, Demand
from experiments.capacity.load_search import Capacity, LoadSearch
from experiments.capacity.replica import Replica, ReplicaSetting
from experiments.token_cost import gpu_hours

if TYPE_CHECKING:
    from experiments.capacity.replica import ReplicaRun
    from experiments.capacity.slo import SloLimits
    from simulator.scenario import Scenario, Variant

RANKS = (1, 2, 4, 8)
"""Degrees of tensor parallelism that are tried, in addition to the scenario's own."""
LONGEST_DRAFT = 16
_LENGTHS_WITHOUT_GAIN = 2
"""The search over draft lengths ends after this many longer drafts without a gain."""


@dataclass(frozen=True)
class Candidate:
    """One way to serve the demand. Where it cannot, figures are None and `why_not` is the reason.

    `load` is the load of one replica at the peak. `tokens_per_s` is the output of all replicas at the mean
    demand.
    """

    setting: ReplicaSetting
    capacity: Capacity | None = None
    replicas: int | None = None
    load: float | None = None
    tokens_per_s: float | None = None
    tpot_s: float | None = None
    why_not: str | None = None

    @property
    def gpus(self) -> int | None:
        """GPUs of all replicas."""
        return None if self.replicas is None else self.replicas * self.setting.tensor_parallel

    @property
    def gpu_hours_per_million_tokens(self) -> float | None:
        """GPU-hours per million output tokens, for the replicas of the peak and the tokens of the mean
        demand.
        """
        if self.gpus is None or not self.tokens_per_s:
            return None
        return gpu_hours(self.gpus, self.tokens_per_s)

    @property
    def rank(self) -> tuple[float, float, float]:
        """Sort key: the cheapest first, then the shortest time per token."""
        cost = self.gpu_hours_per_million_tokens
        if cost is None or self.capacity is None or self.tpot_s is None:
            return (2, 0, 0) if self.capacity is None else (1, self.capacity.idle.ratio, 0)
        return (0, cost, self.tpot_s)


Report = Callable[[str], None]
"""Receives the name of each part of the work when it is done."""


class Candidates:
    """All candidates for one traffic. Each is evaluated once."""

    def __init__(
        self,
        scenario: Scenario,
        slo: SloLimits,
        demand: Demand,
        replications: int,
        band: float,
        report: Report,
    ) -> None:
        self.scenario, self.slo, self.demand = scenario, slo, demand
        self.replications, self.band, self.report = replications, band, report
        self._replicas: dict[str, Replica] = {}
        self._candidates: dict[str, Candidate] = {}
        self.tokens_per_request = _tokens_per_request(scenario, replications)

    def replica(self, setting: ReplicaSetting) -> Replica:
        """The replica with a setting; it keeps its runs."""
        return self._replicas.setdefault(repr(setting), Replica(self.scenario, setting, self.slo))

    def setting(self, variant: Variant | None, ranks: int, gpu: str | None = None) -> ReplicaSetting:
        """A variant on `ranks` GPUs. A drafter that was spread over all GPUs stays so."""
        if variant is not None and variant.draft_tensor_parallel not in (None, 1):
            variant = variant.model_copy(update={"draft_tensor_parallel": ranks})
        return ReplicaSetting(variant, ranks, gpu or self.scenario.hardware.gpu)

    def ranks(self, gpu: str | None = None) -> tuple[int, ...]:
        """Degrees of tensor parallelism that divide the model and at which plain decoding fits the memory."""
        from simulator.scenario.models import models_of

        target, _ = models_of(self.scenario, None)
        scenario_ranks = self.scenario.hardware.tensor_parallel
        tensor_parallels = sorted({*RANKS, scenario_ranks})
        fitting = [n for n in tensor_parallels if target.divides_over(n) and not self._shortage(n, gpu)]
        return tuple(fitting) or (scenario_ranks,)

    def _shortage(self, ranks: int, gpu: str | None) -> str | None:
        return self.replica(self.setting(None, ranks, gpu)).shortage

    def candidate(self, setting: ReplicaSetting, guess: float | None = None) -> Candidate:
        """The candidate with a setting. `guess` is the load at which the search starts."""
        key = repr(setting)
        if key not in self._candidates:
            self._candidates[key] = self._evaluate(setting, guess)
            self.report(setting_label(setting))
        return self._candidates[key]

    def _evaluate(self, setting: ReplicaSetting, guess: float | None) -> Candidate:
        replica = self.replica(setting)
        if replica.shortage:
            return Candidate(setting, why_not=replica.shortage)
        search = LoadSearch(replica, self.demand.kind, self.replications, band=0.0)
        return self._with_replicas(Candidate(setting, search.capacity(guess)))

    def _with_replicas(self, candidate: Candidate) -> Candidate:
        """The candidate with the number of replicas that its capacity requires."""
        capacity = candidate.capacity
        assert capacity is not None
        if capacity.amount is None:
            limit, value, ratio = capacity.idle
            excess = f" ({ratio - 1:+.0%})" if ratio > 1 else ", and another limit is missed at every load"
            reason = f"{limit.label} is {limit.value_text(value)} even with one request at a time{excess}"
            return replace(candidate, why_not=reason)
        count = self.demand.safe_replicas(capacity.amount)
        load = self.demand.replica_load(count)
        runs = self.runs_at(candidate.setting, load, capacity.requests)
        tpots = [run.figures["tpot_s.mean"] for run in runs]
        return replace(
            candidate,
            replicas=count,
            load=load,
            tokens_per_s=self.tokens_per_s(load, [run.figures["throughput_tokens_per_s"] for run in runs]),
            tpot_s=sum(tpots) / len(tpots),
        )

    def runs_at(
        self, setting: ReplicaSetting, load: float, requests: int, scale: float = 1.0
    ) -> list[ReplicaRun]:
        """The replications of one replica at a load. `scale` multiplies the time of its decodes."""
        replica, kind = self.replica(setting), self.demand.kind
        return [
            replica.run_at(kind, load, i, requests=requests, step_scale=scale, decodes_only=True)
            for i in range(self.replications)
        ]

    def tokens_per_s(self, load: float, replica_tokens_per_s: Sequence[float]) -> float:
        """Output tokens per second of all replicas at the mean demand.

        At a rate, this is what the requests ask for. With users, it follows from `replica_tokens_per_s`, the
        throughput of one replica that serves `load` of them, by replication.
        """
        if self.demand.kind == RATE:
            return self.demand.mean * self.tokens_per_request
        return self.demand.mean / load * sum(replica_tokens_per_s) / len(replica_tokens_per_s)

    def draft_lengths(self, variant: Variant, ranks: int) -> Iterator[Candidate]:
        """The variant with its own table or policy, and with K = 1, 2, … until longer drafts gain nothing."""
        setting = self.setting(variant, ranks)
        if not variant.has_fixed_length:
            yield self.candidate(setting)
        if variant.acceptance.model == "fixed":  # a measured rate holds for its own draft length only
            yield self.candidate(setting)
            return
        best: Candidate | None = None
        highest_load, lengths_without_gain = 0.0, 0
        for draft_length in range(1, LONGEST_DRAFT + 1):
            candidate = self.candidate(setting.with_draft_length(draft_length), highest_load or None)
            yield candidate
            if candidate.capacity is None:
                return
            amount = candidate.capacity.amount
            gains = (
                best is None
                or candidate.rank < best.rank
                or (amount is not None and amount.value > highest_load)
            )
            best = candidate if best is None or candidate.rank < best.rank else best
            highest_load = max(highest_load, 0.0 if amount is None else amount.value)
            lengths_without_gain = 0 if gains else lengths_without_gain + 1
            if lengths_without_gain == _LENGTHS_WITHOUT_GAIN:
                return


def setting_label(setting: ReplicaSetting, ranks: bool = True) -> str:
    """`eagle3-k3, K 4, TP 2`."""
    gpus = f", TP {setting.tensor_parallel}" if ranks else ""
    if setting.variant is None:
        return f"plain{gpus}"
    length = setting.draft_length
    length_text = f"K {length}" if isinstance(length, int) else "its own draft lengths"
    return f"{setting.name}, {length_text}{gpus}"


def _tokens_per_request(scenario: Scenario, replications: int) -> float:
    """Mean output tokens per request, from the lengths that the runs draw."""
    from simulator.runs.replications import make_traffic

    means = [float(make_traffic(scenario, i).output_tokens.mean()) for i in range(replications)]
    return sum(means) / len(means)
