"""What EAGLE, EAGLE-3 and MTP have in common: one layer that runs on from the target's hidden states.

Row t of a head reads the target's features at position t and the token at t + 1, and says what follows t + 1.
Further on there are no features: the head takes its own state in their place. In `predict` that is done for
all positions of a text at once, as in decoding; EAGLE-3 calls it training-time test (arXiv 2503.01840).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from calibration.drafters.llama_layer import LlamaLayer, LlamaLayerShape, Store

Features = Mapping[int, Tensor]
"""Layer of the target → hidden states (…, h) after it; after the last layer those behind the final norm."""


class FeatureHead(nn.Module, ABC):
    """A head of one layer. Subclasses say how features become a state, and what a step reads."""

    kind: ClassVar[str]
    block: LlamaLayer

    def __init__(self, shape: LlamaLayerShape, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.layers = layers

    def fuse(self, features: Features) -> Tensor:
        """Return states (…, h) made of the target's features: here the feature of the last layer."""
        return features[self.layers[-1]]

    @abstractmethod
    def step(
        self,
        state: Tensor,
        embedding: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        store: Store | None = None,
    ) -> Tensor:
        """Return the states (b, n, h) after reading tokens: the next states, and what `read_out` takes."""

    @abstractmethod
    def read_out(self, state: Tensor) -> Tensor:
        """Return what the target's head (the linear layer) multiplies."""

    def predict(
        self, tokens: Tensor, features: Features, embed: Callable[[Tensor], Tensor], steps: int
    ) -> tuple[Tensor, Tensor]:
        """Return predictions (steps, b, n, h) for the head, and the states (b, n, h) of the first step.

        Row s of step j says what follows position s, drafted j tokens beyond the last features; rows s < j
        mean nothing. tokens: (b, n); features: (b, n, h) each.
        """
        length = tokens.shape[1]
        positions = torch.arange(length, device=tokens.device)
        embedding = embed(tokens.roll(-1, 1))
        seen: list[tuple[Tensor, Tensor]] = []

        def store(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            seen.append((key, value))
            return torch.cat([one for one, _ in seen], 2), torch.cat([one for _, one in seen], 2)

        state = self.fuse(features)
        states: list[Tensor] = []
        for step in range(1, steps + 1):
            mask = None if step == 1 else _drafting_mask(positions, step)
            states.append(self.step(state, embedding, positions, mask, store))
            state = states[-1].roll(1, 1)
        predictions = torch.stack([self.read_out(one).roll(1, 1) for one in states])
        return predictions, states[0]


def _drafting_mask(positions: Tensor, step: int) -> Tensor:
    """What row t of a step sees, bool (n, step · n): rows up to t - step + 1 of the first step, which had
    features; of each later one the row on its own way.
    """
    row, column = positions[:, None], positions[None]
    blocks = [column <= row - step + 1]
    blocks += [column == row - step + earlier for earlier in range(2, step + 1)]
    mask = torch.cat(blocks, 1)
    mask[: step - 1] = torch.cat([column == row] * step, 1)[: step - 1]  # meaningless rows see themselves
    return mask
