"""Schedule: which requests run in the next step, with how many tokens each (docs/step.md §3).

The scheduler of vLLM V1 (`v1/core/sched/scheduler.py`): running requests first, then waiting ones, one token
budget, no separate phases. SGLang's rule, prefill first and alone, is a second order of the same two passes.
"""

from __future__ import annotations

from simulator.numerics.compiled import compiled
from simulator.step.acceptance_sampling import accepted_drafts
from simulator.step.blocks import (
    available_blocks,
    give_keys,
    hold_matched,
    prefix_hit,
    release_blocks,
    take_blocks,
)
from simulator.step.queues import bring_up_to, pop_waiting, push_waiting_head
from simulator.step.state import NO_STEP, RUNNING, WAITING
from simulator.step.views import (
    Engine,
    class_drafts_of,
    draft_length_by_batch_of,
    entry_at,
    plan_at,
    request_at,
    running_of,
    totals_of,
    waiting_of,
)

ALL, PREFILLS, DECODES = range(3)
"""Which of the running requests a pass over them schedules."""


@compiled(inline=True)
def may_draft(e: Engine, r: int) -> bool:
    """Return whether request `r` may draft: its class does, and its context is within the drafter's limit."""
    q = request_at(e, r)
    return class_drafts_of(e)[q.traffic_class] == 1 and q.prompt + q.emitted <= e.drafter_max_context


@compiled()
def _preempt_last(e: Engine) -> int:
    """Preempt the newest running request and return it: its blocks are freed, its tokens stay, and it waits
    at the head of the queue.
    """
    e.running_count -= 1
    r = running_of(e)[e.running_count]
    q = request_at(e, r)
    release_blocks(e, r, True)
    q.computed = 0
    q.drafts = 0
    q.status = WAITING
    # An entry of the step that runs now still emits its tokens, but their KV is gone: `update` must know.
    q.preempted_step = e.in_flight_step
    q.preemptions += 1
    totals_of(e)[0].preemptions += 1
    push_waiting_head(e, r)
    return r


@compiled(inline=True)
def _add_entry(
    e: Engine, slot: int, r: int, tokens: int, drafts: int, decodes: bool, known_tokens: int, padded: bool
) -> None:
    """Write one entry. `known_tokens`: tokens of the request that are known once the running step ends.
    `padded`: its drafts only fill it up.
    """
    p = plan_at(e, slot)
    q = request_at(e, r)
    entry = entry_at(e, slot, p.entries)
    samples = q.computed + tokens >= known_tokens
    entry.request = r
    entry.tokens = tokens
    entry.drafts = drafts
    entry.decodes = decodes
    entry.samples = samples
    entry.start = q.computed
    entry.padded = padded
    # The next step may be scheduled while this one runs, so the request itself remembers its newest entry.
    q.computed += tokens
    q.last_step = p.number
    q.in_flight_drafts = drafts
    q.in_flight_samples = samples
    # Blocks get their keys as they are scheduled, so that the next request of this very step finds them.
    # What is not known yet, drafts and tokens of the running step, has none.
    if not e.keys_after_results:
        give_keys(e, r, min(q.computed, q.prompt + q.emitted))
    # The sums that `price` needs and that no later event changes: they save it a pass over the entries.
    p.entries += 1
    p.tokens += tokens
    p.samples += samples
    if decodes:
        p.decodes += 1
        p.decode_tokens += tokens
        if p.decodes == 1:
            p.uniform = tokens
        elif p.uniform != tokens:
            p.uniform = 0
    if may_draft(e, r):
        p.drafters += 1
        p.drafting_samples += samples


@compiled(inline=True)
def _running_pass(e: Engine, slot: int, which: int) -> None:
    """Give running requests, in order of admission, their tokens."""
    p = plan_at(e, slot)
    index = 0
    while index < e.running_count:  # a preemption shortens the list from its end while the pass goes on
        r = running_of(e)[index]
        index += 1
        q = request_at(e, r)
        drafts = q.drafts
        pending_tokens = 0
        if q.last_step == e.in_flight_step:
            # The result of the running step is not known yet. An asynchronous engine schedules as if all
            # drafts were accepted and the full number of new ones came; `update` takes the difference back.
            drafts = 0
            if q.in_flight_samples:
                pending_tokens = 1 + q.in_flight_drafts
                if may_draft(e, r):
                    drafts = min(q.draft_length, e.in_flight_draft_length)
                if e.stop_is_foreseen and not q.cancelled and q.emitted + 1 >= q.output:
                    continue
                if not e.ghost_rows and q.emitted + 1 + accepted_drafts(e, r, q.in_flight_drafts) >= q.output:
                    continue
        known_tokens = q.prompt + q.emitted + pending_tokens
        missing_tokens = known_tokens - q.computed
        # Where prefill goes apart, a prompt of which one token is left still prefills.
        decodes = missing_tokens == 1 if which == ALL else q.in_flight_samples != 0
        if (which == PREFILLS and decodes) or (which == DECODES and not decodes):
            continue
        if missing_tokens + drafts <= 0:
            continue
        slots_used = p.tokens + e.slots_per_request * (p.entries + 1)
        tokens = min(missing_tokens + drafts, e.max_num_batched_tokens - max(p.tokens, slots_used))
        tokens = min(tokens, e.max_context_tokens - 1 - q.computed)  # room for the token that comes out
        if tokens <= 0 or (tokens < missing_tokens and not e.chunked_prefill):
            continue
        scheduled_drafts = max(0, tokens - missing_tokens)
        slots_needed = min(q.computed + tokens + e.lookahead_tokens, e.max_context_tokens)
        if slots_needed > q.capacity:
            need = (slots_needed + e.block_tokens - 1) // e.block_tokens - q.capacity // e.block_tokens
            preempted_itself = False
            while need > available_blocks(e):
                p.preempted = 1
                if _preempt_last(e) == r:
                    preempted_itself = True
                    break
            if preempted_itself:
                break  # it was the last running request
            take_blocks(e, need)
            q.capacity += need * e.block_tokens
        totals_of(e)[0].cut_drafts += drafts - scheduled_drafts
        p.prefills_on |= not q.in_flight_samples  # its newest entry did not reach the end of its prompt
        _add_entry(e, slot, r, tokens, scheduled_drafts, decodes, known_tokens, False)


