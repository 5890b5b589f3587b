"""What a scenario leaves open and which values are used for it: the schema's defaults, the preset's for
null.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulator.engines.preset import Preset
from simulator.engines.presets import load_preset
from simulator.scenario.base import Section
from simulator.scenario.schema import HostOverrides, Scenario

if TYPE_CHECKING:
    from simulator.gpu import Gpu

_FROM_PRESET = ("scheduler", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")
_LARGE_BYTES = 70 << 30
_FEWER_WHEN_SMALL = ("max_num_seqs", "max_num_batched_tokens")
_HOST = tuple(HostOverrides.model_fields)


def engine_preset(scenario: Scenario) -> tuple[Preset, str | None]:
    """Return the serving-engine preset on the scenario's GPU, with the fields that the scenario sets, and a
    note.

    The note names the preset that is used where the one asked for is not known exactly. Raises InputError for
    an engine that is not known at all, and for a preset's file that cannot be used.
    """
    engine = scenario.engine
    preset, note = load_preset(engine.preset, scenario.base_dir)
    if preset.headroom_bytes:
        share = max(preset.gpu_memory_utilization, 1 - preset.headroom_bytes / memory_bytes(scenario))
        preset = replace(preset, gpu_memory_utilization=share)
    if _is_small(_gpu(scenario)):
        small = {name: getattr(preset, f"small_gpu_{name}") for name in _FEWER_WHEN_SMALL}
        preset = replace(preset, **{name: value for name, value in small.items() if value})
    overrides = {name: getattr(engine, name) for name in _FROM_PRESET if getattr(engine, name) is not None}
    host = {name: getattr(engine.host, name) for name in _HOST if getattr(engine.host, name) is not None}
    return replace(preset, **overrides, host=replace(preset.host, **host)), note


def _is_small(gpu: Gpu) -> bool:
    """Whether vLLM counts a GPU among the small ones (`engine/arg_utils.py`)."""
    return gpu.memory_bytes < _LARGE_BYTES or "a100" in gpu.name.lower()


def memory_bytes(scenario: Scenario) -> int:
    """Bytes of one of the scenario's GPUs, as its driver reports them."""
    return _gpu(scenario).memory_bytes


def _gpu(scenario: Scenario) -> Gpu:
    from simulator.gpu import GPUS

    name = scenario.hardware.gpu
    if name in GPUS:
        return GPUS[name]
    from simulator.costs.profiles import load_profile

    return load_profile(name, scenario.base_dir).gpu


def defaults_used(scenario: Scenario) -> dict[str, Any]:
    """Return dotted path → value of all that the file leaves out; variants and classes by name, as in
    `--set`.

    Where null means the value of another part (the preset, the target), that value is returned.
    """
    used = _defaults_of(scenario, "") | dict(scenario.taken)
    preset, _ = engine_preset(scenario)
    for name in _FROM_PRESET:
        if getattr(scenario.engine, name) is None:
            used[f"engine.{name}"] = getattr(preset, name)
    for name in _HOST:
        if getattr(scenario.engine.host, name) is None:
            used[f"engine.host.{name}"] = getattr(preset.host, name)
    for variant in scenario.speculation:
        if variant.draft_tensor_parallel is None:
            used[f"speculation.{variant.name}.draft_tensor_parallel"] = scenario.hardware.tensor_parallel
    return dict(sorted(used.items()))


def _defaults_of(section: Section, prefix: str) -> dict[str, Any]:
    """Defaults inside one section, `prefix` included in their paths."""
    used: dict[str, Any] = {}
    for name in type(section).model_fields:
        value, path = getattr(section, name), f"{prefix}{name}"
        if name in section.model_fields_set:
            used |= _defaults_inside(value, path)
        elif isinstance(value, Section) and not type(value).tags():
            used |= _defaults_of(value, f"{path}.")
        else:
            used[path] = (
                value.model_dump(mode="json", exclude_none=True) if isinstance(value, Section) else value
            )
    return used


def _defaults_inside(value: object, path: str) -> dict[str, Any]:
    """Defaults inside a field that was given."""
    if isinstance(value, Section):
        return _defaults_of(value, f"{path}.")
    used: dict[str, Any] = {}
    if isinstance(value, tuple):
        for entry in value:
            if isinstance(entry, Section):
                used |= _defaults_of(entry, f"{path}.{getattr(entry, 'name', '')}.")
    elif isinstance(value, dict):
        for name, entry in value.items():
            used |= _defaults_inside(entry, f"{path}.{name}")
    return used
