"""A published run: the scenarios to simulate and the figures to compare them with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from calibration.validation.reconstruction.cases import PublishedCase, Side
from simulator.scenario import with_workload

if TYPE_CHECKING:
    from simulator.scenario import Lengths, Scenario

AcceptanceFrom = Literal["given", "joined", "prior", "none"]
"""Origin of a run's acceptance: its own point, another point of its source, other sources, or none."""

OF_STEPS = ("cost_share", "step_ratio")
"""Quantities of single steps, for which no run is simulated."""

SPEC = "spec"
"""Name of the one speculative variant of `PublishedRun.spec`."""


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure in SI units.

    `quantity` is one of `decodesim validate`: speedup, throughput (output tokens/s of everything together),
    tpot_mean, tpot_p99, itl_mean, itl_p99, ttft_mean, ttft_p99, e2e_mean, e2e_p99, acceptance_length,
    cost_share (0…1), step_ratio. `part` names the share of a cost_share: draft, verify, sampling or host.
    `not_comparable`: why no figure here has the source's definition.
    """

    quantity: str
    variant: Side | Literal["both"]
    value: float
    part: str | None = None
    not_comparable: str | None = None
    per_token: bool = False
    """Whether an ITL is a chunk's gap divided by its tokens."""


@dataclass(frozen=True)
class PublishedRun:
    """One published point as scenarios, ready to be simulated.

    `plain` and `spec` are usually one scenario, and two if a source compared two set-ups. `spec` has exactly
    one variant, named "spec". A variant that cannot be simulated is None and has its reason in `skipped`, one
    of a few short texts that are counted. `engine`: the preset, or the name of code that is no serving
    engine. `batch`: the load as a number of requests, where it is stated that way.
    """

    case: PublishedCase
    point: int
    gpu: str
    engine: str
    method: str | None
    batch: float | None
    load: str
    plain: Scenario | None
    spec: Scenario | None
    published: tuple[PublishedFigure, ...]
    acceptance_from: AcceptanceFrom = "none"
    acceptance_note: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    dataset: str | None = None
    """The data set it is about, if the point has several."""
    draft_length: int | None = None
    sent: int | None = None
    """Number of requests that the published run sent, where it is known."""
    mean_tokens: Mapping[str, float] = field(default_factory=dict)
    """Workload field, prompt_tokens or output_tokens → mean of its lengths, where published."""
    assumed_lengths: tuple[str, ...] = ()
    """Workload fields, prompt_tokens or output_tokens, whose lengths no source states."""
    research: bool = False
    """Whether it ran on a paper's code, whose plain variant is slow, so that its speedups do not apply to
    serving engines.
    """

    @property
    def uniform(self) -> bool:
        """Whether it has figures of single steps only."""
        steps = [figure.quantity in OF_STEPS for figure in self.published]
        return bool(steps) and all(steps)


def with_assumed_lengths(run: PublishedRun, factor: float) -> PublishedRun:
    """The run with its assumed lengths multiplied by `factor`, to see how much predictions depend on them."""

    def with_factor(scenario: Scenario | None) -> Scenario | None:
        if scenario is None:
            return None
        lengths = {name: _scaled(getattr(scenario.workload, name), factor) for name in run.assumed_lengths}
        if (
            factor > 1 and "prompt_tokens" in lengths
        ):  # a prompt longer than a step is chunked rather than refused
            engine = scenario.engine.model_copy(update={"chunked_prefill": True})
            scenario = scenario.model_copy(update={"engine": engine}).at(scenario.base_dir)
        return with_workload(scenario, **lengths)

    plain = with_factor(run.plain)
    return replace(run, plain=plain, spec=plain if run.spec is run.plain else with_factor(run.spec))


def _scaled(lengths: Lengths, factor: float) -> Lengths:
    """A length distribution multiplied by `factor`; every length stays at least one token."""
    names = {"fixed": ("tokens",), "uniform": ("low", "high"), "lognormal": ("median", "p95", "max")}
    fields = {name: getattr(lengths, name) for name in names.get(lengths.kind, ())}
    return lengths.model_copy(
        update={
            name: max(1.0, value * factor) if isinstance(value, float) else max(1, round(value * factor))
            for name, value in fields.items()
            if value is not None
        }
    )
