"""How long prompts and outputs were: as published, as counted, or as a data set is known to be."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from calibration.validation.trials.cases import VARIANTS, Case, Facts, number, variant_facts
from calibration.validation.trials.habits import Habit, habit_of
from calibration.validation.trials.names import datasets_of
from simulator.numerics.roots import bracketed_root
from simulator.traffic.lengths import Z_95

Form = dict[str, Any]
"""A length distribution of the scenario file."""


class Known(NamedTuple):
    """Usual lengths of a data set: means in tokens, and the spread of their logarithms."""

    prompt: float
    output: float
    prompt_spread: float = 0.7
    output_spread: float = 0.7


_KNOWN: Mapping[str, Known] = {
    "gsm8k": Known(120, 200, 0.25, 0.35),
    "cnn_dailymail": Known(900, 120, 0.45, 0.4),
    "sharegpt": Known(250, 300, 1.1, 0.9),
    "instructcoder": Known(150, 250),
    "mt_bench": Known(100, 400, 0.7, 0.6),
    "humaneval": Known(150, 300, 0.4, 0.5),
    "alpaca": Known(60, 250, 0.6),
    "spec_bench": Known(450, 300, 0.9),
    "math500": Known(130, 700, 0.5),
    "aime": Known(150, 2000, 0.3, 0.5),
    "livecodebench": Known(600, 800, 0.5),
    "gpqa": Known(250, 900, 0.4),
    "financeqa": Known(700, 400),
    "speed_bench": Known(400, 500),
    "swe_bench": Known(5000, 500),
    "arxiv": Known(8000, 250, 0.4),
    "wmt": Known(80, 60, 0.4, 0.4),
    "qa": Known(500, 150),
    "summarization": Known(500, 100),
}
"""Approximate, for where a source gives no lengths: the first six from the notes beside the cases, the
others from the data sets' cards. Chat spreads most; its spread is that of case sdb_trace_sharegpt_eagle3.
"""

_RAW_PROMPTS: Mapping[str, float] = {"gsm8k": 58}
"""The same of prompts without a chat template: the mean of case sdb_trace_gsm8k_eagle3, less the 36 tokens
that Llama 3.1's template puts around a question.
"""
_RAW = re.compile(r"(?:no|without|without a) chat template")

_UNKNOWN = Known(920, 256, 1.0, 0.8)
"""Where nothing tells: medians over the sources of the committed cases that say lengths; chat's spread."""
_SGLANG_UNIFORM = (0.4, 0.6)
"""Realised ÷ nominal mean where lengths were drawn uniformly below the nominal one."""
_CONTEXT_LIMIT = re.compile(
    r"(?:max[-_]model[-_]len|context[-_]length|max[-_]seq[-_]len)\W{1,3}(\d+(?:,\d{3})*)(k?)\b"
)
"""What a launch line allows a prompt and its output together."""
_FEW = 0.01
"""A limit below which so small a part of a data set's prompts lies was not that of these prompts."""
_FIXED_WITHIN = 0.02
_TOLD = re.compile(
    r"(?<!no )(?<!no-)(?<!not )(?<!without )(?<!without --)ignore[-_ ]eos(?!\W{0,3}(?:false|off|0\b))"
)
"""Outputs do not end by themselves: each is as long as was asked for."""
_OWN_LENGTHS = ("sharegpt",)
"""Data sets whose recorded answers tools ask for, each as long as it was."""
_ROUND = (50, 64)
"""Limits are multiples of one of these; means are not, but by chance."""
_LONGEST_PER_MEAN = 8.0
"""Where a log-normal is cut when no longest length is known: benchmarks drop what is too long for them."""
_REASONING_FACTOR = 6.0
"""Outputs of a model that thinks first, in those of one that does not: assumed."""
MOST_TOKENS = 1_000_000


class LengthsChoice(NamedTuple):
    """Prompt and output distributions, their means in tokens, and what was assumed."""

    prompt: Form
    output: Form
    prompt_mean: float
    output_mean: float
    ends_foreseen: bool
    """Outputs end where they were told to, and the engine knows: prompts of random tokens do not make a model
    stop by itself, and outputs that all met their limit did not either.
    """
    notes: tuple[str, ...]
    assumed: tuple[str, ...]
    """Fields of the workload whose lengths no source says."""

    @property
    def stated_means(self) -> dict[str, float]:
        """Field of the workload → mean tokens, where a source says it."""
        means = {"prompt_tokens": self.prompt_mean, "output_tokens": self.output_mean}
        return {name: mean for name, mean in means.items() if name not in self.assumed}


