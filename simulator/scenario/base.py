"""What every section of the scenario file has in common: strict, frozen, no unknown keys, no NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from simulator.document import DataPath

FAULTS = "faults"
"""pydantic error type of a section whose fields are valid each by itself and invalid together."""

TAG_FIELDS = ("kind", "model")
"""Keys that name the kind of a section (`target.model` is a name, and no such key)."""

Raw = Mapping[str, Any]
"""One section as it is in the file, before any check."""

Probability = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1, le=10**9)]
DraftLength = Annotated[int, Field(ge=0, le=128)]
FileName = Annotated[str, Field(min_length=1)]


class Fault(NamedTuple):
    """A fault that the type of a single field cannot express. `path` starts at the section that has it."""

    path: DataPath
    value: object
    message: str
    allowed: str


def name_faults(raw: Raw, reserved: str, reserved_for: str) -> Iterator[Fault]:
    """Names of variants and classes that are taken, that --set cannot address, or that no table can show."""
    name = raw.get("name")
    if name == reserved:
        yield Fault(("name",), name, f"is reserved for {reserved_for}", "any other name")
    if isinstance(name, str) and "=" in name:
        yield Fault(("name",), name, "cannot be addressed by --set", "a name without =")
    if isinstance(name, str) and not name.isprintable():
        yield Fault(("name",), name, "cannot be printed", "letters, digits and signs, without line breaks")


class Section(BaseModel):
    """A mapping of the scenario file. Frozen: what was read is what runs."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        """What is wrong between fields. `raw` may hold anything: a field's own type is checked elsewhere.

        The loader calls it on the file as it stands, so that these are reported together with wrong types.
        """
        yield from ()

    @classmethod
    def tags(cls) -> dict[str, tuple[str, ...]]:
        """The field that names the kind of a mapping, with the values that mean this class."""
        return {
            name: get_args(info.annotation)
            for name, info in cls.model_fields.items()
            if name in TAG_FIELDS and get_origin(info.annotation) is Literal
        }

    @classmethod
    def is_meant(cls, raw: Raw) -> bool:
        """Whether a mapping with these values means this class, among the alternatives of one field."""
        return all(
            raw.get(name, cls.model_fields[name].default) in values for name, values in cls.tags().items()
        )

    @model_validator(mode="after")
    def _refuse_faults(self) -> Self:
        faults = list(self.faults(self.model_dump(mode="json")))
        if faults:
            text = "; ".join(f"{dotted(fault.path)}: {fault.message}, {fault.allowed}" for fault in faults)
            raise PydanticCustomError(FAULTS, "{text}", {"text": text, "faults": faults})
        return self


def dotted(path: DataPath) -> str:
    """`a.b[0].c`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def from_percent(value: object) -> object:
    """`1%` as 0.01, anything else as it is."""
    if isinstance(value, str) and value.rstrip().endswith("%"):
        with suppress(ValueError):
            return float(value.rstrip().removesuffix("%")) / 100
    return value


def number(raw: Raw, key: str) -> float | None:
    """The finite number under `key`, or None where there is none (the field's type then reports it)."""
    return as_number(raw.get(key))


def as_number(value: object) -> float | None:
    """A finite number as it is, anything else as None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond any float; the field's range refuses it
        return None


def ordered(raw: Raw, low: str, high: str) -> Iterator[Fault]:
    """The fault of `low` above `high`."""
    small, large = number(raw, low), number(raw, high)
    if small is not None and large is not None and small > large:
        yield Fault((high,), raw[high], f"is below {low}, which is {raw[low]}", f"{high} ≥ {low}")


def names_of(entries: Sequence[Any]) -> list[str]:
    """The names of those list entries that have one."""
    return [
        entry["name"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    ]


def repeated(names: list[object], kind: str) -> Iterator[Fault]:
    """The fault of each entry whose name an earlier one has; `names` in the order of the entries."""
    seen: dict[object, int] = {}
    for index, name in enumerate(names):
        if not isinstance(name, str):
            continue
        if name in seen:
            yield Fault(
                (index, "name"), name, f"is the name of entry {seen[name]} too", f"one name per {kind}"
            )
        seen.setdefault(name, index)
