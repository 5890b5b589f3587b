"""Every registered scheduler rule obeys its protocol and runs end to end; a new one is a record, and where it
decides in Python a function, and touches no other file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.engines.presets import presets
from simulator.errors import InputError
from simulator.runs.variant import CompiledVariant
from simulator.scenario import defaults_used
from simulator.scheduling import EngineState, Rule, register, registered, rules, scheduler_rule
from simulator.simulation import simulate
from simulator.step.state import DONE
from tests.balance import check_memory_is_given_back
from tests.runs import (
    NO_FRONT_END,
    differences,
    drafting_variant,
    final_state,
    plain_variant,
    run,
    small_scenario,
    traffic,
)

NAMES = tuple(rules())
every_rule = pytest.mark.parametrize("name", NAMES)
BUSY: dict[str, Any] = {
    "workload.arrivals": {"kind": "poisson", "rate_per_s": 30.0},
    "workload.requests": 80,
    "workload.prompt_tokens": {"kind": "uniform", "low": 1, "high": 700},
    "workload.output_tokens": {"kind": "uniform", "low": 1, "high": 60},
    "engine.max_num_batched_tokens": 512,
}


def variant_under(name: str, speculative: bool = True, **changes: Any) -> CompiledVariant:
    scenario = small_scenario({**BUSY, "engine.scheduler": name, **changes})
    return drafting_variant(scenario) if speculative else plain_variant(scenario)


def check_rule(name: str, speculative: bool) -> None:
    """What must hold of a run under any rule: everybody is served, and books balance."""
    variant = variant_under(name, speculative)
    rule = scheduler_rule(name)
    record = run(variant)
    assert (record.status == DONE).all()
    assert (record.emitted_tokens == traffic(variant.scenario).output_tokens).all()
    assert (record.admitted_ns >= record.arrival_ns).all()
    assert record.totals["mixed_steps"] == 0 or rule.mixes_prefill
    assert (record.driver == "fast_forward") == (rule.at_step_boundary is None)
    pipeline = run(variant_under(name, speculative, **{"run.backend": "pipeline"}))
    assert differences(record, pipeline) == []
    if rule.at_step_boundary is None:
        state = final_state(variant, traffic(variant.scenario), 0)
        check_memory_is_given_back(state)
    else:
        assert name in (record.driver_reason or "")


@every_rule
def test_the_record_is_known_by_its_name(name: str) -> None:
    rule = rules()[name]
    assert rule.name == name
    assert rule.source
    assert scheduler_rule(name) is rule


@every_rule
@pytest.mark.parametrize("speculative", [False, True])
def test_everybody_is_served_under_it(name: str, speculative: bool) -> None:
    check_rule(name, speculative)


@every_rule
@pytest.mark.parametrize("preset", list(presets()))
def test_it_runs_on_every_engine(name: str, preset: str) -> None:
    record = run(variant_under(name, **{"engine.preset": preset}))
    assert (record.status == DONE).all()
    assert (record.totals["mixed_steps"] > 0) == rules()[name].mixes_prefill


@every_rule
def test_without_prompts_in_the_way_rules_agree(name: str) -> None:
    """A burst that starts together meets no rule: nobody's prompt comes while others decode."""
    prompts = {"workload.prompt_tokens": {"kind": "fixed", "tokens": 10}}
    changes = {
        **BUSY,
        **NO_FRONT_END,
        **prompts,
        "workload.arrivals": {"kind": "burst"},
        "workload.requests": 20,
    }
    by_rule = run(drafting_variant(small_scenario({**changes, "engine.scheduler": name})))
    assert differences(by_rule, run(drafting_variant(small_scenario(changes)))) == []


def test_presets_name_a_rule_and_a_scenario_may_take_another() -> None:
    for preset in presets().values():
        assert preset.scheduler in rules()
    apart = small_scenario({**BUSY, "engine.preset": "sglang-0.5"})
    assert drafting_variant(apart).rule.name == "prefill-apart"
    assert defaults_used(apart)["engine.scheduler"] == "prefill-apart"
    assert run(drafting_variant(apart)).totals["mixed_steps"] == 0
    chosen = small_scenario({**BUSY, "engine.preset": "sglang-0.5", "engine.scheduler": "mixed"})
    assert drafting_variant(chosen).rule.name == "mixed"
    assert run(drafting_variant(chosen)).totals["mixed_steps"] > 0


