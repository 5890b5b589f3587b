"""How long the requests of a scenario are: what memory and policies need to know before anything runs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from simulator.traffic.workload import generate

if TYPE_CHECKING:
    from simulator.scenario import Scenario
    from simulator.scenario.workload import Workload


class RequestTokens(NamedTuple):
    """Lengths over the requests of a workload, in tokens.

    `mean` and `longest` count a request at its end, prompt and output together. `mean_halfway` is the mean
    prompt and half the mean output: the context of a request in the middle of its decoding.
    """

    mean: float
    longest: int
    mean_halfway: float


def request_tokens(scenario: Scenario) -> RequestTokens:
    """Return the lengths of a scenario's requests under its own seed. They are drawn once per workload."""
    return _request_tokens(scenario.workload, scenario.run.seed, scenario.base_dir)


@lru_cache(maxsize=64)
def _request_tokens(workload: Workload, seed: int, base_dir: Path) -> RequestTokens:
    requests = generate(workload, seed, base_dir)
    tokens = requests.prompt_tokens + requests.output_tokens
    return RequestTokens(
        mean=float(tokens.mean()),
        longest=int(tokens.max()),
        mean_halfway=float(requests.prompt_tokens.mean() + requests.output_tokens.mean() / 2),
    )
