"""One scenario of a serving engine's trace, run by this project's step, in the trace's words.

A trace file holds one JSON document a line: `family`, `scenario` (what was run) and `vllm` (what vLLM's own
scheduler did). A step takes `TICK_NS` of host time and no GPU time. Compared are the requests of each step
with their tokens and drafts, who is preempted, how many blocks are free, and what is emitted when.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance.base import GATED, TABLE, TRACE
from simulator.acceptance.tables import AcceptanceTables
from simulator.costs.prices import PRICE_COUNT, Prices
from simulator.step.build import new_state
from simulator.step.entry import decide
from simulator.step.settings import EngineSettings
from simulator.step.state import NEVER, State
from simulator.traffic.workload import Requests

TICK_NS = 1000
MOST_STEPS = 20_000
DRAFTERS_WITH_KV = ("draft_model", "eagle", "eagle3", "mtp")
READS_TARGET_FEATURES = ("eagle", "eagle3", "mtp")

Scenario = dict[str, Any]
Integers = NDArray[np.int64]


class StepTrace(NamedTuple):
    """What a scheduler did with a scenario."""

    steps: list[list[Any]]
    """[time, [[request, tokens, drafts], …], preempted requests, free blocks] of every step."""
    emissions: list[list[list[int]]]
    """Per request: [time, tokens] of every emission."""


def trace_of(scenario: Scenario, *, verifies_padding: bool = False) -> StepTrace:
    """Run a scenario to its end. Raises RuntimeError where it has none within `MOST_STEPS`.

    `verifies_padding`: the scripted model takes the rows that only pad a request's first decode for drafts,
    and accepts of them what the script says. Otherwise it rejects them all, as a real one does.
    """
    run = _Run(scenario, verifies_padding)
    run.to_the_end()
    return StepTrace(run.steps, run.emissions)


def draft_lengths(engine: Scenario) -> tuple[int, ...]:
    """K by the number of requests of a step, 0 to max_num_seqs. A batch-size schedule is a list of inclusive
    [first, last, K]; gaps, and what lies beyond the last, carry the previous K (vLLM 0.32).
    """
    if engine["method"] == "none":
        return (0,)
    if isinstance(engine["K"], int):
        return (engine["K"],)
    stated = {n: k for first, last, k in engine["K"] for n in range(first, last + 1)}
    lengths = [0]
    for requests in range(1, engine["max_num_seqs"] + 1):
        lengths.append(stated.get(requests, lengths[-1]))
    return (lengths[1], *lengths[1:])


def settings_of(engine: Scenario) -> EngineSettings:
    """The engine of a scenario as settings of the step."""
    lengths, method = draft_lengths(engine), engine["method"]
    has_kv = method in DRAFTERS_WITH_KV
    of_sglang = engine.get("engine") == "sglang"
    return EngineSettings(
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        block_tokens=engine["block_size"],
        total_blocks=engine["num_blocks"],
        mixes_prefill=not of_sglang,
        keys_after_results=of_sglang,
        draft_length_by_batch=lengths,
        asynchronous=engine["asynchronous"],
        chunked_prefill=engine["chunked_prefill"],
        stop_is_foreseen=engine["foreseen"],
        max_context_tokens=engine["max_model_len"],
        lookahead_tokens=max(lengths) if has_kv else 0,
        slots_per_request=int(method == "draft_model"),
        padded_drafts=max(lengths) if isinstance(engine["K"], int) else 0,
        ragged=engine["ragged"],
        has_drafter=has_kv,
        drafter_has_kv=has_kv,
        timeout_ns=engine.get("timeout") or NEVER,
        host_step_ns=TICK_NS,
        loses_last_match=method in READS_TARGET_FEATURES,
        prefix_caching=engine["prefix_caching"],
    )


def free_prices(rows: int) -> Prices:
    """Price tables in which no pass of up to `rows` rows takes time."""
    tables = {name: np.zeros(rows + 1) for name in Prices._fields}
    tables |= {"batch_knots": np.array([1, 2]), "context_knots": np.array([0, 64])}
    tables |= {"query_knots": np.array([1])}
    tables |= {"attention": np.zeros((1, 2, 2)), "draft_attention": np.zeros((1, 2, 2))}
    return Prices(**{**tables, "scalars": np.zeros(PRICE_COUNT)})


def acceptance_of(scenario: Scenario, depth: int) -> AcceptanceTables:
    """The acceptance: accepted drafts by output position, or a table of conditional probabilities where the
    scenario has one; and seeded matches of prompt lookups.
    """
    requests, drafts_on_a_miss = scenario["requests"], scenario["engine"].get("junk_on_miss", False)
    scripts = [_accepted(request, drafts_on_a_miss) for request in requests]
    count = len(scripts)
    match = np.full(count, scenario["match_probability"])
    conditional = np.array(scenario.get("conditional", [1.0] * max(1, depth)))
    sampled = GATED if scenario["engine"]["method"] == "ngram" else TABLE
    return AcceptanceTables(
        kind=sampled if "conditional" in scenario else TRACE,
        conditional=conditional.reshape(1, 1, -1),
        request_effect=np.zeros(count),
        effect_low=0.0,
        effect_bins_per_unit=0.0,
        drift_sd=0.0,
        drift_correlation=0.0,
        normal_quantiles=np.zeros(1024),
        drafts=np.array([True]),
        match_by_request=True,
        match_after_miss=match,
        match_after_match=match,
        match_drafts=np.zeros((1, 0), np.int64),
        trace_lengths=np.array([1 + accepted for script in scripts for accepted in script], np.int64),
        trace_start=np.cumsum([0, *map(len, scripts)]),
        matched_before=np.zeros(count, np.bool_),
    )


def _accepted(request: Scenario, drafts_on_a_miss: bool) -> list[int]:
    """Accepted drafts by output position. An engine that drafts without a match has all of those rejected."""
    if not drafts_on_a_miss:
        return list(request["accept"])
    return [run if hit else 0 for run, hit in zip(request["accept"], request["match"], strict=False)]


def requests_of(scenario: Scenario) -> Requests:
    """The requests of a scenario as columns; the names of their shared blocks become consecutive ids."""
    engine, requests = scenario["engine"], scenario["requests"]
    count = len(requests)
    ids: dict[int, int] = {}
    prefixes = [
        [ids.setdefault(block, len(ids)) for block in request["prefix"]] if engine["prefix_caching"] else []
        for request in requests
    ]

    def column(name: str) -> Integers:
        return np.array([request[name] for request in requests], np.int64)

    return Requests(
        arrival_ns=column("arrival"),
        prompt_tokens=column("prompt"),
        output_tokens=column("output"),
        traffic_class=np.zeros(count, np.int32),
        successor=np.full(count, -1),
        successor_delay_ns=np.zeros(count, np.int64),
        cancel_after_tokens=np.array([request.get("cancel", 0) for request in requests]),
        prefix_start=np.cumsum([0, *map(len, prefixes)]),
        prefix_ids=np.array([block for prefix in prefixes for block in prefix], np.int64),
        prefix_block_tokens=engine["block_size"] * engine.get("blocks_per_name", 1) if ids else 0,
        session=np.full(count, -1),
    )


class _Run:
    """The step on one scenario, in steps of one length, each recorded as it is scheduled and updated."""

    def __init__(self, scenario: Scenario, verifies_padding: bool) -> None:
        self.verifies_padding = verifies_padding
        settings = settings_of(scenario["engine"])
        acceptance = acceptance_of(scenario, max(settings.draft_length_by_batch))
        requests = requests_of(scenario)
        prices = free_prices(settings.max_num_batched_tokens + settings.max_num_seqs)
        self.state: State = new_state(settings, prices, acceptance, requests, scenario["seed"])
        self.steps: list[list[Any]] = []
        self.emissions: list[list[list[int]]] = [[] for _ in scenario["requests"]]

    def to_the_end(self) -> None:
        while (now_ns := int(self.state.engine["due_ns"][0])) < NEVER:
            self._decide(now_ns)
            if len(self.steps) > MOST_STEPS:
                raise RuntimeError(f"no end within {MOST_STEPS:,} steps")

    def _decide(self, now_ns: int) -> None:
        """Let the engine make its next decision and note what it changed."""
        engine, requests = self.state.engine, self.state.requests
        preemptions, emitted = requests["preemptions"].copy(), requests["emitted"].copy()
        number = int(engine["next_number"][0])
        decide(engine.ctypes.data, now_ns)
        preempted = np.flatnonzero(requests["preemptions"] > preemptions).tolist()
        newest_slot = int(engine["slot"][0]) ^ (int(engine["ahead"][0]) > 0)
        rows = self._rows(newest_slot) if engine["next_number"][0] > number else []
        if rows or preempted:
            free_blocks = int(engine["free_blocks"][0] + engine["cached_blocks"][0])
            self.steps.append([now_ns, rows, preempted, free_blocks])
        gains = requests["emitted"] - emitted
        for request in np.flatnonzero(gains).tolist():
            self.emissions[request].append([now_ns, int(gains[request])])

    def _rows(self, slot: int) -> list[list[int]]:
        """Return [request, tokens, drafts] of every entry of the step in a slot."""
        entries = self.state.entries[slot][: self.state.plans[slot]["entries"]]
        if self.verifies_padding:
            entries["padded"] = 0
        return [[int(entry[name]) for name in ("request", "tokens", "drafts")] for entry in entries]
