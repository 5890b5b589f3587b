"""Ways to serve the demand: a variant with its draft length on so many GPUs, and the replicas that it
takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from experiments.capacity.demand import RATE, Demand
from experiments.capacity.load_search import Capacity, LoadSearch
from experiments.capacity.replica import Replica, Setting

if TYPE_CHECKING:
    from experiments.capacity.replica import Seen
    from experiments.capacity.slo import Slo
    from simulator.scenario import Scenario, Variant

RANKS = (1, 2, 4, 8)
"""Tensor parallelism that is looked at, beside the scenario's own."""
LONGEST_DRAFT = 16
_PATIENCE = 2
"""So many longer drafts without any gain end the search over draft lengths."""
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Candidate:
    """One way to serve the demand. Figures are None where it cannot: `why_not` says why.

    `load` is what one replica gets at the peak, `tokens_per_s` what all of them emit at the mean demand.
    """

    setting: Setting
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
        """GPU-hours for a million output tokens: replicas for the peak, tokens of the mean demand."""
        if self.gpus is None or not self.tokens_per_s:
            return None
        return gpu_hours(self.gpus, self.tokens_per_s)

    @property
    def rank(self) -> tuple[float, float, float]:
        """The smaller the better: cheapest first, then the shortest time per token."""
        cost = self.gpu_hours_per_million_tokens
        if cost is None or self.capacity is None or self.tpot_s is None:
            return (2, 0, 0) if self.capacity is None else (1, self.capacity.idle.ratio, 0)
        return (0, cost, self.tpot_s)


Tell = Callable[[str], None]
"""Told what was done after each part."""


class Candidates:
    """All candidates of one traffic, each tried once."""

    def __init__(
        self, scenario: Scenario, slo: Slo, demand: Demand, replications: int, band: float, tell: Tell
    ) -> None:
        self.scenario, self.slo, self.demand = scenario, slo, demand
        self.replications, self.band, self.tell = replications, band, tell
        self._replicas: dict[str, Replica] = {}
        self._tried: dict[str, Candidate] = {}
        self.tokens_per_request = _tokens_per_request(scenario, replications)

    def replica(self, setting: Setting) -> Replica:
        """The runs of a setting."""
        return self._replicas.setdefault(repr(setting), Replica(self.scenario, setting, self.slo))

    def setting(self, variant: Variant | None, ranks: int, gpu: str | None = None) -> Setting:
        """An variant on so many GPUs; a drafter that was spread over all of them still is."""
        if variant is not None and variant.draft_tensor_parallel not in (None, 1):
            variant = variant.model_copy(update={"draft_tensor_parallel": ranks})
        return Setting(variant, ranks, gpu or self.scenario.hardware.gpu)

    def ranks(self, gpu: str | None = None) -> tuple[int, ...]:
        """The tensor parallelism that the model can be cut over and on which plain decoding fits."""
        from simulator.scenario.models import models_of

        target, _ = models_of(self.scenario, None)
        own = self.scenario.hardware.tensor_parallel
        asked = sorted({*RANKS, own})
        fitting = [n for n in asked if target.divides_over(n) and not self._shortage(n, gpu)]
        return tuple(fitting) or (own,)

    def _shortage(self, ranks: int, gpu: str | None) -> str | None:
        return self.replica(self.setting(None, ranks, gpu)).shortage

    def tried(self, setting: Setting, guess: float | None = None) -> Candidate:
        """One candidate."""
        key = repr(setting)
        if key not in self._tried:
            self._tried[key] = self._try(setting, guess)
            self.tell(label(setting))
        return self._tried[key]

    def _try(self, setting: Setting, guess: float | None) -> Candidate:
        replica = self.replica(setting)
        if replica.shortage:
            return Candidate(setting, why_not=replica.shortage)
        search = LoadSearch(replica, self.demand.kind, self.replications, band=0.0)
        return self._deployed(Candidate(setting, search.capacity(guess)))

    def _deployed(self, candidate: Candidate) -> Candidate:
        """The candidate with the replicas that its capacity needs."""
        capacity = candidate.capacity
        assert capacity is not None
        if capacity.amount is None:
            limit, value, ratio = capacity.idle
            beyond = f" ({ratio - 1:+.0%})" if ratio > 1 else ", but others wait too long at any load"
            why = f"{limit.label} is {limit.shown(value)} even with one request at a time{beyond}"
            return replace(candidate, why_not=why)
        count = self.demand.safe_replicas(capacity.amount)
        load = self.demand.of_one(count)
        runs = self.runs_at(candidate.setting, load, capacity.requests)
        tpots = [run.figures["tpot_s.mean"] for run in runs]
        return replace(
            candidate,
            replicas=count,
            load=load,
            tokens_per_s=self.tokens_per_s(load, [run.figures["throughput_tokens_per_s"] for run in runs]),
            tpot_s=sum(tpots) / len(tpots),
        )

    def runs_at(self, setting: Setting, load: float, requests: int, scale: float = 1.0) -> list[Seen]:
        """The replications at a load of one replica; `scale` makes its decodes longer."""
        replica, kind = self.replica(setting), self.demand.kind
        return [
            replica.seen(kind, load, i, requests=requests, step_scale=scale, decodes_only=True)
            for i in range(self.replications)
        ]

    def tokens_per_s(self, load: float, of_one: Sequence[float]) -> float:
        """Output tokens per second of all replicas at the mean demand: at a rate as many as are asked for,
        else as many as users get where `of_one` replica gives so many to `load` of them.
        """
        if self.demand.kind == RATE:
            return self.demand.mean * self.tokens_per_request
        return self.demand.mean / load * sum(of_one) / len(of_one)

    def draft_lengths(self, variant: Variant, ranks: int) -> Iterator[Candidate]:
        """The variant with K = 1, 2, … until longer drafts gain nothing, and with its own table or policy."""
        setting = self.setting(variant, ranks)
        if not isinstance(variant.draft_length, int):
            yield self.tried(setting)
        if variant.acceptance.model == "fixed":  # a rate at one draft length says nothing of another
            yield self.tried(setting)
            return
        best: Candidate | None = None
        most, without_gain = 0.0, 0
        for draft_length in range(1, LONGEST_DRAFT + 1):
            candidate = self.tried(setting.with_draft_length(draft_length), most or None)
            yield candidate
            if candidate.capacity is None:
                return
            amount = candidate.capacity.amount
            gains = best is None or candidate.rank < best.rank or (amount is not None and amount.value > most)
            best = candidate if best is None or candidate.rank < best.rank else best
            most = max(most, 0.0 if amount is None else amount.value)
            without_gain = 0 if gains else without_gain + 1
            if without_gain == _PATIENCE:
                return


def gpu_hours(gpus: float, tokens_per_s: float) -> float:
    """GPU-hours for a million tokens."""
    return gpus / (tokens_per_s * SECONDS_PER_HOUR) * 1e6


def label(setting: Setting, ranks: bool = True) -> str:
    """`eagle3-k3, K 4, TP 2`."""
    gpus = f", TP {setting.tensor_parallel}" if ranks else ""
    if setting.variant is None:
        return f"plain{gpus}"
    length = setting.draft_length
    shown = f"K {length}" if isinstance(length, int) else "its own draft lengths"
    return f"{setting.name}, {shown}{gpus}"


def _tokens_per_request(scenario: Scenario, replications: int) -> float:
    """Mean output tokens of a request, of the lengths that the runs have."""
    from simulator.runs.replications import make_traffic

    means = [float(make_traffic(scenario, i).output_tokens.mean()) for i in range(replications)]
    return sum(means) / len(means)
