"""The one decode loop: any target, any drafter, chains and trees, greedy and sampled."""

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

Rule = Callable[[Tensor, Tensor | None, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Called like `accept_tree`: which drafts survive, and the token after them."""

Observer = Callable[["Round", Proposal, Tensor], None]
"""Sees a round, its drafts, and the target's filtered distributions (n + 1, V)."""


@dataclass(frozen=True)
class Round:
    """One draft and verify. Counts are taken before stop tokens and `max_tokens` cut the rest.

    position: output tokens before it. drafted: levels of drafts (a chain's length). nodes: drafts scored.
    path: accepted drafts as places in the proposal. ranks: place of each among its siblings.
    chances: for each level tried, the probability that its first candidate is accepted, given all above:
    1 - TV of the two distributions, or the target's probability of a deterministic draft.
    """

    position: int
    drafted: int
    nodes: int
    path: tuple[int, ...]
    ranks: tuple[int, ...]
    chances: tuple[float, ...]

    @property
    def accepted(self) -> int:
        """Drafts that survived; one more token is emitted."""
        return len(self.path)


@dataclass(frozen=True)
class Decoded:
    """The output of a request, the prompt not included, and the rounds that made it.

    The first token comes from the prompt's pass, so that rounds emit the others.
    """

    tokens: tuple[int, ...]
    rounds: tuple[Round, ...]
    finish: Literal["stop", "length"]

    @property
    def mean_acceptance_length(self) -> float:
        """1 + accepted ÷ rounds with a draft; NaN without any."""
        drafted = [one.accepted for one in self.rounds if one.drafted]
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
    rule: Rule = accept_tree,
    observe: Observer | None = None,
) -> Decoded:
    """Decode up to `max_tokens` tokens after a prompt (n,), n >= 1; a stop token ends it and is in it.

    `draft_length`: most levels of drafts per round; a tree's own depth may be less. `draft` None: plain
    decoding. A target with `room`, the levels that still fit its window, gets no more, and the output ends
    where not even a token fits. Under `accept_tree` the output has the distribution of plain decoding with
    the same filters, whatever the drafter; at temperature 0 it is the same output. Same seed, same output, on
    one device. Raises InputError for values that mean nothing.
    """
    if max_tokens < 1 or draft_length < 0:
        field, value = ("max_tokens", max_tokens) if max_tokens < 1 else ("draft_length", draft_length)
        least = "1 or more" if max_tokens < 1 else "0 or more"
        raise InputError(Problem(field=field, value=value, message="is too small", allowed=least))
    sampling = Sampling(temperature, top_k, top_p, draft_sampling)
    luck = torch.Generator().manual_seed(seed)
    distribution = filtered_distribution(target.start(prompt), sampling)
    last = int(draw(distribution, _uniforms(1, luck, distribution)[0, 0]))
    tokens, rounds = [last], list[Round]()
    if draft is not None:
        draft.start(prompt)
    while len(tokens) < max_tokens and last not in stop_tokens:
        room = getattr(target, "room", math.inf)  # a model's window ends; a table has none
        if room < 0:
            break
        levels = int(min(draft_length, room))
        proposal = NOTHING if draft is None else draft.propose(last, levels, sampling, luck)
        distributions = filtered_distribution(target.score(last, proposal), sampling)
        drafts, parents = proposal.tokens.to(distributions.device), proposal.parents
        uniforms = _uniforms(len(drafts) + 1, luck, distributions)
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
        stop = next((place for place, one in enumerate(emitted, 1) if one in stop_tokens), len(emitted))
        tokens += emitted[:stop]
        last = tokens[-1]
    finish: Literal["stop", "length"] = "stop" if tokens[:max_tokens][-1] in stop_tokens else "length"
    return Decoded(tuple(tokens[:max_tokens]), tuple(rounds), finish)


NOTHING = Proposal(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
"""A round without drafts: plain decoding."""


def _uniforms(count: int, luck: torch.Generator, like: Tensor) -> Tensor:
    """Uniforms (1, count), drawn on the CPU so that every device meets the same."""
    return torch.rand(1, count, generator=luck, dtype=torch.float64).to(like.device)


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
    tried = [(place, firsts[place]) for place in (-1, *path) if place in firsts]
    places = torch.tensor([place for place, _ in tried], device=distributions.device)
    first = torch.tensor([child for _, child in tried])
    chances: list[float] = []
    if tried:
        proposed = (
            None if proposal.distributions is None else proposal.distributions[first].to(distributions.device)
        )
        drafts = proposal.tokens[first].to(distributions.device)
        chances = acceptance_probability(distributions[1 + places], proposed, drafts).tolist()
    return Round(
        position=position,
        drafted=max(depths, default=0),
        nodes=len(parents),
        path=tuple(path),
        ranks=tuple(ranks[one] for one in path),
        chances=tuple(chances),
    )
