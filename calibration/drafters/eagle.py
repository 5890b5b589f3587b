"""EAGLE: predicts the next feature from the last one and the token drawn since (arXiv 2401.15077)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from calibration.drafters.feature_head import FeatureHead
from calibration.drafters.llama_layer import KvStore, LlamaLayer, LlamaLayerShape


class Eagle(FeatureHead):
    """`fc` joins token embedding and feature, and one layer follows. Its output is the next feature, which
    the target's head reads directly. Features are taken after the target's final norm, as the head reads
    them.
    """

    kind: ClassVar[str] = "eagle"

    def __init__(self, shape: LlamaLayerShape, layers: tuple[int, ...]) -> None:
        super().__init__(shape, layers)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.block = LlamaLayer(shape)

    def step(
        self,
        state: Tensor,
        embedding: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        store: KvStore | None = None,
    ) -> Tensor:
        """As `FeatureHead.step`."""
        return self.block(self.fc(torch.cat([embedding, state], -1)), None, positions, mask, store)  # type: ignore[no-any-return]

    def read_out(self, state: Tensor) -> Tensor:
        """The feature itself."""
        return state
