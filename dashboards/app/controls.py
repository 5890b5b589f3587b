"""What can be changed on the live page: one `Control` for each field, in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from simulator.scenario import Scenario

ControlValue = str | float | int | None


@dataclass(frozen=True)
class Control:
    """A field of the page.

    `field` is the scenario's field that an error names. `value` reads a scenario. A `choice` has `options`; a
    `number` has a step and bounds for the browser only, because the scenario checks the value.
    """

    name: str
    label: str
    group: str
    kind: Literal["choice", "number", "slider"]
    field: str
    value: Callable[[Scenario], ControlValue]
    options: Callable[[], Sequence[str]] = tuple
    low: float = 0
    high: float = 1
    step: float | None = None
    help: str = ""


def _variant(scenario: Scenario, name: str) -> Any:
    return getattr(scenario.speculation[0], name) if scenario.speculation else None


def _draft_length(scenario: Scenario) -> ControlValue:
    length = _variant(scenario, "draft_length")
    return length if isinstance(length, int) or length is None else scenario.speculation[0].max_draft_length


def _alpha(scenario: Scenario) -> ControlValue:
    from simulator.errors import InputError
    from simulator.runs.drafts import variant_acceptance

    if not scenario.speculation:
        return None
    try:
        return round(variant_acceptance(scenario.speculation[0], scenario.base_dir).alpha, 4)
    except InputError:
        return None


def _arrivals(scenario: Scenario, name: str) -> ControlValue:
    value: ControlValue = getattr(scenario.workload.arrivals, name, None)
    return value


def _mean_tokens(scenario: Scenario, name: str) -> int:
    from simulator.runs.replications import traffic_of

    requests = traffic_of(scenario, 0)
    return round(float(getattr(requests, name).mean()))


def _limit_ms(scenario: Scenario, name: str) -> ControlValue:
    limit_s = getattr(scenario.slo, name) if scenario.slo is not None else None
    return None if limit_s is None else round(limit_s * 1e3, 3)


def _models() -> Sequence[str]:
    from simulator.models.catalogue import targets

    return targets()


def _drafters() -> Sequence[str]:
    from simulator.models.catalogue import drafters, targets

    return (*drafters(), *targets())


def _gpus() -> Sequence[str]:
    from simulator.costs.profiles import profile_names

    return profile_names()


def _presets() -> Sequence[str]:
    from simulator.engines.presets import presets

    return tuple(presets())


def _methods() -> Sequence[str]:
    from simulator.speculation import methods

    return ("none", *methods())


def _weights() -> Sequence[str]:
    from simulator.models.matrices import WEIGHT_FORMATS

    return WEIGHT_FORMATS


CONTROLS: Mapping[str, Control] = {
    control.name: control
    for control in (
        Control(
            *("model", "Model", "Deployment", "choice", "target.model"),
            lambda s: s.target.model,
            options=_models,
        ),
        Control(
            *("weights", "Weights", "Deployment", "choice", "target.weights"),
            lambda s: s.target.weights,
            options=_weights,
            help="empty: as the model is published",
        ),
        Control(
            *("kv_cache", "KV cache", "Deployment", "choice", "target.kv_cache"),
            lambda s: s.target.kv_cache,
            options=lambda: ("bf16", "fp8"),
        ),
        Control(
            *("gpu", "GPU", "Deployment", "choice", "hardware.gpu"), lambda s: s.hardware.gpu, options=_gpus
        ),
        Control(
            *("tensor_parallel", "GPUs per replica (TP)", "Deployment", "choice", "hardware.tensor_parallel"),
            lambda s: s.hardware.tensor_parallel,
            options=lambda: ("1", "2", "4", "8"),
        ),
        Control(
            *("preset", "Serving engine", "Deployment", "choice", "engine.preset"),
            lambda s: s.engine.preset,
            options=_presets,
        ),
        Control(
            *("method", "Method", "Speculation", "choice", "speculation.method"),
            lambda s: _variant(s, "method") or "none",
            options=_methods,
        ),
        Control(
            *("draft", "Drafter", "Speculation", "choice", "speculation.draft"),
            lambda s: _variant(s, "draft"),
            options=_drafters,
            help="empty: the method's own for this model",
        ),
        Control(
            *("draft_length", "Draft length K", "Speculation", "slider", "speculation.draft_length"),
            _draft_length,
            low=0,
            high=12,
            step=1,
        ),
        Control(
            *("alpha", "Acceptance α", "Speculation", "slider", "speculation.acceptance"),
            _alpha,
            low=0,
            high=1,
            step=0.01,
        ),
        Control(
            *("concurrency", "Concurrent clients", "Traffic", "number", "workload.arrivals.concurrency"),
            lambda s: _arrivals(s, "concurrency"),
            low=1,
            high=4096,
            step=1,
        ),
        Control(
            *("rate", "Requests per second", "Traffic", "number", "workload.arrivals.rate_per_s"),
            lambda s: _arrivals(s, "rate_per_s"),
            low=0,
            high=10_000,
            help="empty: the clients above, each with one request at a time",
        ),
        Control(
            *("prompt_tokens", "Prompt tokens, mean", "Traffic", "number", "workload.prompt_tokens"),
            lambda s: _mean_tokens(s, "prompt_tokens"),
            low=1,
            high=1_000_000,
            step=1,
        ),
        Control(
            *("output_tokens", "Output tokens, mean", "Traffic", "number", "workload.output_tokens"),
            lambda s: _mean_tokens(s, "output_tokens"),
            low=1,
            high=100_000,
            step=1,
        ),
        Control(
            *("slo_ttft", "P99 TTFT limit, ms", "SLO", "number", "slo.ttft_p99_s"),
            lambda s: _limit_ms(s, "ttft_p99_s"),
            low=0,
            high=1e6,
        ),
        Control(
            *("slo_tpot", "P99 TPOT limit, ms", "SLO", "number", "slo.tpot_p99_s"),
            lambda s: _limit_ms(s, "tpot_p99_s"),
            low=0,
            high=1e6,
        ),
    )
}
"""Name → control, in the order of the page."""
