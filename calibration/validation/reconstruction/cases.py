"""Reads files of published measurements as facts.

The schema is that of `calibration/published/*.json` (version 1). Unknown keys are ignored, and `null` means
not published. A file with a wrong structure (no JSON, no `cases`, a case that is no object) is refused with
the place of the error. A leaf of an unexpected type counts as not published, because sources write freely.
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
"""An object of the file, with whatever keys it has."""

Side = Literal["plain", "spec"]
"""A side of a comparison."""

VARIANTS: Mapping[Side, str] = {"plain": "baseline", "spec": "spec"}
"""Name of a side here → key in the schema."""

_MAX_CHARACTERS = 100_000_000


@dataclass(frozen=True)
class PublishedHardware:
    """The GPUs of a case. `pp`, `ep`, `dcp`: pipeline, expert and decode-context parallelism."""

    gpu: str | None = None
    count: float | None = None
    tp: float | None = None
    pp: float | None = None
    ep: float | None = None
    dcp: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class PublishedModel:
    """The served model in the source's words; parameters in 10⁹."""

    model: str | None = None
    params_b: float | None = None
    active_params_b: float | None = None
    arch: str | None = None
    weight_precision: str | None = None
    kv_precision: str | None = None


@dataclass(frozen=True)
class PublishedDraft:
    """How a case drafted. `k`: draft length of a chain. `topk`, `num_draft_tokens`: width and nodes of a
    tree.
    """

    method: str | None = None
    model: str | None = None
    params_b: float | None = None
    k: float | None = None
    topk: float | None = None
    num_draft_tokens: float | None = None
    structure: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class PublishedFramework:
    """The serving engine, in the source's words."""

    name: str | None = None
    version: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class PublishedWorkload:
    """The requests that were sent. A length is a number, an object of statistics, or None."""

    dataset: str | None = None
    input_len_tokens: float | Facts | None = None
    output_len_tokens: float | Facts | None = None
    num_prompts: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class PublishedCase:
    """One published configuration and its points; `source_id`, `date` and `file` give its origin."""

    case_id: str
    kind: str
    source_id: str
    date: str | None
    file: str
    confidence: str | None
    hardware: PublishedHardware
    target: PublishedModel
    draft: PublishedDraft | None
    framework: PublishedFramework
    workload: PublishedWorkload
    load_axis: str
    points: tuple[Facts, ...]
    speedup_of: str | None
    usable_as_gate: bool
    quality_flags: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """All free text of the source in lower case, searched for facts that have no field of their own."""
        words = (self.hardware.note, self.framework.note, self.workload.note, self.workload.dataset)
        drafting = () if self.draft is None else (self.draft.note, self.draft.structure)
        return " · ".join(word for word in (*words, *drafting, *self.notes) if word).lower()


def read_cases(paths: Iterable[str | Path]) -> tuple[PublishedCase, ...]:
    """The cases of these files, in their order. Raises InputError with all errors at once."""
    problems: list[Problem] = []
    cases: list[PublishedCase] = []
    for path in map(Path, paths):
        try:
            with path.open(encoding="utf-8-sig") as stream:
                text = stream.read(_MAX_CHARACTERS + 1)
            if len(text) > _MAX_CHARACTERS:
                allowed = f"at most {_MAX_CHARACTERS:,} characters"
                raise InputError(Problem(str(path), message="is too long", allowed=allowed))
            cases += _cases_of(text, str(path))
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
    return tuple(cases)


def committed_cases() -> tuple[PublishedCase, ...]:
    """The cases committed with this package, by file name. Other records in the folder are skipped."""
    folder = resources.files("calibration").joinpath("published")
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    documents = ((name, json.loads(folder.joinpath(name).read_text(encoding="utf-8"))) for name in files)
    return tuple(case for name, data in documents if "cases" in data for case in _cases_in(data, name))


def number(value: object) -> float | None:
    """A finite number, also from text; None for anything else."""
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
        finite = float(value)
    except OverflowError:
        return None
    return finite if abs(finite) < 1e18 else None


def variant_facts(point: Facts, side: Side) -> Facts:
    """The facts of a point about one side; empty when there are none."""
    facts = point.get(VARIANTS[side])
    return facts if isinstance(facts, Mapping) else {}


def named_datasets(point: Facts) -> Iterator[str]:
    """The names that a point gives its data set, the most reliable first."""
    names = (point.get(key) for key in ("dataset", "task", "domain"))
    return (name for name in names if isinstance(name, str))


