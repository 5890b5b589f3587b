"""The drafter of a speculation method that proposes with a network: its own layers, its projection, what it
shares."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.model import Linear, Model


@dataclass(frozen=True)
class Drafter:
    """A draft network. `model` holds only what it adds to the target: shared embeddings and heads count no
    weights.

    `model.head` is what a draft pass multiplies for its logits (draft vocabulary), whether it owns it or not.
    `fc` projects target hidden states (EAGLE-1: 2 x hidden, EAGLE-3: the auxiliary states, MTP: 2 x hidden)
    to the drafter's width; engines keep it whole on every rank.
    """

    name: str
    kind: str  # eagle | eagle3 | mtp | draft_model
    model: Model
    fc: Linear | None
    shares_embedding: bool
    shares_head: bool
    max_context_tokens: int | None = None  # what it was trained for; None: as far as the target goes
    default_draft_length: int | None = None

    @property
    def parameters(self) -> int:
        return self.model.parameters + (self.fc.parameters if self.fc else 0)

    def weight_bytes(self, tensor_parallel: int = 1, expert_parallel: int = 1) -> float:
        """Bytes on one rank."""
        own = self.model.weight_bytes(tensor_parallel, expert_parallel)
        return own + (self.fc.per_rank(tensor_parallel).weight_bytes if self.fc else 0.0)

    def kv_bytes_per_token(self, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes on one rank per token of context."""
        return self.model.kv_bytes_per_token(kv_cache, tensor_parallel)
