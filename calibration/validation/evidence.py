"""Where a trial's acceptance is from: its own point, its source, or other sources; never from a speed.

*Given*: the point states it. *Joined*: another point of the same source does, with the same model, drafter and
data set. *Prior*: the median over other sources with the same method. The one exception to "never from a speed"
is the ratio of two latencies of one run, ITL ÷ TPOT: in streams whose chunks are decode steps it is the number of
tokens per step, whatever a step takes; it is marked.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from calibration.validation.acceptance_facts import AcceptanceFact, dataset_key, facts_of
from calibration.validation.cases import Case, Facts, number
from calibration.validation.drafts import DraftChoice
from calibration.validation.figures import arm_facts
from calibration.validation.trial import AcceptanceFrom
from simulator.roots import bracketed_root

NO_ACCEPTANCE = "no acceptance published for this method"
ABOVE_MOST = "acceptance length above K + 1"

_FALL_PER_POSITION = 0.1
"""Fall of the logit of conditional acceptance per position that carries a length from one K to another: the
survivals of vllm:test_acceptance_length fall by 0.09 (Llama-3.1-8B) and 0.2 (gpt-oss-20b), those of arXiv 2601.11580
by less.
"""
_MATCH: Mapping[str, float] = {"sharegpt": 0.2, "cnn_dailymail": 0.4, "gsm8k": 0.2, "instructcoder": 0.8}
_USUAL_MATCH = 0.3
"""Share of rounds in which an n-gram is found again (case sdb_cost_fit_l8_h100), and for other text."""
_RUN = 0.75
"""Conditional acceptance after the first token of a match: between GSM8K's 0.6 and ShareGPT's 0.85 (sdb_trace_*)."""
_ROUNDING = 0.02


class AcceptanceChoice(NamedTuple):
    """`entry` is the `acceptance` of an arm in a scenario file; `length` is what it gives at the arm's K."""

    entry: Mapping[str, Any]
    origin: AcceptanceFrom
    note: str
    length: float


@dataclass(frozen=True)
class Evidence:
    """All that sources say about acceptance. Made from the cases themselves, by `Evidence.of`."""

    cases: tuple[Case, ...]

    @staticmethod
    def of(cases: Iterable[Case]) -> Evidence:
        """The evidence of these cases; a case given twice counts once."""
        return Evidence(tuple({(case.source_id, case.case_id): case for case in cases}.values()))

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

    @cached_property
    def _by_case(self) -> Mapping[tuple[str, str], tuple[AcceptanceFact, ...]]:
        found: dict[tuple[str, str], list[AcceptanceFact]] = {}
        for fact in self.facts:
            found.setdefault((fact.source_id, fact.case_id), []).append(fact)
        return {case: tuple(facts) for case, facts in found.items()}

    def facts_about(self, case: Case) -> tuple[AcceptanceFact, ...]:
        """What one case states, whether it is among the evidence or not."""
        key = case.source_id, case.case_id
        known = any(one.case_id == case.case_id for one in self.by_source.get(case.source_id, ()))
        return self._by_case.get(key, ()) if known else tuple(facts_of(case))


class Wanted(NamedTuple):
    """Whose acceptance is asked for."""

    case: Case
    point: int
    dataset: str | None
    model: str
    draft: DraftChoice


def acceptance_of(evidence: Evidence, wanted: Wanted, *, leave_own: bool) -> AcceptanceChoice | str:
    """The acceptance of a trial, or why there is none.

    `leave_own`: the point's own statement is what is compared, so it must not be the input.
    """
    if wanted.draft.published_method == "oracle_replay":
        return _finished({"model": "geometric", "alpha": 1.0}, "given", "drafts are the known output", wanted)
    own = [fact for fact in evidence.facts_about(wanted.case) if fact.point == wanted.point and not fact.tree]
    if not leave_own:
        for fact in own:
            if wanted.dataset is None or wanted.dataset in fact.dataset:
                return _from_fact(fact, wanted, "given", "stated")
        ratio = _steps_per_token(wanted.case.points[wanted.point], wanted)
        if ratio is not None:
            entry = _entry_of_length(ratio, wanted.draft.length, wanted, drafted_rounds_only=False)
            return _finished(entry, "given", "ITL ÷ TPOT of the same run", wanted)
    near = min(_joinable(evidence, wanted), key=lambda fact: _distance(fact, wanted), default=None)
    if near is not None:
        return _from_fact(near, wanted, "joined", f"case {near.case_id}, K = {near.draft_length}")
    if wanted.draft.needs_acceptance:
        return NO_ACCEPTANCE
    return _prior(evidence, wanted)


