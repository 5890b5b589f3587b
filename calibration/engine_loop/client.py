"""vLLM's benchmark client as one process that runs cell after cell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from calibration.engine_loop.cpu_time import group_cpu_s
from calibration.engine_loop.engine_python import INSIDE, environment
from calibration.engine_loop.matrix import LoopCell
from calibration.engine_loop.server import MODEL_NAME
from simulator.errors import InputError, Problem


class BenchClient:
    """The client; prompts are those of a file, in its order, and outputs have one length."""

    def __init__(self, python: Path, tokenizer: Path, prompts: Path, log: Path) -> None:
        self._tokenizer, self._prompts, self._log = tokenizer, prompts, log
        self._errors = log.open("a", encoding="utf-8")
        self._process = subprocess.Popen(
            [str(python), str(INSIDE / "bench_cells.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        self._answer("ready")

    def run(self, url: str, cell: LoopCell, file: Path, seed: int = 0) -> dict[str, Any]:
        """Run a cell against a server; the client's own document. `seed`: of arrivals at random."""
        arguments = [
            *("--backend", "vllm", "--base-url", url, "--model", MODEL_NAME),
            *("--tokenizer", str(self._tokenizer), "--dataset-name", "custom"),
            *("--dataset-path", str(self._prompts), "--skip-chat-template", "--disable-shuffle"),
            *("--custom-output-len", str(cell.output_tokens), "--num-prompts", str(cell.requests)),
            *("--temperature", "0", "--ignore-eos", "--disable-tqdm", "--ready-check-timeout-sec", "0"),
            *("--seed", str(seed)),
        ]
        if cell.clients:
            arguments += ["--max-concurrency", str(cell.clients)]
        else:
            arguments += ["--request-rate", f"{cell.rate_per_s:g}"]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"arguments": arguments, "file": str(file)}) + "\n")
        self._process.stdin.flush()
        self._answer("done")
        document: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if document["completed"] != cell.requests:
            message = f"{cell.name}: {document['completed']} of {cell.requests} requests were served"
            raise InputError(Problem(file=str(self._log), message=message))
        return document

    def cpu_s(self) -> float:
        """CPU seconds of its process so far."""
        return group_cpu_s(self._process.pid)

    def _answer(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            raise InputError(Problem(file=str(self._log), message="vLLM's client ended; its log says why"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._errors.close()
