"""From measurements to a profile: every part that was measured, and how well; the rest is inherited."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from calibration.fit.attention import fit_decode, fit_prompts
from calibration.fit.by_rows import fit_sampler
from calibration.fit.checks import checks
from calibration.fit.device import base_of, fit_launch, fit_memory, gpu_of, provenance
from calibration.fit.experts import fit_experts
from calibration.fit.in_place import fit_preparation, fit_rest
from calibration.fit.linear import fit_linear
from calibration.fit.points import Fit
from calibration.measurements import Measurement, Measurements
from calibration.profile_json import dumps
from calibration.silicon_fit import fit_allreduce
from simulator.costs.profiles import SCHEMA, Part, Profile, parse_profile
from simulator.errors import InputError
from simulator.gpu import Gpu

FORMATS = ("bf16", "fp8")
"""Weight and cache formats that profiles have parts for. fp32 has none: it is timed, and not simulated."""
_VERIFY = "a round of verification"
SAMPLERS = {
    "sampler": ("accept_sampled", True, f"torch rejection sampling, {_VERIFY}"),
    "sampler/greedy": ("accept_greedy", True, f"torch argmax and comparison, {_VERIFY}"),
    "sampler/plain-sampled": ("accept_sampled", False, "torch sampling, a plain round"),
    "sampler/plain-greedy": ("accept_greedy", False, "torch argmax, a plain round"),
    "draft_sampler": ("sample", True, "torch sampling of a draft pass, its law kept"),
    "draft_sampler/greedy": ("greedy", True, "torch argmax of a draft pass"),
}
"""Part → (op, whether something is drafted, what it is)."""


@dataclass(frozen=True)
class Fitted:
    """A profile as JSON data; points to measure again; parts refused, a line each; and notes."""

    profile: dict[str, Any]
    suspects: tuple[Measurement, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def parsed(self) -> Profile:
        """The profile as the simulator reads it."""
        return parse_profile(dumps(self.profile), str(self.profile["name"]))


def fit_profile(measurements: Measurements, name: str) -> Fitted:
    """The profile of a device from all its points. Raises InputError when they make none."""
    try:
        described, gpu = gpu_of(measurements)
        fits = list(_alone(measurements, gpu))
        fits += _in_place(measurements, _draft(name, gpu, fits))
    except ValueError as error:
        raise InputError(f"{name}: the measurements make no profile: {error}") from error
    origin = provenance(measurements, f"{name}.measurements.csv")
    made = {
        "schema": SCHEMA,
        "name": name,
        "gpu": described,
        "inherits": base_of(measurements),
        "provenance": origin,
        "parts": [_as_json(fit.part) for fit in fits],
    }
    refused = tuple(line for fit in fits if (line := fit.refusal))
    suspects = {id(point): point for fit in fits for point in fit.suspects}
    fitted = Fitted(
        made, tuple(suspects.values()), refused, tuple(note for fit in fits for note in fit.notes)
    )
    origin["checks"] = checks(measurements, fitted.parsed)
    return fitted


def _alone(measurements: Measurements, gpu: Gpu) -> Iterator[Fit]:
    """Operators that are timed by themselves."""
    kind = measurements.device.kind
    if (memory := fit_memory(measurements)) is not None:
        yield memory
    for weights in FORMATS:
        linear = [p for p in _linear(measurements) if p.dtype == weights]
        if linear and weights in gpu.peak_flops_per_s:
            yield fit_linear(linear, weights, gpu, kind, measurements.of("elementwise", "quantise"))
    for kv_cache in FORMATS:
        decode = [p for p in measurements.of("attention", "decode") if p.dtype == kv_cache]
        if decode:
            yield fit_decode(decode, kv_cache, gpu)
    if prompts := measurements.of("attention", "prefill"):
        yield fit_prompts(prompts, gpu)
    if experts := measurements.of("experts", "skewed"):
        yield fit_experts(experts, gpu)
    if reduced := measurements.of("allreduce", "graph"):
        yield Fit(_allreduce(reduced, measurements.of("allreduce", "eager")))
    for part, (op, drafted, source) in SAMPLERS.items():
        points = [
            p for p in measurements.of("sampler", op) if bool(p.shape.get("draft_length", 1)) == drafted
        ]
        fit = fit_sampler(part, points, source)
        if fit is not None:
            yield fit
    if kind == "cpu" or measurements.of("launch", "eager"):
        yield fit_launch(measurements)


def _in_place(measurements: Measurements, profile: Profile) -> Iterator[Fit]:
    """What is timed in company, less what is known of the company."""
    if (layers := measurements.of("layer")) and {"gemm/bf16", "attention/bf16"} <= set(profile.parts):
        yield fit_rest(layers, profile)
    if preparation := measurements.of("prepare"):
        yield fit_preparation(preparation, measurements.of("first_layer"), layers)


def _linear(measurements: Measurements) -> list[Measurement]:
    """Linear layers; a head that was timed in place stands for the one that was timed alone."""
    heads = [_head_as_linear(p) for p in measurements.of("head")]
    in_place = {_shape(p) for p in heads}
    return [p for p in measurements.of("linear") if _shape(p) not in in_place] + heads


def _head_as_linear(point: Measurement) -> Measurement:
    shape = {"n": point.shape["vocab"], "k": point.shape["hidden"], "m": point.shape["rows"]}
    return replace(point, shape=shape)


def _shape(point: Measurement) -> tuple[int, int, str]:
    return point.shape["n"], point.shape["k"], point.dtype


def _allreduce(graph: tuple[Measurement, ...], eager: tuple[Measurement, ...]) -> Part:
    both: list[dict[tuple[int, ...], float]] = [
        {(p.shape["gpus"], p.shape["bytes"]): p.seconds * 1e6 for p in found} for found in (graph, eager)
    ]
    return replace(fit_allreduce(both[0], both[1], "torch.distributed all-reduce"), note="bf16 messages")


def _draft(name: str, gpu: Gpu, fits: list[Fit]) -> Profile:
    """The parts so far, as operators."""
    return Profile(name, gpu, {fit.part.name: fit.part for fit in fits}, {}, "")


def _as_json(part: Part) -> dict[str, Any]:
    fields = asdict(part)
    order = ("name", "status", "source", "note", "residual", "coefficients", "table")
    return json.loads(json.dumps({name: fields[name] for name in order}))  # type: ignore[no-any-return]
