"""How each kind of drafter is made and trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from calibration.drafters.eagle import Eagle
from calibration.drafters.eagle3 import Eagle3
from calibration.drafters.feature_head import FeatureHead
from calibration.drafters.language_model import LanguageModel
from calibration.drafters.llama_layer import LlamaLayer, LlamaLayerShape
from calibration.drafters.medusa import HEADS, Medusa
from calibration.drafters.mtp import Mtp
from calibration.drafters.student import Student
from simulator.errors import InputError, Problem, did_you_mean

Trainee = Student | Medusa | FeatureHead
"""A drafter that can be trained: `layers` are the target's layers that it reads, `predict` its predictions.
"""

_SPREAD = 0.02
"""Standard deviation of random weights, as in Llama."""


@dataclass(frozen=True)
class Recipe:
    """make: returns a new drafter for a target. steps: drafts that a row learns, each from the state before;
    their weights fall by the factor `decay`. regression: the first step's states are also fitted to the
    target's next feature (smooth L1), and KL then has weight 0.1, as in EAGLE. rate: peak learning rate.
    """

    make: Callable[[LanguageModel], Trainee]
    steps: int = 1
    decay: float = 1.0
    regression: bool = False
    rate: float = 1e-3


def eagle3_layers(count: int) -> tuple[int, int, int]:
    """Return the layers whose features EAGLE-3 reads, as engines choose them: low, middle, high."""
    return (min(2, count), max(count // 2, 1), max(count - 3, 1))


def _last(network: LanguageModel) -> tuple[int, ...]:
    return (network.layer_count,)


def _eagle(network: LanguageModel) -> Trainee:
    return _random(Eagle(LlamaLayerShape.of(network), _last(network)))


def _eagle3(network: LanguageModel) -> Trainee:
    return _random(Eagle3(LlamaLayerShape.of(network), eagle3_layers(network.layer_count)))


def _eagle3_top(network: LanguageModel) -> Trainee:
    return _random(Eagle3(LlamaLayerShape.of(network), _last(network)))


def _mtp(network: LanguageModel) -> Trainee:
    return _random(Mtp(LlamaLayerShape.of(network), _last(network)))


def _medusa(network: LanguageModel) -> Trainee:
    medusa = Medusa(network.hidden_size, _last(network))
    for head in medusa.heads:  # starts with the target's own next token
        assert isinstance(head, nn.Linear)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    return medusa


RECIPES: dict[str, Recipe] = {
    "student": Recipe(Student),
    "eagle": Recipe(_eagle, regression=True),
    "eagle3": Recipe(_eagle3, steps=4, decay=0.8),
    "medusa": Recipe(_medusa, steps=HEADS, decay=0.8),
    "mtp": Recipe(_mtp),
}
"""The kinds that `decodesim distill` trains."""

ALIASES = {"draft-model": "student"}
"""Other names of kinds: `accept` runs a student as a draft model."""

ABLATION: dict[str, Recipe] = {
    "eagle": RECIPES["eagle"],
    "eagle without regression": Recipe(_eagle),
    "top feature": Recipe(_eagle3_top),
    "fused features": Recipe(_eagle3),
    "eagle3": RECIPES["eagle3"],
}
"""From EAGLE to EAGLE-3, one change at a time."""


def recipe_of(kind: str) -> tuple[str, Recipe]:
    """Return the name and recipe of a kind. Raises InputError."""
    name = ALIASES.get(kind, kind)
    if name not in RECIPES:
        names = ", ".join(RECIPES)
        guess = did_you_mean(kind, RECIPES)
        allowed = f"did you mean {guess}? Known: {names}" if guess else f"one of {names}"
        raise InputError(Problem(field="--draft", value=kind, message="is not trained", allowed=allowed))
    return name, RECIPES[name]


@torch.no_grad()
def _random(head: FeatureHead) -> FeatureHead:
    """Give a head normal random weights; those that write to the residual stream are halved."""
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=_SPREAD)
        if isinstance(module, LlamaLayer):
            module.o_proj.weight *= 0.5
            module.down_proj.weight *= 0.5
    return head
