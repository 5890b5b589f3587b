"""Faults planted in the step, one at a time: comparing with the oracle must notice each of them.

The step runs interpreted (`tests/interpreted.py`), so that a mutant costs no compiler.
"""

from __future__ import annotations

import ast
from itertools import islice
from typing import Any

import pytest

from simulator.drivers.leap import leap
from simulator.step import (
    acceptance_sampling,
    blocks,
    clients,
    clock,
    front_end,
    price,
    queues,
    schedule,
    update,
)
from simulator.step.state import NEVER
from tests import step_harness as harness
from tests.edits import (
    Change,
    added,
    assigned,
    body,
    compared,
    one_more_than,
    only_argument,
    otherwise,
    replaced,
    without_condition,
    without_operand,
)
from tests.interpreted import Edit, interpret
from tests.property.test_step_equals_oracle import expected
from tests.scenarios import SEEDS, scenario

MUTANTS: dict[str, tuple[Any, Change]] = {
    "no KV slots ahead": (schedule._running_pass, without_operand("lookahead_tokens")),
    "drafts that do not fit are kept": (schedule._running_pass, assigned("scheduled_drafts", "drafts")),
    "the oldest request is preempted": (
        schedule._preempt_last,
        replaced("running_of(e)[e.running_count]", "running_of(e)[0]"),
    ),
    "admission goes on after a preemption": (schedule._waiting_pass, without_condition("preempted")),
    "one running request fewer": (schedule._waiting_pass, replaced("e.max_num_seqs", "e.max_num_seqs - 1")),
    "preempted requests go to the tail": (queues.push_waiting_head, body("push_waiting_tail(e, r)")),
    "rejected drafts stay computed": (update._sample, added("computed", "0")),
    "surplus of the last round leaves": (update._sample, otherwise("stop_trim")),
    "ghosts counted per request": (update.update, added("ghost_rows", "1")),
    "arrivals before results of the same instant": (
        queues.bring_up_to,
        without_operand("results_first", places=2),
    ),
    "eager one token early": (price._graph, compared("graph_cap", ast.Lt)),
    "eager launches wait for the GPU": (price._wait_for_launches, replaced("p.scheduled_ns", "start_ns")),
    "eager launches do not queue": (price._wait_for_launches, only_argument("scheduled_ns")),
    "launches of a drafter wait for the GPU": (price.price, replaced("p.verify_ns + p.accept_ns", "0")),
    "one draft pass too many": (price._price_drafts, replaced("later * alike", "later * (alike + 1)")),
    "context charged per query token": (
        price.price,
        added("context_sum", "(q.prompt + emitted - 1) * entry.tokens + entry.tokens"),
    ),
    "tokens leave after the drafts": (clock._start, replaced("e.emits_before_drafting", "False")),
    "hidden host work is not hidden": (
        clock.advance,
        replaced("p.scheduled_ns + p.hidden_ns", "due_ns + p.hidden_ns"),
    ),
    "a client waits one tick too long": (clients.patience_ends_ns, one_more_than("timeout_ns")),
    "a client does not think": (
        clients.follow_up,
        replaced("ended_ns + e.think_time_ns", "ended_ns"),
    ),
    "the front end forgets what it could not divide": (
        front_end._share_loop,
        replaced("time_ns % inside", "0"),
    ),
    "the front end parses one after another": (front_end.next_parsed_ns, without_operand("inside")),
    "prompts are tokenized at once": (front_end.hand_to_tokenizer, only_argument("now_ns")),
    "blocks get their keys a token late": (
        schedule._add_entry,
        replaced("min(q.computed, q.prompt + q.emitted)", "min(q.computed - 1, q.prompt + q.emitted)"),
    ),
    "blocks of a last step have keys": (update._sample, replaced("e.asynchronous", "1")),
    "blocks get their keys after the step": (schedule._add_entry, replaced("e.keys_after_results", "1")),
    "blocks get their keys before their results": (
        update.update,
        replaced("e.keys_after_results", "0"),
    ),
    "an output can be found while its request runs": (
        update._sample,
        replaced("q.emitted >= q.output if e.keys_after_results else e.asynchronous", "1"),
    ),
    "a prompt of which one token is left decodes": (
        schedule._running_pass,
        replaced("missing_tokens == 1 if which == ALL else q.in_flight_samples != 0", "missing_tokens == 1"),
    ),
    "a preempted request does not find its blocks": (
        schedule._preempt_last,
        replaced("release_blocks(e, r, True)", "release_blocks(e, r, False)"),
    ),
    "the first block of a request is evicted first": (
        blocks.release_blocks,
        replaced("range(q.pieces - 1, -1, -1)", "range(q.pieces)"),
    ),
    "blocks without a key are kept": (
        blocks.release_blocks,
        replaced("q.keyed_tokens // e.cache_block_tokens", "q.capacity // e.cache_block_tokens"),
    ),
    "EAGLE keeps its last match": (blocks.prefix_hit, replaced("e.loses_last_match", "0")),
    "a prompt is found but for its last token": (
        blocks.prefix_hit,
        replaced("(known_tokens - 1) // e.block_tokens * e.block_tokens", "(known_tokens - 1)"),
    ),
    "admission counts slots ahead of the whole prompt": (
        schedule._admit_first,
        replaced(
            "known_tokens + e.block_tokens - 1", "known_tokens + e.lookahead_tokens + e.block_tokens - 1"
        ),
    ),
    "rows that pad are verified": (update._sample, replaced("entry.padded", "0")),
    "a request is padded next to prefills": (schedule._pads, replaced("p.prefills_on", "0")),
    "drafts go on beyond the context": (
        schedule._running_pass,
        replaced("e.max_context_tokens - 1 - q.computed", "e.max_context_tokens - q.computed"),
    ),
    "graphs of the largest K alone": (
        price._graph,
        replaced("item(has_full_graphs_of(e), query_tokens)", "query_tokens == e.max_nodes + 1"),
    ),
    "the match is never remembered": (acceptance_sampling.prompt_lookup, replaced("_finds_match(e, r)", "0")),
    "a draft meets its neighbour's random number": (
        acceptance_sampling.accepted_drafts,
        replaced("random_bits(q.random_key, q.emitted + 1 + j)", "random_bits(q.random_key, q.emitted + j)"),
    ),
}
"""What is wrong: the function that is edited, and the edit."""


def outcome(case: dict[str, Any], edit: Edit | None) -> dict[str, Any]:
    """What becomes of a scenario under the interpreted step."""
    state = harness.state_of(case)
    interpret(leap, edit)([state.engine.ctypes.data], NEVER)
    return harness.outcome(state)


def test_the_interpreted_step_is_the_step() -> None:
    for case in map(scenario, islice(SEEDS, 32)):
        assert outcome(case, None) == harness.outcome(harness.run_fast(case)) == expected(case)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_oracle_notices(name: str) -> None:
    edit = Edit(*MUTANTS[name])
    assert any(outcome(case, edit) != expected(case) for case in map(scenario, SEEDS))