def _joinable(evidence: Evidence, wanted: Wanted) -> list[AcceptanceFact]:
    """Other statements of the source about a chain of the same model, drafter and data set."""
    case = wanted.case
    about = evidence.facts_about(case)
    here = [
        fact for fact in evidence.facts if fact.source_id == case.source_id and fact.case_id != case.case_id
    ]
    key = dataset_key(case, wanted.dataset or _said_dataset(case.points[wanted.point]))
    named = next((fact.drafter for fact in about), None)
    return [
        fact
        for fact in (*about, *here)
        if not fact.tree
        and (fact.case_id, fact.point) != (case.case_id, wanted.point)
        and fact.model == wanted.model
        and fact.method == wanted.draft.method
        and fact.dataset == key
        and (named is None or fact.drafter is None or fact.drafter == named)
    ]


def _said_dataset(point: Facts) -> str | None:
    return next(
        (point[key] for key in ("dataset", "task", "domain") if isinstance(point.get(key), str)), None
    )


def _distance(fact: AcceptanceFact, wanted: Wanted) -> tuple[bool, float]:
    """Survival that reaches K first, then the nearest K."""
    return len(fact.survival) < wanted.draft.length, abs(fact.draft_length - wanted.draft.length)


def _from_fact(
    fact: AcceptanceFact, wanted: Wanted, origin: AcceptanceFrom, note: str
) -> AcceptanceChoice | str:
    """A statement as an acceptance entry for the K that is asked for."""
    length, survival = wanted.draft.length, fact.survival
    if fact.length > fact.draft_length + 1 + _ROUNDING:
        return ABOVE_MOST
    if wanted.draft.method == "ngram":
        expected = fact.length
        if survival and len(survival) >= length:
            expected = 1 + sum(survival[:length])
        entry = _entry_of_length(expected, length, wanted, fact.drafted_rounds_only, survival)
    elif survival:
        entry = {"model": "positional", "survival": _reaching(survival, length)}
    else:
        entry = _entry_of_length(fact.length, fact.draft_length, wanted, drafted_rounds_only=False)
    return _finished(entry, origin, note, wanted)


def _reaching(survival: tuple[float, ...], draft_length: int) -> list[float]:
    """Survival up to K; beyond what is known, conditional acceptance stays as it was last."""
    found = list(survival[:draft_length])
    before = found[-2] if len(found) > 1 else 1.0
    ratio = found[-1] / before if before > 0 else 0.0
    while len(found) < draft_length:
        found.append(found[-1] * ratio)
    return found


def _entry_of_length(
    length: float, at: int, wanted: Wanted, drafted_rounds_only: bool, survival: tuple[float, ...] = ()
) -> dict[str, Any]:
    """An acceptance entry that gives this mean length at draft length `at`."""
    length = min(length, at + 1.0)
    if wanted.draft.method == "ngram":
        return _gated(length, at, wanted, drafted_rounds_only, survival)
    if length >= at + 1:
        return {"model": "geometric", "alpha": 1.0}
    if at == wanted.draft.length:
        return {"model": "geometric", "mean_acceptance_length": length, "at_draft_length": at}
    entry = {"model": "decay", "delta": _FALL_PER_POSITION}
    return {**entry, "mean_acceptance_length": length, "at_draft_length": at}


