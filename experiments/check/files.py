"""Which launch configuration a file holds, by its content."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from calibration.launch import read_sglang, read_trtllm, read_vllm
from calibration.launch.launch import Launch
from calibration.launch.line import parse_line
from calibration.launch.options import KNOWN_KEYS
from simulator.document import parse_yaml
from simulator.errors import InputError, Problem
from simulator.scenario.load import read_text

_SCENARIO_KEYS = {"target", "hardware", "workload", "speculation"}
_TRTLLM_KEYS = {"speculative_config", "kv_cache_config", "cuda_graph_config"}


class FoundLaunch(NamedTuple):
    """A launch configuration and the text it was read from."""

    launch: Launch
    text: str


def launch_in(file: Path) -> FoundLaunch | None:
    """The launch configuration in a file; None for a scenario, or what is to be read as one.

    Raises InputError for a file that cannot be read.
    """
    text, origin = read_text(file), str(file)
    try:
        data = parse_yaml(text, origin).data
    except InputError:
        data = None
    if isinstance(data, dict):
        if data.keys() & _SCENARIO_KEYS:
            return None
        if data.keys() & _TRTLLM_KEYS:
            return FoundLaunch(read_trtllm.read(text, origin), text)
        if data and all(key.isdecimal() for key in data):
            return FoundLaunch(_adaptive(file), text)
        if data.keys() & KNOWN_KEYS["vllm"]:
            return FoundLaunch(read_vllm.read_config(text, origin), text)
        return None
    engine = _engine_of(text)
    if engine == "vllm":
        return FoundLaunch(read_vllm.read(text, origin), text)
    if engine == "sglang":
        return FoundLaunch(read_sglang.read(text, origin, file.parent), text)
    if engine is not None:
        message = "is a line of trtllm-serve: its settings are in the file after --config"
        raise InputError(Problem(origin, message=message, allowed="that file"))
    return None


def _adaptive(file: Path) -> Launch:
    """An adaptive configuration alone, which states neither model nor method."""
    options = "--speculative-algorithm EAGLE3 --speculative-num-steps 1 --speculative-adaptive"
    line = f"--model-path - {options} --speculative-adaptive-config {shlex.quote(file.name)}"
    launch = read_sglang.read(line, str(file), file.parent)
    return replace(launch, scenario={**launch.scenario, "target": {}})


def _engine_of(text: str) -> str | None:
    """The engine that a text starts; options alone are told by their names."""
    try:
        line = parse_line(text, "file")
    except InputError:
        return None
    if line.engine is None and line.has("--model-path"):
        return "sglang"
    return line.engine
