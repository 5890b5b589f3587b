"""Typical acceptance: accepts drafts that are likely enough, at the cost of another distribution than the
target's.

A draft is accepted if its probability under the target exceeds min(epsilon, delta × exp(-entropy)), whatever
distribution it was drawn from (Medusa, arXiv 2401.10774, section 2.3.1). `typical_distribution` is the
resulting distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calibration.sampling.distributions import draw


@dataclass(frozen=True)
class Typical:
    """The rule with its two constants, called like `accept_tree`. At temperature 0 it is greedy decoding."""

    epsilon: float = 0.09
    delta: float = 0.3

    def threshold(self, distribution: Tensor) -> Tensor:
        """Return the probability that a token must exceed, (...) of distributions (..., V)."""
        entropy = torch.special.entr(distribution).sum(-1)
        return (self.delta * torch.exp(-entropy)).clamp(max=self.epsilon)

    def __call__(
        self, p: Tensor, q: Tensor | None, drafts: Tensor, parents: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return (last node of the longest path of likely drafts (b,), -1: none; the token after it (b,)).

        Shapes as in `accept_tree`; the distributions of the drafts are ignored.
        """
        thresholds = self.threshold(p)
        last = drafts.new_full((len(p),), -1)
        deepest = drafts.new_zeros(len(p))
        depths: list[Tensor] = []  # 0: not reached
        for node, parent in enumerate(parents.tolist()):
            likely = (
                p[:, 1 + parent].gather(1, drafts[:, node : node + 1]).squeeze(1) > thresholds[:, 1 + parent]
            )
            above = depths[parent] if parent >= 0 else torch.zeros_like(deepest)
            reached = likely & ((above > 0) | (parent < 0))
            depths.append(torch.where(reached, above + 1, 0))
            last = torch.where(depths[node] > deepest, node, last)
            deepest = torch.maximum(deepest, depths[node])
        distribution = p.gather(1, (1 + last).view(-1, 1, 1).expand(-1, 1, p.shape[2])).squeeze(1)
        return last, draw(distribution, uniforms[:, -1])

    def typical_distribution(self, p: Tensor, q: Tensor) -> Tensor:
        """Return the distribution (..., V) of a token drafted from q (..., V; a point mass if greedy) under
        this rule.

        A rejected draft is replaced by a draw from p. The distance of the result from p is the distortion.
        """
        taken = q * (p > self.threshold(p).unsqueeze(-1))
        return taken + (1.0 - taken.sum(-1, keepdim=True)) * p


def total_variation(first: Tensor, second: Tensor) -> Tensor:
    """Return the total variation of two distributions (..., V), half of the summed absolute difference."""
    return (first - second).abs().sum(-1) / 2.0
