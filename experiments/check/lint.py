"""A lint: one small declaration with its source, and a function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from calibration.telemetry.reading import Severity
from experiments.check.subject import Subject
from simulator.engines.presets import ENGINE_TITLES, dotted


class Hit(NamedTuple):
    """One place where a lint applies: the setting, what is wrong there, and what to do."""

    field: str | None
    text: str
    fix: str


@dataclass(frozen=True)
class Scope:
    """The engine and its versions that a lint looks at: from `since` on, and `before` another. None: all."""

    engine: str | None = None
    since: tuple[int, ...] = ()
    before: tuple[int, ...] | None = None

    def holds(self, subject: Subject) -> bool:
        """Whether the subject is within it."""
        if self.engine not in (None, subject.engine):
            return False
        return subject.release >= self.since and (self.before is None or subject.release < self.before)

    def __str__(self) -> str:
        if self.engine is None:
            return "all"
        since = f" from {dotted(self.since)}" if self.since else ""
        before = f" before {dotted(self.before)}" if self.before else ""
        return f"{ENGINE_TITLES[self.engine]}{since}{before}"


Find = Callable[[Subject], Iterator[Hit]]


@dataclass(frozen=True)
class Lint:
    """`name` is its stable code. `applies` states its scope in words.
    error: the engine refuses it, or the result is wrong. warning: it costs speed. info: worth knowing.
    """

    name: str
    severity: Severity
    title: str
    scope: Scope
    applies: str
    source: str
    find: Find

    def hits(self, subject: Subject) -> Iterator[Hit]:
        """Every place where it applies."""
        if self.scope.holds(subject):
            yield from self.find(subject)


@dataclass(frozen=True)
class Diagnostic:
    """A hit of a lint in one input."""

    lint: Lint
    hit: Hit
    engine: str
    version: str

    def to_json(self) -> dict[str, Any]:
        """An entry of `findings`."""
        return {
            "code": self.lint.name,
            "severity": self.lint.severity,
            "field": self.hit.field,
            "text": self.hit.text,
            "fix": self.hit.fix,
            "engine": self.engine,
            "version": self.version,
            "source": self.lint.source,
        }


def is_on(settings: Mapping[str, Any], *names: str) -> bool:
    """Whether a switch is given and not set to false."""
    return any(name in settings and str(settings[name]).lower() not in ("false", "0") for name in names)
