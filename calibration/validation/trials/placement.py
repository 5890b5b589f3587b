"""How many GPUs a case ran on, and how the model was laid over them."""

from __future__ import annotations

import re
from typing import NamedTuple

from calibration.validation.trials.cases import Case, Facts, number
from simulator.models.model import Model

NOT_DIVISIBLE = "tensor parallelism does not divide the heads"
_MOST_GPUS = 1024
NODE = 8
"""GPUs that one switch joins: beyond it a source that says no TP ran several engines, or experts alone."""
_DATA_PARALLEL = re.compile(r"dp[ _-]attention|attention[ _-]dp|data[- ]parallel|\bdp(?:-size)?[ =]?\d")
_DECODES_ALONE = re.compile(r"decod(?:e|ing) nodes?\b")
SIZES = (1, 2, 4, 8, 16)
"""Tensor parallelism that is tried where a source does not say it."""


class Placement(NamedTuple):
    """GPUs of one replica and what is copied. `tensor_parallel` None: the smallest that fits."""

    tensor_parallel: int | None
    expert_parallel: int
    attention_dp: int
    replicas: int
    gpus: int | None
    ranks: float
    """Over which a source spreads what it states per rank."""
    notes: tuple[str, ...]
    decodes_alone: bool = False
    """Prompts were computed on other GPUs."""


def placement_of(case: Case, point: Facts, model: Model) -> Placement | str:
    """The layout of a point, or why it cannot be simulated."""
    hardware, notes = case.hardware, []
    count = _whole(hardware.count) or _whole(number(point.get("gpus")))
    tensor = _whole(number(point.get("tp"))) or _whole(hardware.tp)
    stages = _whole(hardware.pp) or 1
    shared = any(layer.experts for layer in model.layers)
    data_parallel = shared and bool(_DATA_PARALLEL.search(case.text))
    if tensor is None and count is None:
        return Placement(None, 1, 1, 1, None, 1.0, ())
    if tensor is None:
        tensor = count or 1
        if tensor > NODE and tensor % NODE == 0 and not data_parallel:
            tensor = NODE
        if tensor > 1:
            notes.append(f"TP not stated: {tensor} taken")
    if stages > 1:
        tensor *= stages
        notes.append(f"{stages} pipeline stages taken as tensor parallelism over {tensor} GPUs")
    replicas = 1
    if count is not None and count > tensor and count % tensor == 0:
        replicas = count // tensor
        notes.append(f"{count} GPUs at tensor parallelism {tensor}: {replicas} replicas")
    if hardware.dcp is not None and hardware.dcp > 1:
        notes.append("decode-context parallelism is not modelled")
    groups = tensor if data_parallel else 1
    if groups > 1:
        notes.append(f"data-parallel attention: {groups} GPUs with requests of their own")
    if not model.divides_over(tensor // groups):
        return NOT_DIVISIBLE
    experts = _experts(case, tensor, model)
    if experts > 1:
        notes.append(f"experts shared among {experts} groups")
    ranks = float(tensor * replicas) if data_parallel else 1.0
    elsewhere = bool(_DECODES_ALONE.search(case.text))
    if elsewhere:
        notes.append("nodes that decode alone: prompts cost nothing here")
    return Placement(tensor, experts, groups, replicas, tensor * replicas, ranks, tuple(notes), elsewhere)


def _experts(case: Case, tensor: int, model: Model) -> int:
    """Groups that share the experts, as far as they divide the GPUs."""
    stated = _whole(case.hardware.ep)
    if stated is None and re.search(r"\bep\b|expert[- ]parallel", case.text):
        match = re.search(r"\bep ?=? ?(\d+)", case.text)
        stated = int(match[1]) if match else tensor
    if stated is None or not any(layer.experts for layer in model.layers):
        return 1
    return max(size for size in range(1, min(stated, tensor) + 1) if tensor % size == 0)


def _whole(value: float | None) -> int | None:
    return round(value) if value is not None and 1 <= value <= _MOST_GPUS else None
