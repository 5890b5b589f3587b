"""Whatever the parser is fed, it answers with a scenario or with input errors that name a real line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputError, Problem
from simulator.scenario import Scenario, parse_scenario, scenario_from_data, scenario_yaml
from tests.scenario_texts import WITH_VARIANT

EXAMPLE = (Path(__file__).parents[2] / "examples" / "llama-3.3-70b-eagle3-h100.yaml").read_text("utf-8")
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([0, -1, 1, 2**63, 10**400, 1e308, 5e-324]))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=20))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
MARKS = st.sampled_from(
    [*"{}[],:#&*!|>'\"%@`-? \t\n\r\x00\x85\ufeff\u2028", "---", "...", "<<: ", "!!int ", "&a ", "*a"]
)


def errors_of(read: Callable[..., Scenario], *arguments: object) -> tuple[Problem, ...]:
    """What is wrong with the scenario that `read` is given; nothing when it is one."""
    try:
        document = read(*arguments)
    except InputError as error:
        assert error.problems, "an error that says nothing"  # noqa: PT017
        return error.problems
    assert isinstance(document, Scenario)
    return ()


def check(text: str, *overrides: str) -> None:
    """Parses the text; every error must point into it, or at the override it comes from."""
    problems = errors_of(parse_scenario, text, "s.yaml", Path("."), overrides)
    lines = max(1, len(text.splitlines()))
    for problem in problems:
        assert "\n" not in str(problem)
        assert problem.message
        assert problem.file == "s.yaml" or str(problem.file).startswith("--set")
        if problem.file == "s.yaml":
            assert problem.line is not None
            assert 1 <= problem.line <= lines
    if not problems:
        scenario = parse_scenario(text, "s.yaml", overrides=overrides)
        assert parse_scenario(scenario_yaml(scenario)) == scenario


def leaves(data: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Paths of all values inside the data, the inner nodes too."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(result for key, value in items for result in leaves(value, (*path, key)))]


BASE: dict[str, Any] = json.loads(parse_scenario(WITH_VARIANT).canonical_json())
"""A scenario as plain data with every default written out."""


def replaced(path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """`BASE` with another value at `path`."""
    changed = deepcopy(BASE)
    holder: Any = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return changed


@given(st.data())
def test_a_text_with_pieces_cut_or_put_in(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([EXAMPLE, WITH_VARIANT]))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        text = text[:start] + data.draw(st.one_of(MARKS, st.text(max_size=5))) + text[end:]
    check(text)


@given(st.text())
def test_any_text_at_all(text: str) -> None:
    check(text)


@given(st.sampled_from(leaves(BASE)[1:]), VALUES)
def test_any_value_in_the_place_of_another(path: tuple[str | int, ...], value: object) -> None:
    changed = replaced(path, value)
    check(json.dumps(changed, indent=1))
    errors_of(scenario_from_data, changed)


HOSTILE: list[Any] = [
    *(None, True, -1, 10**400, -(10**400), math.nan, math.inf, 0.5),
    *("", "\0", "x.json", [], [[]], {}, {"a": 1}),
]


def test_every_place_with_every_hostile_value() -> None:
    refused = 0
    for path in leaves(BASE)[1:]:
        for value in HOSTILE:
            refused += bool(errors_of(scenario_from_data, replaced(path, value)))
    assert refused > len(leaves(BASE)) * len(HOSTILE) / 2


@given(
    st.sampled_from([path for path in leaves(BASE) if path and isinstance(path[-1], str)]),
    st.text(max_size=12),
)
def test_a_key_under_another_name(path: tuple[str | int, ...], name: str) -> None:
    changed = replaced(path, None)
    holder: Any = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[name] = holder.pop(path[-1])
    check(json.dumps(changed, indent=1))


@given(st.data())
def test_any_override(data: st.DataObject) -> None:
    path = ".".join(str(key) for key in data.draw(st.sampled_from(leaves(BASE)[1:])))
    path = data.draw(st.one_of(st.just(path), st.just(f"{path}.x"), st.text(max_size=15)))
    value = data.draw(st.one_of(VALUES.map(json.dumps), st.text(max_size=15)))
    check(WITH_VARIANT, f"{path}={value}")


@given(st.text(max_size=30))
def test_an_override_of_any_text(text: str) -> None:
    check(WITH_VARIANT, text)
