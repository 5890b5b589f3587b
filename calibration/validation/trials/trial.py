"""What a published point becomes: scenarios to simulate, and the figures to compare them with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from calibration.validation.trials.cases import Case, Side
from simulator.scenario import with_workload

if TYPE_CHECKING:
    from simulator.scenario import Lengths, Scenario

AcceptanceFrom = Literal["given", "joined", "prior", "none"]
"""Where a trial's acceptance is from: its own point, another point of its source, other sources, nowhere."""

OF_STEPS = ("cost_share", "step_ratio")
"""Quantities of single steps: nothing needs to be run."""

SPEC = "spec"
"""Name of the one speculative variant of `Trial.spec`."""


@dataclass(frozen=True)
class Published:
    """One published figure in SI units.

    `quantity` is one of `decodesim validate`: speedup, throughput (output tokens/s of everything together),
    tpot_mean, tpot_p99, itl_mean, itl_p99, ttft_mean, ttft_p99, e2e_mean, e2e_p99, acceptance_length,
    cost_share (0…1), step_ratio. `part` names the share of a cost_share: draft, verify, sampling or host.
    """

    quantity: str
    variant: Side | Literal["both"]
    value: float
    part: str | None = None


@dataclass(frozen=True)
class Trial:
    """One published point, ready to be simulated.

    `plain` and `spec` are usually one scenario, two where a source compared two set-ups; `spec` has exactly
    one variant, named "spec". A variant that cannot be simulated is None and has its reason in
    `skipped`, one of a
    few short constants that are counted. `engine`: the preset, or the name of what is no serving engine.
    `batch` is the load as a number of requests, where it is one.
    """

    case: Case
    point: int
    gpu: str
    engine: str
    method: str | None
    batch: float | None
    load: str
    plain: Scenario | None
    spec: Scenario | None
    published: tuple[Published, ...]
    acceptance_from: AcceptanceFrom = "none"
    acceptance_note: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    dataset: str | None = None
    """Which of several data sets of the point it is about."""
    draft_length: int | None = None
    sent: int | None = None
    """Requests that the published run sent, where it is known."""
    mean_tokens: Mapping[str, float] = field(default_factory=dict)
    """Field of the workload, prompt_tokens or output_tokens → mean of its lengths, where published."""
    assumed_lengths: tuple[str, ...] = ()
    """Fields of the workload, prompt_tokens or output_tokens, whose lengths no source says."""
    research: bool = False
    """Ran on code of a paper, whose plain variant is slow: its speedups are no measure of a serving
    engine.
    """

    @property
    def uniform(self) -> bool:
        """Whether it asks for step times alone."""
        steps = [one.quantity in OF_STEPS for one in self.published]
        return bool(steps) and all(steps)


def with_assumed_lengths(trial: Trial, factor: float) -> Trial:
    """The trial with the lengths that were assumed so many times as long: to see how much hangs on them."""

    def changed(scenario: Scenario | None) -> Scenario | None:
        if scenario is None:
            return None
        lengths = {name: _times(getattr(scenario.workload, name), factor) for name in trial.assumed_lengths}
        if factor > 1 and "prompt_tokens" in lengths:  # prompts may outgrow a step: they are cut, not refused
            engine = scenario.engine.model_copy(update={"chunked_prefill": True})
            scenario = scenario.model_copy(update={"engine": engine}).at(scenario.base_dir)
        return with_workload(scenario, **lengths)

    plain = changed(trial.plain)
    return replace(trial, plain=plain, spec=plain if trial.spec is trial.plain else changed(trial.spec))


def _times(lengths: Lengths, factor: float) -> Lengths:
    """A length distribution stretched; every length stays at least one token."""
    names = {"fixed": ("tokens",), "uniform": ("low", "high"), "lognormal": ("median", "p95", "max")}
    fields = {name: getattr(lengths, name) for name in names.get(lengths.kind, ())}
    return lengths.model_copy(
        update={
            name: max(1.0, value * factor) if isinstance(value, float) else max(1, round(value * factor))
            for name, value in fields.items()
            if value is not None
        }
    )
