"""Profiles from files: what the kernels of one GPU were measured to take, and where each figure came from.

A JSON file (schema `decodesim/profile-1`) of parts, see `profile_parts.py`. `data/profiles/` holds those
built from public kernel tables; a user's own file has the same schema. A GPU without a file, and a file that
names a profile in `inherits`, take missing parts from another one, scaled by datasheet figures, and each
such part says so: `inherit.py` is the one place where that happens.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from simulator.costs.faults import Faults
from simulator.costs.inherit import fill_missing, inherit
from simulator.costs.profile_file import (
    REQUIRED,
    SCHEMA,
    check_operators,
    read_gpu,
    read_parts,
    version_problem,
)
from simulator.costs.profile_notes import check_provenance
from simulator.costs.profile_parts import ARITHMETIC, Part, Profile, experts_smooth
from simulator.errors import InputError, Problem, reason, unknown_name
from simulator.gpu import GPUS

__all__ = [
    "ARITHMETIC",
    "BASE",
    "SCHEMA",
    "Part",
    "Profile",
    "experts_smooth",
    "load_profile",
    "parse_profile",
    "profile_names",
]

BASE = "h100-sxm"
"""The profile that others inherit missing parts from."""


def profile_names() -> tuple[str, ...]:
    """Names of the profiles that ship; other known GPUs inherit."""
    folder = resources.files("simulator").joinpath("data", "profiles")
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".json")))


def load_profile(name_or_path: str, base_dir: Path | None = None) -> Profile:
    """The profile of a GPU by name, or the profile in a JSON file (relative to `base_dir`).

    A known GPU without a profile of its own inherits all parts from `BASE`. Raises InputError.
    """
    if name_or_path in profile_names():
        return _shipped(name_or_path)
    if name_or_path in GPUS:
        return inherit(load_profile(BASE), GPUS[name_or_path])
    path = Path(base_dir or ".") / name_or_path
    if not path.suffix and not path.exists():
        names = sorted({*GPUS, *profile_names()})
        raise InputError(unknown_name("GPU", name_or_path, names, also="the path of a profile"))
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        message = f"the profile cannot be read: {reason(error)}"
        what = Problem(value=name_or_path, message=message, allowed="a JSON file")
        raise InputError(what) from error
    return parse_profile(text, name_or_path)


@cache
def _shipped(name: str) -> Profile:
    file = resources.files("simulator").joinpath("data", "profiles", f"{name}.json")
    return parse_profile(file.read_text("utf-8"), f"{name}.json")


def parse_profile(text: str, file: str) -> Profile:
    """A profile from the text of its file. Raises InputError with all that is wrong, each with its place."""
    from simulator.models.config import parse_object

    data, faults = parse_object(text, file), Faults()
    if data.get("schema") != SCHEMA:
        faults.add(("schema",), data.get("schema"), *version_problem(data.get("schema")))
        faults.finish(text, file)
    provenance: Any = data.get("provenance", {})
    if not isinstance(data.get("name"), str):
        faults.add(("name",), data.get("name"), "is missing or not usable", "must be text")
    if not isinstance(provenance, dict):
        faults.add(("provenance",), provenance, "is missing or not usable", "must be an object")
    else:
        check_provenance(provenance, faults)
    gpu = read_gpu(data, faults)
    parts = read_parts(data.get("parts"), faults)
    base = _base(data.get("inherits"), faults)
    lacking = [name for name in REQUIRED if name not in parts]
    if lacking and not data.get("inherits") and isinstance(data.get("parts"), list) and not faults.noted:
        what = f"lacks {', '.join(lacking)}"
        faults.add(
            ("parts",), None, what, "these parts, or inherits: the name of a profile to take them from"
        )
    faults.finish(text, file)
    assert gpu is not None
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    own = {name: part for name, (_, part) in parts.items()}
    profile = Profile(str(data["name"]), gpu, own, provenance, digest)
    if base is not None:
        profile = fill_missing(profile, base)
    check_operators(profile, {name: index for name, (index, _) in parts.items()}, faults)
    faults.finish(text, file)
    return profile


def _base(name: object, faults: Faults) -> Profile | None:
    """The profile to inherit from; None when the file names none."""
    if not name:
        return None
    known = {*GPUS, *profile_names()}
    if str(name) not in known:
        faults.noted.append((("inherits",), unknown_name("profile", str(name), known, field="inherits")))
        return None
    return load_profile(str(name))
