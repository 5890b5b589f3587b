"""The steps of a run as a Chrome trace (chrome://tracing, ui.perfetto.dev): one row per stage and replica.

Format: "Trace Event Format" of the Chromium project, complete events ("X"), times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from simulator.errors import InputError, Problem, reason

STAGES = ("host", "verify", "accept", "draft")
"""The rows, top to bottom."""


class TimedStage(Protocol):
    """One stage of one step, occupied from `start_ns` to `end_ns`
    of the simulated clock, as the engine notes it.
    """

    @property
    def replica(self) -> int:
        """Engine it belongs to."""

    @property
    def name(self) -> str:
        """One of `STAGES`."""

    @property
    def start_ns(self) -> int:
        """Start, ns."""

    @property
    def end_ns(self) -> int:
        """End, ns."""

    @property
    def step(self) -> int:
        """Number of the step."""

    @property
    def requests(self) -> int:
        """Requests in the step."""

    @property
    def tokens(self) -> int:
        """Query tokens in the step."""


def chrome_trace(
    rows: Iterable[TimedStage], title: str = "decodesim", names: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """The trace document; stages of zero length are left out. `names` says what a replica's number stands
    for, where it is not simply a replica.

    Raises ValueError for a stage that is not one of `STAGES`.
    """
    events: list[dict[str, Any]] = []
    replicas: set[int] = set()
    for row in rows:
        if row.name not in STAGES:
            raise ValueError(f"unknown stage {row.name!r}; known: {', '.join(STAGES)}")
        replicas.add(row.replica)
        if row.end_ns > row.start_ns:
            events.append(
                {
                    "name": row.name,
                    "cat": "step",
                    "ph": "X",
                    "pid": row.replica,
                    "tid": STAGES.index(row.name),
                    "ts": row.start_ns / 1000,
                    "dur": (row.end_ns - row.start_ns) / 1000,
                    "args": {"step": row.step, "requests": row.requests, "tokens": row.tokens},
                }
            )
    labels: list[dict[str, Any]] = []
    for replica in sorted(replicas):
        called = (names or {}).get(replica, f"replica {replica}")
        labels.append(_name("process_name", replica, 0, f"{title}: {called}"))
        for row_index, stage in enumerate(STAGES):
            labels.append(_name("thread_name", replica, row_index, stage))
            labels.append(
                {
                    "name": "thread_sort_index",
                    "ph": "M",
                    "pid": replica,
                    "tid": row_index,
                    "args": {"sort_index": row_index},
                }
            )
    return {"displayTimeUnit": "ms", "traceEvents": labels + events}


def _name(kind: str, replica: int, row_index: int, text: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": replica, "tid": row_index, "args": {"name": text}}


def write_chrome_trace(
    path: str | Path,
    rows: Iterable[TimedStage],
    title: str = "decodesim",
    names: Mapping[int, str] | None = None,
) -> Path:
    """Write the trace, one event a line: the same rows give the same bytes.
    Raises InputError where the file cannot be written.
    """
    document = chrome_trace(rows, title, names)
    events = document["traceEvents"]
    lines = ",\n".join(json.dumps(event, separators=(",", ":"), ensure_ascii=False) for event in events)
    path = Path(path)
    try:
        path.write_text(f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n', encoding="utf-8")
    except OSError as error:
        raise InputError(Problem(file=str(path), message=f"cannot be written: {reason(error)}")) from error
    return path
