"""The engines whose launch configurations are read and written. A new engine is an entry and its files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from calibration.launch import read_sglang, read_trtllm, read_vllm, sglang, trtllm, vllm
from calibration.launch.launch import Artefact, Launch
from simulator.engines.presets import release_of
from simulator.scenario import Scenario, Variant, engine_preset


class LaunchFormat(NamedTuple):
    """One engine: what it is called, how it is written and read, and the newest version that was checked."""

    title: str
    newest: str
    write: Callable[[Scenario, Variant | None, str], Artefact]
    read: Callable[[str, str], Launch]
    origin: str
    """The option of `init` that takes it."""


ENGINES: Mapping[str, LaunchFormat] = {
    vllm.ENGINE: LaunchFormat("vLLM", vllm.NEWEST, vllm.write, read_vllm.read, read_vllm.ORIGIN),
    sglang.ENGINE: LaunchFormat("SGLang", sglang.NEWEST, sglang.write, read_sglang.read, read_sglang.ORIGIN),
    trtllm.ENGINE: LaunchFormat(
        "TensorRT-LLM", trtllm.NEWEST, trtllm.write, read_trtllm.read, "--from-trtllm"
    ),
}


def artefacts(scenario: Scenario, variant: Variant | None) -> dict[str, Artefact]:
    """What starts each engine with a variant of a scenario; `variant` is None for plain decoding.

    The engine of the scenario's preset is written for its version, the others for the newest one checked.
    """
    if variant is not None and variant.max_draft_length == 0:
        variant = None  # engines refuse a speculation that never drafts
    preset, own_version = engine_preset(scenario)[0], written_version(scenario)
    return {
        engine: entry.write(scenario, variant, own_version if entry.title == preset.engine else entry.newest)
        for engine, entry in ENGINES.items()
    }


def written_version(scenario: Scenario) -> str:
    """The engine's version in the words of the scenario: that of the preset's name, else of the preset."""
    named = re.search(r"\d+(\.\d+)+", scenario.engine.preset)
    return named[0] if named is not None else engine_preset(scenario)[0].version


def engine_key(scenario: Scenario) -> str:
    """The engine of a scenario's preset, as `ENGINES` names it; vLLM for code without options of its own."""
    title = engine_preset(scenario)[0].engine
    return next((engine for engine, entry in ENGINES.items() if entry.title == title), vllm.ENGINE)


def is_known_version(engine: str, version: str) -> bool:
    """Whether a version is no newer than the newest that was checked."""
    return release_of(version) <= release_of(ENGINES[engine].newest)
