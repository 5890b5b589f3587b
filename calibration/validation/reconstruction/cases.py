"""Reads files of published measurements as facts.

The schema is that of `calibration/published/*.json` (version 1). Unknown keys are ignored, and `null` means
not published. A file with a wrong structure (no JSON, no `cases`, a case that is no object) is refused with
the place of the error. A leaf of an unexpected type counts as not published, because sources write freely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Literal

from calibration.conversion.convert import converted
from calibration.validation.reconstruction.sections import (
    Facts,
    MetricDefinitions,
    PublishedDraft,
    PublishedEngineArgs,
    PublishedFramework,
    PublishedHardware,
    PublishedModel,
    PublishedWorkload,
    StatedLoad,
    repeated,
    section_of,
)
from calibration.validation.reconstruction.sections import text as text_of
from simulator.errors import InputError, Problem, reason

Side = Literal["plain", "spec"]
"""A side of a comparison."""

VARIANTS: Mapping[Side, str] = {"plain": "baseline", "spec": "spec"}
"""Name of a side here → key in the schema."""

_MAX_CHARACTERS = 100_000_000


_NO_ARGUMENTS, _NO_LOAD, _NO_DEFINITIONS = PublishedEngineArgs(), StatedLoad(), MetricDefinitions()


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

    engine_args: PublishedEngineArgs = _NO_ARGUMENTS
    load: StatedLoad = _NO_LOAD
    metrics: MetricDefinitions = _NO_DEFINITIONS
    from_words: tuple[str, ...] = ()
    """Explicit fields that the file lacks, so that they were read from words."""

    def at(self, point: Facts) -> PublishedCase:
        """The case with the explicit fields that a point repeats, in sections of its own or by themselves."""
        flat = {name: point[name] for name in _REPEATED if name in point}
        sections = {name: {**flat, **_object(point.get(key))} for name, key in _SECTIONS_AT_POINTS.items()}
        if not any(sections.values()):
            return self
        draft = None if self.draft is None else repeated(self.draft, sections["draft"])
        return replace(
            self,
            draft=draft,
            hardware=repeated(self.hardware, sections["hardware"]),
            workload=repeated(self.workload, sections["workload"]),
            engine_args=repeated(self.engine_args, sections["engine_args"]),
            load=repeated(self.load, sections["load"]),
            metrics=repeated(self.metrics, sections["metrics"]),
        )


_SECTIONS_AT_POINTS: Mapping[str, str] = {
    "hardware": "hardware",
    "engine_args": "engine_args",
    "load": "load",
    "workload": "workload",
    "metrics": "metric_definitions",
    "draft": "draft",
}
_REPEATED = (
    "pp", "ep", "attention_dp", "nodes", "interconnect", "max_num_batched_tokens", "gpu_memory_utilization",
    "chunked_prefill", "prefix_caching", "cuda_graphs", "async_scheduling", "attention_backend",
    "max_model_len", "kv_cache_dtype", "stream_interval", "ends", "chat_template", "shared_prefix_tokens",
    "vocab_fraction", "parallel", "graphs",
)  # fmt: skip
"""Fields that a point may repeat without their section."""


def _object(value: object) -> Facts:
    return value if isinstance(value, Mapping) else {}


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
    dated = ((text_of(source.get("id")), text_of(source.get("date"))) for source in sources)
    dates = {name: date for name, date in dated if name is not None}
    default = next(iter(dates), Path(file).stem)
    return [_case(raw, default, dates, file) for raw in data["cases"]]


_SECTIONS = (
    "hardware", "target", "draft", "framework", "workload", "engine_args", "load", "metric_definitions",
)  # fmt: skip


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
    raw, from_words = converted(raw)
    draft = section_of(PublishedDraft, raw.get("draft"))
    source_id = text_of(raw.get("source_id")) or source_id
    return PublishedCase(
        case_id=" ".join(raw["case_id"].split()),
        kind=str(raw.get("kind") or "unknown"),
        source_id=source_id,
        date=dates.get(source_id),
        file=file,
        confidence=text_of(raw.get("confidence")),
        hardware=section_of(PublishedHardware, raw.get("hardware")),
        target=section_of(PublishedModel, raw.get("target")),
        draft=draft if draft.method is not None else None,
        framework=section_of(PublishedFramework, raw.get("framework")),
        workload=section_of(PublishedWorkload, raw.get("workload")),
        load_axis=str(raw.get("load_axis") or "none"),
        points=tuple(dict(point) for point in raw.get("points") or ()),
        speedup_of=text_of(raw.get("speedup_of")),
        usable_as_gate=raw.get("usable_as_gate") is True,
        quality_flags=_texts(raw.get("quality_flags")),
        notes=_texts(raw.get("notes")),
        engine_args=section_of(PublishedEngineArgs, raw.get("engine_args")),
        load=section_of(StatedLoad, raw.get("load")),
        metrics=section_of(MetricDefinitions, raw.get("metric_definitions")),
        from_words=from_words,
    )


def _texts(value: object) -> tuple[str, ...]:
    entries: Sequence[object] = value if isinstance(value, list) else [value]
    return tuple(entry for entry in entries if isinstance(entry, str))
