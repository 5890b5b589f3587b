"""Prompts that were read once; every measured context is a part of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calibration.decoder.decoder import Cache, Decoder
from calibration.decoder.sampling import greedy

_CHUNK_TOKENS = 128


@dataclass(frozen=True)
class PromptCache:
    """The KV cache of a decoder after `tokens` (m, n), and the best token after each of them (m, n)."""

    tokens: Tensor
    cache: Cache
    best: Tensor

    @classmethod
    def read(cls, decoder: Decoder, tokens: Tensor) -> PromptCache:
        """Read prompts in pieces, because their attention would need too much memory at once."""
        count, length = tokens.shape
        cache = decoder.cache(count, length)
        best = torch.empty_like(tokens)
        for begin in range(0, length, _CHUNK_TOKENS):
            end = min(begin + _CHUNK_TOKENS, length)
            before = torch.full((count,), begin, device=tokens.device)
            hidden = decoder.forward(tokens[:, begin:end], before, cache, end)
            best[:, begin:end] = greedy(decoder.head(hidden))
        return cls(tokens, cache, best)

    @classmethod
    def random(cls, decoder: Decoder, count: int, length: int, seed: int = 0) -> PromptCache:
        """Prompts of random tokens; times do not depend on the tokens."""
        generator = torch.Generator(decoder.device).manual_seed(seed)
        size = (count, length)
        tokens = torch.randint(decoder.shape.vocab, size, device=decoder.device, generator=generator)
        return cls.read(decoder, tokens)

    def first(self, batch: int, context: int) -> Tensor:
        """The token (b,) emitted after `context` tokens; sequences take the prompts in turn."""
        return self.best[self._rows(batch), context - 1]

    def fill(self, cache: Cache, context: int) -> None:
        """Copy `context` tokens to `cache`, for the layers that it has: all or the first ones."""
        layers, batch = cache.keys.shape[:2]
        rows = self._rows(batch)
        for source, destination in ((self.cache.keys, cache.keys), (self.cache.values, cache.values)):
            destination[:, :, :, :context] = source[:layers, rows, :, :context]

    def _rows(self, batch: int) -> Tensor:
        return torch.arange(batch, device=self.tokens.device) % len(self.tokens)
