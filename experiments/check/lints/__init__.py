"""The lints by theme. A new lint is a function here under `@lint(…)`, with examples in `tests/check`."""

from __future__ import annotations

from collections.abc import Callable

from calibration.telemetry.reading import Severity
from experiments.check.lint import Find, Lint, Scope
from simulator.registry import Registry

_LINTS: Registry[Lint] = Registry("lint", "code", __name__, __path__)


def lint(
    name: str,
    severity: Severity,
    title: str,
    *,
    source: str,
    engine: str | None = None,
    since: tuple[int, ...] = (),
    before: tuple[int, ...] | None = None,
    applies: str | None = None,
) -> Callable[[Find], Find]:
    """Register the function below as a lint. It sees inputs for `engine` alone, from version `since` on and
    `before` another. `applies` says so in words where there is more to say.
    """
    scope = Scope(engine, since, before)

    def register(find: Find) -> Find:
        _LINTS.register(Lint(name, severity, title, scope, applies or str(scope), source, find))
        return find

    return register


lints = _LINTS.all
