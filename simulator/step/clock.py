"""The clock of an engine (docs/step.md §5): what it decides next, when, and what each decision leads to.

An engine decides one thing at a time: which requests run (SCHEDULE), that the scheduled step starts (START),
what the results of the running step change (UPDATE). Between two decisions nothing happens in it. So every
run is a sequence of decisions: many of them in one leap, or one at a time while SimPy's processes wait for
the stages between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.numerics.compiled import compiled, pointer
from simulator.step.clients import patience_ends_ns
from simulator.step.price import price
from simulator.step.queues import next_event_ns, schedule_arrival
from simulator.step.schedule import schedule
from simulator.step.state import NEVER, NO_STEP, PLAN, PRICED, SCHEDULE, START, UPDATE, WAIT
from simulator.step.update import update
from simulator.step.views import (
    Engine,
    clients_of,
    clocks_of,
    item,
    plan_at,
    request_at,
    stage_ends_of,
    stages_of,
)


def _priced_view() -> Any:
    from numba import carray  # type: ignore[attr-defined]

    plan_bytes, offset, count = PLAN.itemsize, PLAN.fields[PRICED[0]][1], len(PRICED)  # type: ignore[index]

    @compiled(inline=True)
    def priced_of(e: Engine, slot: int) -> Any:
        return carray(pointer(e["plans_at"] + slot * plan_bytes + offset), count, np.int64)

    return priced_of


priced_of = _priced_view()
"""The durations `PRICED` of the plan in a slot, in ns."""


@compiled(inline=True)
def order_of(when_ns: int, results: bool) -> int:
    """Return where a decision stands in time, as a number: at one instant results come before all others.

    Below `NEVER`, so that it can be doubled and one more still fits into 64 bits.
    """
    return 2 * min(when_ns, NEVER - 2) + (not results)


@compiled()
def _queue_up(e: Engine, slot: int, start_ns: int) -> None:
    """Let the stages of a step queue for their resources, each of which has a clock, and note their ends."""
    durations_ns, clocks, ends_ns = priced_of(e, slot), clocks_of(e), stage_ends_of(e)
    for index in range(e.stage_count):
        stage = item(stages_of(e), index)
        end_ns = max(start_ns, item(clocks, stage.resource))
        if stage.after >= 0:
            end_ns = max(end_ns, item(ends_ns, stage.after))
        if stage.price >= 0:
            end_ns += item(durations_ns, stage.price)
        ends_ns[np.uint64(index)] = end_ns
        clocks[np.uint64(stage.resource)] = end_ns


@compiled(inline=True)
def _start(e: Engine, slot: int, start_ns: int) -> tuple[int, int]:
    """Start the step in `slot`: price it, and let its stages begin; return when its results leave, and when
    the next step may start.
    """
    price(e, slot, start_ns)
    if e.stages_queue:
        _queue_up(e, slot, start_ns)
        return item(stage_ends_of(e), e.results_after), item(stage_ends_of(e), e.next_step_after)
    p = plan_at(e, slot)
    accepted_ns = start_ns + p.host_ns + p.verify_ns + p.accept_ns
    drafted_ns = accepted_ns + p.draft_ns
    return accepted_ns if e.emits_before_drafting else drafted_ns, drafted_ns


@compiled()
def advance(e: Engine, before: int, decisions: int) -> int:
    """Let the engine make at most `decisions` decisions while the next one is due `before` (an `order_of`);
    return when requests ended whose clients are outside, -1 where none did.

    The engine then still makes what it decides at that very instant with results, so that no client acts
    before a result. The decisions of a step follow one another here, so that a leap goes straight through.
    """
    clients, reports_ends = clients_of(e)[0], not e.binds_clients
    updates_before_ns, decides_before_ns = (before + 1) // 2, before // 2
    # What is due next stays in local variables: written to memory and read again, it costs a small step 15 %.
    phase, due_ns, slot, ahead, next_step_ns = e.phase, e.due_ns, e.slot, e.ahead, e.next_step_ns
    ended_ns = -1
    while decisions > 0:
        if phase < START:
            if due_ns >= decides_before_ns:
                break
            if schedule(e, slot, due_ns, NO_STEP, 0) > 0:
                phase, due_ns = START, due_ns + plan_at(e, slot).hidden_ns
            elif plan_at(e, slot).preempted:
                # A lone request that outgrew the memory is admitted anew at this very instant.
                phase = SCHEDULE
            else:
                phase, due_ns = WAIT, next_event_ns(e)
            decisions -= 1
        if phase == START and decisions > 0:
            if due_ns >= decides_before_ns:
                break
            results_ns, next_step_ns = _start(e, slot, due_ns)
            if e.asynchronous:
                p = plan_at(e, slot)
                ahead = schedule(e, 1 - slot, due_ns, p.number, p.draft_length)
            phase, due_ns = UPDATE, results_ns
            decisions -= 1
        if phase == UPDATE and decisions > 0:
            if due_ns >= updates_before_ns:
                break
            update(e, slot, due_ns)
            if reports_ends and clients.ended_count > 0:
                ended_ns = due_ns
                updates_before_ns, decides_before_ns = due_ns + 1, due_ns
            phase, due_ns = SCHEDULE, max(next_step_ns, due_ns)
            if ahead > 0:
                slot, ahead = 1 - slot, 0
                p = plan_at(e, slot)
                phase, due_ns = START, max(due_ns, p.scheduled_ns + p.hidden_ns)
            decisions -= 1
    e.phase, e.due_ns, e.slot, e.ahead, e.next_step_ns = phase, due_ns, slot, ahead, next_step_ns
    return ended_ns


@compiled(inline=True)
def deliver(e: Engine, r: int, now_ns: int) -> int:
    """Hand over request `r`, which arrives at `now_ns`; return until when its client waits at most.

    That is `now_ns` itself when the request can never run: it is rejected as it arrives.
    """
    schedule_arrival(e, r, now_ns)
    if e.phase == WAIT:
        e.due_ns = min(e.due_ns, now_ns)
    return now_ns if request_at(e, r).cannot_run else patience_ends_ns(e, r)
