"""Chooses the acceptance of a published run from its own point, its source or other sources, never from a
speed.

*Given*: the point states it. *Joined*: another point of the same source states it, with the same model,
drafter and data set. *Prior*: the median over other sources with the same method. There is one exception to
"never from a speed": the ratio of two latencies of one run, ITL ÷ TPOT. If the chunks of a stream are decode
steps, it is the number of tokens per step, whatever a step's duration. Runs with this ratio are marked.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from calibration.validation.reconstruction.acceptance_facts import AcceptanceFact, dataset_key, facts_of
from calibration.validation.reconstruction.cases import PublishedCase, named_datasets, variant_facts
from calibration.validation.reconstruction.drafts import DraftChoice
from calibration.validation.reconstruction.entries import (
    USUAL_MATCH,
    entry_of_length,
    entry_of_lookup,
    length_of_survival,
)
from calibration.validation.reconstruction.published_run import AcceptanceFrom
from calibration.validation.reconstruction.sections import Facts, number
from simulator.breakeven.theory import alpha_from_tokens_per_verify, tokens_per_verify

NO_ACCEPTANCE = "no acceptance published for this method"
ABOVE_MOST = "acceptance length above K + 1"

_ROUNDING = 0.02
_PLAIN_STREAM = 0.1
"""In a plain stream a chunk is one token, so ITL equals TPOT. A larger relative difference means other
chunks.
"""


class AcceptanceChoice(NamedTuple):
    """`entry` is the `acceptance` of a variant in a scenario file."""

    entry: Mapping[str, Any]
    origin: AcceptanceFrom
    note: str


class AcceptanceQuery(NamedTuple):
    """The run whose acceptance is needed."""

    case: PublishedCase
    point: int
    dataset: str | None
    model: str
    draft: DraftChoice

    @property
    def key(self) -> tuple[str, ...]:
        """The data sets of the run."""
        facts = self.case.points[self.point]
        return dataset_key(self.case, self.dataset or next(named_datasets(facts), None))


@dataclass(frozen=True)
class AcceptanceEvidence:
    """All statements of sources about acceptance; built from cases by `AcceptanceEvidence.of`."""

    cases: tuple[PublishedCase, ...]

    @staticmethod
    def of(cases: Iterable[PublishedCase]) -> AcceptanceEvidence:
        """The evidence of these cases; the first of two equal cases counts."""
        unique_cases: dict[tuple[str, str], PublishedCase] = {}
        for case in cases:
            unique_cases.setdefault((case.source_id, case.case_id), case)
        return AcceptanceEvidence(tuple(unique_cases.values()))

    @cached_property
    def facts(self) -> tuple[AcceptanceFact, ...]:
        """Every statement about acceptance."""
        return tuple(fact for case in self.cases for fact in facts_of(case))

    @cached_property
    def by_source(self) -> Mapping[str, tuple[PublishedCase, ...]]:
        """Cases by source."""
        cases_by_source: dict[str, list[PublishedCase]] = {}
        for case in self.cases:
            cases_by_source.setdefault(case.source_id, []).append(case)
        return {source: tuple(cases) for source, cases in cases_by_source.items()}

    def facts_about(self, case: PublishedCase) -> tuple[AcceptanceFact, ...]:
        """The statements of one case."""
        return self._by_case.get((case.source_id, case.case_id), ())

    def facts_of_source(self, source_id: str) -> tuple[AcceptanceFact, ...]:
        """The statements of all cases of a source."""
        cases = self.by_source.get(source_id, ())
        return tuple(fact for case in cases for fact in self.facts_about(case))

    @cached_property
    def _by_case(self) -> Mapping[tuple[str, str], tuple[AcceptanceFact, ...]]:
        facts_by_case: dict[tuple[str, str], list[AcceptanceFact]] = {}
        for fact in self.facts:
            facts_by_case.setdefault((fact.source_id, fact.case_id), []).append(fact)
        return {case: tuple(facts) for case, facts in facts_by_case.items()}


def acceptance_of(
    evidence: AcceptanceEvidence, query: AcceptanceQuery, *, ignore_own: bool
) -> AcceptanceChoice | str:
    """The acceptance of a run, or the reason why there is none.

    `ignore_own`: ignore the point's own statement, because it is compared with the prediction.
    """
    if query.draft.published_method.startswith("oracle"):
        return AcceptanceChoice({"model": "geometric", "alpha": 1.0}, "given", "drafts are the known output")
    if not ignore_own:
        for fact in evidence.facts_about(query.case):
            stated_here = fact.point == query.point and not fact.tree
            if stated_here and (query.dataset is None or query.dataset in fact.dataset):
                return _of_fact(fact, query, "given", "stated")
        ratio = _steps_per_token(query)
        if ratio is not None:
            entry = _entry(ratio, query.draft.length, query)
            return AcceptanceChoice(entry, "given", "ITL ÷ TPOT of the same run")
    nearest = min(_joinable(evidence, query), key=lambda fact: _distance(fact, query), default=None)
    if nearest is not None:
        return _of_fact(nearest, query, "joined", f"case {nearest.case_id}, K = {nearest.draft_length}")
    if query.draft.needs_acceptance:
        return NO_ACCEPTANCE
    return _prior(evidence, query)


def _joinable(evidence: AcceptanceEvidence, query: AcceptanceQuery) -> list[AcceptanceFact]:
    """Other statements of the source about a chain with the same model, drafter and data set."""
    case, key = query.case, query.key
    return [
        fact
        for fact in evidence.facts_of_source(case.source_id)
        if not fact.tree
        and fact.length_is_stated
        and (fact.case_id, fact.point) != (case.case_id, query.point)
        and fact.model == query.model
        and fact.method == query.draft.method
        and fact.dataset == key
        and (query.draft.drafter_key is None or fact.drafter in (None, query.draft.drafter_key))
    ]


def _distance(fact: AcceptanceFact, query: AcceptanceQuery) -> tuple[bool, float]:
    """Sort key: statements whose survival reaches K come first, then those with the nearest K."""
    return len(fact.survival) < query.draft.length, abs(fact.draft_length - query.draft.length)


def _of_fact(
    fact: AcceptanceFact, query: AcceptanceQuery, origin: AcceptanceFrom, note: str
) -> AcceptanceChoice | str:
    """A statement as an acceptance entry for the run's K."""
    length = query.draft.length
    if fact.length > fact.draft_length + 1 + _ROUNDING:
        return ABOVE_MOST
    if query.draft.method == "ngram":
        reaches = len(fact.survival) >= length
        stated = 1 + sum(fact.survival[:length]) if reaches else fact.length
        at = length if reaches else fact.draft_length
        entry = entry_of_lookup(stated, at, query.key, fact.survival, fact.drafted_rounds_only)
    elif fact.survival:
        entry = entry_of_length(length_of_survival(fact.survival, length), length, length, query.key)
    else:
        entry = entry_of_length(fact.length, fact.draft_length, length, query.key)
    return AcceptanceChoice(entry, origin, note)


