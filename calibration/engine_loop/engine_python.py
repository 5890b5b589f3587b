"""The engine's own environment: its python, its variables, and scripts that run there.

vLLM is no dependency of this project. `make engine` installs its CPU build into `.venv-engine`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.errors import InputError, Problem

DEFAULT = Path(".venv-engine/bin/python")
INSIDE = Path(__file__).resolve().parent / "inside"
COMPUTE_CORE = 0
"""The core that vLLM's worker binds its one thread to on a machine of two cores."""

VARIABLES = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_USE_AOT_COMPILE": "0",
}
"""Nothing is sent or downloaded, and compiled graphs are taken from torch's cache: vLLM cannot load what it
compiled ahead of time, and compiles it anew at every start.
"""


def find_python(asked: Path | None) -> Path:
    """The python of an environment with vLLM. Raises InputError."""
    python = asked or DEFAULT
    if not python.is_file():
        raise InputError(
            Problem(
                field="--engine-python",
                value=str(python),
                message="is no python",
                allowed="that of an environment with vLLM 0.32: `make engine` makes .venv-engine",
            )
        )
    return python.absolute()


def environment() -> dict[str, str]:
    """The variables of a process of the engine."""
    return {**os.environ, **VARIABLES}


def run_inside(python: Path, script: str, request: Mapping[str, Any], log: Path, **variables: str) -> Any:
    """Run a script of `inside/` on the core that computes; JSON in, JSON out, all else into `log`.

    Raises InputError if it fails.
    """
    with log.open("a", encoding="utf-8") as errors:
        finished = subprocess.run(
            ["taskset", "--cpu-list", str(COMPUTE_CORE), str(python), str(INSIDE / script)],
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment() | variables,
            check=False,
        )
    if finished.returncode:
        raise InputError(
            Problem(
                file=str(log), message=f"{script} ended with code {finished.returncode}; its log says why"
            )
        )
    return json.loads(finished.stdout)