def shortest_prompt_first(state: EngineState, now_ns: int) -> None:
    """Order those who wait by the length of their prompts; equal ones stay as they came."""
    engine = state.engine[0]
    places = (int(engine["waiting_head"]) + np.arange(int(engine["waiting_count"]))) % len(state.waiting)
    waiting = state.waiting[places]
    state.waiting[places] = waiting[np.argsort(state.requests["prompt"][waiting], kind="stable")]


SHORTEST = Rule("shortest-first", "this test", mixes_prefill=True, at_step_boundary=shortest_prompt_first)
ALONE = Rule("prefill-alone", "this test", mixes_prefill=False)


def test_a_new_rule_that_decides_in_python() -> None:
    """One seat and a burst: requests are served by the length of their prompts,
    and the record says which driver ran and why."""
    burst = {"workload.arrivals": {"kind": "burst"}, "workload.requests": 30}
    one_seat = {**NO_FRONT_END, **burst, "engine.max_num_seqs": 1}
    with registered(SHORTEST):
        check_rule("shortest-first", speculative=True)
        variant = variant_under("shortest-first", **one_seat)
        record = run(variant)
        prompts = traffic(variant.scenario).prompt_tokens
        assert (np.argsort(record.admitted_ns) == np.argsort(prompts, kind="stable")).all()
        assert record.driver == "pipeline"
        assert (
            record.driver_reason == "the scheduler rule shortest-first decides in Python at step boundaries"
        )
        result = simulate(
            small_scenario({**BUSY, "engine.scheduler": "shortest-first", "run.replications": 2})
        )
        assert "shortest-first" in (result.provenance.backend_reason or "")
    served = run(variant_under("mixed", **one_seat))
    assert (np.argsort(served.admitted_ns) == np.arange(30)).all()


def test_a_rule_in_python_sees_everybody_who_has_arrived() -> None:
    """Also those who came while the last step ran."""
    seen: list[tuple[int, int]] = []

    def watch(state: EngineState, now_ns: int) -> None:
        here = state.requests["arrival_ns"]
        arrived = (here >= 0) & (here <= now_ns) & (state.requests["admitted_ns"] < 0)
        seen.append((int(state.engine[0]["waiting_count"]), int(arrived.sum())))

    changes = {**NO_FRONT_END, "engine.max_num_seqs": 4}
    with registered(Rule("watch", "this test", mixes_prefill=True, at_step_boundary=watch)):
        watched = run(variant_under("watch", **changes))
    assert all(waiting == arrived for waiting, arrived in seen)
    assert max(waiting for waiting, _ in seen) > 5
    assert differences(watched, run(variant_under("mixed", **changes))) == []


def test_a_rule_in_python_may_change_the_draft_length() -> None:
    def never_draft(state: EngineState, now_ns: int) -> None:
        state.draft_length_by_batch[:] = 0

    with registered(Rule("no-drafts", "this test", mixes_prefill=True, at_step_boundary=never_draft)):
        record = run(variant_under("no-drafts"))
    assert (record.status == DONE).all()
    assert record.drafted_tokens.sum() == 0


def test_a_new_rule_that_is_data_runs_in_the_compiled_loop() -> None:
    with registered(ALONE):
        check_rule("prefill-alone", speculative=True)
        record = run(variant_under("prefill-alone"))
    assert record.driver == "fast_forward"
    assert differences(record, run(variant_under("prefill-apart"))) == []


def test_a_rule_is_known_only_while_it_is_registered() -> None:
    with pytest.raises(InputError, match=r"unknown scheduler rule \(got 'shortest-first'\)"):
        variant_under("shortest-first")
    with registered(SHORTEST), pytest.raises(ValueError, match="registered already"):
        register(Rule("shortest-first", "elsewhere", mixes_prefill=True))
    assert "shortest-first" not in rules()
