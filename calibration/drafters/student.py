"""A distilled student: the target's embedding and head, initialised with a few of its layers.

It is trained by the KL divergence to the target's distribution (DistillSpec, arXiv 2310.08461). The result is
an ordinary language model, used as a draft model.
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

    def __init__(self, network: LanguageModel, layers_used: tuple[int, ...] | None = None) -> None:
        super().__init__()
        layers_used = first_and_last(network) if layers_used is None else layers_used
        config = copy.deepcopy(network.config)
        config.num_hidden_layers = len(layers_used)
        if getattr(config, "layer_types", None):
            config.layer_types = [config.layer_types[layer] for layer in layers_used]
        if hasattr(config, "quantization_config"):  # of the target's file
            del config.quantization_config
        config._attn_implementation = "sdpa"
        self.model: Any = type(network.model)(config)
        self.model.load_state_dict(_weights_of(network, layers_used), strict=False)
        self.model.tie_weights()
        self.model.get_input_embeddings().requires_grad_(False)
        self.model.get_output_embeddings().requires_grad_(False)

    def predict(
        self, tokens: Tensor, features: Features, embed: Callable[[Tensor], Tensor], steps: int
    ) -> tuple[Tensor, Tensor]:
        """As `FeatureHead.predict`; the student's prediction is the same at every step."""
        state = self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        return state[None].expand(steps, *state.shape), state

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write an ordinary Hugging Face folder."""
        with contextlib.redirect_stderr(io.StringIO()):  # hides a progress bar
            self.model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)


def first_and_last(network: LanguageModel) -> tuple[int, ...]:
    """Return the layers with which a student is initialised."""
    return (0, network.layer_count - 1)


def _weights_of(network: LanguageModel, layers_used: tuple[int, ...]) -> dict[str, Tensor]:
    """The target's weights under the names of a model that has only the layers `layers_used`."""
    weights: dict[str, Tensor] = {}
    for name, value in network.model.state_dict().items():
        parts = name.split(".")
        index_parts = [index for index, part in enumerate(parts) if part.isdecimal()]
        if index_parts:
            layer = int(parts[index_parts[0]])
            if layer not in layers_used:
                continue
            parts[index_parts[0]] = str(layers_used.index(layer))
        weights[".".join(parts)] = value.to(torch.float32)
    return weights