def _gated(
    length: float, at: int, wanted: Wanted, drafted_rounds_only: bool, survival: tuple[float, ...]
) -> dict[str, Any]:
    """A lookup that finds something in a share of rounds; its matches then run."""
    names = dataset_key(wanted.case, wanted.dataset)
    match = next((_MATCH[name] for name in names if name in _MATCH), _USUAL_MATCH)
    run = _RUN
    if len(survival) > 1 and survival[0] > 0:
        run = (survival[-1] / survival[0]) ** (1 / (len(survival) - 1))
    most = 1 - 1e-3
    accepted = max(length - 1, 1e-4) / (match if drafted_rounds_only else 1.0)
    accepted = (length - 1) if drafted_rounds_only else accepted
    per_first = sum(run**j for j in range(at))
    if accepted / per_first > most:  # longer runs than usual: all that is needed to get there
        run = bracketed_root(
            lambda x: sum(x**j for j in range(at)) * most - min(accepted, at * most), 0.0, 1.0
        )
        per_first = sum(run**j for j in range(at))
    first = min(accepted / per_first, most)
    if not drafted_rounds_only:
        match = max(match, first / most)
        first = first / match
    return {"model": "gated", "match": min(match, 1.0), "first": min(max(first, 1e-4), most), "run": run}


def _steps_per_token(point: Facts, wanted: Wanted) -> float | None:
    """ITL ÷ TPOT of the speculative run: tokens per step where a chunk of the stream is a decode step."""
    if "tpot_mean_unreliable" in wanted.case.quality_flags:
        return None
    ratios = []
    for arm in ("spec", "plain"):
        facts = arm_facts(point, arm)  # type: ignore[arg-type]
        itl, tpot = number(facts.get("itl_mean_ms")), number(facts.get("tpot_mean_ms"))
        ratios.append(itl / tpot if itl and tpot and tpot > 0 else None)
    spec, plain = ratios
    if spec is None or not 1 < spec <= wanted.draft.length + 1:
        return None
    return spec if plain is None or abs(plain - 1) < _PLAIN_STREAM else None


_PLAIN_STREAM = 0.1
"""Without speculation a chunk is a token: where the two latencies differ by more, chunks are something else."""


def _prior(evidence: Evidence, wanted: Wanted) -> AcceptanceChoice | str:
    """The median of the sources' medians, the trial's own source left out; of its data set where two know it."""
    others = [
        fact
        for fact in evidence.facts
        if fact.source_id != wanted.case.source_id and fact.method == wanted.draft.method and not fact.tree
    ]
    key = set(dataset_key(wanted.case, wanted.dataset))
    alike = [fact for fact in others if key & set(fact.dataset)]
    for facts, what in ((alike, "of this data set"), (others, "of any data set")):
        by_source: dict[str, list[float]] = {}
        for fact in facts:
            by_source.setdefault(fact.source_id, []).append(_alpha_of(fact))
        if len(by_source) >= (2 if facts is alike else 1):
            alpha = statistics.median(statistics.median(alphas) for alphas in by_source.values())
            length = sum(alpha**j for j in range(wanted.draft.length + 1))
            entry: dict[str, Any] = {"model": "geometric", "alpha": alpha}
            if wanted.draft.method == "ngram":
                entry = _entry_of_length(length, wanted.draft.length, wanted, drafted_rounds_only=False)
            note = f"α = {alpha:.2f}, median of {len(by_source)} other sources {what}"
            return _finished(entry, "prior", note, wanted)
    return NO_ACCEPTANCE


def _alpha_of(fact: AcceptanceFact) -> float:
    """The conditional acceptance that gives a fact's length when it is the same at every position."""
    k = fact.draft_length
    length = 1 + sum(fact.survival[:k]) if fact.survival else fact.length
    if length >= k + 1:
        return 1.0
    return bracketed_root(lambda a: sum(a**j for j in range(k + 1)) - max(length, 1.0), 0.0, 1.0)


def _finished(
    entry: Mapping[str, Any], origin: AcceptanceFrom, note: str, wanted: Wanted
) -> AcceptanceChoice:
    from simulator.acceptance import acceptance_model

    k = wanted.draft.length
    return AcceptanceChoice(entry, origin, note, acceptance_model(dict(entry), k).mean_acceptance_length(k))
