"""Simulates published runs on several processes and compares their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from typing import TYPE_CHECKING, TypeVar

from calibration.validation.predict import FAILED, Alteration, Prediction, PredictionInput, predict
from calibration.validation.row import ComparisonRow, input_of, rows_of
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from calibration.validation.reconstruction.published_run import PublishedRun
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

Task = TypeVar("Task")
TaskResult = TypeVar("TaskResult")

_MAX_TASKS_PER_CHUNK = 24


def compare_runs(
    runs: Sequence[PublishedRun],
    pool: Executor | None = None,
    progress: Progress | None = None,
    alter: Alteration | None = None,
) -> list[ComparisonRow]:
    """Simulate the runs and compare every published figure, in the order of the runs.

    `pool` comes from `worker_pool`; without one, this process does the work. `alter` changes every compiled
    variant; workers must be able to import it.
    """
    tasks = [input_of(run) for run in runs]
    predictions = results_of(Predict(alter), tasks, setup_key, pool, progress)
    pairs = zip(runs, predictions, strict=True)
    return [row for run, prediction in pairs for row in rows_of(run, prediction)]


class Predict:
    """`predict` for workers: an unforeseen error of one task becomes that task's result."""

    def __init__(self, alter: Alteration | None = None) -> None:
        self.alter = alter

    def __call__(self, task: PredictionInput) -> Prediction:
        try:
            return predict(task, self.alter)
        except Exception as error:  # one bad case must not hide the results of all others
            reason = failure(error)
            return Prediction(missing={"plain": reason, "spec": reason})


def failure(error: Exception) -> str:
    """The reason recorded for an unforeseen error."""
    return f"{FAILED}: {type(error).__name__}: {error}"


def results_of(
    function: Callable[[Task], TaskResult],
    tasks: Sequence[Task],
    key: Callable[[Task], str],
    pool: Executor | None = None,
    progress: Progress | None = None,
    chunk_size: int = _MAX_TASKS_PER_CHUNK,
) -> list[TaskResult]:
    """The results of all tasks, in their order. Tasks of one `key` share a process and its caches.

    `chunk_size`: tasks that a process takes at a time; fewer where each takes long.
    """
    order = sorted(range(len(tasks)), key=lambda index: key(tasks[index]))
    chunks = [order[index : index + chunk_size] for index in range(0, len(order), chunk_size)]
    results: dict[int, TaskResult] = {}
    for chunk, chunk_results in _by_chunk(function, tasks, chunks, pool):
        results.update(zip(chunk, chunk_results, strict=True))
        if progress is not None:
            progress(len(results), len(tasks), "")
    return [results[index] for index in range(len(tasks))]


def _by_chunk(
    function: Callable[[Task], TaskResult],
    tasks: Sequence[Task],
    chunks: Sequence[Sequence[int]],
    pool: Executor | None,
) -> Iterator[tuple[Sequence[int], list[TaskResult]]]:
    """The results of each chunk, as they complete."""
    if pool is None:
        for chunk in chunks:
            yield chunk, _all_results(function, [tasks[index] for index in chunk])
        return
    futures: dict[Future[list[TaskResult]], Sequence[int]] = {
        pool.submit(_all_results, function, [tasks[index] for index in chunk]): chunk for chunk in chunks
    }
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenExecutor:
        message = "a worker process was killed, perhaps for lack of memory"
        raise InputError(Problem(message=message, allowed="run it again with fewer cases at once")) from None


def _all_results(function: Callable[[Task], TaskResult], tasks: Sequence[Task]) -> list[TaskResult]:
    return [function(task) for task in tasks]


def setup_key(task: PredictionInput) -> str:
    """Key of the price tables: tasks with the same key share them."""
    return " ".join(scenario_key(scenario) for scenario in (task.plain, task.spec) if scenario is not None)


def scenario_key(scenario: Scenario) -> str:
    """Key of the parts of a scenario that determine its price tables."""
    variants = [f"{variant.method} {variant.draft}" for variant in scenario.speculation]
    parts = (scenario.target.model_dump_json(), scenario.hardware.model_dump_json())
    return " ".join((*parts, scenario.engine.model_dump_json(), *variants))
