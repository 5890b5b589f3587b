"""Published cases: files of measurements that others made, read as facts.

The schema is that of `calibration/published/*.json` (version 1). Unknown keys are ignored and `null` means
not published. What is damaged in shape (no JSON, no `cases`, a case that is no object) is refused with its
place; a leaf that is of another type than expected counts as not published, because sources write freely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

from simulator.errors import InputError, Problem, reason

Facts = Mapping[str, Any]
"""Whatever an object of the file says."""

Side = Literal["plain", "spec"]
"""Which variant of a comparison."""

VARIANTS: Mapping[Side, str] = {"plain": "baseline", "spec": "spec"}
"""Our name of a variant → the schema's."""

_LONGEST_TEXT = 100_000_000


@dataclass(frozen=True)
class Hardware:
    """What a case ran on. `pp`, `ep`, `dcp`: pipeline, expert, decode-context parallelism."""

    gpu: str | None = None
    count: float | None = None
    tp: float | None = None
    pp: float | None = None
    ep: float | None = None
    dcp: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Target:
    """The model that was served, in the source's words; parameters in 10⁹."""

    model: str | None = None
    params_b: float | None = None
    active_params_b: float | None = None
    arch: str | None = None
    weight_precision: str | None = None
    kv_precision: str | None = None


@dataclass(frozen=True)
class Draft:
    """How it drafted. `k`: drafts in a row; `topk`, `num_draft_tokens`: width and nodes of a tree."""

    method: str | None = None
    model: str | None = None
    params_b: float | None = None
    k: float | None = None
    topk: float | None = None
    num_draft_tokens: float | None = None
    structure: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Framework:
    """The serving engine, in the source's words."""

    name: str | None = None
    version: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Traffic:
    """What was sent. Lengths: a number, an object of statistics, or nothing."""

    dataset: str | None = None
    input_len_tokens: float | Facts | None = None
    output_len_tokens: float | Facts | None = None
    num_prompts: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Case:
    """One published configuration and its points. `source_id`, `date` and `file` say where it is from."""

    case_id: str
    kind: str
    source_id: str
    date: str | None
    file: str
    confidence: str | None
    hardware: Hardware
    target: Target
    draft: Draft | None
    framework: Framework
    workload: Traffic
    load_axis: str
    points: tuple[Facts, ...]
    speedup_of: str | None
    usable_as_gate: bool
    quality_flags: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """Everything the source says in words, in lower case: to look for what has no field of its own."""
        words = (self.hardware.note, self.framework.note, self.workload.note, self.workload.dataset)
        drafting = () if self.draft is None else (self.draft.note, self.draft.structure)
        return " · ".join(word for word in (*words, *drafting, *self.notes) if word).lower()


def read_cases(paths: Iterable[str | Path]) -> tuple[Case, ...]:
    """The cases of these files, in their order. Raises InputError with everything that is damaged."""
    problems: list[Problem] = []
    found: list[Case] = []
    for path in map(Path, paths):
        try:
            with path.open(encoding="utf-8-sig") as stream:
                text = stream.read(_LONGEST_TEXT + 1)
            if len(text) > _LONGEST_TEXT:
                allowed = f"at most {_LONGEST_TEXT:,} characters"
                raise InputError(Problem(str(path), message="is too long", allowed=allowed))
            found += _cases_of(text, str(path))
        except InputError as error:
            problems += error.problems
        except UnicodeDecodeError as error:
            problems.append(Problem(str(path), message=f"is not UTF-8: {error.reason}"))
        except OSError as error:
            problems.append(Problem(str(path), message=reason(error)))
        except ValueError as error:  # a NUL in the name
            problems.append(Problem(str(path), message=str(error)))
    if problems:
        raise InputError(problems)
    return tuple(found)


def committed_cases() -> tuple[Case, ...]:
    """The cases that come with this package, by file name; other records beside them are left alone."""
    folder = resources.files("calibration").joinpath("published")
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    found = ((name, json.loads(folder.joinpath(name).read_text(encoding="utf-8"))) for name in files)
    return tuple(case for name, data in found if "cases" in data for case in _cases_in(data, name))


