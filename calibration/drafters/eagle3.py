"""EAGLE-3: fuses low, middle and high features and is trained as it drafts (arXiv 2503.01840)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from calibration.drafters.feature_head import FeatureHead, Features
from calibration.drafters.llama_layer import KvStore, LlamaLayer, LlamaLayerShape, RmsNorm


class Eagle3(FeatureHead):
    """`fc` fuses the features of several layers; attention reads the concatenated embedding and state.

    Features are normalised first, because hidden states in the middle of a model can be a thousand times
    larger at the first token of a text. The whole vocabulary is drafted, with the target's own head.
    """

    kind: ClassVar[str] = "eagle3"

    def __init__(self, shape: LlamaLayerShape, layers: tuple[int, ...]) -> None:
        super().__init__(shape, layers)
        self.fc = nn.Linear(len(layers) * shape.hidden, shape.hidden, bias=False)
        self.block = LlamaLayer(shape, wide=True)
        self.norm = RmsNorm(shape.hidden, eps=shape.norm_epsilon)

    def fuse(self, features: Features) -> Tensor:
        """The features of all layers, projected to one state."""
        parts = [rms_norm(features[layer], (self.shape.hidden,)) for layer in self.layers]
        fused: Tensor = self.fc(torch.cat(parts, -1))
        return fused

    def step(
        self,
        state: Tensor,
        embedding: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        store: KvStore | None = None,
    ) -> Tensor:
        """As `FeatureHead.step`."""
        return self.block(state, embedding, positions, mask, store)  # type: ignore[no-any-return]

    def read_out(self, state: Tensor) -> Tensor:
        """The state after the head's own norm."""
        normed: Tensor = self.norm(state)
        return normed
