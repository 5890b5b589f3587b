"""Luck belongs to the token: a request meets the same under every K, batch, engine and variant.

A plain reference of the acceptance (`tests/acceptance_reference.py`) walks each request by itself; what the
simulator counted for it must be equal, whatever ran beside it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simulator.acceptance import (
    AcceptanceModel,
    Decay,
    Fixed,
    Gated,
    Geometric,
    Hierarchical,
    Positional,
    ReplayedAcceptance,
    compile_acceptance,
)
from simulator.results.record import RunRecord
from tests.acceptance_reference import ReferenceRequest
from tests.runs import drafting_variant, run, small_scenario, traffic

SEED = 11
LONGEST = 5
MODELS: dict[str, AcceptanceModel] = {
    "fixed": Fixed(0.5, LONGEST),
    "geometric": Geometric(0.7),
    "positional": Positional((0.8, 0.5, 0.9, 0.3, 0.6)),
    "decay": Decay.from_alpha(0.8, 0.3),
    "hierarchical": Hierarchical.from_alpha(0.7, 0.1, request_sd=1.0, drift_sd=0.8, drift_correlation=0.9),
    "trace": ReplayedAcceptance(((2, 1, 4, 3, 1, 6, 2), (5, 5, 1), (1, 1, 2, 2, 3, 3, 4))),
}


def changes(draft_length: int, **more: Any) -> dict[str, Any]:
    return {
        "speculation.eagle3.draft_length": draft_length,
        "workload.requests": 30,
        "workload.output_tokens": {"kind": "uniform", "low": 2, "high": 90},
        **more,
    }


def lookup_changes(draft_length: int, **more: Any) -> dict[str, Any]:
    acceptance = {"model": "gated", "match": 0.5, "first": 0.5, "run": 0.9}
    variant = {"name": "a", "method": "ngram", "draft_length": draft_length, "acceptance": acceptance}
    values_by_length = {
        path: value for path, value in changes(draft_length).items() if not path.startswith("speculation")
    }
    return {**values_by_length, "speculation": [variant], **more}


def walked(scenario_changes: dict[str, Any], model: AcceptanceModel) -> tuple[np.ndarray, np.ndarray]:
    """Rounds and accepted drafts of every request by itself, from the plain reference."""
    scenario = small_scenario(scenario_changes)
    draft_length = scenario.speculation[0].max_draft_length
    requests = traffic(scenario, SEED)
    tables = compile_acceptance([model], requests, SEED, draft_length)
    rounds, accepted = [], []
    for r, output in enumerate(requests.output_tokens):
        request = ReferenceRequest(tables, SEED, r)
        of_rounds = []
        while request.emitted < output:
            of_rounds.append(request.round(draft_length))
        rounds.append(len(of_rounds))
        accepted.append(sum(of_rounds))
    return np.array(rounds), np.array(accepted)


def simulated(scenario_changes: dict[str, Any], model: AcceptanceModel) -> RunRecord:
    return run(drafting_variant(small_scenario(scenario_changes)), SEED, acceptance=[model])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("draft_length", [1, 2, 3, 5])
def test_every_request_walks_as_it_would_alone(name: str, draft_length: int) -> None:
    asked = changes(draft_length)
    rounds, accepted = walked(asked, MODELS[name])
    record = simulated(asked, MODELS[name])
    assert (record.draft_rounds == rounds).all()
    assert (record.accepted_tokens == accepted).all()


@pytest.mark.parametrize("draft_length", [1, 4])
def test_lookups_walk_as_they_would_alone(draft_length: int) -> None:
    model = Gated(0.5, 0.0, 0.5, 0.9)
    rounds, accepted = walked(lookup_changes(draft_length), model)
    record = simulated(lookup_changes(draft_length), model)
    assert (record.draft_rounds == rounds).all()
    assert (record.accepted_tokens == accepted).all()


@pytest.mark.parametrize(
    "more",
    [
        {"workload.arrivals.concurrency": 1},
        {"workload.arrivals": {"kind": "burst"}},
        {"workload.arrivals": {"kind": "poisson", "rate_per_s": 3.0}},
        {"engine.preset": "vllm-0.10"},
        {"engine.preset": "sglang-0.5"},
        {"engine.max_num_seqs": 3},
        {"hardware.replicas": 3},
        {"hardware.gpu": "h200-sxm"},
        {"run.mechanisms.prefill": False},
        {"workload.prompt_tokens.tokens": 7},
    ],
    ids=str,
)
def test_what_runs_beside_it_changes_nothing_of_a_requests_luck(more: dict[str, Any]) -> None:
    model = MODELS["hierarchical"]
    base, other = simulated(changes(3), model), simulated(changes(3, **more), model)
    for name in ("draft_rounds", "accepted_tokens", "drafted_tokens", "emitted_tokens", "decode_rounds"):
        assert (getattr(base, name) == getattr(other, name)).all(), name
    assert base.makespan_ns != other.makespan_ns


@pytest.mark.parametrize("name", ["geometric", "hierarchical"])
def test_more_drafts_never_take_a_request_more_rounds(name: str) -> None:
    """Where the luck of a token is its own, a longer draft gets at least as far with every round."""
    model = MODELS[name]
    model = Hierarchical.from_alpha(0.7, 0.0, 1.0, 0.8, 0.9) if name == "hierarchical" else model
    rounds = [simulated(changes(k), model).decode_rounds for k in (1, 2, 3, 5)]
    for shorter, longer in pairwise(rounds):
        assert (longer <= shorter).all()
        assert (longer < shorter).any()


def test_a_better_drafter_never_takes_a_request_more_rounds() -> None:
    rounds = [simulated(changes(4), Geometric(alpha)).decode_rounds for alpha in (0.0, 0.3, 0.6, 0.9, 1.0)]
    for worse, better in pairwise(rounds):
        assert (better <= worse).all()
        assert (better < worse).any()


def test_another_seed_is_another_luck() -> None:
    variant = drafting_variant(small_scenario(changes(3)))
    requests = traffic(variant.scenario, SEED)
    base, other = (variant.run(requests, seed, acceptance=[Geometric(0.7)]) for seed in (SEED, SEED + 1))
    assert (base.accepted_tokens != other.accepted_tokens).any()
