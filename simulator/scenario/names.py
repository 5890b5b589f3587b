"""Names in a scenario that must be known, and files that must exist and be valid.

The file is checked as it is read, so that an unknown model is reported together with a wrong type. The
catalogues are imported when they are needed, and a scenario without them does not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.document import DataPath, Document
from simulator.errors import InputError, Problem, unknown_name
from simulator.scenario.fields import value_at
from simulator.scenario.schema import MOST_GPUS

if TYPE_CHECKING:
    from simulator.models.model import Model


def name_problems(document: Document, base_dir: Path) -> Iterator[Problem]:
    """Yield every unknown name and every file that is missing or cannot be used."""
    target: Model | None = None
    for path, value in _texts(document.data):
        match path:
            case ("target", "model"):
                from simulator.models.catalogue import load_model

                target, problems = _tried(document, path, load_model, value, base_dir)
                yield from problems
            case ("hardware", "gpu"):
                yield from _gpu(document, path, value, base_dir)
            case ("engine", "preset"):
                from simulator.engines.presets import load_preset

                yield from _tried(document, path, load_preset, value, base_dir)[1]
            case ("engine", "scheduler"):
                from simulator.scheduling import rules

                yield from _listed(document, path, "scheduler rule", value, rules())
            case ("workload", "arrivals", "format"):
                from simulator.traces import readers

                yield from _listed(document, path, "trace format", value, ["auto", *readers()])
            case (*_, "file") if value and not _is_file(base_dir, value):
                message = "is a folder" if _is_folder(base_dir, value) else "no such file"
                yield document.problem(
                    path, value, message, f"must be a file, relative to {base_dir.resolve()}"
                )
            case _:
                pass
    if target is not None:
        yield from _cut(document, target)
    variants = document.data.get("speculation")
    for index, variant in enumerate(variants if isinstance(variants, list) else ()):
        if isinstance(variant, dict) and isinstance(variant.get("method"), str):
            yield from _variant(document, ("speculation", index), variant, target, base_dir)


def fill_drafts(document: Document) -> None:
    """Fill in the drafter that the catalogue has for the target and method of variants without `draft`.

    The first by name where there are several. `document.taken` notes what was filled in.
    """
    from simulator.models.catalogue import drafters, entry, known_model
    from simulator.speculation import methods

    target, variants = document.data.get("target"), document.data.get("speculation")
    name = target.get("model") if isinstance(target, dict) else None
    known = methods()
    for index, variant in enumerate(variants if isinstance(variants, list) else ()):
        method = (
            known.get(variant["method"])
            if isinstance(variant, dict) and isinstance(variant.get("method"), str)
            else None
        )
        if (
            method is None
            or not method.drafter
            or method.draft_from_target
            or variant.get("draft") is not None
        ):
            continue
        model = known_model(name) if isinstance(name, str) else ""
        if model is None:
            continue
        fitting = [d for d in drafters() if entry(d).method == method.drafter and model in entry(d).targets]
        if fitting:
            variant["draft"] = fitting[0]
            document.taken[("speculation", index, "draft")] = fitting[0]


def _variant(
    document: Document, path: DataPath, variant: Mapping[str, Any], target: Model | None, base_dir: Path
) -> Iterator[Problem]:
    """Check the method and the drafter of a variant; the drafter only once the target is known."""
    from simulator.models.catalogue import load_drafter
    from simulator.models.own_drafter import KINDS
    from simulator.speculation import methods

    name, draft = variant["method"], variant.get("draft")
    yield from _listed(document, (*path, "method"), "method", name, methods())
    method = methods().get(name)
    if method is None or not (draft is None or isinstance(draft, str)) or draft == "":
        return
    if method.drafter is None or method.drafter in KINDS:
        if draft is not None:
            yield document.problem((*path, "draft"), draft, f"is not used by {name}", "must be null")
    elif target is not None:
        yield from _tried(document, (*path, "draft"), load_drafter, draft, target, method.drafter, base_dir)[
            1
        ]


def _cut(document: Document, target: Model) -> Iterator[Problem]:
    """A tensor parallelism that engines refuse for this model, and groups that would share nothing."""
    path: DataPath = ("hardware", "tensor_parallel")
    ranks, groups = value_at(path, document.data), value_at(("hardware", "attention_dp"), document.data)
    if isinstance(groups, int) and groups > 1:
        if not any(layer.experts for layer in target.layers):
            yield document.problem(
                ("hardware", "attention_dp"),
                groups,
                f"has no effect: {target.name} has no experts to share",
                "1, and hardware.replicas",
            )
        if not isinstance(ranks, int) or ranks % groups:
            return
        ranks //= groups
    if isinstance(ranks, int) and 1 <= ranks <= MOST_GPUS and not target.divides_over(ranks):
        valid = ", ".join(str(n) for n in range(1, 9) if target.divides_over(n))
        yield document.problem(
            path, ranks, f"does not divide the heads of {target.name}", f"for example {valid}"
        )


def _gpu(document: Document, path: DataPath, name: str, base_dir: Path) -> Iterator[Problem]:
    from simulator.gpu import GPUS

    if name and name not in GPUS:
        from simulator.costs.profiles import load_profile

        yield from _tried(document, path, load_profile, name, base_dir)[1]


def _tried(
    document: Document, path: DataPath, load: Callable[..., Any], name: object, *arguments: object
) -> tuple[Any, list[Problem]]:
    """Return what `load` returns for that name, or its problems: at their line in the file that it read, else
    at the name in the scenario.
    """
    try:
        return load(name, *arguments), []
    except InputError as error:
        return None, [p if p.line else _placed(document, path, p, name) for p in error.problems]


def _placed(document: Document, path: DataPath, problem: Problem, name: object) -> Problem:
    message = f"{problem.field} {problem.message}" if problem.file and problem.field else problem.message
    value = name if problem.value is None or problem.file else problem.value
    return document.problem(path, value, message, problem.allowed)


def _texts(value: Any, path: DataPath = ()) -> Iterator[tuple[DataPath, str]]:
    """Every text in the data with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*path, index))


def _listed(
    document: Document, path: DataPath, kind: str, name: str, known: Iterable[str]
) -> Iterator[Problem]:
    names = list(known)
    if name and name not in names:
        problem = unknown_name(kind, name, names)
        yield document.problem(path, name, problem.message, problem.allowed)


def _is_file(base_dir: Path, name: str) -> bool:
    try:
        return (base_dir / name).is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL
        return False


def _is_folder(base_dir: Path, name: str) -> bool:
    try:
        return (base_dir / name).is_dir()
    except (OSError, ValueError):
        return False
