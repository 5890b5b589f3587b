"""Checks that speculation emits the same text as plain greedy decoding, in fp32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calibration.closure.clock import Clock
from calibration.closure.engine import PlainDecoding, SpeculativeDecoding
from calibration.closure.prompt_cache import PromptCache
from calibration.decoder.decoder import Decoder

_TEXTS, _CONTEXT, _TOKENS = 2, 48, 24
_DRAFT_LENGTHS = (1, 3, 7)


def plain_text(target: Decoder, prompts: PromptCache, batch: int, context: int, count: int) -> Tensor:
    """`count` greedy tokens (b, count) after `context` tokens of the prompts."""
    decoding = PlainDecoding(target, prompts, batch, context, count)
    clock, tokens = Clock(target.device), [decoding.last.clone()]
    while len(tokens) < count:
        decoding.step(clock)
        tokens.append(decoding.last.clone())
    return torch.stack(tokens, dim=1)


def speculative_text(
    target: Decoder,
    drafter: Decoder,
    prompts: PromptCache,
    batch: int,
    context: int,
    count: int,
    draft_length: int,
) -> tuple[Tensor, float]:
    """The same by speculation, and the share of accepted drafts."""
    room = count * (draft_length + 1)  # the slowest sequence may take a cycle per token
    decoding = SpeculativeDecoding(target, drafter, prompts, batch, context, room, draft_length)
    clock, drafted, accepted = Clock(target.device), 0, 0
    texts = [[int(token)] for token in decoding.last]
    while min(map(len, texts)) < count:
        drafts = decoding.drafts.clone()
        decoding.cycle(clock)
        for text, row, accepted_drafts, token in zip(
            texts, drafts.tolist(), decoding.accepted.tolist(), decoding.last.tolist(), strict=True
        ):
            text += [*row[:accepted_drafts], token]
            drafted, accepted = drafted + draft_length, accepted + accepted_drafts
    return torch.tensor([text[:count] for text in texts]), accepted / drafted


@dataclass(frozen=True)
class TextCheck:
    """Whether speculation left every text unchanged, and the smallest share of accepted drafts in a text.

    Equal texts without accepted drafts would prove nothing.
    """

    equal: bool
    accepted: float


def compare_texts(target: Decoder) -> TextCheck:
    """Compare two greedy texts with 1, 3 and 7 drafts of four fifths of the layers; for fp32."""
    prompts = PromptCache.random(target, _TEXTS, _CONTEXT)
    drafter = target.first_layers(target.shape.layers * 4 // 5)
    plain = plain_text(target, prompts, _TEXTS, _CONTEXT, _TOKENS).cpu()
    shares, equal = [], True
    for draft_length in _DRAFT_LENGTHS:
        speculative = speculative_text(target, drafter, prompts, _TEXTS, _CONTEXT, _TOKENS, draft_length)
        equal = equal and torch.equal(plain, speculative[0])
        shares.append(speculative[1])
    return TextCheck(equal, min(shares))
