"""What every acceptance model answers: how many drafts of a round are accepted,
and how that enters the compiled step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from simulator.errors import InputError, Problem
from simulator.numerics.arrays import Floats
from simulator.numerics.roots import bracketed_root

TABLE, GATED, TRACE = range(3)
"""Samplers of the step: thresholds by position, thresholds behind a match, replayed lengths."""

PROBABILITY = "a number from 0 to 1"
LARGEST_SD = 10.0
"""Logits between requests; the quadratures are sized for it."""


class RequestEffects(NamedTuple):
    """How the acceptance of a request differs from the common level, on the logit scale. All zero: it does
    not.
    """

    request_sd: float = 0.0
    drift_sd: float = 0.0
    drift_correlation: float = 0.0

    @property
    def any(self) -> bool:
        """Whether there is an effect at all."""
        return self.request_sd > 0.0 or self.drift_sd > 0.0


class LookupMatch(NamedTuple):
    """Probability that a round of a request has a usable draft: in the long run, after a round without, after
    a round with; shapes (requests,).
    """

    stationary: Floats
    after_miss: Floats
    after_match: Floats


class AcceptanceModel(ABC):
    """How many of K drafts are accepted in a round. Positions j count from 1; arrays hold position j at index
    j - 1.

    S_j = P(the first j drafts are all accepted), c_j = S_j / S_{j-1}. A subclass is a frozen dataclass;
    it is registered in `simulator/acceptance/registry.py`.
    """

    name: ClassVar[str]
    """The scenario's word for it."""
    kind: ClassVar[int] = TABLE

    @property
    @abstractmethod
    def alpha(self) -> float:
        """The level that a break-even search moves:
        conditional acceptance at position 1 with zero random effects.
        """

    @abstractmethod
    def conditional(self, depth: int) -> Floats:
        """Return c_1..c_K over the population of rounds at stationary effects, shape (depth,)."""

    @abstractmethod
    def shifted(self, delta_logit: float) -> AcceptanceModel:
        """Return the model with every conditional acceptance moved by `delta_logit` on the logit scale."""

    @abstractmethod
    def with_alpha(self, alpha: float) -> AcceptanceModel:
        """Return the member of the same family (the common logit shifts) whose `alpha` is the one given."""

    @property
    def effects(self) -> RequestEffects:
        """Random effects between requests and along them."""
        return RequestEffects()

    @property
    def match_sd(self) -> float:
        """Standard deviation of the logit of a match between requests; a request draws it as its effect."""
        return 0.0

    @property
    def match_share(self) -> float:
        """Mean over requests of the share of their rounds that have a usable draft."""
        return 1.0

    def match_at(self, effects: Floats) -> LookupMatch:
        """Return how often requests with these logit effects, shape (requests,), have a usable draft."""
        always = np.ones(len(effects))
        return LookupMatch(always, always, always)

    @property
    def match_drafts(self) -> tuple[int, ...]:
        """Drafts that equally likely matches bring at most, rising; empty: always K (GATED only)."""
        return ()

    @property
    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """Replayed emission lengths by output position (TRACE only)."""
        return ()

    def conditional_at(self, effects: Floats, depth: int) -> Floats:
        """Return c_j of a round with a match at each logit effect, shape (effects, depth)."""
        return np.broadcast_to(self.conditional(depth), (len(effects), depth))

    def rank_chances(self, effects: Floats, depth: int, ranks: int) -> Floats:
        """Return P(the drafter's r-th choice after an accepted draft is the continuation) of rounds at each
        logit effect, by position and rank, shape (effects, depth, ranks).

        A model of chains knows the first rank only. What the earlier ranks missed, rank r then finds with
        c_j ÷ r: the heads of Medusa-1 on Vicuna-7B find it with 0.53, 0.36, 0.28, 0.22 of c_j for r = 2 to 5
        (means of five heads, their published top-1 to top-5 accuracies), which is 1 ÷ r to 0.04.
        """
        first = self.conditional_at(effects, depth)[:, :, None]
        return chances_of_hazards(first / np.arange(1.0, ranks + 1.0))

    def survival(self, depth: int) -> Floats:
        """Return S_1..S_K over the population of rounds, shape (depth,)."""
        return np.cumprod(self.conditional(depth), dtype=np.float64)

    def mean_acceptance_length(self, draft_length: int) -> float:
        """Return E = 1 + sum of S_j: tokens per round at stationary effects, rounds without a match too."""
        return 1.0 + float(self.survival(draft_length).sum()) if draft_length > 0 else 1.0

    def mean_acceptance_lengths_by_request(self, draft_length: int) -> tuple[Floats, Floats]:
        """Return (E of a kind of request, share of requests),
        shapes (kinds,): one kind unless requests differ.

        A closed loop with fixed output lengths shows
        the harmonic mean of E over these (`theory`).
        """
        return np.array([self.mean_acceptance_length(draft_length)]), np.ones(1)


