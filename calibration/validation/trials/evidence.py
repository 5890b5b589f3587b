"""Where a trial's acceptance is from: its own point, its source, or other sources; never from a speed.

*Given*: the point states it. *Joined*: another point of the same source does, with the same model, drafter
and data set. *Prior*: the median over other sources with the same method. The one exception to "never from a
speed" is the ratio of two latencies of one run, ITL ÷ TPOT: in streams whose chunks are decode steps it is
the number of tokens per step, whatever a step takes; it is marked.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from calibration.validation.trials.acceptance_facts import AcceptanceFact, dataset_key, facts_of
from calibration.validation.trials.cases import Case, Facts, named_datasets, number, variant_facts
from calibration.validation.trials.drafts import DraftChoice
from calibration.validation.trials.entries import (
    USUAL_MATCH,
    entry_of_length,
    entry_of_lookup,
    length_of_survival,
)
from calibration.validation.trials.trial import AcceptanceFrom
from simulator.breakeven.theory import alpha_from_tokens_per_verify, tokens_per_verify

NO_ACCEPTANCE = "no acceptance published for this method"
ABOVE_MOST = "acceptance length above K + 1"

_ROUNDING = 0.02
_PLAIN_STREAM = 0.1
"""A chunk of a plain stream is a token: where ITL and TPOT differ by more, chunks are something else."""


class AcceptanceChoice(NamedTuple):
    """`entry` is the `acceptance` of a variant in a scenario file."""

    entry: Mapping[str, Any]
    origin: AcceptanceFrom
    note: str


class Wanted(NamedTuple):
    """Whose acceptance is asked for."""

    case: Case
    point: int
    dataset: str | None
    model: str
    draft: DraftChoice

    @property
    def key(self) -> tuple[str, ...]:
        """The data sets it is about."""
        facts = self.case.points[self.point]
        return dataset_key(self.case, self.dataset or next(named_datasets(facts), None))


@dataclass(frozen=True)
class Evidence:
    """All that sources say about acceptance. Made from the cases themselves, by `Evidence.of`."""

    cases: tuple[Case, ...]

    @staticmethod
    def of(cases: Iterable[Case]) -> Evidence:
        """The evidence of these cases; of a case that is given twice, the first."""
        found: dict[tuple[str, str], Case] = {}
        for case in cases:
            found.setdefault((case.source_id, case.case_id), case)
        return Evidence(tuple(found.values()))

    @cached_property
    def facts(self) -> tuple[AcceptanceFact, ...]:
        """Every statement about acceptance."""
        return tuple(fact for case in self.cases for fact in facts_of(case))

    @cached_property
    def by_source(self) -> Mapping[str, tuple[Case, ...]]:
        """Cases by source."""
        found: dict[str, list[Case]] = {}
        for case in self.cases:
            found.setdefault(case.source_id, []).append(case)
        return {source: tuple(cases) for source, cases in found.items()}

    def facts_about(self, case: Case) -> tuple[AcceptanceFact, ...]:
        """What one case states."""
        return self._by_case.get((case.source_id, case.case_id), ())

    def facts_of_source(self, source_id: str) -> tuple[AcceptanceFact, ...]:
        """What all cases of a source state."""
        cases = self.by_source.get(source_id, ())
        return tuple(fact for case in cases for fact in self.facts_about(case))

    @cached_property
    def _by_case(self) -> Mapping[tuple[str, str], tuple[AcceptanceFact, ...]]:
        found: dict[tuple[str, str], list[AcceptanceFact]] = {}
        for fact in self.facts:
            found.setdefault((fact.source_id, fact.case_id), []).append(fact)
        return {case: tuple(facts) for case, facts in found.items()}


def acceptance_of(evidence: Evidence, wanted: Wanted, *, leave_own: bool) -> AcceptanceChoice | str:
    """The acceptance of a trial, or why there is none.

    `leave_own`: the point's own statement is what is compared, so it must not be the input.
    """
    if wanted.draft.published_method.startswith("oracle"):
        return AcceptanceChoice({"model": "geometric", "alpha": 1.0}, "given", "drafts are the known output")
    if not leave_own:
        for fact in evidence.facts_about(wanted.case):
            own = fact.point == wanted.point and not fact.tree
            if own and (wanted.dataset is None or wanted.dataset in fact.dataset):
                return _of_fact(fact, wanted, "given", "stated")
        ratio = _steps_per_token(wanted)
        if ratio is not None:
            entry = _entry(ratio, wanted.draft.length, wanted)
            return AcceptanceChoice(entry, "given", "ITL ÷ TPOT of the same run")
    near = min(_joinable(evidence, wanted), key=lambda fact: _distance(fact, wanted), default=None)
    if near is not None:
        return _of_fact(near, wanted, "joined", f"case {near.case_id}, K = {near.draft_length}")
    if wanted.draft.needs_acceptance:
        return NO_ACCEPTANCE
    return _prior(evidence, wanted)


def _joinable(evidence: Evidence, wanted: Wanted) -> list[AcceptanceFact]:
    """Other statements of the source about a chain of the same model, drafter and data set."""
    case, key = wanted.case, wanted.key
    return [
        fact
        for fact in evidence.facts_of_source(case.source_id)
        if not fact.tree
        and fact.length_is_stated
        and (fact.case_id, fact.point) != (case.case_id, wanted.point)
        and fact.model == wanted.model
        and fact.method == wanted.draft.method
        and fact.dataset == key
        and (wanted.draft.drafter_key is None or fact.drafter in (None, wanted.draft.drafter_key))
    ]


def _distance(fact: AcceptanceFact, wanted: Wanted) -> tuple[bool, float]:
    """Survival that reaches K first, then the nearest K."""
    return len(fact.survival) < wanted.draft.length, abs(fact.draft_length - wanted.draft.length)


def _of_fact(
    fact: AcceptanceFact, wanted: Wanted, origin: AcceptanceFrom, note: str
) -> AcceptanceChoice | str:
    """A statement as an acceptance entry for the K that is asked for."""
    length = wanted.draft.length
    if fact.length > fact.draft_length + 1 + _ROUNDING:
        return ABOVE_MOST
    if wanted.draft.method == "ngram":
        reaches = len(fact.survival) >= length
        stated = 1 + sum(fact.survival[:length]) if reaches else fact.length
        at = length if reaches else fact.draft_length
        entry = entry_of_lookup(stated, at, wanted.key, fact.survival, fact.drafted_rounds_only)
    elif fact.survival:
        entry = entry_of_length(length_of_survival(fact.survival, length), length, length, wanted.key)
    else:
        entry = entry_of_length(fact.length, fact.draft_length, length, wanted.key)
    return AcceptanceChoice(entry, origin, note)


def _entry(length: float, at: int, wanted: Wanted) -> dict[str, Any]:
    """An entry for a length that counts all rounds."""
    if wanted.draft.method == "ngram":
        return entry_of_lookup(length, at, wanted.key)
    return entry_of_length(length, at, wanted.draft.length, wanted.key)


def _steps_per_token(wanted: Wanted) -> float | None:
    """ITL ÷ TPOT of the speculative run: tokens per step where a chunk of the stream is a decode step."""
    if "tpot_mean_unreliable" in wanted.case.quality_flags:
        return None
    point = wanted.case.points[wanted.point]
    spec, plain = _itl_per_tpot(variant_facts(point, "spec")), _itl_per_tpot(variant_facts(point, "plain"))
    if spec is None or not 1 < spec <= wanted.draft.length + 1:
        return None
    return spec if plain is None or abs(plain - 1) < _PLAIN_STREAM else None


def _itl_per_tpot(variant: Facts) -> float | None:
    itl, tpot = number(variant.get("itl_mean_ms")), number(variant.get("tpot_mean_ms"))
    return itl / tpot if itl and tpot and tpot > 0 else None


def _prior(evidence: Evidence, wanted: Wanted) -> AcceptanceChoice | str:
    """The median of other sources' medians: of the same model and data set where two know them, else of the
    data set, else of any.
    """
    others = [
        fact
        for fact in evidence.facts
        if fact.source_id != wanted.case.source_id
        and fact.method == wanted.draft.method
        and fact.length_is_stated
        and not fact.tree
    ]
    alike = [fact for fact in others if set(wanted.key) & set(fact.dataset)]
    closest = [fact for fact in alike if fact.model == wanted.model]
    tiers = (
        (closest, 2, "of this model and data set"),
        (alike, 2, "of this data set"),
        (others, 1, "of any"),
    )
    for facts, fewest, what in tiers:
        by_source: dict[str, list[float]] = {}
        for fact in facts:
            by_source.setdefault(fact.source_id, []).append(_alpha_of(fact))
        if len(by_source) >= fewest:
            alpha = statistics.median(statistics.median(alphas) for alphas in by_source.values())
            length = tokens_per_verify(alpha, wanted.draft.length)
            note = f"α = {alpha:.2f}, median of {len(by_source)} other sources {what}"
            return AcceptanceChoice(_entry(length, wanted.draft.length, wanted), "prior", note)
    return NO_ACCEPTANCE


def _alpha_of(fact: AcceptanceFact) -> float:
    """The conditional acceptance that gives a fact's length when it is the same at every position."""
    k = fact.draft_length
    length = 1 + sum(fact.survival[:k]) if fact.survival else fact.length
    if fact.drafted_rounds_only:
        length = 1 + USUAL_MATCH * (length - 1)
    if length >= k + 1:
        return 1.0
    alpha = alpha_from_tokens_per_verify(max(length, 1.0), k)
    assert alpha is not None
    return alpha
