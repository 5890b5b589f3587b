"""From measurements to a profile: every measured part with its residuals; other parts are inherited."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from calibration.fit.attention import fit_decode, fit_prompts
from calibration.fit.by_rows import fit_sampler
from calibration.fit.checks import checks
from calibration.fit.device import base_of, fit_launch, fit_memory, gpu_of, provenance
from calibration.fit.experts import fit_experts
from calibration.fit.in_place import fit_preparations, fit_rests
from calibration.fit.linear import fit_linear
from calibration.fit.parts import US, FittedPart, HeldOutErrors, noise_percent
from calibration.measurements import Measurement, Measurements
from calibration.profile_json import dumps
from calibration.silicon_fit import fit_allreduce
from simulator.costs.ops.numeric import loglog
from simulator.costs.profiles import SCHEMA, Part, Profile, parse_profile
from simulator.errors import InputError
from simulator.gpu import Gpu

FORMATS, KV_CACHE = ("bf16", "fp8"), "bf16"
"""Formats of weights and of the KV cache that benches time."""
_VERIFY = "a round of verification"
SAMPLERS = {
    "sampler": ("accept_sampled", True, f"torch rejection sampling, {_VERIFY}"),
    "sampler/greedy": ("accept_greedy", True, f"torch argmax and comparison, {_VERIFY}"),
    "sampler/plain-sampled": ("accept_sampled", False, "torch sampling, a plain round"),
    "sampler/plain-greedy": ("accept_greedy", False, "torch argmax, a plain round"),
    "draft_sampler": ("sample", True, "torch sampling of a draft pass, its distribution kept"),
    "draft_sampler/greedy": ("greedy", True, "torch argmax of a draft pass"),
}
"""Part → (op, whether it has drafts, description)."""


@dataclass(frozen=True)
class FittedProfile:
    """A profile as JSON data, points to measure again, refused parts (one line each), and notes."""

    profile: dict[str, Any]
    suspects: tuple[Measurement, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def parsed(self) -> Profile:
        """The profile as the simulator reads it."""
        return parse_profile(dumps(self.profile), str(self.profile["name"]))


def fit_profile(measurements: Measurements, name: str) -> FittedProfile:
    """The profile of a device from all its points. Raises InputError if they do not make one."""
    try:
        gpu_entry, gpu = gpu_of(measurements)
        fits = list(_separate_parts(measurements, gpu))
        fits += _in_place_parts(measurements, _as_profile(name, gpu, fits))
        provenance_entry = provenance(measurements, f"{name}.measurements.csv")
        profile = {
            "schema": SCHEMA,
            "name": name,
            "gpu": gpu_entry,
            "inherits": base_of(measurements),
            "provenance": provenance_entry,
            "parts": [_as_json(fit.part) for fit in fits],
        }
        suspects = {id(point): point for fit in fits for point in fit.suspects}
        fitted = FittedProfile(
            profile=profile,
            suspects=tuple(suspects.values()),
            refused=tuple(line for fit in fits if (line := fit.refusal)),
            notes=tuple(_notes(measurements, fits)),
        )
        provenance_entry["checks"] = checks(measurements, fitted.parsed)
    except KeyError as error:
        raise InputError(f"{name}: a row of the measurements lacks {error.args[0]}") from error
    except ValueError as error:
        raise InputError(f"{name}: the measurements do not make a profile: {error}") from error
    return fitted


def _notes(measurements: Measurements, fits: Sequence[FittedPart]) -> Iterator[str]:
    """Notes on what is not in the profile, and why."""
    for fit in fits:
        yield from fit.notes
    if measurements.of("layer") and not any(fit.part.name == "elementwise" for fit in fits):
        yield "small kernels are inherited: the bf16 matrices of the timed layers were not measured"


def _separate_parts(measurements: Measurements, gpu: Gpu) -> Iterator[FittedPart]:
    """Parts of operators that are timed by themselves."""
    kind = measurements.device.kind
    if (memory := fit_memory(measurements)) is not None:
        yield memory
    for weights in FORMATS:
        linear = [p for p in _linear(measurements) if p.dtype == weights]
        if linear and weights in gpu.peak_flops_per_s:
            yield fit_linear(linear, weights, gpu, kind, measurements.of("elementwise", "quantise"))
    if decode := [p for p in measurements.of("attention", "decode") if p.dtype == KV_CACHE]:
        yield fit_decode(decode, KV_CACHE, gpu)
    if prompts := measurements.of("attention", "prefill"):
        yield fit_prompts(prompts, gpu)
    if experts := measurements.of("experts", "skewed"):
        yield fit_experts(experts, gpu)
    if reduced := measurements.of("allreduce", "graph"):
        yield FittedPart(_allreduce(reduced, measurements.of("allreduce", "eager")))
    for part, (op, drafted, source) in SAMPLERS.items():
        points = [
            p for p in measurements.of("sampler", op) if bool(p.shape.get("draft_length", 1)) == drafted
        ]
        fit = fit_sampler(part, points, source)
        if fit is not None:
            yield fit
    if kind == "cpu" or measurements.of("launch", "eager"):
        yield fit_launch(measurements)


def _in_place_parts(measurements: Measurements, profile: Profile) -> Iterator[FittedPart]:
    """Parts of operators that are timed together with others, whose known times are subtracted."""
    layers = measurements.of("layer")
    if layers and {"gemm/bf16", "attention/bf16"} <= set(profile.parts):
        yield from fit_rests(layers, profile)
    yield from fit_preparations(measurements.of("prepare"), measurements.of("first_layer"), layers)


def _linear(measurements: Measurements) -> list[Measurement]:
    """Linear layers; a head timed in place replaces the same head timed by itself."""
    heads = [_head_as_linear(p) for p in measurements.of("head")]
    in_place = {_shape(p) for p in heads}
    return [p for p in measurements.of("linear") if _shape(p) not in in_place] + heads


def _head_as_linear(point: Measurement) -> Measurement:
    shape = {"n": point.shape["vocab"], "k": point.shape["hidden"], "m": point.shape["rows"]}
    return replace(point, shape=shape)


def _shape(point: Measurement) -> tuple[int, int, str]:
    return point.shape["n"], point.shape["k"], point.dtype


def _allreduce(graph: tuple[Measurement, ...], eager: tuple[Measurement, ...]) -> Part:
    times: list[dict[tuple[int, ...], float]] = [
        {(p.shape["gpus"], p.shape["bytes"]): p.seconds * US for p in points} for points in (graph, eager)
    ]
    errors = HeldOutErrors()
    for gpus in {key[0] for key in times[0]}:
        sizes = sorted(key[1] for key in times[0] if key[0] == gpus)
        us = np.array([times[0][gpus, size] for size in sizes])
        for j in range(1, len(sizes) - 1):
            others = np.arange(len(sizes)) != j
            errors.add([float(loglog(sizes[j], np.array(sizes)[others], us[others]))], [us[j]])
    allreduce = fit_allreduce(times[0], times[1], "torch.distributed all-reduce")
    residual = errors.summary("each size from its neighbours") | {"noise_percent": noise_percent(graph)}
    return replace(allreduce, note="bf16 messages", residual=residual)


def _as_profile(name: str, gpu: Gpu, fits: Sequence[FittedPart]) -> Profile:
    """The parts so far as a profile."""
    return Profile(name, gpu, {fit.part.name: fit.part for fit in fits}, {}, "")


def _as_json(part: Part) -> dict[str, Any]:
    fields = asdict(part)
    order = ("name", "status", "source", "note", "residual", "coefficients", "table")
    return json.loads(json.dumps({name: fields[name] for name in order}))  # type: ignore[no-any-return]
