"""Flags in front of a scenario: `--concurrency 64` changes what its file, or a launch, states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.document import DataPath, Document, Place, parse_yaml
from simulator.errors import InputError, Problem
from simulator.scenario.base import names_of
from simulator.scenario.engine_words import own_method
from simulator.scenario.overrides import set_field

FIELDS: Mapping[str, DataPath] = {
    "model": ("target", "model"),
    "weights": ("target", "weights"),
    "kv_cache": ("target", "kv_cache"),
    "gpu": ("hardware", "gpu"),
    "tensor_parallel": ("hardware", "tensor_parallel"),
    "preset": ("engine", "preset"),
    "method": ("speculation", 0, "method"),
    "draft": ("speculation", 0, "draft"),
    "draft_length": ("speculation", 0, "draft_length"),
    "alpha": ("speculation", 0, "acceptance", "alpha"),
    "concurrency": ("workload", "arrivals", "concurrency"),
}
"""Flag → the field that it sets; of a variant, the first."""
VARIANT_FLAGS = ("draft", "draft_length", "alpha")
_FILES = ("model", "gpu", "preset", "draft")
_WITH_ALPHA = ("geometric", "decay", "hierarchical")
"""Acceptance models whose level is α: their other parameters stay."""
_OTHER_LEVELS = ("mean_acceptance_length", "at_draft_length")


def flag_of(name: str) -> str:
    """The option of a key of `FIELDS`: `--draft-length`."""
    return "--tp" if name == "tensor_parallel" else f"--{name.replace('_', '-')}"


def draft_length_of(value: Any) -> Any:
    """A draft length as a flag gives it: a number, or the text of a table or a policy. Raises InputError."""
    return parse_yaml(value, "--draft-length").data if isinstance(value, str) else value


def set_flags(document: Document, flags: Mapping[str, Any]) -> None:
    """Change a scenario's data by flags; one that is None was not given.

    Keys as in `FIELDS`. Another method replaces the variants. `alpha` keeps the other parameters of an
    acceptance model that has one, and `concurrency` makes other arrivals a closed loop. File names in flags
    are relative to the working folder. What is wrong joins the document's problems.
    """
    for name, value in flags.items():
        if value is None:
            continue
        place = Place(flag_of(name))
        if name in _FILES and Path(str(value)).is_file():
            value = str(Path(value).resolve())
        try:
            if FIELDS[name][0] == "speculation":
                _set_of_variant(document, name, value, place)
            elif name == "concurrency":
                _set_concurrency(document, int(value), place)
            elif name == "tensor_parallel":
                _set_tensor_parallel(document, value, place)
            else:
                set_field(document, ".".join(map(str, FIELDS[name])), value, place)
        except InputError as error:
            document.problems.extend(error.problems)


def _set_concurrency(document: Document, clients: int, place: Place) -> None:
    workload = document.data.get("workload")
    arrivals = workload.get("arrivals") if isinstance(workload, dict) else None
    if isinstance(arrivals, dict) and arrivals.get("kind", "closed") == "closed":
        set_field(document, "workload.arrivals.concurrency", clients, place)
    else:
        set_field(document, "workload.arrivals", {"kind": "closed", "concurrency": clients}, place)


def _set_tensor_parallel(document: Document, ranks: int, place: Place) -> None:
    """Set the GPUs that share the target. Drafters on all of them follow."""
    hardware = document.data.get("hardware")
    before = hardware.get("tensor_parallel", 1) if isinstance(hardware, dict) else 1
    set_field(document, "hardware.tensor_parallel", ranks, place)
    variants = document.data.get("speculation")
    for index, variant in enumerate(variants if isinstance(variants, list) else ()):
        if isinstance(variant, dict) and variant.get("draft_tensor_parallel") == before != 1:
            set_field(document, f"speculation.{index}.draft_tensor_parallel", ranks, place)


def _set_of_variant(document: Document, name: str, value: Any, place: Place) -> None:
    variants = document.data.get("speculation") or []
    if not isinstance(variants, list):
        return  # refused with all that is wrong in the file
    if name == "method":
        value = own_method(value) or value
        if [variant.get("method") for variant in variants if isinstance(variant, dict)] != [value]:
            set_field(document, "speculation", [] if value == "none" else [{"method": value}], place)
        return
    if len(variants) != 1 or not isinstance(variants[0], dict):
        document.problems.append(_unclear(name, value, variants))
        return
    if name == "alpha":
        acceptance = variants[0].get("acceptance")
        if isinstance(acceptance, dict) and acceptance.get("model") in _WITH_ALPHA:
            for other in _OTHER_LEVELS:
                acceptance.pop(other, None)
            set_field(document, "speculation.0.acceptance.alpha", value, place)
        else:
            set_field(document, "speculation.0.acceptance", {"model": "geometric", "alpha": value}, place)
    elif name == "draft_length":
        set_field(document, "speculation.0.draft_length", draft_length_of(value), place)
    else:
        set_field(document, f"speculation.0.{name}", value, place)


def _unclear(name: str, value: Any, variants: list[Any]) -> Problem:
    """The problem of a flag for the one variant, where there are none or several."""
    if not variants:
        return Problem(
            field=flag_of(name), value=value, message="has no meaning without a method", allowed="--method"
        )
    names = [variant for variant in names_of(variants) if variant]
    rest = ".".join(map(str, FIELDS[name][2:]))
    return Problem(
        field=flag_of(name),
        value=value,
        message=f"does not say which of the variants it changes: {', '.join(names)}",
        allowed=f"--set speculation.{names[0] if names else '0'}.{rest}={value}",
    )
