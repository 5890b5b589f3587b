"""The decode loop, for any target and drafter, chains and trees, greedy and sampled decoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calibration.sampling.distributions import draw, filtered_distribution
from calibration.sampling.protocols import Drafter, Proposal, Sampling, Verifier
from calibration.sampling.rejection import accept_tree, acceptance_probability
from simulator.errors import InputError, Problem

VerificationRule = Callable[[Tensor, Tensor | None, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Called like `accept_tree`; returns the accepted drafts and the token after them."""

Observer = Callable[["Round", Proposal, Tensor], None]
"""Called with a round, its drafts, and the target's filtered distributions (n + 1, V)."""


@dataclass(frozen=True)
class Round:
    """One draft and verify round. Counts are taken before stop tokens and `max_tokens` cut the output.

    position: output tokens before the round. drafted: levels of drafts (the length of a chain). nodes: drafts
    scored. path: accepted drafts as indices into the proposal. ranks: index of each accepted draft among its
    siblings. chances: for each level tried, the probability that its first candidate is accepted, given the
    levels above: 1 - TV of the two distributions, or the target's probability of a deterministic draft.
    """

    position: int
    drafted: int
    nodes: int
    path: tuple[int, ...]
    ranks: tuple[int, ...]
    chances: tuple[float, ...]

    @property
    def accepted(self) -> int:
        """Number of accepted drafts; the round emits one more token."""
        return len(self.path)


@dataclass(frozen=True)
class Decoded:
    """The output of a request, without the prompt, and its rounds.

    The first token comes from the pass over the prompt; the rounds emit the others.
    """

    tokens: tuple[int, ...]
    rounds: tuple[Round, ...]
    finish: Literal["stop", "length"]

    @property
    def mean_acceptance_length(self) -> float:
        """1 + accepted ÷ rounds with a draft; NaN without any."""
        drafted = [outcome.accepted for outcome in self.rounds if outcome.drafted]
        return 1.0 + sum(drafted) / len(drafted) if drafted else float("nan")


@torch.inference_mode()
def speculative_decode(
    target: Verifier,
    draft: Drafter | None,
    prompt: Tensor,
    draft_length: int,
    temperature: float = 0.0,
    *,
    top_k: int = 0,
    top_p: float = 1.0,
    draft_sampling: Literal["greedy", "sampled"] = "sampled",
    max_tokens: int = 128,
    stop_tokens: Collection[int] = (),
    seed: int = 0,
    rule: VerificationRule = accept_tree,
    observe: Observer | None = None,
) -> Decoded:
    """Decode up to `max_tokens` tokens after a prompt (n,), n >= 1. A stop token ends the output and is part
    of it.

    `draft_length`: max levels of drafts per round; a tree may have fewer. `draft` None: plain decoding.
    `target.room`, if there is one, limits the levels to those that fit the target's window; the output ends
    when no token fits.

    With `accept_tree` the output has the distribution of plain decoding with the same filters, whatever the
    drafter; at temperature 0 it is the same output. On one device, the same seed gives the same output.
    Raises InputError for invalid values.
    """
    if max_tokens < 1 or draft_length < 0:
        field, value = ("max_tokens", max_tokens) if max_tokens < 1 else ("draft_length", draft_length)
        allowed = "1 or more" if max_tokens < 1 else "0 or more"
        raise InputError(Problem(field=field, value=value, message="is too small", allowed=allowed))
    sampling = Sampling(temperature, top_k, top_p, draft_sampling)
    generator = torch.Generator().manual_seed(seed)
    distribution = filtered_distribution(target.start(prompt), sampling)
    last = int(draw(distribution, _uniforms(1, generator, distribution)[0, 0]))
    tokens, rounds = [last], list[Round]()
    if draft is not None:
        draft.start(prompt)
    while len(tokens) < max_tokens and last not in stop_tokens:
        room = getattr(target, "room", math.inf)  # a table has no limited window
        if room < 0:
            break
        levels = int(min(draft_length, room))
        proposal = NOTHING if draft is None else draft.propose(last, levels, sampling, generator)
        distributions = filtered_distribution(target.score(last, proposal), sampling)
        drafts, parents = proposal.tokens.to(distributions.device), proposal.parents
        uniforms = _uniforms(len(drafts) + 1, generator, distributions)
        proposed = (
            None if proposal.distributions is None else proposal.distributions[None].to(distributions.device)
        )
        node, token = rule(distributions[None], proposed, drafts[None], parents, uniforms)
        rounds.append(_round(len(tokens), proposal, distributions, int(node)))
        last = int(token)
        path = rounds[-1].path
        emitted = [*drafts[list(path)].tolist(), last]
        target.keep(path)
        if draft is not None:
            draft.keep(emitted)
        if observe is not None:
            observe(rounds[-1], proposal, distributions)
        emitted_count = next(
            (count for count, token in enumerate(emitted, 1) if token in stop_tokens), len(emitted)
        )
        tokens += emitted[:emitted_count]
        last = tokens[-1]
    finish: Literal["stop", "length"] = "stop" if tokens[:max_tokens][-1] in stop_tokens else "length"
    return Decoded(tuple(tokens[:max_tokens]), tuple(rounds), finish)


NOTHING = Proposal(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
"""A round without drafts: plain decoding."""


def _uniforms(count: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Uniforms (1, count), drawn on the CPU so that they are the same for every device."""
    return torch.rand(1, count, generator=generator, dtype=torch.float64).to(like.device)


def _round(position: int, proposal: Proposal, distributions: Tensor, node: int) -> Round:
    """The record of a round whose last accepted node is `node`."""
    parents = proposal.parents.tolist()
    path: list[int] = []
    while node >= 0:
        path.insert(0, node)
        node = parents[node]
    depths, firsts = list[int](), dict[int, int]()
    ranks: list[int] = []
    for index, parent in enumerate(parents):
        depths.append(1 + depths[parent] if parent >= 0 else 1)
        firsts.setdefault(parent, index)
        ranks.append(parents[:index].count(parent))
    tried = [(parent, firsts[parent]) for parent in (-1, *path) if parent in firsts]
    tried_parents = torch.tensor([parent for parent, _ in tried], device=distributions.device)
    first = torch.tensor([child for _, child in tried])
    chances: list[float] = []
    if tried:
        proposed = (
            None if proposal.distributions is None else proposal.distributions[first].to(distributions.device)
        )
        drafts = proposal.tokens[first].to(distributions.device)
        chances = acceptance_probability(distributions[1 + tried_parents], proposed, drafts).tolist()
    return Round(
        position=position,
        drafted=max(depths, default=0),
        nodes=len(parents),
        path=tuple(path),
        ranks=tuple(ranks[draft] for draft in path),
        chances=tuple(chances),
    )
