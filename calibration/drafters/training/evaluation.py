"""Evaluates a drafter on text kept from training: alpha and acceptance by position, with intervals.

The text is the target's own, at temperature 1. Let p be the target's distribution and q the drafter's. A
draft from q is accepted with probability 1 - TV(p, q). Given the token in the text, which is a draw from p,
this token was drafted and accepted with probability min(1, q/p). So the probability that position j is
accepted, given that all earlier positions were, is the mean of 1 - TV at j over the text, weighted by the
product of these earlier probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from calibration.drafters.feature_head import Features
from calibration.drafters.language_model import LanguageModel
from calibration.drafters.training.losses import match
from calibration.drafters.training.shards import HeldOutText
from simulator.results.estimate import Estimate, mean_estimate

_BATCH = 8
_RESAMPLES = 400


class DraftPredictor(Protocol):
    """A drafter that can be evaluated."""

    def predict(
        self, tokens: Tensor, features: Features, embed: Callable[[Tensor], Tensor], steps: int
    ) -> tuple[Tensor, Tensor]:
        """As `FeatureHead.predict`."""
        ...


@dataclass(frozen=True)
class Judgement:
    """Figures of one drafter.

    alpha: 1 - TV of the first draft, mean over sequences. alpha_in: the same by domain. conditional:
    acceptance at each draft position, given that all earlier ones were accepted. same: share of first drafts
    whose best token is the target's. kl: KL divergence in nats. samples: alpha of each sequence, for paired
    comparisons.
    """

    alpha: Estimate
    alpha_in: dict[str, Estimate]
    conditional: list[Estimate]
    same: Estimate
    kl: Estimate
    samples: list[float]

    def to_json(self) -> dict[str, Any]:
        """The judgement as plain JSON."""
        return {
            "alpha": self.alpha.to_json(),
            "alpha_in": {domain: alpha.to_json() for domain, alpha in self.alpha_in.items()},
            "conditional": [rate.to_json() for rate in self.conditional],
            "same": self.same.to_json(),
            "kl": self.kl.to_json(),
            "samples": [round(alpha, 5) for alpha in self.samples],
        }


@torch.no_grad()
def judge(
    drafter: DraftPredictor,
    network: LanguageModel,
    text: HeldOutText,
    steps: int,
    every: int = 1,
) -> Judgement:
    """Evaluate a drafter on every `every`-th held-out sequence, with at most `steps` drafts per position."""
    sequences = torch.arange(0, len(text.tokens), every)
    parts: list[list[Tensor]] = [[], [], [], []]
    for rows in torch.split(sequences, _BATCH):
        tokens = text.tokens[rows].to(network.device)
        features = {layer: state[rows].float().to(network.device) for layer, state in text.features.items()}
        predictions, _ = drafter.predict(tokens, features, network.embed, steps)
        distinct = (
            predictions[:1] if predictions.stride(0) == 0 else predictions
        )  # a student's predictions are equal at all steps
        target_states = features[network.layer_count]
        # Row s predicts the token after s. The target wrote the tokens from `prompt` to the end.
        positions = slice(text.prompt - 1, tokens.shape[1] - 1)
        shape = (len(predictions), len(rows), positions.stop - positions.start)
        matched = match(
            network.lm_head,
            target_states[:, positions].flatten(0, 1),
            distinct[:, :, positions].flatten(1, 2).float(),
            tokens[:, 1:][:, positions].flatten(),
        )
        for store, value in zip(parts, matched, strict=True):
            store.append(value.expand(len(predictions), -1).reshape(shape).cpu())
    alpha, survival, kl, same = (torch.cat(part, 1) for part in parts)
    domains = [text.domains[row] for row in sequences.tolist()]
    return Judgement(
        alpha=_over_sequences(alpha[0]),
        alpha_in={
            domain: _over_sequences(alpha[0][[row_domain == domain for row_domain in domains]])
            for domain in dict.fromkeys(domains)
        },
        conditional=_conditional(alpha, survival),
        same=_over_sequences(same[0]),
        kl=_over_sequences(kl[0]),
        samples=alpha[0].mean(-1).tolist(),
    )


def _over_sequences(values: Tensor) -> Estimate:
    """The mean of values (n, positions). The interval is over sequences, because positions of one are
    correlated.
    """
    estimate = mean_estimate(values.double().mean(-1).tolist())
    assert estimate is not None
    return estimate


def _conditional(alpha: Tensor, survival: Tensor) -> list[Estimate]:
    """Acceptance at each draft position, given all earlier ones; intervals by bootstrap over sequences.

    alpha, survival: (steps, n, positions). Row s of step j belongs to the round that began j - 1 rows
    earlier.
    """
    steps, count, length = alpha.shape
    starts = length - steps + 1
    weight = torch.ones(count, starts, dtype=torch.float64)
    reached, accepted = [], []
    for step in range(steps):
        part = slice(step, step + starts)
        reached.append(weight.sum(-1))
        accepted.append((weight * alpha[step, :, part]).sum(-1))
        weight = weight * survival[step, :, part]
    numerators, denominators = torch.stack(accepted), torch.stack(reached)  # (steps, n)
    generator = torch.Generator().manual_seed(0)
    picks = torch.randint(count, (_RESAMPLES, count), generator=generator)
    resampled = numerators[:, picks].sum(-1) / denominators[:, picks].sum(-1)
    low, high = resampled.quantile(0.025, dim=1), resampled.quantile(0.975, dim=1)
    values = numerators.sum(-1) / denominators.sum(-1)
    return [
        Estimate(float(value), (float(min(left, value)), float(max(right, value))))
        for value, left, right in zip(values, low, high, strict=True)
    ]
