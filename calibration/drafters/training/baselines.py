"""The baseline of trained drafters: the target with skipped layers, evaluated on the same text."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from calibration.drafters.cache import KVPool
from calibration.drafters.feature_head import Features
from calibration.drafters.language_model import LanguageModel, Pass, additive
from calibration.drafters.layer_skip import without_middle


class LayerSkipped:
    """Layer-skip as a drafter to evaluate: its first draft at each position, after a context read by the full
    target.
    """

    kind: ClassVar[str] = "layer-skip"
    layers: tuple[int, ...] = ()

    def __init__(self, network: LanguageModel) -> None:
        self._network = network
        self._draft_layers = without_middle(network.layer_count)

    @torch.no_grad()
    def predict(
        self, tokens: Tensor, features: Features, embed: Callable[[Tensor], Tensor], steps: int
    ) -> tuple[Tensor, Tensor]:
        """As `FeatureHead.predict`, of one step."""
        network = self._network
        count, length = tokens.shape
        pool = KVPool(network.layer_count, count)
        positions = torch.arange(length, device=tokens.device).expand(count, length)
        hidden = network.embed(tokens, positions)
        causal = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        full_pass = Pass(pool, range(count), [0] * count, additive(causal, hidden))
        network.run_pass(network.layers, hidden, positions, full_pass, range(network.layer_count))
        # Each row is read again with fewer layers: it attends to the target's rows before it, and to itself.
        mask = torch.cat([causal.tril(-1), torch.eye(length, dtype=torch.bool, device=tokens.device)], 1)
        draft_pass = Pass(pool, range(count), [length] * count, additive(mask, hidden))
        layers = [network.layers[layer] for layer in self._draft_layers]
        state = network.norm(network.run_pass(layers, hidden, positions, draft_pass, self._draft_layers))
        return state[None], state
