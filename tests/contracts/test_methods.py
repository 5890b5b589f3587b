"""Every registered speculation method obeys its protocol and runs end to end on every serving engine; a new
one is a record and touches no other file.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simulator.engines.presets import presets
from simulator.errors import InputError
from simulator.models.catalogue import targets
from simulator.models.drafter import METHODS as DRAFTER_KINDS
from simulator.models.own_drafter import KINDS as OWN_KINDS
from simulator.results.measure import measure
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from simulator.simulation import simulate
from simulator.speculation import Method, method, methods, register, registered
from simulator.speculation.shape import Chain
from simulator.step.state import DONE
from tests.balance import check_memory_is_given_back
from tests.runs import (
    BASE,
    differences,
    drafting_variant,
    final_state,
    plain_variant,
    run,
    small_scenario,
    traffic,
)

NAMES = tuple(methods())
DRAFT_LENGTH = 4
FIRST_CHOICES = ("llama-3.1-8b-instruct", "llama-3-8b-instruct", "qwen3-8b", "qwen3.5-27b")
every_method = pytest.mark.parametrize("name", NAMES)
every_engine = pytest.mark.parametrize("preset", list(presets()))


@cache
def target_of(name: str) -> tuple[str, str | None]:
    """A catalogue model that this method has a drafter for, and the drafter where one has to be named."""
    kind = method(name).drafter
    for target in (*FIRST_CHOICES, *targets()):
        for draft in ("llama-3.2-1b-instruct",) if kind == "draft_model" else (None,):
            try:
                small_scenario({"target.model": target, "speculation": [variant_entry(name, draft)]})
            except InputError:
                continue
            return target, draft
    raise AssertionError(f"no model of the catalogue has a drafter for {name}")


def variant_entry(name: str, draft: str | None = None, **fields: Any) -> dict[str, Any]:
    acceptance: dict[str, Any] = {"model": "geometric", "alpha": 0.7}
    if method(name).host_lookup:
        acceptance = {"model": "gated", "match": 0.5, "stickiness": 0.4, "first": 0.6, "run": 0.9}
    entry = {"name": "a", "method": name, "draft_length": DRAFT_LENGTH, "acceptance": acceptance, **fields}
    return entry if draft is None else {**entry, "draft": draft}


def scenario_of(name: str, changes: dict[str, Any] | None = None, **fields: Any) -> Scenario:
    """A scenario with one variant of this method, on any model it has a drafter for; memory does not bind."""
    target, draft = target_of(name)
    return small_scenario(
        {
            "target.model": target,
            "speculation": [variant_entry(name, draft, **fields)],
            "run.mechanisms.kv_limit": False,
            "workload.output_tokens": {"kind": "uniform", "low": 1, "high": 60},
            **(changes or {}),
        }
    )


def check_record(method: Method) -> None:
    """What must hold of the record itself."""
    assert method.title
    assert method.source
    assert method.drafter is None or method.drafter in (*DRAFTER_KINDS, *OWN_KINDS)
    for nodes in range(9):
        rows = method.shape.pass_rows(nodes)
        assert rows[0] >= 0, "the first pass may run on the step's own tokens alone"
        assert rows[0] > 0 or method.first_pass_reads_tokens or nodes == 0 or method.drafter is None
        assert all(later > 0 for later in rows[1:])
        assert 0 <= method.shape.depth(nodes) <= nodes
        assert method.shape.first_logits(nodes) >= 1
        assert method.budget_slots(nodes) >= 0
        assert method.shape.nodes(nodes) >= nodes
        assert method.shape.depth(method.shape.nodes(nodes)) >= min(nodes, 1)
    for row_sets in (0, 1, 2):
        lookahead = [method.lookahead_tokens(k, row_sets) for k in range(9)]
        assert lookahead == sorted(lookahead)
        assert lookahead[0] == 0
    if method.drafter is None:
        assert not method.drafter_has_kv
        assert not method.draft_from_target
        assert not method.loses_last_match
    if method.drafter_has_kv:
        assert method.lookahead_tokens(4, 0) >= 4
        assert method.lookahead_tokens(4, 2) == 2 * method.lookahead_tokens(4, 1) >= 8
    assert not (method.host_lookup and method.drafter)
    assert not method.gpu_lookup or method.host_lookup
    assert method.default_tree is None or method.drafts_trees
    assert set(method.engines) <= {"vllm", "sglang", "trtllm"}
    for asynchronous in (False, True):
        assert not method.looks_up_on_host(asynchronous) or method.host_lookup


def check_run(variant: CompiledVariant, plain: CompiledVariant) -> None:
    """What must hold of a run, whatever the method."""
    how = variant.method
    assert how is not None
    record = run(variant)
    assert (record.status == DONE).all()
    assert (record.emitted_tokens == run(plain).emitted_tokens).all()
    assert record.drafted_tokens.sum() > record.accepted_tokens.sum() > 0
    assert record.drafted_tokens.sum() - record.accepted_tokens.sum() == record.totals["rejected_rows"]
    figures = measure(record)
    assert 1 < figures["mean_acceptance_length"] <= variant.settings.max_depth + 1
    # Only a lookup that may find nothing leaves decodes without a draft.
    preset = variant.setup.preset
    looks_up = how.looks_up_on_host(preset.drafts_asynchronously)
    costs = preset.host.lookup_step_s + preset.host.lookup_per_sequence_s > 0
    assert (record.totals["draft_ns"] > 0) == (how.drafter is not None or (looks_up and costs))
    assert (figures["draft_coverage"] < 0.95) == (looks_up and not preset.pads_lookups)
    assert variant.settings.asynchronous == (preset.drafts_asynchronously and not looks_up)
    nodes = variant.settings.max_nodes
    assert variant.settings.lookahead_tokens == how.lookahead_tokens(nodes, preset.draft_row_sets)
    assert variant.settings.slots_per_request == how.budget_slots(nodes)
    drafter = variant.setup.drafter
    assert (drafter is not None) == (how.drafter is not None)
    assert (variant.memory.drafter_bytes > 0) == (drafter is not None and drafter.owns_weights)
    assert (variant.memory.kv_bytes_per_token > plain.memory.kv_bytes_per_token) == how.drafter_has_kv
    state = final_state(variant, traffic(variant.scenario), 0)
    check_memory_is_given_back(state)


@every_method
def test_the_record_says_something_possible(name: str) -> None:
    method = methods()[name]
    assert method.name == name
    check_record(method)


@every_method
@every_engine
def test_it_runs_end_to_end(name: str, preset: str) -> None:
    scenario = scenario_of(name, {"engine.preset": preset})
    check_run(drafting_variant(scenario), plain_variant(scenario))


@every_method
@every_engine
def test_both_drivers_agree(name: str, preset: str) -> None:
    fast = run(drafting_variant(scenario_of(name, {"engine.preset": preset})))
    slow = run(drafting_variant(scenario_of(name, {"engine.preset": preset, "run.backend": "pipeline"})))
    assert (fast.driver, slow.driver) == ("fast_forward", "pipeline")
    assert differences(fast, slow) == []


@every_method
def test_certain_drafts_emit_k_plus_one_and_hopeless_ones_a_single_token(name: str) -> None:
    depth = drafting_variant(scenario_of(name)).settings.max_depth
    lengths = {"workload.output_tokens": {"kind": "fixed", "tokens": 1 + 8 * (depth + 1)}}
    certain = {"model": "geometric", "alpha": 1.0}
    variant = drafting_variant(scenario_of(name, lengths, acceptance=certain))
    assert (run(variant).decode_rounds == 8).all()
    hopeless = {"model": "geometric", "alpha": 0.0}
    record = run(drafting_variant(scenario_of(name, lengths, acceptance=hopeless)))
    assert (record.decode_rounds == record.emitted_tokens - 1).all()


@every_method
def test_a_class_that_does_not_draft_decodes_plainly(name: str) -> None:
    silent = {"workload.classes": [{"name": "all", "share": 1.0, "drafts": False}]}
    scenario = scenario_of(name, {**silent, "engine.preset": "vllm-0.10"})
    record, plain = run(drafting_variant(scenario)), run(plain_variant(scenario))
    assert record.drafted_tokens.sum() == record.accepted_tokens.sum() == record.totals["draft_ns"] == 0
    assert (record.decode_rounds == plain.decode_rounds).all()


@every_method
def test_longer_drafts_take_longer_steps(name: str) -> None:
    variant = drafting_variant(scenario_of(name))
    nodes = [variant.settings.shape.nodes(k) for k in range(DRAFT_LENGTH + 1)]
    times = [variant.step_times(8, 500, k) for k in nodes]
    assert all(a["verify"] <= b["verify"] for a, b in pairwise(times))
    totals = [step["total"] for step in times]
    assert totals == sorted(totals)
    assert (times[1]["draft"] > 0) == (variant.method is not None and variant.method.drafter is not None)


@every_method
def test_a_scenario_simulates_by_its_name(name: str) -> None:
    changes = {"run.replications": 2, "workload.requests": 60}
    result = simulate(scenario_of(name, changes))
    assert set(result.variants) == {"plain", "a"}
    assert result.comparison["a"].verdict.outcome


TOY = Method(
    name="toy",
    title="one pass of heads over the requests, two rows more than can ever be accepted",
    source="this test",
    drafter="eagle3",
    shape=Chain(serial=False, first_pass_rows=1),
    first_pass_reads_tokens=False,
    drafter_has_kv=False,
    slots_per_request=2,
)
TOY_ACCEPTANCE = {"model": "positional", "conditional": [0.9, 0.8, 0.7, 0.0, 0.0]}


@pytest.fixture
def toy() -> Iterator[Method]:
    with registered(TOY) as method:
        yield method


def toy_scenario(**changes: Any) -> Scenario:
    entry = {"name": "a", "method": "toy", "draft_length": 5, "acceptance": TOY_ACCEPTANCE}
    lengths = {"workload.output_tokens": {"kind": "uniform", "low": 1, "high": 60}}
    return small_scenario({"speculation": [entry], **lengths, **changes})


def test_a_new_method_is_a_record_and_nothing_else(toy: Method) -> None:
    """Registered here, it is known by name, gets a drafter of its kind from the catalogue, is priced, runs
    under both drivers, and is simulated like any other."""
    check_record(toy)
    scenario = toy_scenario()
    assert scenario.speculation[0].draft == BASE["speculation"][0]["draft"]
    variant = drafting_variant(scenario)
    record = run(variant)
    assert (record.status == DONE).all()
    figures = measure(record)
    survival = np.cumprod(TOY_ACCEPTANCE["conditional"])
    rates = [figures[f"acceptance_rate_at.{j}"] for j in range(1, 6)]
    assert rates == pytest.approx(survival, abs=0.1)
    assert rates[3] == rates[4] == 0
    # Two rows more are verified, and rejected, in every round.
    assert record.totals["rejected_rows"] >= 2 * record.draft_rounds.sum()
    assert differences(record, run(drafting_variant(toy_scenario(**{"run.backend": "pipeline"})))) == []
    result = simulate(toy_scenario(**{"run.replications": 2}))
    assert set(result.variants) == {"plain", "a"}


def test_a_new_method_is_charged_as_its_record_says(toy: Method) -> None:
    variant, eagle3 = drafting_variant(toy_scenario()), drafting_variant(small_scenario())
    assert variant.settings.lookahead_tokens == 0
    assert eagle3.settings.lookahead_tokens == 3
    step = {k: variant.step_times(16, 500, k)["draft"] for k in (1, 5)}
    assert step[5] == pytest.approx(step[1], rel=1e-3)  # one pass, whatever K
    chain = {k: eagle3.step_times(16, 500, k)["draft"] for k in (1, 5)}
    assert chain[5] > 3 * chain[1]
    verify = [variant.step_times(16, 500, k)["verify"] for k in (3, 5)]
    assert verify[0] < verify[1]
    # Two slots a request beside its tokens: with a budget of 8, one decode of 6 tokens is all that fits.
    tight = drafting_variant(
        toy_scenario(**{"engine.max_num_batched_tokens": 8, "engine.preset": "vllm-0.10"})
    )
    record = run(tight)
    assert (record.status == DONE).all()
    assert record.totals["query_tokens"] <= 6 * record.totals["steps"]


def test_a_method_is_known_only_while_it_is_registered() -> None:
    assert "toy" not in methods()
    with pytest.raises(InputError, match=r"unknown method \(got 'toy'\)"):
        toy_scenario()
    with registered(TOY):
        assert method("toy") is TOY
        with pytest.raises(ValueError, match="registered already"):
            register(Method(name="toy", title="another", source="here", drafter=None))
    assert "toy" not in methods()
