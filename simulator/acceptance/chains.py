"""Acceptance models without memory: fixed, geometric, positional, decay (docs/acceptance.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from simulator.acceptance.base import (
    AcceptanceEntry,
    AcceptanceModel,
    check_between,
    check_draft_length,
    checked_number,
    fault,
    logistic,
    logit,
    mu_of,
    shifted_probability,
)
from simulator.numerics.arrays import Floats


@dataclass(frozen=True)
class Fixed(AcceptanceModel):
    """The share `rate` of the drafts is accepted: floor or ceil of K × rate, mixed so that the mean is K ×
    rate.

    It holds at the draft length it was measured at (a rate at one K does not determine another):
    `at_draft_length`. At fewer drafts the same rounds are cut. Its family is the logit shift of the rate,
    and `alpha` is the rate: the conditionals are 1 … 1, a fraction, 0 … 0, and no shift moves a 0 or a 1.
    """

    name: ClassVar[str] = "fixed"
    rate: float
    at_draft_length: int

    def __post_init__(self) -> None:
        check_between("rate", self.rate, 0.0, 1.0)
        check_draft_length(self.at_draft_length)

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> Fixed:
        """`{model: fixed, rate}`."""
        return cls(entry.number("rate"), entry.draft_length)

    @property
    def alpha(self) -> float:
        """The rate."""
        return self.rate

    def conditional(self, depth: int) -> Floats:
        """1 up to floor(K × rate), then the remaining fraction, then 0.
        Raises InputError beyond `at_draft_length`.
        """
        check_draft_length(depth)
        if depth > self.at_draft_length:
            raise fault(
                "draft_length",
                depth,
                f"is more than the {self.at_draft_length} drafts at which the fixed rate holds",
                "a model with positions, such as geometric or positional",
            )
        mean_accepted = self.at_draft_length * self.rate
        return np.clip(mean_accepted - np.arange(depth, dtype=np.float64), 0.0, 1.0)

    def shifted(self, delta_logit: float) -> Fixed:
        """Shift the rate."""
        return replace(self, rate=shifted_probability(self.rate, delta_logit))

    def with_alpha(self, alpha: float) -> Fixed:
        """Replace the rate."""
        return replace(self, rate=alpha)


@dataclass(frozen=True)
class Geometric(AcceptanceModel):
    """Every draft is accepted with the same probability `alpha` (arXiv 2211.17192). Leaves out
    correlation.
    """

    name: ClassVar[str] = "geometric"
    level: float

    def __post_init__(self) -> None:
        check_between("alpha", self.level, 0.0, 1.0)

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> Geometric:
        """`{model: geometric, alpha}` or `{…, mean_acceptance_length, at_draft_length}`."""
        return cls(float(logistic(mu_of(entry, lambda mu: cls(float(logistic(mu))), spread=0.0))))

    @property
    def alpha(self) -> float:
        """The one parameter."""
        return self.level

    def conditional(self, depth: int) -> Floats:
        """alpha at every position."""
        check_draft_length(depth)
        return np.full(depth, self.level)

    def shifted(self, delta_logit: float) -> Geometric:
        """Shift the logit of alpha."""
        return Geometric(shifted_probability(self.level, delta_logit))

    def with_alpha(self, alpha: float) -> Geometric:
        """Replace alpha."""
        return Geometric(alpha)


@dataclass(frozen=True)
class Positional(AcceptanceModel):
    """One conditional acceptance per position, as engines report it.
    Beyond the last known position the last one holds.
    """

    name: ClassVar[str] = "positional"
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.rates:
            raise fault("conditional", None, "is empty", "one number per draft position")
        for index, rate in enumerate(self.rates):
            check_between(f"conditional[{index}]", rate, 0.0, 1.0)

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> Positional:
        """`{model: positional, conditional: […]}` or `survival: […]`."""
        if entry.has("conditional") and entry.has("survival"):
            raise fault(
                "survival",
                entry.fields["survival"],
                "is given together with conditional, which it determines",
                "one of the two",
            )
        if entry.has("survival"):
            return cls.from_survival(entry.numbers("survival"))
        return cls(entry.numbers("conditional"))

    @classmethod
    def from_survival(cls, survival: tuple[float, ...]) -> Positional:
        """Return the model with S_1..S_n as given. Raises InputError where S rises or leaves [0, 1]."""
        rates, before = [], 1.0
        for index, here in enumerate(survival):
            check_between(f"survival[{index}]", here, 0.0, 1.0)
            if here > before:
                raise fault(
                    f"survival[{index}]",
                    here,
                    f"is more than the position before has, {before:g}",
                    "survival never rises",
                )
            rates.append(here / before if before > 0.0 else 0.0)
            before = here
        return cls(tuple(rates))

    @property
    def alpha(self) -> float:
        """c_1."""
        return self.rates[0]

    def conditional(self, depth: int) -> Floats:
        """As given, the last one repeated."""
        check_draft_length(depth)
        known = np.array(self.rates[:depth])
        return np.concatenate([known, np.full(depth - len(known), self.rates[-1])])

    def shifted(self, delta_logit: float) -> Positional:
        """Shift every c_j; 0 and 1 stay."""
        return Positional(tuple(shifted_probability(rate, delta_logit) for rate in self.rates))

    def with_alpha(self, alpha: float) -> Positional:
        """Shift every c_j alike so that c_1 = alpha.
        Raises InputError when c_1 is 0 or 1, which no shift moves.
        """
        check_between("alpha", alpha, 0.0, 1.0)
        if alpha == self.alpha:
            return self
        if self.alpha in (0.0, 1.0):
            raise fault("conditional[0]", self.alpha, "cannot be shifted", "a rate above 0 and below 1")
        shifted = self.shifted(logit(alpha) - logit(self.alpha))
        return Positional((alpha, *shifted.rates[1:]))


@dataclass(frozen=True)
class Decay(AcceptanceModel):
    """logit(c_j) = mu - delta (j - 1): each position is harder (delta > 0)
    or easier (delta < 0) than the one before.
    """

    name: ClassVar[str] = "decay"
    mu: float
    delta: float

    def __post_init__(self) -> None:
        checked_number("delta", self.delta)

    @classmethod
    def from_alpha(cls, alpha: float, delta: float) -> Decay:
        """Return the model with c_1 = alpha."""
        check_between("alpha", alpha, 0.0, 1.0)
        return cls(logit(alpha), delta)

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> Decay:
        """`{model: decay, alpha, delta}`, or a mean acceptance length in place of alpha."""
        delta = entry.number("delta", 0.0)
        spread = abs(delta) * entry.number("at_draft_length", 1.0)
        return cls(mu_of(entry, lambda mu: cls(mu, delta), spread), delta)

    @property
    def alpha(self) -> float:
        """c_1."""
        return float(logistic(self.mu))

    def conditional(self, depth: int) -> Floats:
        """The logistic of mu - delta (j - 1)."""
        check_draft_length(depth)
        return logistic(self.mu - self.delta * np.arange(depth, dtype=np.float64))

    def shifted(self, delta_logit: float) -> Decay:
        """Shift mu."""
        return replace(self, mu=self.mu + delta_logit)

    def with_alpha(self, alpha: float) -> Decay:
        """Replace mu by the logit of alpha."""
        return Decay.from_alpha(alpha, self.delta)
