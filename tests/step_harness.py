"""One random scenario of `tests/scenarios.py`, run by the step under either driver, in the oracle's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from simulator.acceptance import GATED, TABLE, AcceptanceTables
from simulator.costs.prices import PRICE_COUNT, Prices
from simulator.drivers.pipeline import Simulation, TimelineStage
from simulator.numerics.random_numbers import draw
from simulator.results.record import record_of
from simulator.speculation.shape import Chain, DraftShape, ParallelChain
from simulator.speculation.tree_shape import TreeShape
from simulator.step.build import new_state
from simulator.step.settings import EngineSettings
from simulator.step.state import (
    CANCELLED,
    DONE,
    NEVER,
    REJECTED,
    TIMED_OUT,
    State,
)
from simulator.traffic.workload import Requests
from simulator.trees import DraftTree

Record = dict[str, Any]
STATUS = {DONE: "done", CANCELLED: "cancelled", TIMED_OUT: "timed_out", REJECTED: "rejected"}
SCALARS = (
    "prefill_pair_ns prefill_window_pair_ns window_tokens prefill_start_ns draft_prefill_pair_ns "
    "draft_prefill_start_ns launch_full_ns launch_piecewise_ns launch_eager_ns draft_launch_ns "
    "prefill_token_ns draft_prefill_token_ns launching_eager_ns sample_sequence_ns "
    "draft_launching_ns"
).split()
REQUEST_FIELDS = {
    "admitted_ns": "admitted_ns",
    "first_ns": "first_ns",
    "last_ns": "last_ns",
    "ended_ns": "ended_ns",
    "max_itl_ns": "max_itl_ns",
    "emitted_tokens": "emitted",
    "drafted_tokens": "drafted",
    "accepted_tokens": "accepted",
    "draft_rounds": "draft_rounds",
    "decode_rounds": "decode_rounds",
    "preemptions": "preemptions",
}
COUNTERS = (
    "steps ghost_rows trimmed_tokens cut_drafts preemptions eager_steps piecewise_steps full_steps "
    "mixed_steps prefix_hit_tokens "
    "host_ns hidden_ns verify_ns accept_ns draft_ns"
).split()


def settings_of(engine: Record) -> EngineSettings:
    """The engine of a scenario as the step's settings."""
    host, mechanisms = engine["host"], engine["mechanisms"]
    plain = max(engine["draft_length_by_batch"]) == 0
    return EngineSettings(
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        block_tokens=engine["block_tokens"],
        total_blocks=engine["total_blocks"],
        draft_length_by_batch=tuple(engine["draft_length_by_batch"]),
        max_context_tokens=engine["max_context_tokens"],
        prefix_caching=engine["prefix_caching"],
        keys_after_results=engine["keys_after_results"],
        loses_last_match=engine["loses_last_match"],
        padded_drafts=engine["padded_drafts"],
        asynchronous=engine["asynchronous"],
        emits_before_drafting=engine["emits_before_drafting"],
        mixes_prefill=engine["mixes_prefill"],
        chunked_prefill=engine["chunked_prefill"],
        reserved_output=engine["reserved_output"],
        stop_is_foreseen=engine["stop_is_foreseen"],
        think_time_ns=engine["think_time_ns"],
        timeout_ns=NEVER if engine["timeout_ns"] is None else engine["timeout_ns"],
        lookahead_tokens=engine["lookahead_tokens"],
        slots_per_request=engine["slots_per_request"],
        ragged=engine["ragged"],
        has_drafter=engine["serial_passes"] != 0 and not plain,
        drafter_has_kv=engine["drafter_has_kv"],
        shape=engine.get("shape") or shape_of(engine),
        first_pass_reads_tokens="tokens" in engine["first_pass_rows"],
        drafter_max_context=NEVER
        if engine["drafter_max_context_tokens"] is None
        else engine["drafter_max_context_tokens"],
        host_step_ns=host["step_ns"],
        host_per_sequence_ns=host["per_sequence_ns"],
        draft_pass_ns=host["draft_pass_ns"],
        draft_step_ns=host["draft_step_ns"],
        hidden_step_ns=host["hidden_step_ns"],
        hidden_per_sequence_ns=host["hidden_per_sequence_ns"],
        request_latency_ns=host["request_latency_ns"],
        request_ns=host["request_ns"],
        prompt_token_ns=host["prompt_token_ns"],
        graph_sizes=tuple(engine["graph_sizes"]),
        graphs_of_every_length=engine["graphs_of_every_length"],
        **{name: mechanisms[name] for name in mechanisms},
    )


def shape_of(engine: Record) -> DraftShape:
    """How the drafts of a scenario hang together."""
    own_rows = int("requests" in engine["first_pass_rows"])
    serial = engine["serial_passes"] != 1
    if "parents" in engine:
        return TreeShape(serial, own_rows, DraftTree(tuple(engine["parents"])))
    if "drafts" in engine["first_pass_rows"]:
        return ParallelChain()
    return Chain(serial, own_rows)


