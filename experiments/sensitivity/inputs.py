"""The uncertain inputs of a scenario, each with its range and where the range comes from.

Kernel times vary by twice the mean error of their operator on shapes held out of its fit, about what 95 % of
networks stay within; host times by the interval of the fit to published runs where one was fitted. What is
assumed varies by as much as seems possible, and says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from simulator.engines.host_cost import HostCost
from simulator.engines.preset_field import declared
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from simulator.runs.variant import CompiledVariant
    from simulator.scenario import Scenario

ALPHA, STEP, DRAFT_GPU, KV = "alpha", "step", "draft_gpu", "kv"
PROMPTS, OUTPUTS = "prompt_tokens", "output_tokens"
HOST = {
    "step_s": "host_step_ns",
    "per_sequence_s": "host_per_sequence_ns",
    "draft_step_s": "draft_step_ns",
    "draft_pass_s": "draft_pass_ns",
    "lookup_step_s": "lookup_step_ns",
    "lookup_per_sequence_s": "lookup_per_sequence_ns",
}
"""Host times of the preset that the GPU waits for → setting of the engine."""
KERNELS = ("linear", "attention", "experts", "allreduce", "small", "sampler")
"""Operators whose times are scaled as a whole."""

ASSUMED_ALPHA = 0.05
_ASSUMED_DRAFT = 0.2
_ASSUMED_KV = 0.1
_ASSUMED_LENGTH = 0.2
_ASSUMED_KERNEL = 0.3
_ASSUMED_HOST = 2.0
_ERROR_FACTOR = 2.0


@dataclass(frozen=True)
class UncertainInput:
    """One input: `nominal` is the scenario's value, `low` to `high` the range of the true value.

    `parameter` says what is turned: one of this module's words, a field of the preset's host, or a dotted
    path of the scenario. A `factor` multiplies what the scenario has.
    """

    name: str
    parameter: str
    low: float
    nominal: float
    high: float
    source: str
    unit: str = ""
    factor: bool = False
    of_plain: bool = True
    """Whether plain decoding changes with it too."""
    integer: bool = False
    """A field that takes whole numbers only."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"{self.name}: {self.low} to {self.high} is no range")


def inputs_of(scenario: Scenario, variant: CompiledVariant) -> tuple[UncertainInput, ...]:
    """The uncertain inputs of a variant and of plain decoding in a scenario."""
    return (
        *_acceptance(variant),
        *_kernels(scenario, variant),
        *_host(variant),
        *_traffic(scenario),
    )


def inputs_from(texts: Sequence[str], scenario: Scenario) -> tuple[UncertainInput, ...]:
    """The inputs of `--input path=low:high`, for numeric fields. Raises InputError."""
    inputs = []
    for text in texts:
        path, _, span = text.partition("=")
        low_text, _, high_text = span.partition(":")
        try:
            low, high, nominal = float(low_text), float(high_text), _value_at(path.strip(), scenario)
            is_integer = isinstance(nominal, int)
            inputs.append(
                UncertainInput(path.strip(), path.strip(), low, nominal, high, "as asked", integer=is_integer)
            )
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            message, example = "is no range", "speculation.eagle3-k3.acceptance.alpha=0.6:0.8"
            allowed = f"path=low:high of a number, as in {example}"
            raise InputError(Problem(field="--input", value=text, message=message, allowed=allowed)) from None
    return tuple(inputs)


def require_distinct(inputs: Sequence[UncertainInput]) -> None:
    """Raises InputError where two inputs vary the same parameter."""
    parameters = [entry.parameter for entry in inputs]
    repeated = [parameter for parameter in dict.fromkeys(parameters) if parameters.count(parameter) > 1]
    if repeated:
        raise InputError(
            Problem(field="--input", value=repeated[0], message="varies twice", allowed="each once")
        )


def _value_at(path: str, scenario: Scenario) -> int | float:
    """The number that stands at a path now."""
    node: Any = scenario.model_dump(mode="json")
    for key in path.split("."):
        entries = node if isinstance(node, list) else []
        by_name: Mapping[str, Any] = {entry["name"]: entry for entry in entries}
        node = by_name.get(key) if entries else node.get(key) if isinstance(node, dict) else None
    if isinstance(node, bool) or not isinstance(node, int | float):
        message, allowed = (
            "holds no number in this scenario",
            "a field with a number, as in the scenario file",
        )
        raise InputError(Problem(field="--input", value=path, message=message, allowed=allowed))
    return node


def _acceptance(variant: CompiledVariant) -> Iterator[UncertainInput]:
    """α, where the model has one that can move."""
    from simulator.acceptance import acceptance_model

    assert variant.variant is not None
    model = acceptance_model(
        variant.variant.acceptance, variant.settings.max_depth, variant.scenario.base_dir
    )
    try:
        alpha = model.alpha
    except InputError:  # a replayed trace
        return
    low, high = max(alpha - ASSUMED_ALPHA, 0.001), min(alpha + ASSUMED_ALPHA, 0.999)
    source = f"assumed ± {ASSUMED_ALPHA:g}: measure it on your traffic"
    yield UncertainInput("acceptance α", ALPHA, low, alpha, high, source, of_plain=False)


