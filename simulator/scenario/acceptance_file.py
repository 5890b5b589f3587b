"""`acceptance: {file: acceptance.json}`: what a measurement said, in place of a model written by hand.

The file is the JSON of `decodesim read` (an engine's counters) or of `decodesim accept` (real checkpoints).
Its conditional acceptances become a positional model before the scenario is checked, so that the scenario's
hash covers what was measured and nothing downstream reads files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulator.scenario.base import Where
from simulator.scenario.document import Document


def inline_acceptance_files(document: Document, base_dir: Path) -> None:
    """Replaces every `{file: …}` without `model` in the document's data by the model that the file gives."""
    for holder, key, path, arm in _acceptances(document.data):
        value = holder.get(key)
        if not isinstance(value, dict) or "file" not in value or "model" in value:
            continue
        name = value["file"]
        others = [other for other in value if other != "file"]
        if others:
            document.problems.append(
                document.problem(
                    (*path, others[0]),
                    None,
                    "is given beside file",
                    "file alone, or model with its parameters",
                )
            )
        measured: list[float] | str
        if not isinstance(name, str) or not name:
            measured = "is no file name"
        else:
            measured = _conditional(base_dir / name, arm)
        if isinstance(measured, str):
            document.problems.append(
                document.problem(
                    (*path, "file"), name, measured, "the JSON written by decodesim read or decodesim accept"
                )
            )
            measured = [0.5]  # stands in, so that the rest of the file is still checked
        holder[key] = {"model": "positional", "conditional": measured}


def _acceptances(data: Any) -> Iterator[tuple[dict[str, Any], str, Where, dict[str, Any]]]:
    """Every place an acceptance may stand: what holds it, its key there, its path, and the arm it is for."""
    arms = _entries(data, "speculation")
    for index, arm in arms:
        yield arm, "acceptance", ("speculation", index, "acceptance"), arm
    by_name = {arm["name"]: arm for _, arm in arms if isinstance(arm.get("name"), str)}
    for index, entry in _entries(data.get("workload"), "classes"):
        acceptance = entry.get("acceptance")
        if not isinstance(acceptance, dict):
            continue
        for name in acceptance:
            path = ("workload", "classes", index, "acceptance", name)
            yield acceptance, name, path, by_name.get(name, {})


def _entries(section: Any, key: str) -> list[tuple[int, dict[str, Any]]]:
    entries = section.get(key) if isinstance(section, dict) else None
    return [
        (i, entry)
        for i, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]


def _conditional(file: Path, arm: dict[str, Any]) -> list[float] | str:
    """The conditional acceptances in the file, or what is wrong with it."""
    try:
        data = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return "no such file"
    except OSError as error:
        return (error.strerror or "cannot be read").lower()
    except (ValueError, RecursionError) as error:
        return f"is no JSON ({str(error).splitlines()[0]})"
    if not isinstance(data, dict):
        return "is no JSON object"
    found = data
    if isinstance(data.get("rows"), list):
        row = _row(data["rows"], arm)
        if isinstance(row, str):
            return row
        found = row
    values = found.get("conditional_acceptance")
    if not isinstance(values, list) or not values:
        return "holds no conditional_acceptance"
    if not all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1 for value in values
    ):
        return "holds a conditional_acceptance that is no list of probabilities"
    return [float(value) for value in values]


def _row(rows: list[Any], arm: dict[str, Any]) -> dict[str, Any] | str:
    """The row of an `accept` table that fits the arm: its draft sampling, all domains, the longest draft."""
    left = [row for row in rows if isinstance(row, dict)]
    sampling = arm.get("draft_sampling", "greedy")
    left = [row for row in left if row.get("draft_sampling", sampling) == sampling]
    whole = [row for row in left if row.get("domain") in (None, "all")]
    left = whole or left
    lengths = [row["draft_length"] for row in left if isinstance(row.get("draft_length"), int)]
    if lengths:
        left = [row for row in left if row.get("draft_length") == max(lengths)]
    if not left:
        return f"has no row with draft_sampling {sampling}"
    if len(left) > 1:
        what = sorted({f"temperature {row.get('temperature')}, domain {row.get('domain')}" for row in left})
        return f"has several rows that fit: {'; '.join(what)}"
    return dict(left[0])
