"""The number of GPUs of a case and how the model was divided over them."""

from __future__ import annotations

from typing import NamedTuple

from calibration.validation.reconstruction.cases import PublishedCase
from calibration.validation.reconstruction.sections import Facts, PublishedHardware, number
from simulator.models.model import Model

PIPELINE, CONTEXT = "pipeline parallelism", "context parallelism"
OVER_NODES = "one engine"
NOT_DIVISIBLE = "tensor parallelism does not divide the heads"
_MAX_GPUS = 1024
NODE = 8
"""GPUs behind one switch. A source with more GPUs and no stated TP ran several engines or shared experts."""
SIZES = (1, 2, 4, 8, 16)
"""Degrees of tensor parallelism that are tried where a source states none."""


class Placement(NamedTuple):
    """GPUs of a replica, and the number of replicas. `tensor_parallel` None: the smallest that fits."""

    tensor_parallel: int | None
    expert_parallel: int
    attention_dp: int
    replicas: int
    gpus: int | None
    ranks: float
    """Factor for figures that a source states per rank."""
    notes: tuple[str, ...]
    decodes_alone: bool = False
    """Whether prompts were computed on other GPUs."""


def placement_of(case: PublishedCase, point: Facts, model: Model) -> Placement | str:
    """The layout of a point, or the reason why it cannot be simulated."""
    hardware, notes = case.hardware, []
    count = _count(hardware.count) or _count(number(point.get("gpus")))
    tensor_parallel = _count(number(point.get("tp"))) or _count(hardware.tp)
    refused = _not_modelled(hardware)
    if refused is not None:
        return refused
    has_experts = any(layer.experts for layer in model.layers)
    data_parallel = has_experts and (bool(hardware.attention_dp) or (per_rank(case, point) is not None))
    if tensor_parallel is None and count is None:
        return Placement(None, 1, 1, 1, None, 1.0, ())
    if tensor_parallel is None:
        tensor_parallel = count or 1
        if tensor_parallel > NODE and tensor_parallel % NODE == 0 and not hardware.attention_dp:
            tensor_parallel = NODE
        if tensor_parallel > 1:
            notes.append(f"TP not stated: {tensor_parallel} taken")
    group, groups = _groups(case, tensor_parallel, count, data_parallel, has_experts)
    if group > NODE and (hardware.nodes or 1) > 1 and "nvl" not in (hardware.interconnect or "").lower():
        return f"{OVER_NODES} over {hardware.nodes:g} nodes"
    replicas = 1
    if count is not None and count > group and count % group == 0:
        replicas = count // group
        notes.append(f"{count} GPUs at tensor parallelism {group}: {replicas} replicas")
    if groups > 1:
        notes.append(f"data-parallel attention: {groups} GPUs with requests of their own")
    if not model.divides_over(group // groups):
        return NOT_DIVISIBLE
    experts = _experts(hardware.ep, group) if has_experts else 1
    if experts > 1:
        notes.append(f"experts shared among {experts} groups")
    decodes_alone = bool(hardware.decodes_alone)
    if decodes_alone:
        notes.append("nodes that only decode: prompts cost nothing here")
    ranks = float(groups * replicas) if data_parallel else 1.0
    return Placement(group, experts, groups, replicas, group * replicas, ranks, tuple(notes), decodes_alone)


def per_rank(case: PublishedCase, point: Facts) -> float | None:
    """Requests in flight on each rank, where the load is stated that way."""
    values = (
        case.load.concurrency_per_rank,
        point.get("concurrency_per_rank"),
        point.get("batch_size_per_rank"),
    )
    return next((value for value in map(number, values) if value is not None), None)


def _not_modelled(hardware: PublishedHardware) -> str | None:
    """The name of a layout that the simulator has no prices for."""
    if (_count(hardware.pp) or 1) > 1:
        return f"{PIPELINE} over {hardware.pp:g} stages"
    if (_count(hardware.dcp) or 1) > 1:
        return f"{CONTEXT} over {hardware.dcp:g} GPUs"
    return None


def _groups(
    case: PublishedCase, tensor_parallel: int, count: int | None, data_parallel: bool, has_experts: bool
) -> tuple[int, int]:
    """GPUs that share one copy of the experts, and the groups of them with requests of their own.

    SGLang and TensorRT-LLM divide the GPUs of `tp` into the groups; vLLM's groups have `tp` GPUs each.
    Experts over more GPUs than `tp` need attention on each rank.
    """
    stated = case.hardware.attention_dp
    number_stated = _count(number(stated))
    group = tensor_parallel
    experts = _count(case.hardware.ep) or 1
    divides = experts % tensor_parallel == 0 and (count is None or count % experts == 0)
    if has_experts and experts > tensor_parallel and divides:
        return experts, experts // tensor_parallel
    if not data_parallel:
        return group, 1
    if number_stated is None:
        return group, group
    engine = str(case.framework.name).lower()
    adds_up = count is not None and count % (tensor_parallel * number_stated) == 0
    if group % number_stated or ("vllm" in engine and adds_up):
        return group * number_stated, number_stated
    return group, number_stated


def _experts(stated: float | None, group: int) -> int:
    """Groups that share the experts: the largest number up to the stated one that divides the GPUs."""
    experts = min(_count(stated) or 1, group)
    return max(size for size in range(1, experts + 1) if group % size == 0)


def _count(value: float | None) -> int | None:
    return round(value) if value is not None and 1 <= value <= _MAX_GPUS else None
