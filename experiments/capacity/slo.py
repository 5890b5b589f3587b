"""The limits that a service keeps: read from `ttft_p99=1s,tpot_p99=25ms`, and held against a run.

A limit names a metric (`ttft`, `tpot`, `itl`, `e2e`) and a statistic over requests (`mean`, `p50`, `p90`,
`p95`, `p99`), and may name a traffic class before them: `chat.tpot_p99=25ms`. `goodput=95%` asks for the
share of requests that meet every limit themselves; then the limits are each request's own, and `ttft=1s`
needs no statistic. As in `docs/results.md`, a request's own ITL is its worst gap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from simulator.errors import InputError, Problem, did_you_mean
from simulator.results.catalogue import CATALOGUE, REPORTED_BY_CLIENTS, title_of
from simulator.results.metric import STATISTICS as ALL_STATISTICS
from simulator.units import format_seconds

if TYPE_CHECKING:
    from simulator.scenario import Scenario

METRICS = {CATALOGUE[name].word: name for name in REPORTED_BY_CLIENTS}
"""Word of a limit on a statistic → metric."""
STATISTICS = tuple(name for name in ALL_STATISTICS if name != "p999")
GOODPUT = "goodput"
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6}
_EXAMPLE = "for example ttft_p99=1s,tpot_p99=25ms"
_NUMBER = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(\S*)")
_SCORE_CUT = 10.0


class Reached(NamedTuple):
    """One limit against what a run gave: `ratio` > 1 misses it; NaN where the run has no such figure."""

    limit: Limit
    value: float
    ratio: float


@dataclass(frozen=True)
class Limit:
    """At most `most` of one figure (s; for goodput the share that misses), of all requests or of a class."""

    metric: str
    statistic: str
    most: float
    traffic_class: str | None = None

    @property
    def path(self) -> str:
        """The figure of `measure.py` that is limited."""
        path = "slo_attainment" if self.metric == GOODPUT else f"{METRICS[self.metric]}.{self.statistic}"
        return path if self.traffic_class is None else f"classes.{self.traffic_class}.{path}"

    @property
    def label(self) -> str:
        """`TTFT P99`, `chat: TPOT mean`, `requests that miss a limit`."""
        if self.metric != GOODPUT:
            return title_of(self.path)
        missed = "requests that miss a limit"
        return missed if self.traffic_class is None else f"{self.traffic_class}: {missed}"

    def shown(self, value: float) -> str:
        """A value of this figure for people."""
        return f"{value:.1%}" if self.metric == GOODPUT else format_seconds(value)

    def of(self, figures: Mapping[str, float]) -> Reached:
        """What a run gave."""
        value = figures.get(self.path, math.nan)
        if self.metric != GOODPUT:
            return Reached(self, value, value / self.most)
        missed, grain = 1 - value, 1e-3  # so that no miss at all is not infinitely far from the limit
        return Reached(self, missed, (missed + grain) / (self.most + grain))


_NO_LIMIT = Limit("e2e", "mean", math.inf)
"""What a class without limits keeps at any load."""


@dataclass(frozen=True)
class Slo:
    """All limits together. `each_s` holds what every request is measured against, for goodput: metric → s."""

    limits: tuple[Limit, ...]
    each_s: Mapping[str, float]

    @property
    def limits_of_requests(self) -> dict[str, float]:
        """`each_s` under the names that `measure.py` takes."""
        return {f"{metric}_each_s": limit for metric, limit in self.each_s.items()}

    def worst(self, figures: Mapping[str, float]) -> Reached:
        """The limit that is missed by most, or kept by least; one that has no figure is missed."""
        return max((limit.of(figures) for limit in self.limits), key=lambda r: _log(r.ratio))

    def score(self, figures: Mapping[str, float]) -> float:
        """ln of the worst ratio of figure to limit: 0 where the SLO is just met, above it is missed."""
        return _log(self.worst(figures).ratio)

    def of_class(self, name: str) -> Slo:
        """The limits of one class where it has replicas of its own: its own and those of everybody."""
        mine = [
            replace(limit, traffic_class=None) for limit in self.limits if limit.traffic_class in (None, name)
        ]
        return Slo(tuple(mine) or (_NO_LIMIT,), dict(self.each_s))


def _log(ratio: float) -> float:
    if math.isnan(ratio):
        return _SCORE_CUT
    return max(-_SCORE_CUT, min(_SCORE_CUT, math.log(ratio))) if ratio > 0 else -_SCORE_CUT


def slo_of(scenario: Scenario, text: str | None = None) -> Slo:
    """The SLO of `--slo`, or else the scenario's own. Raises InputError: none, or one that cannot be read."""
    if text is None and scenario.slo is None:
        allowed = f"--slo, {_EXAMPLE}; or slo in the scenario"
        raise InputError(
            Problem(field="slo", message="is not given, so nothing limits the load", allowed=allowed)
        )
    classes = [entry.name for entry in scenario.workload.traffic_classes]
    if text is not None:
        return parse_slo(text, classes, _each_of_scenario(scenario))
    return Slo(tuple(_limits_of_scenario(scenario)), {})


