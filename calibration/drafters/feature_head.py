"""The common part of EAGLE, EAGLE-3 and MTP: one layer that continues from the target's hidden states.

Row t of a head reads the target's features at position t and the token at t + 1, and predicts the token after
t + 1. For later tokens there are no features, so the head uses its own state instead. `predict` does this for
all positions of a text at once, exactly as in decoding; EAGLE-3 calls it training-time test (arXiv
2503.01840).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from calibration.drafters.llama_layer import KvStore, LlamaLayer, LlamaLayerShape

Features = Mapping[int, Tensor]
"""Layer of the target → hidden states (…, h) after it; for the last layer, after the final norm."""


class FeatureHead(nn.Module, ABC):
    """A head of one layer. Subclasses define how features become a state, and what a step reads."""

    kind: ClassVar[str]
    block: LlamaLayer

    def __init__(self, shape: LlamaLayerShape, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.layers = layers

    def fuse(self, features: Features) -> Tensor:
        """Return states (…, h) from the target's features; here the feature of the last layer."""
        return features[self.layers[-1]]

    @abstractmethod
    def step(
        self,
        state: Tensor,
        embedding: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        store: KvStore | None = None,
    ) -> Tensor:
        """Return the states (b, n, h) after reading tokens; they are the next states and the input of
        `read_out`.
        """

    @abstractmethod
    def read_out(self, state: Tensor) -> Tensor:
        """Return the input of the target's output matrix."""

    def predict(
        self, tokens: Tensor, features: Features, embed: Callable[[Tensor], Tensor], steps: int
    ) -> tuple[Tensor, Tensor]:
        """Return predictions (steps, b, n, h) for the output matrix, and the states (b, n, h) of the first
        step.

        Row s of step j predicts the token after position s, j tokens beyond the last features; rows s < j are
        undefined. tokens: (b, n); features: (b, n, h) each.
        """
        length = tokens.shape[1]
        positions = torch.arange(length, device=tokens.device)
        embedding = embed(tokens.roll(-1, 1))
        stored: list[tuple[Tensor, Tensor]] = []

        def store(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            stored.append((key, value))
            return torch.cat([k for k, _ in stored], 2), torch.cat([v for _, v in stored], 2)

        state = self.fuse(features)
        states: list[Tensor] = []
        for step in range(1, steps + 1):
            mask = None if step == 1 else _drafting_mask(positions, step)
            states.append(self.step(state, embedding, positions, mask, store))
            state = states[-1].roll(1, 1)
        predictions = torch.stack([self.read_out(step_state).roll(1, 1) for step_state in states])
        return predictions, states[0]


def _drafting_mask(positions: Tensor, step: int) -> Tensor:
    """What row t of a step attends to, bool (n, step · n).

    These are the rows up to t - step + 1 of the first step, which had features, and in each later step the
    row on the path of row t.
    """
    row, column = positions[:, None], positions[None]
    blocks = [column <= row - step + 1]
    blocks += [column == row - step + earlier for earlier in range(2, step + 1)]
    mask = torch.cat(blocks, 1)
    mask[: step - 1] = torch.cat([column == row] * step, 1)[: step - 1]  # undefined rows attend to themselves
    return mask
