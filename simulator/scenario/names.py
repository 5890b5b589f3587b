"""Names in a scenario that must be known here, and files that must be there.

Looked up on the file as it stands, so that an unknown model is reported together with a wrong type. The
catalogues are imported when they are needed: reading a scenario does not pay for them before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from simulator.errors import InputError, Problem, unknown_name
from simulator.scenario.base import Fault, Raw, Where


def name_faults(data: Raw, base_dir: Path) -> Iterator[Fault]:
    """Every unknown name and missing file of a scenario, as paths into it."""
    for path, value in _texts(data):
        match path:
            case ("target", "model"):
                yield from _named(path, value, base_dir, "model", _targets, "the path of a config.json")
            case ("hardware", "gpu"):
                yield from _named(path, value, base_dir, "GPU", _gpus, "the path of a profile")
            case ("engine", "preset"):
                yield from _preset(path, value)
            case ("speculation", int(), "method"):
                yield from _listed(path, value, "method", _methods())
            case ("speculation", int(), "draft"):
                yield from _named(path, value, base_dir, "drafter", _drafters, "the path of its config.json")
            case ("workload", "arrivals", "format"):
                yield from _listed(path, value, "trace format", ["auto", *_trace_formats()])
            case (*_, "file") if value and not (base_dir / value).is_file():
                what = "is a folder" if (base_dir / value).is_dir() else "no such file"
                yield Fault(path, value, what, f"a file, relative to {base_dir.resolve()}")
            case _:
                pass


def _texts(value: Any, path: Where = ()) -> Iterator[tuple[Where, str]]:
    """Every text in the data with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*path, index))


def is_path(name: str, base_dir: Path) -> bool:
    """Whether a name means a file or folder rather than an entry of a catalogue."""
    return (
        name.endswith(".json")
        or name.startswith((".", "/", "~"))
        or "\\" in name
        or (base_dir / name).exists()
    )


def _named(
    path: Where, name: str, base_dir: Path, kind: str, known: Callable[[], Iterable[str]], also: str
) -> Iterator[Fault]:
    """A catalogue name or a path. What is in the file is read, and refused, by whoever needs it."""
    if not name or "\0" in name:
        return
    if is_path(name, base_dir):
        if not (base_dir / Path(name).expanduser()).exists():
            yield Fault(path, name, "no such file", f"{also}, relative to {base_dir.resolve()}")
        return
    yield from _listed(path, name, kind, known(), also)


def _listed(
    path: Where, name: str, kind: str, known: Iterable[str], also: str | None = None
) -> Iterator[Fault]:
    names = list(known)
    if name and name not in names:
        yield _fault(path, unknown_name(kind, name, names, also=also))


def _preset(path: Where, name: str) -> Iterator[Fault]:
    from simulator.presets import load_preset

    try:
        load_preset(name)
    except InputError as error:
        yield from (_fault(path, problem) for problem in error.problems)


def _fault(path: Where, problem: Problem) -> Fault:
    return Fault(path, problem.value, problem.message, problem.allowed or "")


def _targets() -> Iterable[str]:
    from simulator.catalogue import targets

    return targets()


def _drafters() -> Iterable[str]:
    from simulator.catalogue import drafters

    return drafters()


def _gpus() -> Iterable[str]:
    from simulator.gpu import GPUS

    return GPUS


def _methods() -> Iterable[str]:
    from simulator.speculation import methods

    return methods()


def _trace_formats() -> Iterable[str]:
    from simulator.traces import readers

    return readers()