@dataclass(frozen=True)
class AcceptanceEntry:
    """One `acceptance` entry of a scenario: its fields, the variant's draft length,
    and the folder of relative file names.

    `of_tree`: from a model of chains to that of the variant's tree; None: the variant drafts chains.
    """

    fields: Mapping[str, Any]
    draft_length: int
    base_dir: Path
    of_tree: Callable[[AcceptanceModel], AcceptanceModel] | None = None

    def has(self, name: str) -> bool:
        """Whether the entry gives this field."""
        return self.fields.get(name) is not None

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number."""
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        return checked_number(name, value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of finite numbers, at least one."""
        value = self.fields.get(name)
        if not isinstance(value, list | tuple) or not value:
            raise fault(name, value, "is not a list of numbers", "one number per draft position")
        return tuple(checked_number(f"{name}[{index}]", item) for index, item in enumerate(value))

    def path(self, name: str) -> Path:
        """Return a file name, relative ones from the scenario's folder."""
        value = self.fields.get(name)
        if not isinstance(value, str | Path) or not str(value):
            raise fault(name, value, "is not a file name", "a path, relative to the scenario file")
        return self.base_dir / value


def chances_of_hazards(hazards: Floats) -> Floats:
    """Return P(rank r) from P(rank r | no earlier rank), along the last axis: together at most 1."""
    missed = np.cumprod(1.0 - hazards, axis=-1)
    earlier = np.concatenate([np.ones((*hazards.shape[:-1], 1)), missed[..., :-1]], axis=-1)
    return np.asarray(earlier * hazards)


def fields_of(entry: object) -> dict[str, Any]:
    """Return the fields of a scenario entry, whichever form it has: mapping, pydantic model or dataclass."""
    if isinstance(entry, Mapping):
        return dict(entry)
    dump = getattr(entry, "model_dump", None)
    if callable(dump):
        return dict(dump())
    if is_dataclass(entry) or hasattr(entry, "__dict__"):
        return dict(vars(entry))
    raise fault(None, entry, "is not an acceptance model", "a mapping with model or file")


def fault(field: str | None, value: object, message: str, allowed: str | None = None) -> InputError:
    """Return the error of one bad value."""
    return InputError(Problem(field=field, value=value, message=message, allowed=allowed))


def checked_number(field: str, value: object) -> float:
    """Return `value` as a finite float. Raises InputError."""
    if value is None:
        raise fault(field, None, "is missing", "a number")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise fault(field, value, "is not a finite number", "a number")
    return float(value)


def check_between(field: str, value: float, low: float, high: float, allowed: str = PROBABILITY) -> None:
    """Raise InputError unless low <= value <= high (NaN fails)."""
    if not low <= value <= high:
        raise fault(field, value, "is out of range", allowed)


def check_draft_length(draft_length: int) -> None:
    """Raise InputError for a negative draft length."""
    if draft_length < 0:
        raise fault("draft_length", draft_length, "is negative", "0 or more")


