"""Lengths of prompts and outputs: as published, as counted, or as usual for the data set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from calibration.validation.reconstruction.cases import VARIANTS, PublishedCase, variant_facts
from calibration.validation.reconstruction.conventions import ToolConvention, convention_of
from calibration.validation.reconstruction.names import datasets_of
from calibration.validation.reconstruction.sections import Facts, number
from simulator.numerics.roots import bracketed_root
from simulator.traffic.lengths import Z_95

Distribution = dict[str, Any]
"""A length distribution as in a scenario file."""


class UsualLengths(NamedTuple):
    """Usual lengths of a data set: means in tokens, and standard deviations of their logarithms."""

    prompt: float
    output: float
    prompt_spread: float = 0.7
    output_spread: float = 0.7


_USUAL_LENGTHS: Mapping[str, UsualLengths] = {
    "gsm8k": UsualLengths(120, 200, 0.25, 0.35),
    "cnn_dailymail": UsualLengths(900, 120, 0.45, 0.4),
    "sharegpt": UsualLengths(250, 300, 1.1, 0.9),
    "instructcoder": UsualLengths(150, 250),
    "mt_bench": UsualLengths(100, 400, 0.7, 0.6),
    "humaneval": UsualLengths(150, 300, 0.4, 0.5),
    "alpaca": UsualLengths(60, 250, 0.6),
    "spec_bench": UsualLengths(450, 300, 0.9),
    "math500": UsualLengths(130, 700, 0.5),
    "aime": UsualLengths(150, 2000, 0.3, 0.5),
    "livecodebench": UsualLengths(600, 800, 0.5),
    "gpqa": UsualLengths(250, 900, 0.4),
    "financeqa": UsualLengths(700, 400),
    "speed_bench": UsualLengths(400, 500),
    "swe_bench": UsualLengths(5000, 500),
    "arxiv": UsualLengths(8000, 250, 0.4),
    "wmt": UsualLengths(80, 60, 0.4, 0.4),
    "qa": UsualLengths(500, 150),
    "summarization": UsualLengths(500, 100),
}
"""Approximate lengths for sources that give none. The first six are from the notes of the cases, the others
from the data sets' cards. Chat varies most; its spread is that of case sdb_trace_sharegpt_eagle3.
"""

_RAW_PROMPTS: Mapping[str, float] = {"gsm8k": 58}
"""Mean prompt tokens without a chat template: the mean of case sdb_trace_gsm8k_eagle3, less the 36 tokens
that the template of Llama 3.1 adds to a question.
"""

_UNKNOWN_DATA_SET = UsualLengths(714, 256, 1.0, 0.8)
"""Lengths of an unknown data set: medians over the committed sources that state lengths, with the spread of
chat.
"""
_SGLANG_UNIFORM = (0.4, 0.6)
"""Range of counted ÷ nominal mean in which lengths count as uniform from 1 to the nominal length."""
_MIN_SHARE_BELOW = 0.01
"""If a smaller share of a data set's prompts is below the limit, the limit did not apply to these prompts."""
_FIXED_WITHIN = 0.02
_OWN_LENGTHS = ("sharegpt",)
"""Data sets for which tools request the recorded length of each answer."""
_ROUND = (50, 64)
"""A limit is a multiple of one of these; a mean rarely is."""
_LONGEST_PER_MEAN = 8.0
"""Where a log-normal is cut when no longest length is known, in means: benchmarks drop longer requests."""
_REASONING_FACTOR = 6.0
"""Output length of a model that reasons first, relative to one that does not; an assumption."""
MOST_TOKENS = 1_000_000


class LengthsChoice(NamedTuple):
    """Distributions of prompt and output lengths, their means in tokens, and the assumptions made."""

    prompt: Distribution
    output: Distribution
    prompt_mean: float
    output_mean: float
    ends_foreseen: bool
    """Whether outputs end at a limit that the engine knows. Prompts of random tokens do not make a model stop
    by itself, and outputs that all reached their limit did not stop early either.
    """
    notes: tuple[str, ...]
    assumed: tuple[str, ...]
    """Workload fields whose lengths no source states."""

    @property
    def stated_means(self) -> dict[str, float]:
        """Workload field → mean tokens, where a source states it."""
        means = {"prompt_tokens": self.prompt_mean, "output_tokens": self.output_mean}
        return {name: mean for name, mean in means.items() if name not in self.assumed}