def lengths_of(case: Case, point: Facts, dataset: str | None, siblings: Sequence[Case] = ()) -> LengthsChoice:
    """The lengths of a point: its own, its counts, the case's, another case's of the source with the same
    data set (`siblings`), or the data set's usual ones."""
    names = datasets_of(dataset or case.workload.dataset)
    random = "random" in names or (not names and _is_number(case.workload.input_len_tokens))
    known = next((name for name in names if name in _KNOWN), None)
    spread, where = _UNKNOWN if known is None else _KNOWN[known], known or "no known data set"
    raw = _RAW_PROMPTS.get(where) if _RAW.search(case.text) else None
    told = _TOLD.search(case.text) is not None
    reasoning = bool(re.search(r"thinking|reasoning", f"{case.target.model} {case.text}".lower()))
    notes: dict[str, list[str]] = {"input": [], "output": []}
    assumed: set[str] = set()

    def one(what: str, short: str, sigma: float, usual: float, room: float = math.inf) -> tuple[Form, float]:
        field = f"{what}_len_tokens"
        said = _first(point.get(field), point.get(short), getattr(case.workload, field))
        asked = _is_number(said) and told and not set(names) & set(_OWN_LENGTHS)
        exact = random or asked or (what == "input" and _is_number(said))
        found = _form(said, _realised(point, what), sigma, exact)
        if found is not None:
            nominal = random and _realised(point, what) is None and number(said) is not None
            return _ranged(found, habit_of(case), notes[what]) if nominal else found
        longer = _REASONING_FACTOR if reasoning and what == "output" else 1.0
        for sibling in siblings if longer == 1.0 else ():
            if names and datasets_of(sibling.workload.dataset) == names:
                found = _form(getattr(sibling.workload, field), None, sigma, exact)
                if found is not None:
                    notes[what].append(f"{what} length: that of the source's case {sibling.case_id}")
                    return found
        assumed.add("prompt_tokens" if what == "input" else "output_tokens")
        how = ", for a model that reasons" if longer > 1 else ""
        if what == "input" and raw is not None:
            usual, how = raw, " without a chat template"
        mean, longest = usual * longer, None
        below = _share_below(mean, sigma, room)
        if below >= _FEW and room < _LONGEST_PER_MEAN * mean:
            mean, longest = max(1, round(_mean_below(mean, sigma, room))), room
            how += f", of prompts that the server takes ({room:,.0f} at most)"
        notes[what].append(f"{what} length not published: {mean:g} tokens, usual for {where}{how}")
        return _lognormal(mean, sigma, longest)

    output, output_mean = one("output", "osl", spread.output_spread, spread.output)
    room = _room_of(case, output.get("max", output_mean))
    prompt, prompt_mean = one("input", "isl", spread.prompt_spread, spread.prompt, room)
    ends = random or told or output["kind"] == "fixed"
    said = (*notes["input"], *notes["output"])
    fields = tuple(name for name in ("prompt_tokens", "output_tokens") if name in assumed)
    return LengthsChoice(prompt, output, prompt_mean, output_mean, ends, said, fields)


def _room_of(case: Case, output_tokens: float) -> float:
    """Tokens that a launch line leaves to a prompt beside an output that long; inf where it has no limit."""
    found = _CONTEXT_LIMIT.search(case.text)
    if found is None:
        return math.inf
    room = float(found[1].replace(",", "")) * (1024 if found[2] else 1) - output_tokens
    return room if 1 <= room <= MOST_TOKENS else math.inf


def _ranged(found: tuple[Form, float], habit: Habit | None, notes: list[str]) -> tuple[Form, float]:
    """A nominal length as the tool draws it."""
    if habit is None or habit.shortest is None:
        return found
    longest = max(1, round(found[1]))
    shortest = max(1, round(habit.shortest * longest))
    notes.append(f"{habit.tool} draws lengths from {shortest} to {longest} tokens")
    return {"kind": "uniform", "low": shortest, "high": longest}, (shortest + longest) / 2


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)


def _is_number(value: object) -> bool:
    return number(value) is not None


def _realised(point: Facts, what: str) -> float | None:
    """Mean tokens of a request by the client's own count, of the plain run where there is one."""
    for side in VARIANTS:
        variant = variant_facts(point, side)
        total, requests = number(variant.get(f"total_{what}_tokens")), number(variant.get("num_requests"))
        if total and requests and 1 <= total / requests <= MOST_TOKENS:
            return total / requests
    return None


def _form(said: object, realised: float | None, sigma: float, exact: bool) -> tuple[Form, float] | None:
    """A distribution and its mean, from what was said and what was counted; None when neither is there."""
    facts: Mapping[str, Any] = said if isinstance(said, Mapping) else {"mean": said}
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
    limit = longest or _met_limit(said, realised)
    if exact or (limit and abs(limit / level - 1) < _FIXED_WITHIN):
        return {"kind": "fixed", "tokens": max(1, round(level))}, level
    return _lognormal(level, sigma, longest)


def _met_limit(said: object, realised: float | None) -> float | None:
    """A round number that is all a source says, where the tokens it counted nearly reach it: a limit."""
    limit = _tokens(said)
    if limit is None or realised is None or realised > limit or all(limit % one for one in _ROUND):
        return None
    return limit


def _tokens(value: object) -> float | None:
    found = number(value)
    return found if found is not None and 0 < found <= MOST_TOKENS else None


def _uniform(nominal: float) -> tuple[Form, float]:
    return {"kind": "uniform", "low": 1, "high": max(1, round(nominal))}, (nominal + 1) / 2


def _lognormal(mean: float, sigma: float, longest: float | None = None) -> tuple[Form, float]:
    """A log-normal of that spread, cut at the longest, whose mean after the cut is `mean`."""
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
    form = {
        "kind": "lognormal",
        "median": round(median, 3),
        "p95": round(p95, 3),
        "max": max(1, round(longest)),
    }
    return form, mean


def _share_below(mean: float, sigma: float, longest: float) -> float:
    """The part of a log-normal that is no longer."""
    return _normal_cdf((math.log(longest / mean) + sigma**2 / 2) / sigma)


def _mean_below(mean: float, sigma: float, longest: float) -> float:
    """The mean of that part: a server refuses the rest."""
    at = (math.log(longest / mean) + sigma**2 / 2) / sigma
    return mean * _normal_cdf(at - sigma) / _normal_cdf(at)


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))
