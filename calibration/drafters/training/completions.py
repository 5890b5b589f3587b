"""Text that the target writes itself, in batches of sequences.

A drafter drafts the target's own text, so part of its training text is written by the target (DistillSpec,
arXiv 2310.08461). Conversations start with only the opening of a user's turn: the model also writes the
question (Magpie, arXiv 2406.08464).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibration.drafters.cache import KVPool
from calibration.drafters.language_model import LanguageModel, Pass
from calibration.sampling.distributions import draw

_MARK = "\u2063QUESTION\u2063"
"""Placeholder for the question while the opening is cut out of the template."""


@torch.no_grad()
def complete(
    network: LanguageModel, prompts: Tensor, length: int, temperatures: Tensor, generator: torch.Generator
) -> Tensor:
    """Return sequences (b, length) that begin with prompts (b, n); the rest is drawn at temperatures (b,).

    End tokens are drawn like any other token and do not stop a sequence.
    """
    count = prompts.shape[0]
    pool = KVPool(network.layer_count, count)
    sequences = fresh = prompts.to(network.device)
    temperatures = temperatures.to(network.device)[:, None].clamp(min=1e-4)
    while sequences.shape[1] < length:
        read_tokens = sequences.shape[1]
        logits = _read(network, fresh, read_tokens - fresh.shape[1], pool)
        distribution = torch.softmax(logits.float() / temperatures, -1)
        uniforms = torch.rand(count, generator=generator, dtype=torch.float64)
        fresh = draw(distribution, uniforms.to(network.device))[:, None]
        sequences = torch.cat([sequences, fresh], dim=1)
    return sequences.cpu()


def _read(network: LanguageModel, fresh: Tensor, start: int, pool: KVPool) -> Tensor:
    """Return logits (b, V) after new tokens (b, n) at `start`; n > 1 only for `start` = 0."""
    count, rows = fresh.shape
    positions = (torch.arange(rows, device=fresh.device) + start).expand(count, rows)
    hidden = network.embed(fresh, positions)
    mask = hidden.new_zeros(1, 1, rows, start + rows) if start else None
    step = Pass(pool, range(count), [start] * count, mask)
    layers = range(network.layer_count)
    return network.head(network.run_pass(network.layers, hidden, positions, step, layers)[:, -1])


def opening(tokenizer: Any) -> list[int]:
    """Return the tokens before a user's first word; without a chat template, the token that starts a text."""
    if getattr(tokenizer, "chat_template", None):
        turn = [{"role": "user", "content": _MARK}]
        text = str(tokenizer.apply_chat_template(turn, tokenize=False)).partition(_MARK)[0]
        tokens: list[int] = tokenizer.encode(text, add_special_tokens=False)
    else:
        first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        tokens = [] if first is None else [first]
    return tokens or [0]
