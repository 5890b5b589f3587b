"""A distilled student: the target's embedding and head, and a few of its layers to begin with.

Sequence-level agreement through KL to the target's distribution: DistillSpec, arXiv 2310.08461. What comes
out is an ordinary language model, and drafts as a draft model.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from calibration.drafters.feature_head import Features
from calibration.drafters.language_model import LanguageModel


class Student(nn.Module):
    """Layers and final norm are learned; embedding and head stay the target's."""

    kind: ClassVar[str] = "student"
    layers: tuple[int, ...] = ()

    def __init__(self, network: LanguageModel, taken: tuple[int, ...] | None = None) -> None:
        super().__init__()
        taken = first_and_last(network) if taken is None else taken
        config = copy.deepcopy(network.config)
        config.num_hidden_layers = len(taken)
        if getattr(config, "layer_types", None):
            config.layer_types = [config.layer_types[layer] for layer in taken]
        if hasattr(config, "quantization_config"):  # of the file the target came from
            del config.quantization_config
        config._attn_implementation = "sdpa"
        self.model: Any = type(network.model)(config)
        self.model.load_state_dict(_weights_of(network, taken), strict=False)
        self.model.tie_weights()
        self.model.get_input_embeddings().requires_grad_(False)
        self.model.get_output_embeddings().requires_grad_(False)

    def predict(
        self, tokens: Tensor, features: Features, embed: Callable[[Tensor], Tensor], steps: int
    ) -> tuple[Tensor, Tensor]:
        """As `FeatureHead.predict`; whatever the step, the student has read the same text."""
        state = self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        return state[None].expand(steps, *state.shape), state

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write an ordinary Hugging Face folder."""
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
            self.model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)


def first_and_last(network: LanguageModel) -> tuple[int, ...]:
    """Return the layers that a student begins with."""
    return (0, network.layer_count - 1)


def _weights_of(network: LanguageModel, taken: tuple[int, ...]) -> dict[str, Tensor]:
    """The target's weights under the names of a model that has only the layers taken."""
    weights: dict[str, Tensor] = {}
    for name, value in network.model.state_dict().items():
        parts = name.split(".")
        numbers = [place for place, part in enumerate(parts) if part.isdecimal()]
        if numbers:
            layer = int(parts[numbers[0]])
            if layer not in taken:
                continue
            parts[numbers[0]] = str(taken.index(layer))
        weights[".".join(parts)] = value.to(torch.float32)
    return weights
