"""Hierarchical acceptance: requests differ, and each drifts along its output (docs/acceptance.md).

logit(c_j) = mu + u_r + v_i - delta (j - 1), u_r ~ N(0, request_sd²) fixed per request, v_i AR(1) along
*output positions* i with standard deviation drift_sd and correlation drift_correlation from one token to
the next. Population figures are integrals over u and over the path of v, to 1e-6 or better, not samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from simulator.acceptance.base import (
    LARGEST_SD,
    AcceptanceEntry,
    AcceptanceModel,
    RequestEffects,
    check_between,
    check_draft_length,
    checked_number,
    logistic,
    logit,
    mu_of,
    normal_nodes,
)
from simulator.numerics.arrays import Floats


@dataclass(frozen=True)
class Hierarchical(AcceptanceModel):
    """Decay with a normal effect per request and an AR(1) drift along the output.
    Leaves out effects of content on both.
    """

    name: ClassVar[str] = "hierarchical"
    mu: float
    delta: float = 0.0
    request_sd: float = 0.0
    drift_sd: float = 0.0
    drift_correlation: float = 0.0

    def __post_init__(self) -> None:
        checked_number("delta", self.delta)
        check_between("request_sd", self.request_sd, 0.0, LARGEST_SD, f"0 to {LARGEST_SD:g} logits")
        check_between("drift_sd", self.drift_sd, 0.0, LARGEST_SD, f"0 to {LARGEST_SD:g} logits")
        check_between("drift_correlation", self.drift_correlation, 0.0, 1.0)

    @classmethod
    def from_alpha(
        cls,
        alpha: float,
        delta: float = 0.0,
        request_sd: float = 0.0,
        drift_sd: float = 0.0,
        drift_correlation: float = 0.0,
    ) -> Hierarchical:
        """Return the model whose c_1 without effects is alpha."""
        check_between("alpha", alpha, 0.0, 1.0)
        return cls(logit(alpha), delta, request_sd, drift_sd, drift_correlation)

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> Hierarchical:
        """`{model: hierarchical, alpha, delta, request_sd, drift_sd, drift_correlation}`, or a mean
        acceptance length for alpha.
        """
        rest = [entry.number(name, 0.0) for name in ("delta", "request_sd", "drift_sd", "drift_correlation")]
        spread = abs(rest[0]) * entry.number("at_draft_length", 1.0) + 8.0 * (rest[1] + rest[2])
        return cls(mu_of(entry, lambda mu: cls(mu, *rest), spread), *rest)

    @property
    def alpha(self) -> float:
        """c_1 of a round without effects (not the population's c_1)."""
        return float(logistic(self.mu))

    @property
    def effects(self) -> RequestEffects:
        """The two random effects."""
        return RequestEffects(self.request_sd, self.drift_sd, self.drift_correlation)

    def conditional_at(self, effects: Floats, depth: int) -> Floats:
        """c_j of rounds at given effects u + v, shape (effects, depth)."""
        positions = np.arange(depth)
        return logistic(self.mu + effects[:, None] - self.delta * positions[None, :])

    def conditional(self, depth: int) -> Floats:
        """Population c_j = S_j / S_{j-1}. It may rise with j:
        later positions are reached mostly by easy requests.
        """
        survival = self.survival(depth)
        before = np.concatenate([np.ones(min(1, depth)), survival[:-1]])
        # Where S underflows no request gets this far: the value without effects replaces it.
        alone = self.conditional_at(np.zeros(1), depth)[0]
        return np.asarray(np.minimum(np.divide(survival, before, out=alone, where=before > 0.0), 1.0))

    def survival(self, depth: int) -> Floats:
        """S_j = E of the product of c_1..c_j over u and the path of v."""
        check_draft_length(depth)
        return np.array(_survival(self, depth))

    def shifted(self, delta_logit: float) -> Hierarchical:
        """Shift mu."""
        return replace(self, mu=self.mu + delta_logit)

    def with_alpha(self, alpha: float) -> Hierarchical:
        """Replace mu by the logit of alpha."""
        check_between("alpha", alpha, 0.0, 1.0)
        return replace(self, mu=logit(alpha))

    def mean_acceptance_lengths_by_request(self, draft_length: int) -> tuple[Floats, Floats]:
        """E of a request and the share of requests like it, at the nodes of u."""
        nodes, weights = normal_nodes(self.request_sd)
        survival = _survival_by_request(self, nodes, draft_length)
        return 1.0 + survival.sum(axis=1), weights


@lru_cache(maxsize=16)
def hermite_basis(count: int) -> tuple[Floats, Floats]:
    """Return Gauss–Hermite nodes of N(0, 1), shape (count,), and V, shape (count, count).

    V[n, i] = sqrt(weight_i) · He_n(node_i) / sqrt(n!) is orthogonal (Golub and Welsch,
    Mathematics of Computation 23, 1969), and He_n is the n-th eigenfunction of one AR(1) step,
    with eigenvalue rho^n (Mehler's formula).
    """
    off_diagonal = np.sqrt(np.arange(1.0, count))
    nodes, vectors = np.linalg.eigh(np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    signed: Floats = vectors * np.where(vectors[0] < 0.0, -1.0, 1.0)
    return nodes, signed


def _drift_nodes(sd: float) -> int:
    """Nodes for an error about exp(-2 pi sqrt(n) / sd) below 1e-8, from the distance pi/sd of the poles."""
    return 32 + math.ceil((18.5 * sd / (2.0 * math.pi)) ** 2)


def _survival_by_request(model: Hierarchical, request_effects: Floats, depth: int) -> Floats:
    """Return S_j of requests with the given effects, drift integrated over its path,
    shape (requests, depth).

    The AR(1) chain is reversible, so S_j = <1, h_j> with h_1 = c_1
    and h_j = c_j · P h_{j-1}, P = one step of the chain.
    """
    basis_nodes, basis = hermite_basis(_drift_nodes(model.drift_sd) if model.drift_sd > 0.0 else 1)
    drift = model.drift_sd * basis_nodes
    root_weights = basis[0]
    decays = model.drift_correlation ** np.arange(len(drift))
    survival = np.empty((len(request_effects), depth))
    carried = np.broadcast_to(root_weights, (len(request_effects), len(drift)))
    for j in range(depth):
        if j > 0:
            carried = ((carried @ basis.T) * decays) @ basis
        carried = carried * logistic(model.mu + request_effects[:, None] + drift[None, :] - model.delta * j)
        survival[:, j] = carried @ root_weights
    # Rounding of the quadrature must not let survival rise.
    return np.minimum.accumulate(np.clip(survival, 0.0, 1.0), axis=1)


@lru_cache(maxsize=256)
def _survival(model: Hierarchical, depth: int) -> tuple[float, ...]:
    nodes, weights = normal_nodes(model.request_sd)
    survival: list[float] = (weights @ _survival_by_request(model, nodes, depth)).tolist()
    return tuple(survival)
