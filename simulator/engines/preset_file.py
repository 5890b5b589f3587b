"""The file of a serving-engine preset, read and checked: everything that is wrong with it at once, by place.

A file that names a preset in `inherits` says only what differs from it: a field of its own, `host` field by
field. The shipped presets and a user's own engine are read alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_type_hints

from simulator.engines.host_cost import HostCost
from simulator.engines.preset import SCHEMA, Preset
from simulator.engines.preset_field import declared
from simulator.errors import unknown_name
from simulator.models.config import locator, parse_object
from simulator.models.families.fields import ConfigFields

_LARGEST = 1_000_000


def read_preset(text: str, file: str, bases: Mapping[str, Preset]) -> Preset:
    """The preset in the text of a file, which may inherit one of `bases`.

    Raises InputError with all that is wrong, each with its place.
    """
    values = parse_object(text, file)
    own = [name for name, value in values.items() if value is not None and name not in ("schema", "inherits")]
    fields = ConfigFields(values)
    if values.get("schema") != SCHEMA:
        fields.add("schema", values.get("schema"), "is no schema of this version", f'"{SCHEMA}"')
    base = _base(fields, bases)
    values_so_far = dict(vars(base)) if base is not None else {}
    known = get_type_hints(Preset)
    for name in own:
        if name not in known:
            problem = unknown_name("field", name, known)
            fields.add(name, None, problem.message, problem.allowed)
        elif name not in ("host", "sources"):
            values_so_far[name] = _value(fields, name, known[name])
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        if name in own and f"small_gpu_{name}" not in own:
            values_so_far[f"small_gpu_{name}"] = (
                0  # a number of its own takes the place of both of the base's
            )
    if "gpu_memory_utilization" in own and "headroom_bytes" not in own:
        values_so_far["headroom_bytes"] = 0  # a share of its own takes the place of the base's rule
    values_so_far["host"] = _host(fields, base)
    values_so_far["sources"] = _sources(fields, base, own)
    for name in _needed(Preset) if base is not None or not fields.has("inherits") else ():
        if name not in values_so_far:
            fields.add(name, None, "is missing", "this field, or inherits: a preset to take it from")
    rule = values_so_far.get("scheduler")
    if isinstance(rule, str) and rule:
        _scheduler(fields, rule)
    fields.finish(file, locator(text, file))
    return Preset(**values_so_far)


def _base(fields: ConfigFields, bases: Mapping[str, Preset]) -> Preset | None:
    """The preset whose fields are taken where the file gives none."""
    name = fields.word("inherits")
    if not name:
        return None
    if name not in bases:
        problem = unknown_name("preset", name, bases)
        fields.add("inherits", name, problem.message, problem.allowed)
    return bases.get(name)


def _scheduler(fields: ConfigFields, rule: str) -> None:
    from simulator.scheduling import rules

    if rule not in rules():
        problem = unknown_name("scheduler rule", rule, rules())
        fields.add("scheduler", rule, problem.message, problem.allowed)


def _value(fields: ConfigFields, name: str, kind: Any) -> Any:
    """One field by the type that the record gives it."""
    if name in ("graph_sizes", "draft_graph_sizes"):
        return _sizes(fields, name)
    if kind is bool:
        return fields.flag(name)
    field = declared(Preset)[name]
    if kind is int:
        return fields.count(name, low=int(field.low), high=int(field.high))
    if kind is float:
        return fields.number(name, field.low, field.low, field.high)
    text = fields.word(name)
    if field.choices and text not in field.choices:
        fields.add(name, text, "is unknown", f"known: {', '.join(field.choices)}")
    return text


def _sizes(fields: ConfigFields, name: str) -> str | tuple[int, ...]:
    """Graph sizes, ascending: "vllm", or numbers and [first, last, step] ranges with both ends."""
    value = fields.values.get(name)
    if value == "vllm" and name == "graph_sizes":
        return "vllm"
    sizes: set[int] = set()
    entries = value if isinstance(value, list) else [None]
    for entry in entries:
        bounds: list[Any] = entry if isinstance(entry, list) else [entry, entry, 1]
        if len(bounds) != 3 or not all(isinstance(n, int) and 1 <= n <= _LARGEST for n in bounds):
            allowed = 'whole numbers and [first, last, step] ranges, or "vllm"'
            fields.add(name, None if entry is None else str(entry), "is not usable", allowed)
            return ()
        sizes.update(range(bounds[0], bounds[1] + 1, bounds[2]))
    return tuple(sorted(sizes))


def _needed(record: type[HostCost | Preset]) -> list[str]:
    """The fields that have no default."""
    return [field.name for field in dataclasses.fields(record) if field.default is dataclasses.MISSING]


def _host(fields: ConfigFields, base: Preset | None) -> HostCost:
    """Host times, those of `base` where the file gives none."""
    child = fields.child("host")
    names = declared(HostCost)
    values = vars(base.host) if base is not None else {}
    if child is None:
        if base is None and not fields.has("host"):
            fields.add("host", None, "is missing", f"an object with {', '.join(names)}")
        return HostCost(**values) if values else HostCost(0, 0, 0)
    for name in child.values:
        if name not in names:
            problem = unknown_name("host time", name, names)
            child.add(name, None, problem.message, problem.allowed)
    for name in _needed(HostCost) if base is None else ():
        if not child.has(name):
            child.add(name, None, "is missing", "s")
    return HostCost(
        **{
            name: child.number(name, values.get(name, 0.0), field.low, field.high)
            for name, field in names.items()
        }
    )


def _sources(fields: ConfigFields, base: Preset | None, own: Sequence[str]) -> MappingProxyType[str, str]:
    """Where each figure comes from; a file of one's own need not say, and what it gives is not its base's."""
    child = fields.child("sources")
    inherited = base.sources if base is not None else {}
    inherited_sources = {
        name: source for name, source in inherited.items() if name not in own or name == "host"
    }
    if child is not None:
        inherited_sources |= {name: child.word(name) for name in child.values}
    return MappingProxyType(inherited_sources)
