"""Study files that tests start from, and a pool that runs them in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from experiments.runner import inline_pool
from experiments.runner.worker import TaskOutcome
from experiments.study.load import load_study
from experiments.study.study import Study

SCENARIO = """\
scenario:
  target: {model: llama-3.3-70b-instruct, weights: fp8, kv_cache: fp8}
  hardware: {gpu: h100-sxm, tensor_parallel: 4}
  speculation:
    - {name: eagle3, method: eagle3, draft_length: 3, acceptance: {model: geometric, alpha: 0.7}}
  workload:
    arrivals: {kind: closed, concurrency: 16}
    requests: 200
    prompt_tokens: {kind: fixed, tokens: 300}
    output_tokens: {kind: uniform, low: 20, high: 60}
  run: {replications: 2}
"""

ALPHA = "speculation.eagle3.acceptance.alpha"
DRAFT_LENGTH = "speculation.eagle3.draft_length"
CONCURRENCY = "workload.arrivals.concurrency"


def study_file(
    folder: Path, rest: str = "", scenario: str = SCENARIO, name: str = "small.study.yaml"
) -> Path:
    """A study file in a folder: the scenario, and the other keys."""
    path = folder / name
    path.write_text(scenario + rest, encoding="utf-8")
    return path


def study(folder: Path, rest: str = "", scenario: str = SCENARIO, overrides: Sequence[str] = ()) -> Study:
    """The study that such a file says."""
    return load_study(study_file(folder, rest, scenario), overrides)


class InlinePool(inline_pool.InlinePool):
    """A worker that is this process, and remembers what it ran."""

    def __init__(self) -> None:
        self.ran: list[Any] = []

    def submit(self, run: Callable[[Any], Any], tasks: Sequence[Any], slot: int) -> Future[list[TaskOutcome]]:
        self.ran += tasks
        return super().submit(run, tasks, slot)
