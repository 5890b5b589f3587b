"""`vllm serve` on loopback: a process group of its own, frozen while others are measured, and ended whole."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from calibration.engine_loop.cpu_time import group_cpu_s, process_cpu_s
from calibration.engine_loop.engine_python import environment
from simulator.errors import InputError, Problem

HOST = "127.0.0.1"
MODEL_NAME = "smollm2"
MAX_NUM_SEQS, MAX_MODEL_LEN = 32, 2048
KV_CACHE_BYTES = 512 << 20
"""Enough for 32 requests of every cell, with a draft model's cache."""
SERVER_BYTES = 3_300_000_000
"""Memory of one server: measured 3.1 to 3.5 GB with a KV cache of 1 GiB."""
_START_S, _STOP_S, _POLL_S = 600.0, 20.0, 0.5


class EngineServer:
    """One server. As a context manager it ends all of its processes, however the block ends."""

    def __init__(self, python: Path, model: Path, speculative: dict[str, Any] | None, log: Path) -> None:
        self.port = _free_port()
        self.log = log
        arguments = [
            *(str(python.parent / "vllm"), "serve", str(model), "--host", HOST, "--port", str(self.port)),
            *("--served-model-name", MODEL_NAME, "--max-model-len", str(MAX_MODEL_LEN)),
            *("--max-num-seqs", str(MAX_NUM_SEQS), "--kv-cache-memory-bytes", str(KV_CACHE_BYTES)),
        ]
        if speculative is not None:
            arguments += ["--speculative-config", json.dumps(speculative)]
        with log.open("w", encoding="utf-8") as output:
            self._process = subprocess.Popen(
                arguments, stdout=output, stderr=output, env=environment(), start_new_session=True
            )

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}"

    def wait(self) -> None:
        """Return when it answers. Raises InputError if it ends or takes too long."""
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s and self._process.poll() is None:
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"{self.url}/health"),
            ):
                return
            time.sleep(_POLL_S)
        raise InputError(Problem(file=str(self.log), message="vLLM did not start; its log says why"))

    def metrics(self) -> str:
        """The text of `/metrics`."""
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            text: str = answer.read().decode("utf-8")
        return text

    def front_end_cpu_s(self) -> float:
        """CPU seconds of the API server's process so far."""
        return process_cpu_s(self._process.pid)

    def cpu_s(self) -> float:
        """CPU seconds of all of its processes so far."""
        return group_cpu_s(self._process.pid)

    def freeze(self) -> None:
        """Stop all of its processes until `thaw`, so that they take no time of a core."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let its processes go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all of its processes."""
        self.thaw()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the group, whose number is that of its first process."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port
