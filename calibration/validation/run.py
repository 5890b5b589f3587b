"""All trials simulated, on several processes, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from typing import TYPE_CHECKING, TypeVar

from calibration.validation.predict import FAILED, Alteration, Prediction, Question, predict
from calibration.validation.row import Row, question_of, rows_of
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from calibration.validation.trials.trial import Trial
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

Task = TypeVar("Task")
Answer = TypeVar("Answer")

_MOST_AT_ONCE = 24


def run_trials(
    trials: Sequence[Trial],
    pool: Executor | None = None,
    progress: Progress | None = None,
    alter: Alteration | None = None,
) -> list[Row]:
    """Simulate the trials and compare every published figure, in their order.

    `pool` is one of `worker_pool`; without one this process does the work. `alter` changes every compiled
    variant, as the workers of a pool can import it.
    """
    questions = [question_of(trial) for trial in trials]
    predictions = answers(Predict(alter), questions, setup_key, pool, progress)
    pairs = zip(trials, predictions, strict=True)
    return [row for trial, prediction in pairs for row in rows_of(trial, prediction)]


class Predict:
    """`predict` as workers take it: what a single question does not survive is its answer."""

    def __init__(self, alter: Alteration | None = None) -> None:
        self.alter = alter

    def __call__(self, question: Question) -> Prediction:
        try:
            return predict(question, self.alter)
        except Exception as error:  # of a hundred strangers' cases one must not hide the others
            reason = failure(error)
            return Prediction(missing={"plain": reason, "spec": reason})


def failure(error: Exception) -> str:
    """The reason that an unforeseen error leaves."""
    return f"{FAILED}: {type(error).__name__}: {error}"


def answers(
    answer: Callable[[Task], Answer],
    tasks: Sequence[Task],
    key: Callable[[Task], str],
    pool: Executor | None = None,
    progress: Progress | None = None,
    at_once: int = _MOST_AT_ONCE,
) -> list[Answer]:
    """`answer` of every task, in their order; tasks of one `key` share a process, and what it remembers.

    `at_once`: how many a process takes in one go; fewer where each takes long.
    """
    order = sorted(range(len(tasks)), key=lambda at: key(tasks[at]))
    chunks = [order[at : at + at_once] for at in range(0, len(order), at_once)]
    found: dict[int, Answer] = {}
    for chunk, values in _by_chunk(answer, tasks, chunks, pool):
        found.update(zip(chunk, values, strict=True))
        if progress is not None:
            progress(len(found), len(tasks), "")
    return [found[at] for at in range(len(tasks))]


def _by_chunk(
    answer: Callable[[Task], Answer],
    tasks: Sequence[Task],
    chunks: Sequence[Sequence[int]],
    pool: Executor | None,
) -> Iterator[tuple[Sequence[int], list[Answer]]]:
    """The answers of each chunk, as they come."""
    if pool is None:
        for chunk in chunks:
            yield chunk, _several(answer, [tasks[at] for at in chunk])
        return
    futures: dict[Future[list[Answer]], Sequence[int]] = {
        pool.submit(_several, answer, [tasks[at] for at in chunk]): chunk for chunk in chunks
    }
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenExecutor:
        message = "a worker process was killed, for lack of memory perhaps"
        raise InputError(Problem(message=message, allowed="run it again, with fewer cases at once")) from None


def _several(answer: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
    return [answer(task) for task in tasks]


def setup_key(question: Question) -> str:
    """What questions share price tables by."""
    return " ".join(
        scenario_key(scenario) for scenario in (question.plain, question.spec) if scenario is not None
    )


def scenario_key(scenario: Scenario) -> str:
    """The parts of a scenario that its price tables follow from."""
    variants = [f"{variant.method} {variant.draft}" for variant in scenario.speculation]
    parts = (scenario.target.model_dump_json(), scenario.hardware.model_dump_json())
    return " ".join((*parts, scenario.engine.model_dump_json(), *variants))
