"""A target with quantised weights. As a draft model, it shows the cost of quantisation in acceptance."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from calibration.drafters.language_model import LanguageModel

GROUP = 32
"""Weights that share one scale."""


def quantised(network: LanguageModel, bits: int) -> LanguageModel:
    """Return a copy whose decoder matrices are rounded to `bits` bits; embedding, head and norms stay.

    Symmetric round to nearest with a scale per 32 weights of an output row, as common formats do.
    """
    model = copy.deepcopy(network.model)
    excluded = {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if id(module) in excluded or isinstance(module, nn.Embedding) or not isinstance(weight, nn.Parameter):
            continue
        if weight.dim() == 2:
            weight.data = _rounded(weight.data, bits)
    return LanguageModel(model, network.tokenizer)


def _rounded(weight: Tensor, bits: int) -> Tensor:
    """Return weights rounded to the nearest of 2^bits - 1 levels, symmetric around 0, per group."""
    max_level = 2 ** (bits - 1) - 1
    group = GROUP if weight.shape[1] % GROUP == 0 else weight.shape[1]
    groups = weight.reshape(weight.shape[0], -1, group)
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny) / max_level
    rounded: Tensor = (groups / scale).round() * scale
    return rounded.reshape(weight.shape)