def _entry(length: float, at: int, query: AcceptanceQuery) -> dict[str, Any]:
    """An acceptance entry for a length that counts all rounds."""
    if query.draft.method == "ngram":
        return entry_of_lookup(length, at, query.key)
    return entry_of_length(length, at, query.draft.length, query.key)


def _steps_per_token(query: AcceptanceQuery) -> float | None:
    """ITL ÷ TPOT of the speculative run: tokens per step if a chunk of the stream is a decode step."""
    metrics = query.case.metrics
    if "tpot_mean_unreliable" in query.case.quality_flags or metrics.tpot == "with_ttft":
        return None
    if metrics.itl not in (None, "per_emission"):
        return None
    point = query.case.points[query.point]
    spec, plain = _itl_per_tpot(variant_facts(point, "spec")), _itl_per_tpot(variant_facts(point, "plain"))
    if spec is None or not 1 < spec <= query.draft.length + 1:
        return None
    return spec if plain is None or abs(plain - 1) < _PLAIN_STREAM else None


def _itl_per_tpot(variant: Facts) -> float | None:
    itl, tpot = number(variant.get("itl_mean_ms")), number(variant.get("tpot_mean_ms"))
    return itl / tpot if itl and tpot and tpot > 0 else None


def _prior(evidence: AcceptanceEvidence, query: AcceptanceQuery) -> AcceptanceChoice | str:
    """The median of other sources' medians.

    Sources with the same model and data set are used if there are two; else sources with the same data set,
    if there are two; else all.
    """
    others = [
        fact
        for fact in evidence.facts
        if fact.source_id != query.case.source_id
        and fact.method == query.draft.method
        and fact.length_is_stated
        and not fact.tree
    ]
    alike = [fact for fact in others if set(query.key) & set(fact.dataset)]
    closest = [fact for fact in alike if fact.model == query.model]
    tiers = (
        (closest, 2, "of this model and data set"),
        (alike, 2, "of this data set"),
        (others, 1, "of any"),
    )
    for facts, min_sources, scope in tiers:
        by_source: dict[str, list[float]] = {}
        for fact in facts:
            by_source.setdefault(fact.source_id, []).append(_alpha_of(fact))
        if len(by_source) >= min_sources:
            alpha = statistics.median(statistics.median(alphas) for alphas in by_source.values())
            length = tokens_per_verify(alpha, query.draft.length)
            note = f"α = {alpha:.2f}, median of {len(by_source)} other sources {scope}"
            return AcceptanceChoice(_entry(length, query.draft.length, query), "prior", note)
    return NO_ACCEPTANCE


def _alpha_of(fact: AcceptanceFact) -> float:
    """The conditional acceptance, equal at every position, that gives a fact's length."""
    k = fact.draft_length
    length = 1 + sum(fact.survival[:k]) if fact.survival else fact.length
    if fact.drafted_rounds_only:
        length = 1 + USUAL_MATCH * (length - 1)
    if length >= k + 1:
        return 1.0
    alpha = alpha_from_tokens_per_verify(max(length, 1.0), k)
    assert alpha is not None
    return alpha
