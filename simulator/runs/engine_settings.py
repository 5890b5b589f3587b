"""What the serving-engine preset, the scenario, the method and the memory make of one engine's settings."""

from __future__ import annotations

from simulator.engines.preset import Preset
from simulator.memory.gpu_memory import GpuMemory
from simulator.runs.setup import Setup
from simulator.scenario import GoodputPolicy, Scenario, Variant
from simulator.scheduling import Rule
from simulator.speculation import Method
from simulator.speculation.shape import CHAIN
from simulator.step.build import UNLIMITED_BLOCKS
from simulator.step.settings import EngineSettings
from simulator.step.state import NEVER
from simulator.units import NS_PER_S, seconds_to_ns


def engine_settings(
    scenario: Scenario,
    variant: Variant | None,
    method: Method | None,
    setup: Setup,
    memory: GpuMemory,
    rule: Rule,
) -> EngineSettings:
    """Return the settings of one engine; `variant` and `method` are None for plain decoding.

    A preset describes one data-parallel group of attention. The engine is all groups together, so its limits
    are theirs times `groups`, and its host time per sequence a share of theirs.
    """
    preset, workload, mechanisms = setup.preset, scenario.workload, scenario.run.mechanisms
    groups, host = scenario.hardware.attention_dp, setup.preset.host
    max_num_seqs = _max_num_seqs(preset, memory, groups, kv_limit=mechanisms.kv_limit)
    shape = method.shape if method is not None else CHAIN
    nodes = shape.nodes(variant.max_draft_length) if variant is not None else 0
    has_drafter = method is not None and method.drafter is not None
    drafts = has_drafter or nodes > 0  # a variant that never drafts is plain decoding
    host_lookup = drafts and method is not None and method.looks_up_on_host(preset.drafts_asynchronously)
    runs_ahead = (preset.drafts_asynchronously and not host_lookup) if drafts else preset.asynchronous
    think_time_s = workload.arrivals.think_time_s if workload.arrivals.kind == "closed" else 0.0
    return EngineSettings(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=preset.max_num_batched_tokens * groups,
        block_tokens=preset.block_tokens,
        total_blocks=memory.kv_blocks if mechanisms.kv_limit else UNLIMITED_BLOCKS,
        max_context_tokens=setup.max_context_tokens,
        prefix_caching=scenario.engine.prefix_caching,
        keys_after_results=preset.keys_after_results,
        reserved_output=preset.reserved_output,
        asynchronous=runs_ahead,
        emits_before_drafting=preset.emits_before_drafting,
        mixes_prefill=rule.mixes_prefill,
        chunked_prefill=scenario.engine.chunked_prefill,
        stop_is_foreseen=workload.ends == "max_tokens",
        think_time_ns=seconds_to_ns(think_time_s),
        timeout_ns=NEVER if workload.timeout_s is None else seconds_to_ns(workload.timeout_s),
        draft_length_by_batch=tuple(map(shape.nodes, _draft_length_by_batch(variant, max_num_seqs))),
        policy_lengths=_policy_lengths(variant),
        shape=shape,
        lookahead_tokens=method.lookahead_tokens(nodes, preset.draft_row_sets) if method is not None else 0,
        slots_per_request=method.budget_slots(nodes) if method is not None else 0,
        padded_drafts=shape.nodes(_padded_drafts(variant, preset)),
        ragged=host_lookup and not preset.pads_lookups,
        loses_last_match=method is not None and method.loses_last_match,
        has_drafter=has_drafter,
        drafter_has_kv=has_drafter and method is not None and method.drafter_has_kv,
        first_pass_reads_tokens=method is not None and method.first_pass_reads_tokens,
        drafter_max_context=_drafter_max_context(variant, setup),
        host_step_ns=host.step_s * NS_PER_S,
        host_per_sequence_ns=host.per_sequence_s / groups * NS_PER_S,
        hidden_step_ns=host.hidden_step_s * NS_PER_S,
        hidden_per_sequence_ns=host.hidden_per_sequence_s / groups * NS_PER_S,
        draft_step_ns=host.draft_step_s * NS_PER_S,
        draft_pass_ns=host.draft_pass_s * NS_PER_S,
        lookup_step_ns=host.lookup_step_s * NS_PER_S if host_lookup else 0.0,
        lookup_per_sequence_ns=host.lookup_per_sequence_s / groups * NS_PER_S if host_lookup else 0.0,
        request_latency_ns=seconds_to_ns(host.request_latency_s),
        request_ns=seconds_to_ns(host.request_s),
        prompt_token_ns=host.prompt_token_s * NS_PER_S,
        graph_sizes=tuple(tokens * groups for tokens in preset.graph_grid(nodes + 1)),
        full_graphs=preset.full_graphs,
        graphs_of_every_length=preset.graphs_of_every_length or bool(_policy_lengths(variant)),
        piecewise_graphs=preset.piecewise_graphs,
        graph_padding=mechanisms.graph_padding,
        prefill=mechanisms.prefill,
        stop_trim=mechanisms.stop_trim,
        ghost_rows=mechanisms.ghost_rows,
        context_growth=mechanisms.context_growth,
        host_overlap=mechanisms.host_overlap,
    )


def _max_num_seqs(preset: Preset, memory: GpuMemory, groups: int, *, kv_limit: bool) -> int:
    """Return the limit of running requests of all groups; memory for recurrent states may lower it.

    At least 1: a variant without memory for a single state is not run, but it is priced.
    """
    max_num_seqs = preset.max_num_seqs * groups
    if kv_limit and memory.state_request_limit is not None:
        return min(max_num_seqs, max(memory.state_request_limit, 1))
    return max_num_seqs


def _draft_length_by_batch(variant: Variant | None, max_num_seqs: int) -> tuple[int, ...]:
    """Return K by the number of requests of a step, up to `max_num_seqs`; the last one holds beyond.

    Gaps of a table, and what lies beyond its last row, carry the K before them on (vLLM 0.32,
    `v1/spec_decode/dynamic/utils.py` `build_dynamic_sd_schedule_lookup`).
    """
    if variant is None:
        return (0,)
    length = variant.draft_length
    if isinstance(length, int) and variant.policy is not None:
        return variant.policy.policy(length).first_lengths(max_num_seqs)
    if isinstance(length, int):
        return (length,)
    if isinstance(length, GoodputPolicy):
        return (length.max,)
    table = [0] * (max_num_seqs + 1)
    for low, _, tokens in length:  # in ascending order: the next row overwrites what this one carries on
        table[low:] = [tokens] * len(table[low:])
    table[0] = table[min(1, max_num_seqs)]
    return tuple(table)


def _policy_lengths(variant: Variant | None) -> tuple[int, ...]:
    """Return the draft lengths that a policy may choose. An engine with one has graphs for each of them
    (SGLang `adaptive_runtime_state.py`).
    """
    if variant is None or variant.policy is None:
        return ()
    return variant.policy.policy(variant.chain_length).draft_lengths


def _padded_drafts(variant: Variant | None, preset: Preset) -> int:
    """Return the rows that fill up a first decode: K where it is the same for all batches."""
    fixed = variant is not None and variant.has_fixed_length
    return variant.max_draft_length if variant is not None and fixed and preset.pads_first_decode else 0


def _drafter_max_context(variant: Variant | None, setup: Setup) -> int:
    """Return the context beyond which a request does not draft: the scenario's limit, else what the drafter
    was trained for, where the engine stops there.
    """
    limit = variant.max_context_tokens if variant is not None else None
    if limit is None and setup.preset.stops_at_drafter_limit:
        limit = setup.drafter_max_context_tokens
    return NEVER if limit is None else limit