def _limits_of_scenario(scenario: Scenario) -> list[Limit]:
    given = scenario.slo.model_dump(exclude_none=True) if scenario.slo else {}
    parts = [(name.removesuffix("_s").rsplit("_", 1), limit) for name, limit in given.items()]
    return [Limit(metric, statistic, float(limit)) for (metric, statistic), limit in parts]


def _each_of_scenario(scenario: Scenario) -> dict[str, float]:
    return {limit.metric: limit.most for limit in _limits_of_scenario(scenario)}


def parse_slo(text: str, classes: Sequence[str] = (), each_s: Mapping[str, float] | None = None) -> Slo:
    """The SLO in a text. `classes` may stand before a metric; `each_s` is what a request must meet for
    goodput where the text itself says nothing of that. Raises InputError with all that is wrong.
    """
    problems: list[Problem] = []
    limits: list[Limit] = []
    each: dict[str, float] = {}
    share: float | None = None
    names: list[str] = []
    for part in text.split(","):
        try:
            left, value = _sides(part)
            if left.lower() == GOODPUT:
                names.append(GOODPUT)
                share = _share(part, value)
                continue
            limit = _limit(part, left, _seconds(part, value), classes)
            names.append(limit.label.rstrip())
            if limit.statistic:
                limits.append(limit)
            else:
                each[limit.metric] = limit.most
        except InputError as error:
            problems += error.problems
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        problems.append(_fault(text, f"limits {name} twice", "each figure once"))
    if share is None and each:
        name, limit_s = next(iter(each.items()))
        allowed = f"{name}_p99={format_seconds(limit_s)}; or goodput=95% beside it, the share that keeps it"
        problems.append(_fault(text, f"does not say for which requests {name} holds", allowed))
    if share is not None and not problems:
        if any(limit.traffic_class for limit in limits):
            problems.append(
                _fault(text, "limits a class beside goodput", "goodput of all, or limits by class")
            )
        each = each | {limit.metric: limit.most for limit in limits} or dict(each_s or {})
        if not each:
            problems.append(
                _fault(text, "goodput needs limits to meet", "for example ttft=1s,tpot=25ms,goodput=95%")
            )
        limits = [Limit(GOODPUT, "", 1 - share)]
    if problems:
        raise InputError(problems)
    return Slo(tuple(limits), each)


def _sides(part: str) -> tuple[str, str]:
    left, equals, value = part.partition("=")
    if not equals or not left.strip() or not value.strip():
        raise InputError(_fault(part.strip(), "is no limit", _EXAMPLE))
    return left.strip(), value.strip()


def _limit(part: str, left: str, limit_s: float, classes: Sequence[str]) -> Limit:
    owner, _, name = left.rpartition(".")
    if owner and (owner not in classes or len(classes) < 2):
        known = f"known: {', '.join(classes)}" if len(classes) > 1 else "the traffic has no classes"
        raise InputError(_fault(part.strip(), f"names no traffic class {owner!r}", known))
    metric, _, statistic = name.lower().partition("_")
    if metric not in METRICS:
        guess = did_you_mean(metric, METRICS)
        hint = f", did you mean {guess}?" if guess else ""
        raise InputError(
            _fault(part.strip(), f"limits no known metric{hint}", f"{', '.join(METRICS)}, {GOODPUT}")
        )
    if statistic and statistic not in STATISTICS:
        raise InputError(_fault(part.strip(), "has no such statistic", f"one of {', '.join(STATISTICS)}"))
    if owner and not statistic:
        raise InputError(_fault(part.strip(), "limits each request of a class", f"{left}_p99=…"))
    return Limit(metric, statistic, limit_s, owner or None)


def _seconds(part: str, text: str) -> float:
    """A duration with its unit, s."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InputError(_fault(part.strip(), "is no duration above 0", "such as 25ms or 1.5s"))
    number, unit = float(match[1]), match[2]
    if unit not in _PER_SECOND:
        message = f"has the unit {unit!r}" if unit else "has no unit"
        raise InputError(_fault(part.strip(), message, f"ms or s: {match[1]}ms, {match[1]}s"))
    if not 0 < number / _PER_SECOND[unit] < math.inf:
        raise InputError(_fault(part.strip(), "is no duration above 0", "such as 25ms or 1.5s"))
    return number / _PER_SECOND[unit]


def _share(part: str, text: str) -> float:
    """A share as `95%` or `0.95`."""
    match = _NUMBER.fullmatch(text)
    share = float(match[1]) / (100 if match[2] == "%" else 1) if match and match[2] in ("", "%") else math.nan
    if not 0 < share < 1:
        raise InputError(
            _fault(part.strip(), "is no share of requests", "above 0 and below 100%, such as 95%")
        )
    return share


def _fault(value: str, message: str, allowed: str) -> Problem:
    return Problem(file="--slo", value=value, message=message, allowed=allowed)
