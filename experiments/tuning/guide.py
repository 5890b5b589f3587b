"""`tune(scenario, …)`: which drafter, how many drafts by load, and when to decode plainly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibration.launch.registry import artefacts, engine_key
from experiments.capacity.decision import DO_NOT, ENABLE, ENABLE_BELOW, MEASURE_FIRST
from experiments.tuning.loads import LOADS, LoadRow, load_rows
from experiments.tuning.temperature import BEST, DRAWN, hottest, temperature_rows
from simulator.errors import InputError, Problem
from simulator.results.verdict import LOSES, PAYS

if TYPE_CHECKING:
    from calibration.launch.launch import Artefact
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario, Variant

SCHEMA = "decodesim/tune-1"


@dataclass(frozen=True)
class TunedVariant:
    """A variant at all loads. `basis`: how its acceptance is known, as in `simulate`."""

    variant: Variant
    rows: tuple[LoadRow, ...]
    basis: str

    def at(self, clients: int) -> LoadRow:
        """The row of a load."""
        return next(row for row in self.rows if row.clients == clients)

    @property
    def pays_up_to(self) -> int | None:
        """The largest load up to which the variant pays at every load looked at; None where it never does."""
        last = None
        for row in self.rows:
            if row.row.verdict != PAYS:
                break
            last = row.clients
        return last

    def schedule(self) -> list[list[int | None]] | None:
        """Draft lengths by requests in the step, `[first, last, K]`; None where none can be told."""
        lengths = [(row.clients, row.best_length) for row in self.rows]
        if any(length is None for _, length in lengths):
            return None
        starts: list[tuple[int, int]] = []
        for clients, length in lengths:
            assert length is not None
            if not starts or starts[-1][1] != length:
                starts.append((1 if not starts else clients, length))
        ends = [*(first - 1 for first, _ in starts[1:]), None]
        return [[first, last, length] for (first, length), last in zip(starts, ends, strict=True)]


@dataclass(frozen=True)
class TuningGuide:
    """The answer. `best` is the variant with the largest speedup at the scenario's load."""

    scenario: Scenario
    clients: int
    variants: tuple[TunedVariant, ...]
    best: TunedVariant
    verdict: str
    reason: str

    @property
    def engine(self) -> Mapping[str, Artefact]:
        """Engine → what starts it: the best variant with its schedule, or plain decoding."""
        if self.verdict == DO_NOT:
            return artefacts(self.scenario, None)
        rows, variant = self.best.schedule(), self.best.variant
        if rows is not None and len(rows) > 1 and variant.tree is None:
            variant = variant.model_copy(update={"draft_length": tuple(map(tuple, rows))})
        elif rows is not None and isinstance(rows[0][2], int) and rows[0][2] > 0:
            variant = variant.model_copy(update={"draft_length": rows[0][2]})
        return artefacts(self.scenario, variant)

    def temperature_limits(self) -> dict[str, float | None]:
        """The temperatures up to which the best variant's acceptance stays above the break-even here."""
        row = self.best.at(self.clients).row
        if row.scenario_alpha is None or row.simulated_alpha is None:
            return {}
        needed = (row.simulated_alpha.band or (0, row.simulated_alpha.value))[1]
        return {way: hottest(row.scenario_alpha, needed, way) for way in (BEST, DRAWN)}

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim tune`."""
        from experiments.tuning.markdown import guide_markdown

        engine = self.engine
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "reason": self.reason,
            "best": {
                "arm": self.best.variant.name,
                "method": self.best.variant.method,
                "draft_length": self.best.at(self.clients).best_length,
                "acceptance_basis": self.best.basis,
                "pays_up_to": self.best.pays_up_to,
            },
            "schedule": self.best.schedule(),
            "temperature": {
                "limits": self.temperature_limits(),
                "measured": [row._asdict() for row in temperature_rows()],
            },
            "stages": [
                {"arm": tuned.variant.name, "loads": [row.to_json() for row in tuned.rows]}
                for tuned in self.variants
            ],
            "engine": {name: artefact.text or None for name, artefact in engine.items()},
            "markdown": guide_markdown(self, engine[engine_key(self.scenario)]),
        }


def tune(
    scenario: Scenario, loads: Sequence[int] | None = None, progress: Progress | None = None
) -> TuningGuide:
    """The guide for a scenario with at least one speculative variant, in closed loops. Raises InputError."""
    from simulator.scenario import acceptance_basis

    if not scenario.speculation:
        allowed = "--method, or speculation in the scenario; `decodesim methods` lists them"
        raise InputError(Problem(field="speculation", message="is empty: nothing to tune", allowed=allowed))
    arrivals = scenario.workload.arrivals
    own = arrivals.concurrency if arrivals.kind == "closed" else None
    studied = sorted({*(LOADS if loads is None else loads), *([own] if own is not None else [])})
    clients = own if own is not None else studied[len(studied) // 2]
    tuned = tuple(
        TunedVariant(
            variant,
            tuple(load_rows(scenario, variant, studied, progress)),
            acceptance_basis(scenario, variant.name),
        )
        for variant in scenario.speculation
    )
    best = max(tuned, key=lambda candidate: candidate.at(clients).speedup_at_best or 0.0)
    verdict, reason = _verdict(best, clients)
    return TuningGuide(scenario, clients, tuned, best, verdict, reason)


def _verdict(best: TunedVariant, clients: int) -> tuple[str, str]:
    row, limit = best.at(clients).row, best.pays_up_to
    alpha = "unknown" if row.scenario_alpha is None else f"{row.scenario_alpha:.2f}"
    if row.simulated_alpha is None:
        needed = row.note or "no acceptance is enough"
    else:
        low, high = row.simulated_alpha.band or (row.simulated_alpha.value,) * 2
        value = row.simulated_alpha.value
        needed = f"the break-even at {clients} clients is α {value:.2f} ({low:.2f} to {high:.2f})"
    reason = f"{best.variant.name}: {needed}; yours is {alpha} ({best.basis})"
    if best.basis == "assumed":
        return MEASURE_FIRST, reason
    if row.verdict == PAYS:
        return ENABLE, reason
    if limit is not None and limit < clients:
        return f"{ENABLE_BELOW} {limit} clients", reason
    return (
        (DO_NOT, reason) if row.verdict == LOSES or row.simulated_alpha is None else (MEASURE_FIRST, reason)
    )