def _kernels(scenario: Scenario, variant: CompiledVariant) -> Iterator[UncertainInput]:
    from simulator.results.summary import STEP_BAND

    source = f"P95 of the error of the ratio of two step times, ± {STEP_BAND:.0%} (docs/results.md)"
    yield _factor("speculative step as a whole", STEP, STEP_BAND, source, of_plain=False)
    profile = variant.setup.profile
    network = variant.setup.cost.target_pricing.network
    weights = {matrix.weights for matrix in network.matrices}
    experts = {matrix.weights for matrix in network.experts}
    latent = any(layers.attention.kv_lora_rank for layers in network.attentions)
    parts = {
        "linear": ("linear layers", [f"gemm/{name}" for name in weights]),
        "attention": ("attention", [f"{'mla' if latent else 'attention'}/{scenario.target.kv_cache}"]),
        "experts": ("routed experts", [f"experts/{name}" for name in experts]),
        "allreduce": ("all-reduce", ["allreduce"] if scenario.hardware.tensor_parallel > 1 else []),
    }
    for parameter, (name, part_names) in parts.items():
        errors = {
            part: error for part in part_names if (error := _mean_error(profile.parts.get(part))) is not None
        }
        if errors:
            worst = max(errors, key=lambda part: errors[part])
            spread = _ERROR_FACTOR * errors[worst]
            source = f"± twice the mean error on held-out shapes, {worst} of {profile.name}"
            yield _factor(name, parameter, spread, source)
        elif part_names:
            yield _factor(name, parameter, _ASSUMED_KERNEL, f"assumed: {profile.name} states no error")
    yield _factor("norms and other small kernels", "small", _ASSUMED_KERNEL, "assumed in the profile")
    yield _factor("sampling and rejection", "sampler", _ASSUMED_KERNEL, "assumed in the profile")
    if variant.settings.has_drafter:
        source = "assumed: priced as the target's operators, on small shapes"
        yield _factor("GPU time of a draft pass", DRAFT_GPU, _ASSUMED_DRAFT, source, of_plain=False)


def _mean_error(part: Any) -> float | None:
    """Mean absolute error of an operator on held-out shapes, as a fraction."""
    error = None if part is None else part.residual.get("mape_percent")
    return None if error is None else float(error) / 100


def _host(variant: CompiledVariant) -> Iterator[UncertainInput]:
    preset, settings = variant.setup.preset, variant.settings
    drafts_by = {
        "draft": settings.has_drafter,
        "lookup": settings.lookup_step_ns + settings.lookup_per_sequence_ns > 0,
    }
    for field in HOST:
        nominal, prefix = float(getattr(preset.host, field)), field.split("_")[0]
        of_plain = prefix not in drafts_by
        if nominal == 0 or not (of_plain or drafts_by[prefix]):
            continue
        fitted = _fitted(preset.name, f"host.{field}", nominal)
        low, high = fitted or (nominal / _ASSUMED_HOST, nominal * _ASSUMED_HOST)
        source = (
            "interval of the fit to published runs (docs/engines.md)" if fitted else "assumed × 0.5 to × 2"
        )
        name = f"host time {declared(HostCost)[field].label}"
        yield UncertainInput(name, field, low, nominal, high, source, "s", of_plain=of_plain)


@cache
def _fit() -> Mapping[str, Any]:
    file = resources.files("calibration").joinpath("published", "fit.json")
    parameters: Mapping[str, Any] = json.loads(file.read_text("utf-8"))["parameters"]
    return parameters


def _fitted(preset: str, path: str, nominal: float) -> tuple[float, float] | None:
    """The interval of a fitted constant, where the scenario has the fitted value."""
    for entry in _fit().values():
        matches = entry["fitted"] and preset in entry["presets"] and entry["path"] == path
        if matches and math.isclose(entry["value_us"] * 1e-6, nominal, rel_tol=1e-6):
            low, high = (bound * 1e-6 for bound in entry["interval_us"])
            return low, high
    return None


def _traffic(scenario: Scenario) -> Iterator[UncertainInput]:
    workload = scenario.workload
    source = f"assumed ± {_ASSUMED_LENGTH:.0%}: traffic changes"
    if workload.sessions is None and workload.arrivals.kind != "trace":
        yield _factor("length of prompts", PROMPTS, _ASSUMED_LENGTH, source)
    yield _factor("length of outputs", OUTPUTS, _ASSUMED_LENGTH, source)
    if scenario.run.mechanisms.kv_limit:
        source = "assumed: what the engine keeps besides weights and KV"
        yield _factor("KV memory", KV, _ASSUMED_KV, source)


def _factor(name: str, parameter: str, spread: float, source: str, of_plain: bool = True) -> UncertainInput:
    return UncertainInput(name, parameter, 1 - spread, 1.0, 1 + spread, source, "×", True, of_plain)
