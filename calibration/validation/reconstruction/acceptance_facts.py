"""The acceptance that sources state, with the model, method and K it is about. Latencies and rates are not
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

from calibration.validation.reconstruction.cases import PublishedCase, named_datasets
from calibration.validation.reconstruction.drafts import (
    LENGTH_KEYS,
    draft_length_of,
    drafter_key,
    is_tree,
    method_of,
    simulated_method,
)
from calibration.validation.reconstruction.engines import engine_of
from calibration.validation.reconstruction.models import model_of
from calibration.validation.reconstruction.names import datasets_of
from calibration.validation.reconstruction.sections import Facts, number
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
"""Keys of a point whose values are the facts for one data set."""

_SURVIVAL_KEYS = ("survival_by_position", "position_survival_cumulative")
_CONDITIONAL_KEYS = ("alpha_by_num_estimated_features",)
_ROUNDS = (("num_accepted_tokens", "num_drafts"), ("accepted_tokens", "num_drafts"))
MOST_POSITIONS = 128


@dataclass(frozen=True)
class AcceptanceFact:
    """One statement. `length`: tokens per verify with the bonus token. `survival`: share of rounds that
    accept each position.

    `drafted_rounds_only`: rounds in which prompt lookup found nothing are left out, as in vLLM's counters;
    `tokens_per_step` counts all rounds.
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
    """Whether K is known. Otherwise the fact is used only for its own point."""
    tree: bool
    length: float
    survival: tuple[float, ...] = ()
    drafted_rounds_only: bool = False


@dataclass(frozen=True)
class StatedAcceptance:
    """The acceptance that one mapping states: a mean length and, where given, survival by position."""

    length: float
    survival: tuple[float, ...] = ()


def stated_acceptance(facts: Facts, draft_length: int) -> StatedAcceptance | None:
    """The acceptance in a point or in the object of one data set; None when nothing usable is stated."""
    lists = [_survival(facts.get(key)) for key in _SURVIVAL_KEYS]
    lists += [_cumulated(_shares(facts.get(key))) for key in _CONDITIONAL_KEYS]
    survival = next((shares for shares in lists if shares), ())
    stated_lengths = (number(facts.get(key)) for key in LENGTH_KEYS)
    length = next((value for value in stated_lengths if value is not None), None)
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
    return StatedAcceptance(length, survival)


def facts_of(case: PublishedCase) -> Iterator[AcceptanceFact]:
    """Every acceptance that a case states, by point and data set."""
    model = model_of(case.target, None, 1)
    served_name = served_model(case, model.title if not isinstance(model, str) else str(case.target.model))
    research = engine_of(case, "spec").research
    counters = case.confidence == "verbatim" and "vllm" in str(case.framework.name).lower()
    for index, point in enumerate(case.points):
        published = method_of(case, point)
        method = None if published is None else simulated_method(published)
        if published is None or method is None:
            continue
        point_model = point.get("model")
        chain = draft_length_of(case, point, method)
        tree = is_tree(case, point, published, research)
        for dataset, facts in _by_dataset(case, point):
            stated = stated_acceptance(facts, chain.tokens) or _of_all_points(case, chain.tokens)
            if stated is None:
                continue
            by_position = not chain.stated and bool(stated.survival)
            yield AcceptanceFact(
                source_id=case.source_id,
                case_id=case.case_id,
                point=index,
                dataset=dataset,
                model=point_model if isinstance(point_model, str) else served_name,
                method=method,
                drafter=drafter_key(case),
                draft_length=len(stated.survival) if by_position else chain.tokens,
                length_is_stated=chain.stated or by_position,
                tree=tree and not _chain_facts(facts),
                length=1 + sum(stated.survival) if by_position else stated.length,
                survival=stated.survival,
                drafted_rounds_only=method == "ngram" and counters and "tokens_per_step" not in facts,
            )


def served_model(case: PublishedCase, title: str) -> str:
    """The model's name for comparing acceptance. A model that thinks before it answers writes other text."""
    return (
        f"{title}, thinking"
        if "thinking" in str(case.target.model).lower() or case.workload.thinking
        else title
    )


def _chain_facts(facts: Facts) -> bool:
    """Whether the facts are rates by position, for which the source switched the tree off."""
    return any(key in facts for key in _CONDITIONAL_KEYS)


def _by_dataset(case: PublishedCase, point: Facts) -> Iterator[tuple[tuple[str, ...], Facts]]:
    """The point under its own data set, then the facts it states for single data sets."""
    yield dataset_key(case, next(named_datasets(point), None)), point
    for key in DATASET_KEYS:
        inner = point.get(key)
        if isinstance(inner, Mapping):
            yield (key,), inner
        elif case.kind == "acceptance" and number(inner) is not None:
            yield (key,), {"acceptance_length": inner}


def dataset_key(case: PublishedCase, point_dataset: str | None) -> tuple[str, ...]:
    """The data sets of a point; an unknown name is kept as it is."""
    words = point_dataset or case.workload.dataset
    return datasets_of(words) or ((words.lower(),) if words else ())


def _of_all_points(case: PublishedCase, draft_length: int) -> StatedAcceptance | None:
    """The acceptance that a case states for all of its points."""
    draft = case.draft
    if draft is None or len({number(point.get("k")) for point in case.points}) > 1:
        return None
    if draft.acceptance_length is not None and 1 <= draft.acceptance_length <= draft_length + 1:
        return StatedAcceptance(draft.acceptance_length)
    if draft.acceptance_rate is not None and draft.acceptance_rate_at_k in (None, draft_length):
        share = draft.acceptance_rate
        return StatedAcceptance(1 + share * draft_length) if 0 <= share <= 1 else None
    return None


def _counted(facts: Facts) -> float | None:
    """Tokens per verify, 1 + accepted ÷ rounds, from counters or a histogram of step lengths."""
    for accepted, rounds in _ROUNDS:
        tokens, count = number(facts.get(accepted)), number(facts.get(rounds))
        if tokens is not None and count and tokens >= 0:
            return 1 + tokens / count
    histogram = facts.get("step_len_hist")
    if not isinstance(histogram, Mapping):
        return None
    steps = [(number(length), number(share)) for length, share in histogram.items()]
    valid_steps = [(a, b) for a, b in steps if a is not None and b is not None and a >= 1 and b >= 0]
    total = sum(share for _, share in valid_steps)
    return sum(length * share for length, share in valid_steps) / total if total > 0 else None


def _shares(values: object) -> tuple[float, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not 1 <= len(values) <= MOST_POSITIONS:
        return ()
    shares = tuple(number(value) for value in values)
    valid = tuple(share for share in shares if share is not None and 0 <= share <= 1)
    return valid if len(valid) == len(shares) else ()


def _survival(values: object) -> tuple[float, ...]:
    """A list of shares that never rises; empty when `values` is not one."""
    shares = _shares(values)
    return shares if all(after <= before for before, after in pairwise(shares)) else ()


def _cumulated(conditional: tuple[float, ...]) -> tuple[float, ...]:
    """Survival by position from conditional acceptance."""
    return tuple(accumulate(conditional, mul))
