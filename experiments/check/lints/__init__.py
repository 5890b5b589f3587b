"""The lints by theme. A new lint is a function here under `@lint(…)`, with examples in `tests/check`."""

from __future__ import annotations

from collections.abc import Callable

from calibration.telemetry.reading import Severity
from experiments.check.lint import Find, Lint, registered
from simulator.registry import Registry

_LINTS: Registry[Lint] = Registry("lint", "code", __name__, __path__)


def lint(
    name: str, severity: Severity, title: str, *, applies: str = "all", source: str
) -> Callable[[Find], Find]:
    """Register a function as a lint."""
    return registered(_LINTS, name, severity, title, applies, source)


lints = _LINTS.all