def normal_nodes(sd: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of N(0, sd²) for the trapezoidal rule, exponentially exact here.

    With poles of the logistic at i·pi/sd and steps of h, in units of sd, the error falls as exp(-2 pi² /
    (h·sd)) (Trefethen and Weideman, SIAM Review 56, 2014).
    """
    if sd == 0.0:
        return np.zeros(1), np.ones(1)
    step = 0.5 / max(1.0, sd)
    count = math.ceil(6.7 / step)
    nodes = step * np.arange(-count, count + 1, dtype=np.float64)
    weights = np.exp(-0.5 * nodes * nodes)
    return sd * nodes, weights / weights.sum()


def logistic(logits: float | Floats) -> Floats:
    """Return 1 / (1 + exp(-x)), exact to rounding on both sides; infinities give 0 and 1."""
    result: Floats = np.exp(-np.logaddexp(0.0, -np.asarray(logits, dtype=np.float64)))
    return result


def logit(probability: float) -> float:
    """Return log(p / (1 - p)); 0 and 1 give infinities."""
    if probability <= 0.0:
        return -math.inf
    if probability >= 1.0:
        return math.inf
    return math.log(probability) - math.log1p(-probability)


def shifted_probability(probability: float, delta_logit: float) -> float:
    """Return the probability whose logit is `delta_logit` higher; 0 and 1 stay what they are."""
    if probability <= 0.0 or probability >= 1.0:
        return probability
    return float(logistic(logit(probability) + delta_logit))


def mu_for_mean_length(
    family: Callable[[float], AcceptanceModel],
    mean_acceptance_length: float,
    draft_length: int,
    spread: float,
) -> float:
    """Return mu where family(mu) has this mean acceptance length at this draft length, to the last bits.

    `family` maps the logit of alpha to a model and rises with it; `spread` bounds how far a position or
    effect moves a conditional from mu, in logits. Raises InputError when no alpha reaches it.
    """
    if draft_length < 1:
        raise fault(
            "at_draft_length", draft_length, "is below 1", "the draft length at which the mean was seen"
        )
    if not 1.0 <= mean_acceptance_length <= draft_length + 1.0:
        raise fault(
            "mean_acceptance_length",
            mean_acceptance_length,
            "cannot be reached by any acceptance",
            f"1 to {draft_length + 1} at draft length {draft_length}",
        )
    if mean_acceptance_length == 1.0:
        return -math.inf
    if mean_acceptance_length == draft_length + 1.0:
        return math.inf

    def excess(mu: float) -> float:
        return family(mu).mean_acceptance_length(draft_length) - mean_acceptance_length

    # At these ends every conditional is below 1e-30 or rounds to 1.
    low, high = -70.0 - spread, 40.0 + spread
    if excess(low) >= 0.0:
        return -math.inf
    if excess(high) <= 0.0:
        return math.inf
    return bracketed_root(excess, low, high)


def mu_of(entry: AcceptanceEntry, family: Callable[[float], AcceptanceModel], spread: float) -> float:
    """Return the logit of alpha that an entry gives, directly or
    by a mean acceptance length at a draft length.
    """
    by_mean = entry.has("mean_acceptance_length")
    if by_mean and entry.has("alpha"):
        raise fault(
            "mean_acceptance_length",
            entry.fields["mean_acceptance_length"],
            "is given together with alpha, which it determines",
            "one of the two",
        )
    if by_mean:
        at = entry.number("at_draft_length")
        if at != int(at):
            raise fault("at_draft_length", at, "is not a whole number", "1 or more")
        if entry.of_tree is not None and at == entry.draft_length:  # it was seen with this tree
            of_tree, chains = entry.of_tree, family
            family = lambda mu: of_tree(chains(mu))  # noqa: E731
        return mu_for_mean_length(family, entry.number("mean_acceptance_length"), int(at), spread)
    alpha = entry.number("alpha")
    check_between("alpha", alpha, 0.0, 1.0)
    return logit(alpha)
