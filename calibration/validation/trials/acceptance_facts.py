"""What sources say about acceptance, as facts: for whom, at which K. No latency and no rate is read here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from calibration.validation.trials.cases import Case, Facts, named_datasets, number
from calibration.validation.trials.drafts import (
    LENGTH_KEYS,
    draft_length_of,
    drafter_key,
    is_tree,
    method_of,
    our_method,
)
from calibration.validation.trials.engines import engine_of
from calibration.validation.trials.models import model_of
from calibration.validation.trials.names import datasets_of
from simulator.breakeven.theory import tokens_per_verify

DATASET_KEYS = (
    "gsm8k",
    "humaneval",
    "mt_bench",
    "alpaca",
    "sharegpt",
    "cnn_dailymail",
    "instructcoder",
    "math500",
)
"""Keys of a point that hold the same facts for one data set each."""

_SURVIVAL_KEYS = ("survival_by_position", "position_survival_cumulative")
_CONDITIONAL_KEYS = ("alpha_by_num_estimated_features",)
_ROUNDS = (("num_accepted_tokens", "num_drafts"), ("accepted_tokens", "num_drafts"))
MOST_POSITIONS = 128


@dataclass(frozen=True)
class AcceptanceFact:
    """One statement. `length`: tokens per verify with the bonus; `survival`: share of rounds that got so far.

    `drafted_rounds_only`: rounds of a lookup that found nothing are left out, as vLLM's counters do;
    `tokens_per_step` counts them all.
    """

    source_id: str
    case_id: str
    point: int
    dataset: tuple[str, ...]
    model: str
    method: str
    drafter: str | None
    draft_length: int
    length_is_stated: bool
    """K is known: else the fact serves its own point alone."""
    tree: bool
    length: float
    survival: tuple[float, ...] = ()
    drafted_rounds_only: bool = False


@dataclass(frozen=True)
class Said:
    """What one mapping says: a mean length, and survival by position where it tells it."""

    length: float
    survival: tuple[float, ...] = ()


def said_by(facts: Facts, draft_length: int) -> Said | None:
    """The acceptance in a point or in an object of one data set; None when it says nothing usable."""
    lists = [_survival(facts.get(key)) for key in _SURVIVAL_KEYS]
    lists += [_cumulated(_shares(facts.get(key))) for key in _CONDITIONAL_KEYS]
    survival = next((found for found in lists if found), ())
    stated = (number(facts.get(key)) for key in LENGTH_KEYS)
    length = next((found for found in stated if found is not None), None)
    if length is None:
        length = _counted(facts)
    if length is None and (alpha := number(facts.get("alpha"))) is not None and 0 <= alpha <= 1:
        length = tokens_per_verify(alpha, draft_length)
    if length is None and (rate := number(facts.get("draft_acceptance_rate"))) is not None and 0 <= rate <= 1:
        length = 1 + rate * draft_length
    if length is None and survival:
        length = 1 + sum(survival[:draft_length])
    if length is None or not 1 <= length <= MOST_POSITIONS:
        return None
    return Said(length, survival)


def facts_of(case: Case) -> Iterator[AcceptanceFact]:
    """Every acceptance that a case states, of each of its points and data sets."""
    model = model_of(case.target, None, 1)
    served = served_model(case, model.title if not isinstance(model, str) else str(case.target.model))
    research = engine_of(case, "spec").research
    counters = case.confidence == "verbatim" and "vllm" in str(case.framework.name).lower()
    for index, point in enumerate(case.points):
        published = method_of(case, point)
        method = None if published is None else our_method(published)
        if published is None or method is None:
            continue
        named = point.get("model")
        drafted = draft_length_of(case, point, method)
        tree = is_tree(case, point, published, research)
        for dataset, facts in _by_dataset(case, point):
            said = said_by(facts, drafted.tokens) or _in_words(case, drafted.tokens)
            if said is None:
                continue
            by_position = not drafted.stated and bool(said.survival)
            yield AcceptanceFact(
                source_id=case.source_id,
                case_id=case.case_id,
                point=index,
                dataset=dataset,
                model=named if isinstance(named, str) else served,
                method=method,
                drafter=drafter_key(case),
                draft_length=len(said.survival) if by_position else drafted.tokens,
                length_is_stated=drafted.stated or by_position,
                tree=tree and not _chain_facts(facts),
                length=1 + sum(said.survival) if by_position else said.length,
                survival=said.survival,
                drafted_rounds_only=method == "ngram" and counters and "tokens_per_step" not in facts,
            )


def served_model(case: Case, title: str) -> str:
    """The model as far as acceptance goes: one that thinks before it answers writes other text."""
    return f"{title}, thinking" if "thinking" in f"{case.target.model} {case.text}".lower() else title


def _chain_facts(facts: Facts) -> bool:
    """Rates by position of a drafter whose tree was switched off to measure them."""
    return any(key in facts for key in _CONDITIONAL_KEYS)


def _by_dataset(case: Case, point: Facts) -> Iterator[tuple[tuple[str, ...], Facts]]:
    """The point itself under its data set, and what it says of single ones."""
    yield dataset_key(case, next(named_datasets(point), None)), point
    for key in DATASET_KEYS:
        inner = point.get(key)
        if isinstance(inner, Mapping):
            yield (key,), inner
        elif case.kind == "acceptance" and number(inner) is not None:
            yield (key,), {"acceptance_length": inner}


def dataset_key(case: Case, named: str | None) -> tuple[str, ...]:
    """The data sets of a point; a name that means none of the known ones stands for itself."""
    words = named or case.workload.dataset
    return datasets_of(words) or ((words.lower(),) if words else ())


_LENGTH_IN_WORDS = re.compile(r"accept\w*(?: \(\w+\))? length (?:of |is |was |= ?|at )?(\d(?:\.\d+)?)\b")
_RATE_IN_WORDS = re.compile(
    r"acceptance(?: rate)? (?:of |is |was |= ?)?"
    r"(\d+(?:\.\d+)?)(?: ?- ?(\d+(?:\.\d+)?))? ?%(?: at k ?= ?(\d+))?"
)


def _in_words(case: Case, draft_length: int) -> Said | None:
    """What the notes say of the case as a whole."""
    if len({number(point.get("k")) for point in case.points}) > 1:
        return None
    text = " · ".join(case.notes).lower()
    length, rate = _LENGTH_IN_WORDS.search(text), _RATE_IN_WORDS.search(text)
    if length is not None and 1 <= float(length[1]) <= draft_length + 1:
        return Said(float(length[1]))
    if rate is not None and rate[3] in (None, str(draft_length)):
        share = (float(rate[1]) + float(rate[2] or rate[1])) / 200
        return Said(1 + share * draft_length) if share <= 1 else None
    return None


def _counted(facts: Facts) -> float | None:
    """1 + accepted ÷ rounds, from counters or from a histogram of step lengths."""
    for accepted, rounds in _ROUNDS:
        tokens, count = number(facts.get(accepted)), number(facts.get(rounds))
        if tokens is not None and count and tokens >= 0:
            return 1 + tokens / count
    histogram = facts.get("step_len_hist")
    if not isinstance(histogram, Mapping):
        return None
    steps = [(number(length), number(share)) for length, share in histogram.items()]
    known = [(a, b) for a, b in steps if a is not None and b is not None and a >= 1 and b >= 0]
    total = sum(share for _, share in known)
    return sum(length * share for length, share in known) / total if total > 0 else None


def _shares(values: object) -> tuple[float, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not 1 <= len(values) <= MOST_POSITIONS:
        return ()
    found = tuple(number(value) for value in values)
    return (
        tuple(one for one in found if one is not None)
        if all(one is not None and 0 <= one <= 1 for one in found)
        else ()
    )


def _survival(values: object) -> tuple[float, ...]:
    """A list of shares that never rises; nothing when it is no such list."""
    found = _shares(values)
    return found if all(after <= before for before, after in pairwise(found)) else ()


def _cumulated(conditional: tuple[float, ...]) -> tuple[float, ...]:
    product, found = 1.0, []
    for share in conditional:
        product *= share
        found.append(product)
    return tuple(found)
