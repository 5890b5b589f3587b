"""A lint: one small declaration with its source, and a function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from calibration.telemetry.reading import Severity
from experiments.check.subject import Subject
from simulator.registry import Registry


class Hit(NamedTuple):
    """One place where a lint applies: the setting, what is wrong there, and what to do."""

    field: str | None
    text: str
    fix: str


@dataclass(frozen=True)
class Lint:
    """`name` is its stable code. `applies` says to which engines and versions, in words.
    error: the engine refuses it, or the result is wrong. warning: it costs speed. info: worth knowing.
    """

    name: str
    severity: Severity
    title: str
    applies: str
    source: str
    find: Callable[[Subject], Iterator[Hit]]


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


Find = Callable[[Subject], Iterator[Hit]]


def registered(
    lints: Registry[Lint], name: str, severity: Severity, title: str, applies: str, source: str
) -> Callable[[Find], Find]:
    """Register the function below as a lint."""

    def register(find: Find) -> Find:
        lints.register(Lint(name, severity, title, applies, source, find))
        return find

    return register


def is_on(settings: Mapping[str, Any], *names: str) -> bool:
    """Whether a switch is given and not set to false."""
    return any(name in settings and str(settings[name]).lower() not in ("false", "0") for name in names)
