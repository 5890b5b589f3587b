"""The exact distribution of what a rejection rule emits, found from its decisions alone.

The rule is a black box that maps uniforms to an outcome. Every draft is accepted below some threshold of its
uniform and the next token grows with its own, so that bisection finds the thresholds, and with them the
probability of every outcome, to 1e-10. Nothing of the rule's theory enters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from calibration.sampling.decode import VerificationRule

BISECTIONS = 34
ALMOST_ONE = 1.0 - 2.0**-53


def bisected(holds: Callable[[Tensor], Tensor], rows: int) -> Tensor:
    """The largest u in [0, 1] below which `holds` is true, for each row."""
    low, high = torch.zeros(rows, dtype=torch.float64), torch.ones(rows, dtype=torch.float64)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        true = holds(middle)
        low, high = torch.where(true, middle, low), torch.where(true, high, middle)
    return (low + high) / 2


def outcomes(
    rule: VerificationRule, p: Tensor, q: Tensor | None, drafts: Tensor, parents: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """All outcomes of a batch: (last node (b,), next token (b,), probability (b,)) of each.

    p: (b, n + 1, V), q: (b, n, V) or None, drafts: (b, n), parents: (n,).
    """
    rows, count = drafts.shape
    on_path = torch.eye(count + 1, dtype=torch.bool)[:, :count]  # row -1: nothing is accepted
    for node, parent in enumerate(parents.tolist()):
        on_path[node] |= on_path[parent]
    branches: list[tuple[Tensor, Tensor, Tensor]] = []

    def branch(settled: tuple[float, ...], weight: Tensor) -> None:
        """Follow every decision on the next draft, given uniforms that settle those before."""
        if not (weight > 0.0).any():
            return
        uniforms = torch.full((rows, count + 1), ALMOST_ONE, dtype=torch.float64)
        uniforms[:, : len(settled)] = torch.tensor(settled, dtype=torch.float64)

        def run(place: int, value: Tensor) -> tuple[Tensor, Tensor]:
            changed = uniforms.clone()
            changed[:, place] = value
            return rule(p, q, drafts, parents, changed)

        node = len(settled)
        if node < count:
            threshold = bisected(lambda u: on_path[run(node, u)[0], node], rows)
            branch((*settled, 0.0), weight * threshold)
            branch((*settled, ALMOST_ONE), weight * (1.0 - threshold))
            return
        last, _ = rule(p, q, drafts, parents, uniforms)
        below = torch.zeros(rows, dtype=torch.float64)
        for token in range(p.shape[2]):
            up_to = bisected(lambda u, token=token: run(count, u)[1] <= token, rows)
            branches.append((last, torch.full_like(last, token), weight * (up_to - below)))
            below = up_to

    branch((), torch.ones(rows, dtype=torch.float64))
    return branches


def joint_distributions(
    rule: VerificationRule,
    target: Tensor,
    draft: Tensor,
    parents: Sequence[int],
    length: int,
    siblings: str,
) -> Tensor:
    """The distribution of the next `length` tokens after every pair of tokens, (V, V, V ** length), by
    enumeration.

    target, draft: distributions (V, V, V) after every pair. `siblings`: "replaced", "distinct" or "best",
    which are deterministic. Every round drafts the whole topology; what goes beyond `length` is cut.
    """
    vocab_size, count = len(target), len(parents)
    pairs = torch.cartesian_prod(torch.arange(vocab_size), torch.arange(vocab_size))
    if siblings == "best":
        drafts = torch.zeros(len(pairs), count, dtype=torch.int64)
        start = pairs
    else:
        every = torch.tensor(list(itertools.product(range(vocab_size), repeat=count)), dtype=torch.int64)
        drafts = every.repeat(len(pairs), 1)
        start = pairs.repeat_interleave(len(every), 0)
    chances, distributions = torch.ones(len(drafts), dtype=torch.float64), []
    before, after = [start[:, 0]], [start[:, 1]]  # the pair that node i - 1 leaves, the root first
    for node, parent in enumerate(parents):
        distribution = draft[before[1 + parent], after[1 + parent]]
        elder = [other for other in range(node) if parents[other] == parent]
        if siblings == "best":
            drafts[:, node] = distribution.argsort(dim=-1, descending=True, stable=True)[:, len(elder)]
        if siblings == "distinct":
            for other in elder:
                distribution = distribution.scatter(1, drafts[:, other : other + 1], 0.0)
            distribution = distribution / distribution.sum(1, keepdim=True)
        if siblings != "best":
            chances = chances * distribution.gather(1, drafts[:, node : node + 1]).squeeze(1)
        distributions.append(distribution)
        before.append(after[1 + parent])
        after.append(drafts[:, node])
    p = torch.stack([target[a, b] for a, b in zip(before, after, strict=True)], 1)
    q = None if siblings == "best" else torch.stack(distributions, 1)

    emitted: dict[tuple[int, ...], Tensor] = {}  # tokens of a round -> probability after every pair
    row_of = start[:, 0] * vocab_size + start[:, 1]
    paths = [()] + [_path(parents, node) for node in range(count)]
    for last, token, probability in outcomes(rule, p, q, drafts, torch.tensor(parents)):
        weight = chances * probability
        for node in range(-1, count):
            chosen = (last == node) & (weight > 0.0)
            keys = torch.cat([drafts[chosen][:, list(paths[1 + node])], token[chosen].unsqueeze(1)], 1)
            for key, row, share in zip(
                keys.tolist(), row_of[chosen].tolist(), weight[chosen].tolist(), strict=True
            ):
                emitted.setdefault(tuple(key), torch.zeros(vocab_size**2, dtype=torch.float64))[row] += share
    return _unrolled(emitted, vocab_size, length).view(vocab_size, vocab_size, -1)


def target_distributions(target: Tensor, length: int) -> Tensor:
    """The distribution of plain decoding: `length` tokens after every pair, (V, V, V ** length)."""
    vocab_size = len(target)
    distribution = torch.ones(vocab_size, vocab_size, 1, dtype=torch.float64)
    for _ in range(length):
        distribution = (target.unsqueeze(-1) * distribution.unsqueeze(0)).flatten(2)
    return distribution


def _path(parents: Sequence[int], node: int) -> tuple[int, ...]:
    return (*_path(parents, parents[node]), node) if node >= 0 else ()


def _unrolled(emitted: dict[tuple[int, ...], Tensor], vocab_size: int, length: int) -> Tensor:
    """Rounds one after the other until `length` tokens are out, (V * V, V ** length)."""
    distributions = [torch.ones(vocab_size**2, 1, dtype=torch.float64)]
    for count in range(1, length + 1):
        distribution = torch.zeros(vocab_size**2, *([vocab_size] * count), dtype=torch.float64)
        for tokens, probability in emitted.items():
            prefix = tokens[:count]
            if len(prefix) == count:
                distribution[(slice(None), *prefix)] += probability
                continue
            rest = distributions[count - len(prefix)].view(
                vocab_size, vocab_size, *([vocab_size] * (count - len(prefix)))
            )
            # The pair after the round: its last two tokens, or the last token before it and its only one.
            if len(prefix) > 1:
                distribution[(slice(None), *prefix)] += torch.tensordot(
                    probability, rest[prefix[-2], prefix[-1]], 0
                )
            else:
                after = rest[:, prefix[-1]].repeat(vocab_size, *([1] * (count - 1)))
                distribution[(slice(None), *prefix)] += probability.view(-1, *([1] * (count - 1))) * after
        distributions.append(distribution.flatten(1))
    return distributions[length]