_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _cases_of(text: str, file: str) -> list[PublishedCase]:
    """The cases in the text of a file. Raises InputError."""
    try:
        data = json.loads(text)
        if _LONE_SURROGATE.search(text):  # no page could be written with it
            data = json.loads(json.dumps(data, ensure_ascii=False).encode(errors="replace"))
    except json.JSONDecodeError as error:
        problem = Problem(file, error.lineno, error.colno, message=f"is not JSON: {error.msg}")
        raise InputError(problem) from None
    except (ValueError, RecursionError) as error:  # a number with too many digits, or too many brackets
        why = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON: {error}"
        raise InputError(Problem(file, message=why)) from None
    return _cases_in(data, file)


def _cases_in(data: object, file: str) -> list[PublishedCase]:
    """The cases in the parsed content of a file. Raises InputError."""
    if not isinstance(data, dict) or not isinstance(data.get("cases"), list):
        allowed = "a file of published cases: an object with a list `cases`"
        raise InputError(Problem(file, field="cases", message="is missing or no list", allowed=allowed))
    problems = [p for index, raw in enumerate(data["cases"]) for p in _problems(raw, index, file)]
    if problems:
        raise InputError(problems)
    source_list = data["sources"] if isinstance(data.get("sources"), list) else []
    sources = [source for source in (data.get("source"), *source_list) if isinstance(source, dict)]
    dated = ((_text(source.get("id")), _text(source.get("date"))) for source in sources)
    dates = {name: date for name, date in dated if name is not None}
    default = next(iter(dates), Path(file).stem)
    return [_case(raw, default, dates, file) for raw in data["cases"]]


_SECTIONS = ("hardware", "target", "draft", "framework", "workload")


def _problems(raw: object, index: int, file: str) -> list[Problem]:
    """The errors in the structure of a case, because of which it cannot be read."""
    place = f"cases[{index}]"
    if not isinstance(raw, dict):
        return [Problem(file, field=place, value=raw, message="is no object")]
    problems = []
    if not isinstance(raw.get("case_id"), str) or not raw["case_id"].strip():
        problems.append(
            Problem(file, field=f"{place}.case_id", value=raw.get("case_id"), message="is no name")
        )
    for name in _SECTIONS:
        if raw.get(name) is not None and not isinstance(raw[name], dict):
            problems.append(Problem(file, field=f"{place}.{name}", value=raw[name], message="is no object"))
    points = raw.get("points")
    if points is not None and not isinstance(points, list):
        problems.append(Problem(file, field=f"{place}.points", value=points, message="is no list"))
    for point_index, point in enumerate(points if isinstance(points, list) else ()):
        if not isinstance(point, dict):
            problems.append(
                Problem(file, field=f"{place}.points[{point_index}]", value=point, message="is no object")
            )
    return problems


def _case(raw: Facts, source_id: str, dates: Mapping[str, str | None], file: str) -> PublishedCase:
    draft = _section(PublishedDraft, raw.get("draft"))
    source_id = _text(raw.get("source_id")) or source_id
    return PublishedCase(
        case_id=" ".join(raw["case_id"].split()),
        kind=str(raw.get("kind") or "unknown"),
        source_id=source_id,
        date=dates.get(source_id),
        file=file,
        confidence=_text(raw.get("confidence")),
        hardware=_section(PublishedHardware, raw.get("hardware")),
        target=_section(PublishedModel, raw.get("target")),
        draft=draft if draft.method is not None else None,
        framework=_section(PublishedFramework, raw.get("framework")),
        workload=_section(PublishedWorkload, raw.get("workload")),
        load_axis=str(raw.get("load_axis") or "none"),
        points=tuple(dict(point) for point in raw.get("points") or ()),
        speedup_of=_text(raw.get("speedup_of")),
        usable_as_gate=raw.get("usable_as_gate") is True,
        quality_flags=_texts(raw.get("quality_flags")),
        notes=_texts(raw.get("notes")),
    )


CaseRecord = TypeVar(
    "CaseRecord", PublishedHardware, PublishedModel, PublishedDraft, PublishedFramework, PublishedWorkload
)


def _section(kind: type[CaseRecord], raw: object) -> CaseRecord:
    """A record with the fields of `kind`; a value of an unexpected type counts as not published."""
    section = raw if isinstance(raw, dict) else {}
    values: dict[str, Any] = {}
    for field in fields(kind):
        value = section.get(field.name)
        if field.type == "str | None":
            values[field.name] = _text(value)
        elif "Facts" in str(field.type) and isinstance(value, dict):
            values[field.name] = dict(value)
        else:
            values[field.name] = number(value)
    return kind(**values)


def _text(value: object) -> str | None:
    """A text, or a number as text, because versions are often written as numbers; else None."""
    if isinstance(value, str):
        return " ".join(value.split()) or None
    return None if isinstance(value, bool) or number(value) is None else str(value)


def _texts(value: object) -> tuple[str, ...]:
    entries: Sequence[object] = value if isinstance(value, list) else [value]
    return tuple(entry for entry in entries if isinstance(entry, str))
