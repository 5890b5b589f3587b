"""From what a page has set to a scenario, or to what is wrong with each field; and the link that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from dashboards.app.controls import CONTROLS, Control, ControlValue
from simulator.document import Document
from simulator.errors import InputError, Problem
from simulator.scenario import Scenario, with_workload
from simulator.scenario.flag_overrides import FIELDS, VARIANT_FLAGS, flag_of
from simulator.scenario.load import scenario_from_document

if TYPE_CHECKING:
    from pathlib import Path

REPLICATIONS = 3
_REQUESTS, _ROUNDS = 1300, 3
"""Requests of each replication, and rounds of all clients, which warm-up and end leave out: a P99 needs 1,000
measured requests in every replication.
"""
_MILLISECONDS = ("slo_ttft", "slo_tpot")
_SPREAD = ("prompt_tokens", "output_tokens")
"""Lengths that are uniform within ± 50 % of the mean that a page sets."""

PageSettings = Mapping[str, ControlValue]
"""Control → its value, of those that differ from the scenario that the page began with."""


class FieldError(ValueError):
    """What is wrong. `messages`: control → text; `others`: what belongs to no control."""

    def __init__(self, messages: Mapping[str, str], others: tuple[str, ...]) -> None:
        super().__init__("; ".join([*messages.values(), *others]))
        self.messages, self.others = messages, others


@dataclass(frozen=True)
class Base:
    """The scenario that a page begins with, and the values that its controls show of it."""

    scenario: Scenario
    values: PageSettings = field(init=False)

    def __post_init__(self) -> None:
        values = {name: control.value(self.scenario) for name, control in CONTROLS.items()}
        object.__setattr__(self, "values", values)

    @property
    def folder(self) -> Path:
        """Where relative file names of the scenario begin."""
        return self.scenario.base_dir

    def changed(self, shown: PageSettings) -> dict[str, ControlValue]:
        """The settings among the values that a page shows."""
        return {name: value for name, value in shown.items() if value != self.values[name]}

    def scenario_of(self, settings: PageSettings) -> Scenario:
        """The base with these settings and the requests of a live answer. Raises FieldError."""
        data = self._data()
        flags = {name: _number(CONTROLS[name], value) for name, value in settings.items() if name in FIELDS}
        if settings.get("rate"):
            flags.pop("concurrency", None)
        if flags.get("draft_length") == 0 or flags.get("method") == "none":  # plain decoding
            flags = {name: value for name, value in flags.items() if name not in VARIANT_FLAGS}
            flags["method"] = "none"
        if isinstance(flags.get("draft_length"), int) and "method" not in flags and data["speculation"]:
            data["speculation"][0]["draft_length"] = flags.pop(
                "draft_length"
            )  # before the name is made of it
        try:
            scenario = scenario_from_document(Document(data), self.folder, self._overrides(settings), flags)
        except InputError as error:
            raise _field_error(error.problems) from error
        clients = getattr(scenario.workload.arrivals, "concurrency", 0)
        return with_workload(scenario, requests=_REQUESTS + _ROUNDS * clients)

    def _data(self) -> dict[str, Any]:
        """The base as plain data. A variant's name follows its method and draft length."""
        data = self.scenario.model_dump(mode="json")
        for variant in data["speculation"]:
            variant.pop("name")
        data["speculation"] = data["speculation"][:1]
        data["run"] |= {"replications": REPLICATIONS, "precision": None}
        return data

    def _overrides(self, settings: PageSettings) -> list[str]:
        overrides = []
        for name, value in settings.items():
            path = CONTROLS[name].field
            if name in _SPREAD:
                text = f"{{kind: uniform, low: {int(value or 0) // 2}, high: {int(value or 0) * 3 // 2}}}"
                overrides.append(f"{path}={text}")
            elif name == "rate" and value:
                overrides.append(f"workload.arrivals={{kind: poisson, rate_per_s: {value}}}")
            elif name in _MILLISECONDS:
                overrides.append(f"{path}={'null' if value in (None, '') else float(value) / 1e3!r}")
        return overrides


def _number(control: Control, value: ControlValue) -> ControlValue:
    """A choice of numbers arrives as text."""
    if value == "":
        return None
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _field_error(problems: tuple[Problem, ...]) -> FieldError:
    labels = {flag_of(name): name for name in FIELDS}
    labels |= {f"--set {control.field}": name for name, control in CONTROLS.items()}
    labels |= {"--set workload.arrivals": "rate"}
    messages: dict[str, str] = {}
    others: list[str] = []
    for problem in problems:
        name = labels.get(problem.file or "") or _by_field(problem.field or "")
        text = str(Problem(value=problem.value, message=problem.message, allowed=problem.allowed))
        if name is None:
            others.append(f"{problem.field}: {text}" if problem.field else text)
        else:
            messages.setdefault(name, text)
    return FieldError(messages, tuple(others))


def _by_field(path: str) -> str | None:
    """The control of a scenario's field; a variant's fields come without its number."""
    parts = [part for part in path.replace("[", ".").replace("]", "").split(".") if part]
    if parts[:1] == ["speculation"] and len(parts) > 2:
        parts = ["speculation", *parts[2:]]
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        for name, control in CONTROLS.items():
            if control.field == prefix:
                return name
    return None


def from_query(query: str) -> dict[str, ControlValue]:
    """The settings in a link. What it has besides is left out; wrong values are refused by the scenario."""
    settings: dict[str, ControlValue] = {}
    for name, text in parse_qsl(query.removeprefix("?"), keep_blank_values=True):
        if name in CONTROLS:
            settings[name] = _parsed(CONTROLS[name], text[:200])
    return settings


def _parsed(control: Control, text: str) -> ControlValue:
    if text == "":
        return None
    if control.kind == "choice":
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 1e15 else number
