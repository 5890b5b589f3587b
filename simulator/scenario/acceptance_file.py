"""`acceptance: {file: acceptance.json}`: a measurement instead of a model written by hand.

The file becomes a model before the scenario is checked. The scenario's hash therefore covers what was
measured, and no later code reads the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.document import DataPath, Document
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.acceptance.base import AcceptanceModel

_STAND_IN = {"model": "geometric", "alpha": 0.5}
"""Takes the place of a file that cannot be used, so that the rest of the scenario is still checked."""
_SHORTEST_DRAFT = 1


def inline_acceptance_files(document: Document, base_dir: Path) -> frozenset[str]:
    """Replaces every `{file: …}` without `model` in the document's data by the model that the file gives.
    Returns the names of the variants whose own acceptance comes from a file.

    Beside `file` may stand what chooses among the rows of `decodesim accept`: draft, temperature, domain,
    draft_sampling. What is wrong joins the document's problems.
    """
    measured = set()
    for holder, key, path, variant in _acceptances(document.data):
        value = holder.get(key)
        if isinstance(value, dict) and "file" in value:
            if "model" not in value:
                holder[key] = _measured(document, value, path, variant, base_dir)
            if holder is variant:
                measured.add(str(variant.get("name")))
    return frozenset(measured)


def _measured(
    document: Document, value: dict[str, Any], path: DataPath, variant: Mapping[str, Any], base_dir: Path
) -> Mapping[str, Any]:
    from simulator.acceptance.files import SELECTORS, model_from_file

    name = value["file"]
    problems = [
        document.problem((*path, other), None, "unknown key", f"keys: file, {', '.join(SELECTORS)}", True)
        for other in value
        if other not in ("file", *SELECTORS)
    ]
    if not isinstance(name, str) or not name or "\0" in name:
        problems.append(document.problem((*path, "file"), name, "is no file name", "must be text"))
    elif not (base_dir / name).is_file():
        allowed = "the JSON written by decodesim read or decodesim accept"
        problems.append(document.problem((*path, "file"), name, "no such file", allowed))
    if not problems:
        try:
            model = model_from_file(base_dir / name, _longest_draft(variant), value)
        except InputError as error:
            problems += error.problems
        else:
            return section_of(model)
    document.problems += problems
    return _STAND_IN


def section_of(model: AcceptanceModel) -> dict[str, Any]:
    """Return the scenario entry of a model that was made from a measurement."""
    from simulator.acceptance.chains import Geometric, Positional
    from simulator.acceptance.gated import Gated

    if isinstance(model, Geometric):
        return {"model": "geometric", "alpha": model.alpha}
    if isinstance(model, Gated):
        rates = {"first": model.first, "run": model.run, "request_sd": model.request_sd}
        gate = {"match": model.match_probability, "stickiness": model.stickiness}
        return {"model": "gated"} | gate | rates
    assert isinstance(model, Positional)
    return {"model": "positional", "conditional": list(model.rates)}


def _longest_draft(variant: Mapping[str, Any]) -> int:
    """The longest draft of a variant as the file gives it; other checks report what is wrong with it."""
    length = variant.get("draft_length", 3)
    if isinstance(length, dict):
        length = length.get("max")
    if isinstance(length, list):
        length = max(
            (row[2] for row in length if isinstance(row, list) and len(row) == 3 and _whole(row[2])),
            default=None,
        )
    return max(length, _SHORTEST_DRAFT) if _whole(length) else _SHORTEST_DRAFT


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _acceptances(data: Any) -> Iterator[tuple[dict[str, Any], str, DataPath, dict[str, Any]]]:
    """Yield every acceptance: what holds it, its key there, its path, and the variant that it is for."""
    variants = _entries(data, "speculation")
    for index, variant in variants:
        yield variant, "acceptance", ("speculation", index, "acceptance"), variant
    by_name = {variant["name"]: variant for _, variant in variants if isinstance(variant.get("name"), str)}
    for index, entry in _entries(data.get("workload"), "classes"):
        acceptance = entry.get("acceptance")
        if not isinstance(acceptance, dict):
            continue
        for name in list(acceptance):
            path = ("workload", "classes", index, "acceptance", name)
            yield acceptance, name, path, by_name.get(name, {})


def _entries(section: Any, key: str) -> list[tuple[int, dict[str, Any]]]:
    entries = section.get(key) if isinstance(section, dict) else None
    numbered = enumerate(entries if isinstance(entries, list) else ())
    return [(index, entry) for index, entry in numbered if isinstance(entry, dict)]