def lengths_of(
    case: PublishedCase, point: Facts, dataset: str | None, siblings: Sequence[PublishedCase] = ()
) -> LengthsChoice:
    """The lengths of a point.

    In this order: stated or counted at the point, stated by the case, stated by another case of the source
    with the same data set (`siblings`), usual for the data set.
    """
    names = datasets_of(dataset or case.workload.dataset)
    random = "random" in names or (not names and _is_number(case.workload.input_len_tokens))
    known_name = next((name for name in names if name in _USUAL_LENGTHS), None)
    spread, data_set = (
        _UNKNOWN_DATA_SET if known_name is None else _USUAL_LENGTHS[known_name],
        known_name or "no known data set",
    )
    raw_prompt = _RAW_PROMPTS.get(data_set) if case.workload.chat_template is False else None
    ignores_eos = case.workload.ends == "max_tokens"
    reasoning = bool(case.workload.reasoning)
    notes: dict[str, list[str]] = {"input": [], "output": []}
    assumed: set[str] = set()

    def length_of(
        part: str, short: str, sigma: float, usual: float, room: float = math.inf
    ) -> tuple[Distribution, float]:
        field = f"{part}_len_tokens"
        stated = _first(point.get(field), point.get(short), getattr(case.workload, field))
        requested = _is_number(stated) and ignores_eos and not set(names) & set(_OWN_LENGTHS)
        is_exact = random or requested or (part == "input" and _is_number(stated))
        distribution = _distribution(stated, _counted_mean(point, part), sigma, is_exact)
        if distribution is not None:
            nominal = random and _counted_mean(point, part) is None and number(stated) is not None
            return _drawn_by_tool(distribution, convention_of(case), notes[part]) if nominal else distribution
        factor = _REASONING_FACTOR if reasoning and part == "output" else 1.0
        for sibling in siblings if factor == 1.0 else ():
            if names and datasets_of(sibling.workload.dataset) == names:
                distribution = _distribution(getattr(sibling.workload, field), None, sigma, is_exact)
                if distribution is not None:
                    notes[part].append(f"{part} length: that of the source's case {sibling.case_id}")
                    return distribution
        assumed.add("prompt_tokens" if part == "input" else "output_tokens")
        remark = ", for a model that reasons" if factor > 1 else ""
        if part == "input" and raw_prompt is not None:
            usual, remark = raw_prompt, " without a chat template"
        mean, longest = usual * factor, None
        share_below = _share_below(mean, sigma, room)
        if share_below >= _MIN_SHARE_BELOW and room < _LONGEST_PER_MEAN * mean:
            mean, longest = max(1, round(_mean_below(mean, sigma, room))), room
            remark += f", of prompts that the server takes ({room:,.0f} at most)"
        notes[part].append(f"{part} length not published: {mean:g} tokens, usual for {data_set}{remark}")
        return _lognormal(mean, sigma, longest)

    output, output_mean = length_of("output", "osl", spread.output_spread, spread.output)
    room = _room_of(case, output.get("max", output_mean))
    prompt, prompt_mean = length_of("input", "isl", spread.prompt_spread, spread.prompt, room)
    ends_foreseen = case.workload.ends != "eos" and (random or ignores_eos or output["kind"] == "fixed")
    all_notes = (*notes["input"], *notes["output"])
    fields = tuple(name for name in ("prompt_tokens", "output_tokens") if name in assumed)
    return LengthsChoice(prompt, output, prompt_mean, output_mean, ends_foreseen, all_notes, fields)


def _room_of(case: PublishedCase, output_tokens: float) -> float:
    """Tokens that the launch line leaves to a prompt with such an output; infinity without a limit."""
    if case.engine_args.max_model_len is None:
        return math.inf
    room = case.engine_args.max_model_len - output_tokens
    return room if 1 <= room <= MOST_TOKENS else math.inf


def _drawn_by_tool(
    nominal: tuple[Distribution, float], convention: ToolConvention | None, notes: list[str]
) -> tuple[Distribution, float]:
    """The distribution with which the tool draws a nominal length."""
    if convention is None or convention.shortest is None:
        return nominal
    longest = max(1, round(nominal[1]))
    shortest = max(1, round(convention.shortest * longest))
    notes.append(f"{convention.tool} draws lengths from {shortest} to {longest} tokens")
    return {"kind": "uniform", "low": shortest, "high": longest}, (shortest + longest) / 2


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)


