"""How good a drafter is on text kept from training: alpha and acceptance by position, with intervals.

The text is the target's own at temperature 1. With p the target's distribution and q the drafter's, a draft
of q is accepted with probability 1 - TV(p, q); and given the token that stands in the text, a draw from p, it
has been drafted and accepted with probability min(1, q/p). So the chance that position j is accepted, given
those before it were, is the mean of 1 - TV at j over the text, weighted by the product of the latter.
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

_AT_A_TIME = 8
_RESAMPLES = 400


class DraftPredictor(Protocol):
    """A drafter that can be judged, learned or not."""

    def predict(
        self, tokens: Tensor, features: Features, embed: Callable[[Tensor], Tensor], steps: int
    ) -> tuple[Tensor, Tensor]:
        """As `FeatureHead.predict`."""
        ...


@dataclass(frozen=True)
class Judgement:
    """Figures of one drafter. alpha: 1 - TV of the first draft, over sequences; alpha_in: by domain.
    conditional: acceptance at each draft position given those before. same: share of first drafts whose best
    token is the target's. kl: nats. samples: alpha of each sequence, for paired comparison.
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
            "alpha_in": {domain: one.to_json() for domain, one in self.alpha_in.items()},
            "conditional": [one.to_json() for one in self.conditional],
            "same": self.same.to_json(),
            "kl": self.kl.to_json(),
            "samples": [round(one, 5) for one in self.samples],
        }


@torch.no_grad()
def judge(
    drafter: DraftPredictor,
    network: LanguageModel,
    text: HeldOutText,
    steps: int,
    every: int = 1,
) -> Judgement:
    """Return the judgement over every `every`-th held-out sequence; `steps` drafts a place, at most."""
    chosen = torch.arange(0, len(text.tokens), every)
    parts: list[list[Tensor]] = [[], [], [], []]
    for rows in torch.split(chosen, _AT_A_TIME):
        tokens = text.tokens[rows].to(network.device)
        features = {layer: state[rows].float().to(network.device) for layer, state in text.features.items()}
        found, _ = drafter.predict(tokens, features, network.embed, steps)
        distinct = found[:1] if found.stride(0) == 0 else found  # a student says the same at every step
        wanted = features[network.layer_count]
        # Row s says what follows s; the target wrote tokens `prompt` to the end.
        places = slice(text.prompt - 1, tokens.shape[1] - 1)
        shape = (len(found), len(rows), places.stop - places.start)
        agreed = match(
            network.lm_head,
            wanted[:, places].flatten(0, 1),
            distinct[:, :, places].flatten(1, 2).float(),
            tokens[:, 1:][:, places].flatten(),
        )
        for store, value in zip(parts, agreed, strict=True):
            store.append(value.expand(len(found), -1).reshape(shape).cpu())
    alpha, survival, kl, same = (torch.cat(one, 1) for one in parts)
    domains = [text.domains[row] for row in chosen.tolist()]
    return Judgement(
        alpha=_over_sequences(alpha[0]),
        alpha_in={
            domain: _over_sequences(alpha[0][[one == domain for one in domains]])
            for domain in dict.fromkeys(domains)
        },
        conditional=_conditional(alpha, survival),
        same=_over_sequences(same[0]),
        kl=_over_sequences(kl[0]),
        samples=alpha[0].mean(-1).tolist(),
    )


def _over_sequences(values: Tensor) -> Estimate:
    """The mean of values (n, positions), its interval over sequences, as positions of one hang together."""
    found = mean_estimate(values.double().mean(-1).tolist())
    assert found is not None
    return found


def _conditional(alpha: Tensor, survival: Tensor) -> list[Estimate]:
    """Acceptance at each position given those before, (steps, n, positions) each; bootstrap over sequences.

    Row s of step j belongs to the round that began j - 1 rows earlier.
    """
    steps, count, length = alpha.shape
    starts = length - steps + 1
    weight = torch.ones(count, starts, dtype=torch.float64)
    reached, kept = [], []
    for step in range(steps):
        part = slice(step, step + starts)
        reached.append(weight.sum(-1))
        kept.append((weight * alpha[step, :, part]).sum(-1))
        weight = weight * survival[step, :, part]
    tops, bottoms = torch.stack(kept), torch.stack(reached)  # (steps, n)
    generator = torch.Generator().manual_seed(0)
    picks = torch.randint(count, (_RESAMPLES, count), generator=generator)
    drawn = tops[:, picks].sum(-1) / bottoms[:, picks].sum(-1)
    low, high = drawn.quantile(0.025, dim=1), drawn.quantile(0.975, dim=1)
    values = tops.sum(-1) / bottoms.sum(-1)
    return [
        Estimate(float(value), (float(min(left, value)), float(max(right, value))))
        for value, left, right in zip(values, low, high, strict=True)
    ]
