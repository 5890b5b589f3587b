"""Whether speculation emits what plain greedy decoding does, in fp32."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.closure.clock import Clock
from calibration.closure.engine import PlainDecoding, SpeculativeDecoding
from calibration.closure.prompts import Prompts
from calibration.decoder.decoder import Decoder


def plain_text(target: Decoder, prompts: Prompts, batch: int, context: int, count: int) -> Tensor:
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
    prompts: Prompts,
    batch: int,
    context: int,
    count: int,
    draft_length: int,
) -> tuple[Tensor, float]:
    """The same by speculation, and the share of its drafts that were accepted."""
    room = count * (draft_length + 1)  # the slowest sequence may take a cycle per token
    decoding = SpeculativeDecoding(target, drafter, prompts, batch, context, room, draft_length)
    clock, drafted, accepted = Clock(target.device), 0, 0
    texts = [[int(token)] for token in decoding.last]
    while min(map(len, texts)) < count:
        drafts = decoding.drafts.clone()
        decoding.cycle(clock)
        for text, row, taken, token in zip(
            texts, drafts.tolist(), decoding.accepted.tolist(), decoding.last.tolist(), strict=True
        ):
            text += [*row[:taken], token]
            drafted, accepted = drafted + draft_length, accepted + taken
    return torch.tensor([text[:count] for text in texts]), accepted / drafted