def _is_number(value: object) -> bool:
    return number(value) is not None


def _counted_mean(point: Facts, part: str) -> float | None:
    """Mean tokens of a request by the client's count, from the plain run if there is one."""
    for side in VARIANTS:
        variant = variant_facts(point, side)
        total, requests = number(variant.get(f"total_{part}_tokens")), number(variant.get("num_requests"))
        if total and requests and 1 <= total / requests <= MOST_TOKENS:
            return total / requests
    return None


def _distribution(
    stated: object, realised: float | None, sigma: float, exact: bool
) -> tuple[Distribution, float] | None:
    """A distribution and its mean from the stated and the counted length; None when both are missing."""
    facts: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {"mean": stated}
    mean, nominal = _tokens(facts.get("mean")), _tokens(facts.get("nominal"))
    median, p90, longest = (_tokens(facts.get(key)) for key in ("p50", "p90", "max"))
    if nominal and realised and _SGLANG_UNIFORM[0] <= realised / nominal <= _SGLANG_UNIFORM[1]:
        return _uniform(nominal)
    level = realised or mean
    if level is None and median is not None:
        level = median * math.exp(sigma**2 / 2)
    level = level or nominal or p90 or longest
    if level is None:
        return None
    if median and p90 and p90 > median:
        return _lognormal(level, math.log(p90 / median) / 1.2816, longest)
    if median and median < level:
        return _lognormal(level, math.sqrt(2 * math.log(level / median)), longest)
    limit = longest or _met_limit(stated, realised)
    if exact or (limit and abs(limit / level - 1) < _FIXED_WITHIN):
        return {"kind": "fixed", "tokens": max(1, round(level))}, level
    return _lognormal(level, sigma, longest)


def _met_limit(stated: object, realised: float | None) -> float | None:
    """The stated length if it is a round number that the counted mean does not exceed: then it is a limit."""
    limit = _tokens(stated)
    if limit is None or realised is None or realised > limit or all(limit % multiple for multiple in _ROUND):
        return None
    return limit


def _tokens(value: object) -> float | None:
    tokens = number(value)
    return tokens if tokens is not None and 0 < tokens <= MOST_TOKENS else None


def _uniform(nominal: float) -> tuple[Distribution, float]:
    return {"kind": "uniform", "low": 1, "high": max(1, round(nominal))}, (nominal + 1) / 2


def _lognormal(mean: float, sigma: float, longest: float | None = None) -> tuple[Distribution, float]:
    """A log-normal with log standard deviation `sigma`, cut at `longest`, and its mean after the cut."""
    longest = max(longest or _LONGEST_PER_MEAN * mean, 1.05 * mean, 2.0)
    sigma = min(max(sigma, 0.05), 2.0)

    def cut_mean(log_median: float) -> float:
        """E[min(X, longest)] of a log-normal X."""
        at = (math.log(longest) - log_median) / sigma
        below = math.exp(log_median + sigma**2 / 2) * _normal_cdf(at - sigma)
        return below + longest * (1 - _normal_cdf(at))

    low, high = math.log(mean) - sigma**2, math.log(longest) + 2 * sigma
    median = math.exp(bracketed_root(lambda log_median: cut_mean(log_median) - mean, low, high))
    p95 = median * math.exp(Z_95 * sigma)
    distribution = {
        "kind": "lognormal",
        "median": round(median, 3),
        "p95": round(p95, 3),
        "max": max(1, round(longest)),
    }
    return distribution, mean


def _share_below(mean: float, sigma: float, longest: float) -> float:
    """The share of a log-normal at or below `longest`."""
    return _normal_cdf((math.log(longest / mean) + sigma**2 / 2) / sigma)


def _mean_below(mean: float, sigma: float, longest: float) -> float:
    """The mean of a log-normal's part at or below `longest`: a server refuses longer prompts."""
    at = (math.log(longest / mean) + sigma**2 / 2) / sigma
    return mean * _normal_cdf(at - sigma) / _normal_cdf(at)


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))