@compiled(inline=True)
def _pads(e: Engine, slot: int, computed: int) -> bool:
    """Return whether the one token that a request lacks at its admission is filled up to the rows of a
    decode, which keeps the step uniform; `computed` tokens of it are in memory.
    """
    p = plan_at(e, slot)
    joins = p.running_entries > 0 or computed > 0
    fits = computed + e.padded_drafts + 2 <= e.max_context_tokens
    return e.padded_drafts > 0 and joins and fits and not p.prefills_on


@compiled()
def _admit_first(e: Engine, slot: int) -> bool:
    """Admit the first waiting request if tokens and blocks allow; return whether it was admitted."""
    p = plan_at(e, slot)
    r = waiting_of(e)[e.waiting_head]
    q = request_at(e, r)
    # Preempted while its last entry still runs: what it has to recompute is known only after the result.
    if q.last_step == e.in_flight_step and e.in_flight_step != NO_STEP:
        return False
    known_tokens = q.prompt + q.emitted
    computed, matched, unheld = prefix_hit(e, r)
    missing_tokens = known_tokens - computed
    slots_used = p.tokens + e.slots_per_request * (p.entries + 1)
    room = e.max_num_batched_tokens - max(p.tokens, slots_used)
    tokens, drafts = min(missing_tokens, room), 0
    if missing_tokens == 1 and _pads(e, slot, computed):
        tokens, drafts = 1 + e.padded_drafts, e.padded_drafts
    if tokens <= 0 or tokens > room or (tokens < missing_tokens and not e.chunked_prefill):
        return False
    held = matched * (e.cache_block_tokens // e.block_tokens)
    # Matched blocks that no request holds count as available, but this request is about to hold them.
    available = available_blocks(e) - unheld
    slots_needed = min(computed + tokens + e.lookahead_tokens, e.max_context_tokens)
    need = (slots_needed + e.block_tokens - 1) // e.block_tokens - held
    prompt_blocks = (known_tokens + e.block_tokens - 1) // e.block_tokens
    if max(need, prompt_blocks - held) > available:
        return False
    if e.reserved_output > 0:
        end = q.prompt + max(q.emitted, int(e.reserved_output * q.output)) + e.lookahead_tokens
        reservation = (end + e.block_tokens - 1) // e.block_tokens - held
        if e.reserved_blocks + reservation > e.total_blocks:
            return False
        q.reserved = reservation
        e.reserved_blocks += reservation
    pop_waiting(e)
    hold_matched(e, r, matched)
    if need > 0:
        take_blocks(e, need)
        q.capacity += need * e.block_tokens
    q.computed = computed
    q.status = RUNNING
    totals_of(e)[0].prefix_hit_tokens += computed
    if q.admitted_ns < 0:
        q.admitted_ns = e.now_ns
    running_of(e)[e.running_count] = r
    e.running_count += 1
    _add_entry(e, slot, r, tokens, drafts, drafts > 0, known_tokens, drafts > 0)
    return True


@compiled(inline=True)
def _waiting_pass(e: Engine, slot: int) -> None:
    """Admit waiting requests, first come, first served. A step that preempted a request admits none: the
    memory that came free belongs to those who still run.
    """
    p = plan_at(e, slot)
    p.running_entries = p.entries
    while not p.preempted and e.waiting_count > 0 and e.running_count < e.max_num_seqs:
        if not _admit_first(e, slot):
            break


@compiled(inline=True)
def schedule(e: Engine, slot: int, now_ns: int, in_flight_step: int, in_flight_draft_length: int) -> int:
    """Write into `slot` what the next step runs; return how many entries it has (0: there is no step).

    `in_flight_step` is the number of the step that runs now, NO_STEP when none does; `in_flight_draft_length`
    is its K.
    """
    p = plan_at(e, slot)
    e.in_flight_step = in_flight_step
    e.in_flight_draft_length = in_flight_draft_length
    e.now_ns = now_ns
    bring_up_to(e, now_ns, 0)
    p.number = e.next_number
    p.scheduled_ns = now_ns
    p.entries = 0
    p.decodes = 0
    p.decode_tokens = 0
    p.tokens = 0
    p.samples = 0
    p.drafters = 0
    p.drafting_samples = 0
    p.prefills_on = 0
    p.uniform = 0
    p.preempted = 0
    if e.mixes_prefill:
        _running_pass(e, slot, ALL)
        _waiting_pass(e, slot)
    else:
        _running_pass(e, slot, PREFILLS)
        _waiting_pass(e, slot)
        if p.entries == 0:
            _running_pass(e, slot, DECODES)
    e.next_number += p.entries > 0
    p.draft_length = draft_length_by_batch_of(e)[p.entries]
    p.drafts = p.draft_length > 0 and p.drafting_samples > 0
    p.host_ns = int(e.host_step_ns + e.host_per_sequence_ns * p.entries + 0.5)
    p.hidden_ns = int(e.hidden_step_ns + e.hidden_per_sequence_ns * p.entries + 0.5)
    if not (e.asynchronous and e.host_overlap):  # nothing runs meanwhile that could hide it
        p.host_ns += p.hidden_ns
        p.hidden_ns = 0
    return int(p.entries)
