"""What property tests share: a look into the engines of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from simulator.drivers import cluster
from simulator.results.record import RunRecord
from simulator.step.state import State


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[State]:
    """The engines of the newest run, one per replica, as its record was taken."""
    result: list[State] = []
    record_of = cluster.record_of

    def watched(engines: Sequence[State], *rest: Any) -> RunRecord:
        result[:] = engines
        return record_of(engines, *rest)

    monkeypatch.setattr(cluster, "record_of", watched)
    return result
