"""The number of GPUs of a case and how the model was divided over them."""

from __future__ import annotations

import re
from typing import NamedTuple

from calibration.validation.reconstruction.cases import Facts, PublishedCase, number
from simulator.models.model import Model

NOT_DIVISIBLE = "tensor parallelism does not divide the heads"
_MAX_GPUS = 1024
NODE = 8
"""GPUs behind one switch. A source with more GPUs and no stated TP ran several engines or shared experts."""
_DATA_PARALLEL = re.compile(r"dp[ _-]attention|attention[ _-]dp|data[- ]parallel|\bdp(?:-size)?[ =]?\d")
_DECODES_ALONE = re.compile(r"decod(?:e|ing) nodes?\b")
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
    stages = _count(hardware.pp) or 1
    has_experts = any(layer.experts for layer in model.layers)
    data_parallel = has_experts and bool(_DATA_PARALLEL.search(case.text))
    if tensor_parallel is None and count is None:
        return Placement(None, 1, 1, 1, None, 1.0, ())
    if tensor_parallel is None:
        tensor_parallel = count or 1
        if tensor_parallel > NODE and tensor_parallel % NODE == 0 and not data_parallel:
            tensor_parallel = NODE
        if tensor_parallel > 1:
            notes.append(f"TP not stated: {tensor_parallel} taken")
    if stages > 1:
        tensor_parallel *= stages
        notes.append(f"{stages} pipeline stages taken as tensor parallelism over {tensor_parallel} GPUs")
    replicas = 1
    if count is not None and count > tensor_parallel and count % tensor_parallel == 0:
        replicas = count // tensor_parallel
        notes.append(f"{count} GPUs at tensor parallelism {tensor_parallel}: {replicas} replicas")
    if hardware.dcp is not None and hardware.dcp > 1:
        notes.append("decode-context parallelism is not modelled")
    groups = tensor_parallel if data_parallel else 1
    if groups > 1:
        notes.append(f"data-parallel attention: {groups} GPUs with requests of their own")
    if not model.divides_over(tensor_parallel // groups):
        return NOT_DIVISIBLE
    experts = _experts(case, tensor_parallel, model)
    if experts > 1:
        notes.append(f"experts shared among {experts} groups")
    ranks = float(tensor_parallel * replicas) if data_parallel else 1.0
    decodes_alone = bool(_DECODES_ALONE.search(case.text))
    if decodes_alone:
        notes.append("nodes that only decode: prompts cost nothing here")
    return Placement(
        tensor_parallel,
        experts,
        groups,
        replicas,
        tensor_parallel * replicas,
        ranks,
        tuple(notes),
        decodes_alone,
    )


def _experts(case: PublishedCase, tensor_parallel: int, model: Model) -> int:
    """Groups that share the experts: the largest stated number that divides the GPUs."""
    stated = _count(case.hardware.ep)
    if stated is None and re.search(r"\bep\b|expert[- ]parallel", case.text):
        match = re.search(r"\bep ?=? ?(\d+)", case.text)
        stated = int(match[1]) if match else tensor_parallel
    if stated is None or not any(layer.experts for layer in model.layers):
        return 1
    return max(size for size in range(1, min(stated, tensor_parallel) + 1) if tensor_parallel % size == 0)


def _count(value: float | None) -> int | None:
    return round(value) if value is not None and 1 <= value <= _MAX_GPUS else None
