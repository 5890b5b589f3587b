"""The folders of the packages: no circle, the order of the simulator's, and the way of one request.

ARCHITECTURE.md states the order and the way; the imports and the calls are compared with it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from simulator.results.record import RunRecord
from simulator.results.result import Result
from simulator.scenario import load_scenario
from simulator.simulation import simulate
from simulator.step.state import State
from simulator.traffic.workload import Requests
from tests.imports import LINE, SOURCES, imports, module_of, ring_of
from tests.shared_data import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

MOST_MODULES = 12
"""One request passes no more modules than a reader can keep in mind."""

FOLLOWED = (Requests, State, RunRecord, Result)
"""What a request is part of, from its arrival to the result."""


def section(title: str) -> str:
    """The text of one section of the page."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def folder_of(module: str) -> str:
    """The folder or root file of a package that a module belongs to: `simulator.step` of its `price`."""
    return ".".join(module.split(".")[:2])


def folder_graph(sources: Mapping[Path, str | None]) -> dict[str, set[str]]:
    """Folder → the folders of its package that it imports, at any time and for types too."""
    folders = {folder_of(module_of(path)) for path in sources}
    graph: dict[str, set[str]] = {folder: set() for folder in folders}
    for path, source in sources.items():
        own = folder_of(module_of(path))
        reached = {folder_of(name) for taken in imports(path, source) for name in taken.reaches}
        same_package = {folder for folder in reached & folders if folder.split(".")[0] == own.split(".")[0]}
        graph[own] |= same_package - {own}
    return graph


def stated_order() -> list[str]:
    """The simulator's folders and root files, from the ground up."""
    rows = re.findall(r"^\| (`.*?) \|", section("The simulator, from the ground up"), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([\w./]+)`", row)]
    return [f"simulator.{name.removesuffix('/').removesuffix('.py')}" for name in names]


@pytest.mark.parametrize("package", LINE)
def test_no_folders_import_one_another(package: str) -> None:
    sources: dict[Path, str | None] = {path: None for path in SOURCES if module_of(path).startswith(package)}
    assert ring_of(folder_graph(sources)) == []


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        ("from simulator.b.y import Y", "from simulator.a.x import X"),
        ("from simulator.b import y", "if TYPE_CHECKING:\n    from simulator.a.x import X"),
        ("def f():\n    from ..b import y", "def g():\n    import simulator.a.x"),
    ],
)
def test_planted_circles_of_folders_are_found(upper: str, lower: str) -> None:
    files = {
        ROOT / "simulator/a/x.py": upper,
        ROOT / "simulator/a/z.py": "",
        ROOT / "simulator/b/y.py": lower,
    }
    assert set(ring_of(folder_graph(files))) == {"simulator.a", "simulator.b"}
    assert not ring_of(folder_graph(files | {ROOT / "simulator/b/y.py": "from simulator.c import C"}))


def test_folders_of_the_simulator_import_downwards() -> None:
    graph = folder_graph({path: None for path in SOURCES if module_of(path).startswith("simulator.")})
    order = stated_order()
    assert sorted(order) == sorted(graph), "the page states every folder once"
    upwards = [
        f"{folder} imports {other}"
        for folder, others in graph.items()
        for other in others
        if order.index(other) > order.index(folder)
    ]
    assert upwards == []


class Way:
    """The modules of the simulator that hand on a request, by the first call that does."""

    def __init__(self) -> None:
        self.calls = 0
        self.entered: dict[int, int] = {}
        """Frame → number of its call."""
        self.first: dict[str, int] = {}
        """Module → number of its first call with a part of a request."""

    @property
    def modules(self) -> list[str]:
        """In order of these calls."""
        return sorted(self.first, key=self.first.__getitem__)

    def note(self, frame: FrameType, event: str, value: Any) -> None:
        """What `sys.setprofile` calls."""
        code = frame.f_code
        if event == "call":
            self.calls += 1
            self.entered[id(frame)] = self.calls
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            values: Iterable[Any] = [frame.f_locals.get(name) for name in names]
        elif event == "return":
            values = [value]
        else:
            return
        number = self.entered.pop(id(frame), 0) if event == "return" else self.calls
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT / "simulator") and any(map(holds_a_request, values)):
            module = path.relative_to(ROOT / "simulator").as_posix()
            self.first[module] = min(number, self.first.get(module, number))


def holds_a_request(value: Any) -> bool:
    """Whether a value is part of a run's requests, or a sequence of such parts."""
    if isinstance(value, list | tuple) and not isinstance(value, FOLLOWED):
        return any(isinstance(item, FOLLOWED) for item in value)
    return isinstance(value, FOLLOWED)


@contextmanager
def followed() -> Iterator[Way]:
    """The way of the requests within the block."""
    way = Way()
    sys.setprofile(way.note)
    try:
        yield way
    finally:
        sys.setprofile(None)


def test_one_request_passes_the_modules_of_the_page() -> None:
    overrides = ["workload.requests=200", "run.replications=1"]
    scenario = load_scenario(ROOT / "examples/llama-3.3-70b-eagle3-h100.yaml", overrides)
    simulate(scenario)  # imports, and compiles what is compiled once
    with followed() as way:
        simulate(scenario)
    stated = re.findall(r"^\d+\. `([\w/.]+)`", section("Follow one request"), re.MULTILINE)
    assert way.modules == stated
    assert len(stated) <= MOST_MODULES


def test_a_detour_is_seen() -> None:
    record = object.__new__(RunRecord)
    names: dict[str, Any] = {}
    source = "def handed(value): return None\ndef made(value): return [value[0]]\ndef apart(value): return 1"
    exec(compile(source, str(ROOT / "simulator/detour.py"), "exec"), names)
    for function, value, modules in (
        ("handed", record, ["detour.py"]),
        ("made", {0: record}, ["detour.py"]),
        ("apart", {0: record}, []),
    ):
        with followed() as way:
            names[function](value)
        assert way.modules == modules