def number(value: object) -> float | None:
    """A finite number, also where a source writes it as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) < 1e18 else None


def variant_facts(point: Facts, side: Side) -> Facts:
    """What a point says of one variant; nothing when it is null."""
    found = point.get(VARIANTS[side])
    return found if isinstance(found, Mapping) else {}


def named_datasets(point: Facts) -> Iterator[str]:
    """What a point calls its data set, the surest first."""
    said = (point.get(key) for key in ("dataset", "task", "domain"))
    return (name for name in said if isinstance(name, str))


_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _cases_of(text: str, file: str) -> list[Case]:
    """The cases in the text of a file. Raises InputError."""
    try:
        data = json.loads(text)
        if _HALF.search(text):  # half a character, which no page could be written with
            data = json.loads(json.dumps(data, ensure_ascii=False).encode(errors="replace"))
    except json.JSONDecodeError as error:
        problem = Problem(file, error.lineno, error.colno, message=f"is no JSON: {error.msg}")
        raise InputError(problem) from None
    except (ValueError, RecursionError) as error:  # digits without end, brackets without end
        why = "is nested too deeply" if isinstance(error, RecursionError) else f"is no JSON: {error}"
        raise InputError(Problem(file, message=why)) from None
    return _cases_in(data, file)


def _cases_in(data: object, file: str) -> list[Case]:
    """The cases in what a file says. Raises InputError."""
    if not isinstance(data, dict) or not isinstance(data.get("cases"), list):
        allowed = "a file of published cases: an object with a list `cases`"
        raise InputError(Problem(file, field="cases", message="is missing or no list", allowed=allowed))
    problems = [fault for index, raw in enumerate(data["cases"]) for fault in _faults(raw, index, file)]
    if problems:
        raise InputError(problems)
    listed = data["sources"] if isinstance(data.get("sources"), list) else []
    sources = [source for source in (data.get("source"), *listed) if isinstance(source, dict)]
    named = ((_text(source.get("id")), _text(source.get("date"))) for source in sources)
    dates = {name: date for name, date in named if name is not None}
    default = next(iter(dates), Path(file).stem)
    return [_case(raw, default, dates, file) for raw in data["cases"]]


_SECTIONS = ("hardware", "target", "draft", "framework", "workload")


def _faults(raw: object, index: int, file: str) -> list[Problem]:
    """What keeps a case from being read at all."""
    place = f"cases[{index}]"
    if not isinstance(raw, dict):
        return [Problem(file, field=place, value=raw, message="is no object")]
    faults = []
    if not isinstance(raw.get("case_id"), str) or not raw["case_id"].strip():
        faults.append(Problem(file, field=f"{place}.case_id", value=raw.get("case_id"), message="is no name"))
    for name in _SECTIONS:
        if raw.get(name) is not None and not isinstance(raw[name], dict):
            faults.append(Problem(file, field=f"{place}.{name}", value=raw[name], message="is no object"))
    points = raw.get("points")
    if points is not None and not isinstance(points, list):
        faults.append(Problem(file, field=f"{place}.points", value=points, message="is no list"))
    for at, point in enumerate(points if isinstance(points, list) else ()):
        if not isinstance(point, dict):
            faults.append(Problem(file, field=f"{place}.points[{at}]", value=point, message="is no object"))
    return faults


def _case(raw: Facts, source_id: str, dates: Mapping[str, str | None], file: str) -> Case:
    draft = _section(Draft, raw.get("draft"))
    source_id = _text(raw.get("source_id")) or source_id
    return Case(
        case_id=" ".join(raw["case_id"].split()),
        kind=str(raw.get("kind") or "unknown"),
        source_id=source_id,
        date=dates.get(source_id),
        file=file,
        confidence=_text(raw.get("confidence")),
        hardware=_section(Hardware, raw.get("hardware")),
        target=_section(Target, raw.get("target")),
        draft=draft if draft.method is not None else None,
        framework=_section(Framework, raw.get("framework")),
        workload=_section(Traffic, raw.get("workload")),
        load_axis=str(raw.get("load_axis") or "none"),
        points=tuple(dict(point) for point in raw.get("points") or ()),
        speedup_of=_text(raw.get("speedup_of")),
        usable_as_gate=raw.get("usable_as_gate") is True,
        quality_flags=_texts(raw.get("quality_flags")),
        notes=_texts(raw.get("notes")),
    )


Record = TypeVar("Record", Hardware, Target, Draft, Framework, Traffic)


def _section(kind: type[Record], raw: object) -> Record:
    """A record of the fields it knows; what is of another type than it expects counts as not published."""
    values = raw if isinstance(raw, dict) else {}
    found: dict[str, Any] = {}
    for field in fields(kind):
        value = values.get(field.name)
        if field.type == "str | None":
            found[field.name] = _text(value)
        elif "Facts" in str(field.type) and isinstance(value, dict):
            found[field.name] = dict(value)
        else:
            found[field.name] = number(value)
    return kind(**found)


def _text(value: object) -> str | None:
    """A text, or a number as text (versions are often written as numbers)."""
    if isinstance(value, str):
        return " ".join(value.split()) or None
    return None if isinstance(value, bool) or number(value) is None else str(value)


def _texts(value: object) -> tuple[str, ...]:
    entries: Sequence[object] = value if isinstance(value, list) else [value]
    return tuple(entry for entry in entries if isinstance(entry, str))
