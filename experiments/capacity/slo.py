"""The limits of a service, parsed from `ttft_p99=1s,tpot_p99=25ms` and checked against a run.

A limit names a metric (`ttft`, `tpot`, `itl`, `e2e`) and a statistic over requests (`mean`, `p50`, `p90`,
`p95`, `p99`). A traffic class may precede them: `chat.tpot_p99=25ms`. `goodput=95%` requires that this share
of the requests meets every limit; then the limits apply to each request, and `ttft=1s` needs no statistic. As
in `docs/results.md`, the ITL of one request is its max ITL.
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


class LimitCheck(NamedTuple):
    """A limit against the value of a run. `ratio` > 1 misses it; NaN where the run has no such figure."""

    limit: Limit
    value: float
    ratio: float


@dataclass(frozen=True)
class Limit:
    """The `maximum` of one figure (s; for goodput the share of misses), of all requests or of a class."""

    metric: str
    statistic: str
    maximum: float
    traffic_class: str | None = None

    @property
    def path(self) -> str:
        """The path of the limited figure in `measure.py`."""
        path = "slo_attainment" if self.metric == GOODPUT else f"{METRICS[self.metric]}.{self.statistic}"
        return path if self.traffic_class is None else f"classes.{self.traffic_class}.{path}"

    @property
    def label(self) -> str:
        """`TTFT P99`, `chat: TPOT mean`, `requests that miss a limit`."""
        if self.metric != GOODPUT:
            return title_of(self.path)
        missed = "requests that miss a limit"
        return missed if self.traffic_class is None else f"{self.traffic_class}: {missed}"

    def value_text(self, value: float) -> str:
        """A value of this figure as text."""
        return f"{value:.1%}" if self.metric == GOODPUT else format_seconds(value)

    def check(self, figures: Mapping[str, float]) -> LimitCheck:
        """Check the limit against the figures of a run."""
        value = figures.get(self.path, math.nan)
        if self.metric != GOODPUT:
            return LimitCheck(self, value, value / self.maximum)
        missed, grain = 1 - value, 1e-3  # keeps ln(ratio) finite where no request misses
        return LimitCheck(self, missed, (missed + grain) / (self.maximum + grain))


_NO_LIMIT = Limit("e2e", "mean", math.inf)
"""The limit of a class without limits: any load meets it."""


@dataclass(frozen=True)
class SloLimits:
    """All limits. `each_s` holds the limits of each single request, for goodput: metric → s."""

    limits: tuple[Limit, ...]
    each_s: Mapping[str, float]

    @property
    def limits_of_requests(self) -> dict[str, float]:
        """`each_s` under the names that `measure.py` uses."""
        return {f"{metric}_each_s": limit for metric, limit in self.each_s.items()}

    def worst(self, figures: Mapping[str, float]) -> LimitCheck:
        """The limit with the largest ratio. A limit without a figure counts as missed."""
        return max((limit.check(figures) for limit in self.limits), key=lambda r: _log(r.ratio))

    def score(self, figures: Mapping[str, float]) -> float:
        """ln of the worst ratio of figure to limit: positive where the SLO is missed."""
        return _log(self.worst(figures).ratio)

    def of_class(self, name: str) -> SloLimits:
        """The limits of one class on its own replicas: those of the class and those of all requests."""
        class_limits = [
            replace(limit, traffic_class=None) for limit in self.limits if limit.traffic_class in (None, name)
        ]
        return SloLimits(tuple(class_limits) or (_NO_LIMIT,), dict(self.each_s))


def _log(ratio: float) -> float:
    if math.isnan(ratio):
        return _SCORE_CUT
    return max(-_SCORE_CUT, min(_SCORE_CUT, math.log(ratio))) if ratio > 0 else -_SCORE_CUT


def slo_of(scenario: Scenario, text: str | None = None) -> SloLimits:
    """The SLO of `--slo`, or else the scenario's.

    Raises InputError where there is none or it cannot be parsed.
    """
    if text is None and scenario.slo is None:
        allowed = f"--slo, {_EXAMPLE}; or slo in the scenario"
        raise InputError(
            Problem(field="slo", message="is missing, so nothing limits the load", allowed=allowed)
        )
    classes = [entry.name for entry in scenario.workload.traffic_classes]
    if text is not None:
        return slo_from_text(text, classes, _request_limits_of_scenario(scenario))
    return SloLimits(tuple(_limits_of_scenario(scenario)), {})


def _limits_of_scenario(scenario: Scenario) -> list[Limit]:
    values = scenario.slo.model_dump(exclude_none=True) if scenario.slo else {}
    parts = [(name.removesuffix("_s").rsplit("_", 1), limit) for name, limit in values.items()]
    return [Limit(metric, statistic, float(limit)) for (metric, statistic), limit in parts]


def _request_limits_of_scenario(scenario: Scenario) -> dict[str, float]:
    return {limit.metric: limit.maximum for limit in _limits_of_scenario(scenario)}


def slo_from_text(
    text: str, classes: Sequence[str] = (), each_s: Mapping[str, float] | None = None
) -> SloLimits:
    """The SLO in a text. Names of `classes` may precede a metric. `each_s` are the limits of each request for
    goodput, unless the text states them. Raises InputError with all problems.
    """
    problems: list[Problem] = []
    limits: list[Limit] = []
    each: dict[str, float] = {}
    share: float | None = None
    names: list[str] = []
    for part in text.split(","):
        try:
            name, value = _name_and_value(part)
            if name.lower() == GOODPUT:
                names.append(GOODPUT)
                share = _fraction(part, value)
                continue
            limit = _limit(part, name, _seconds(part, value), classes)
            names.append(limit.label.rstrip())
            if limit.statistic:
                limits.append(limit)
            else:
                each[limit.metric] = limit.maximum
        except InputError as error:
            problems += error.problems
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        problems.append(_problem(text, f"limits {name} twice", "each figure once"))
    if share is None and each:
        name, limit_s = next(iter(each.items()))
        allowed = (
            f"{name}_p99={format_seconds(limit_s)}; or add goodput=95%, the share of requests that meet it"
        )
        problems.append(_problem(text, f"does not state for which requests {name} holds", allowed))
    if share is not None and not problems:
        if any(limit.traffic_class for limit in limits):
            problems.append(
                _problem(text, "combines goodput with the limit of a class", "goodput, or limits by class")
            )
        each = each | {limit.metric: limit.maximum for limit in limits} or dict(each_s or {})
        if not each:
            problems.append(
                _problem(text, "goodput needs limits to meet", "for example ttft=1s,tpot=25ms,goodput=95%")
            )
        limits = [Limit(GOODPUT, "", 1 - share)]
    if problems:
        raise InputError(problems)
    return SloLimits(tuple(limits), each)


def _name_and_value(part: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(_problem(part.strip(), "is not a limit", _EXAMPLE))
    return name.strip(), value.strip()


def _limit(part: str, name: str, limit_s: float, classes: Sequence[str]) -> Limit:
    owner, _, metric_name = name.rpartition(".")
    if owner and (owner not in classes or len(classes) < 2):
        allowed = f"known: {', '.join(classes)}" if len(classes) > 1 else "the traffic has no classes"
        raise InputError(_problem(part.strip(), f"names no traffic class {owner!r}", allowed))
    metric, _, statistic = metric_name.lower().partition("_")
    if metric not in METRICS:
        guess = did_you_mean(metric, METRICS)
        hint = f", did you mean {guess}?" if guess else ""
        raise InputError(
            _problem(part.strip(), f"limits an unknown metric{hint}", f"{', '.join(METRICS)}, {GOODPUT}")
        )
    if statistic and statistic not in STATISTICS:
        raise InputError(
            _problem(part.strip(), "has an unknown statistic", f"one of {', '.join(STATISTICS)}")
        )
    if owner and not statistic:
        raise InputError(_problem(part.strip(), "limits each request of a class", f"{name}_p99=…"))
    return Limit(metric, statistic, limit_s, owner or None)


def _seconds(part: str, text: str) -> float:
    """A duration with its unit, s."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InputError(_problem(part.strip(), "is not a duration above 0", "such as 25ms or 1.5s"))
    number, unit = float(match[1]), match[2]
    if unit not in _PER_SECOND:
        message = f"has the unit {unit!r}" if unit else "has no unit"
        raise InputError(_problem(part.strip(), message, f"ms or s: {match[1]}ms, {match[1]}s"))
    if not 0 < number / _PER_SECOND[unit] < math.inf:
        raise InputError(_problem(part.strip(), "is not a duration above 0", "such as 25ms or 1.5s"))
    return number / _PER_SECOND[unit]


def _fraction(part: str, text: str) -> float:
    """A fraction written as `95%` or `0.95`."""
    match = _NUMBER.fullmatch(text)
    share = float(match[1]) / (100 if match[2] == "%" else 1) if match and match[2] in ("", "%") else math.nan
    if not 0 < share < 1:
        raise InputError(
            _problem(part.strip(), "is not a share of requests", "above 0 and below 100%, such as 95%")
        )
    return share


def _problem(value: str, message: str, allowed: str) -> Problem:
    return Problem(file="--slo", value=value, message=message, allowed=allowed)