def prices_of(prices: Record) -> Prices:
    """The price tables of a scenario."""
    scalars = np.zeros(PRICE_COUNT)
    scalars[: len(SCALARS)] = [prices[name] for name in SCALARS]
    knots = {name: np.array(prices[name], np.int64) for name in ("batch_knots", "context_knots")}
    knots["query_knots"] = np.array(prices.get("query_knots") or range(1, len(prices["attention"]) + 1))
    if len(knots["batch_knots"]) < 2:
        raise AssertionError("a scenario needs two batch knots")
    tables = {
        name: np.ascontiguousarray(prices[name], dtype=np.float64)
        for name in Prices._fields
        if name != "scalars" and not name.endswith("_knots")
    }
    return Prices(scalars=scalars, **knots, **tables)


def acceptance_of(acceptance: Record, requests: int) -> AcceptanceTables:
    """The acceptance of a scenario: no effects, no traces."""
    return AcceptanceTables(
        kind=GATED if acceptance["kind"] == "gated" else TABLE,
        conditional=np.array(acceptance["conditional"])[:, None, :].copy(),
        request_effect=np.zeros(requests),
        effect_low=0.0,
        effect_bins_per_unit=0.0,
        drift_sd=0.0,
        drift_correlation=0.0,
        normal_quantiles=np.zeros(1024),
        drafts=np.array(acceptance["drafts"]),
        match_by_request=False,
        match_after_miss=np.array(acceptance["match_after_miss"]),
        match_after_match=np.array(acceptance["match_after_match"]),
        match_drafts=np.array(acceptance.get("match_drafts", [[]] * len(acceptance["drafts"])), np.int64),
        trace_lengths=np.zeros(0, np.int64),
        trace_start=np.zeros(1, np.int64),
        matched_before=np.zeros(requests, np.bool_),
    )


def requests_of(requests: list[Record], prefix_block_tokens: int) -> Requests:
    """The requests of a scenario as columns."""
    names = [request["prefix_ids"] for request in requests]
    n = len(requests)

    def column(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([request[name] for request in requests], np.int64)

    return Requests(
        arrival_ns=column("arrival_ns"),
        prompt_tokens=column("prompt_tokens"),
        output_tokens=column("output_tokens"),
        traffic_class=column("traffic_class").astype(np.int32),
        successor=np.full(n, -1),
        successor_delay_ns=np.zeros(n, np.int64),
        cancel_after_tokens=column("cancel_after_tokens"),
        prefix_start=np.cumsum([0, *map(len, names)]),
        prefix_ids=np.array([name for path in names for name in path], np.int64),
        prefix_block_tokens=prefix_block_tokens,
        session=np.full(n, -1),
    )


def random_key(seed: int) -> Callable[[int, int, int], float]:
    """The step's own uniforms, for the oracle."""
    return lambda request, stream, position: draw(seed, request, stream, position)


def state_of(
    scenario: Record,
    measured: tuple[int, int] | None = None,
    binds_clients: bool = True,
    **settings: Any,
) -> State:
    """An engine at time 0, with changes to its settings; `measured` and `binds_clients` as in `new_state`."""
    requests = requests_of(scenario["requests"], scenario["engine"]["prefix_block_tokens"])
    state = new_state(
        replace(settings_of(scenario["engine"]), **settings),
        prices_of(scenario["prices"]),
        acceptance_of(scenario["acceptance"], len(requests.arrival_ns)),
        requests,
        scenario["seed"],
        measured,
        binds_clients=binds_clients,
    )
    for request, record in zip(scenario["requests"], state.requests, strict=True):
        record["draft_length"] = request.get("draft_length", record["draft_length"])
    return state


def run_fast(scenario: Record, measured: tuple[int, int] | None = None, **settings: Any) -> State:
    """The scenario in one leap, with the clients as data of the engine."""
    state = state_of(scenario, measured, **settings)
    Simulation([state]).run()
    return state


def run_leaping(scenario: Record, **settings: Any) -> State:
    """The scenario in many leaps, with the clients as processes."""
    state = state_of(scenario, binds_clients=False, **settings)
    Simulation([state], lambda request, outstanding: 0).run()
    return state


def run_pipeline(scenario: Record, timeline: list[TimelineStage] | None = None, **settings: Any) -> State:
    """The scenario stage by stage."""
    state = state_of(scenario, binds_clients=False, **settings)
    Simulation([state], lambda request, outstanding: 0, stage_by_stage=True, timeline=timeline).run()
    return state


def outcome(state: State) -> Record:
    """What became of every request, and the counters, in the oracle's words."""
    requests = [
        {name: int(request[field]) for name, field in REQUEST_FIELDS.items()}
        | {"status": STATUS.get(int(request["status"]), "unfinished")}
        for request in state.requests
    ]
    totals = record_of([state], (0, 0), "", None).totals
    return {"requests": requests, "counters": {name: totals[name] for name in COUNTERS}}
