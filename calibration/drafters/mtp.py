"""Multi-token prediction: one module after the target, run again for each further token.

As in DeepSeek-V3 (arXiv 2412.19437), for a target without such a module: it is trained afterwards, with the
target unchanged.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from calibration.drafters.feature_head import FeatureHead
from calibration.drafters.llama_layer import KvStore, LlamaLayer, LlamaLayerShape, RmsNorm


class Mtp(FeatureHead):
    """State and embedding, each through a norm, joined by `eh_proj`; then one layer and a norm before the
    head.
    """

    kind: ClassVar[str] = "mtp"

    def __init__(self, shape: LlamaLayerShape, layers: tuple[int, ...]) -> None:
        super().__init__(shape, layers)
        self.enorm = RmsNorm(shape.hidden, eps=shape.norm_epsilon)
        self.hnorm = RmsNorm(shape.hidden, eps=shape.norm_epsilon)
        self.eh_proj = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.block = LlamaLayer(shape)
        self.norm = RmsNorm(shape.hidden, eps=shape.norm_epsilon)

    def step(
        self,
        state: Tensor,
        embedding: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        store: KvStore | None = None,
    ) -> Tensor:
        """As `FeatureHead.step`."""
        joined = self.eh_proj(torch.cat([self.enorm(embedding), self.hnorm(state)], -1))
        return self.block(joined, None, positions, mask, store)  # type: ignore[no-any-return]

    def read_out(self, state: Tensor) -> Tensor:
        """The state after the module's own norm."""
        normed: Tensor = self.norm(state)
        return normed
