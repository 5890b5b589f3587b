"""The clock of an engine (docs/step.md §5): what it decides next, when, and what each decision leads to.

An engine decides one thing at a time: which requests run (SCHEDULE), that the scheduled step starts (START),
what the results of the running step change (UPDATE). Nothing happens in it between two decisions. So every
run is a sequence of calls of `decide`: many of them in one leap, or one at a time while SimPy's processes
wait for the stages between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.numerics.compiled import compiled, pointer
from simulator.step.clients import patience_ends_ns
from simulator.step.price import price
from simulator.step.queues import next_event_ns, schedule_arrival
from simulator.step.schedule import schedule
from simulator.step.state import NO_STEP, PLAN, PRICED, SCHEDULE, START, UPDATE, WAIT
from simulator.step.update import update
from simulator.step.views import Engine, clocks_of, item, plan_at, request_at, stage_ends_of, stages_of


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
def _occupy(e: Engine, slot: int, start_ns: int) -> None:
    """Let the stages of the step in `slot`, which starts at `start_ns`, queue for their resources."""
    durations_ns, ends_ns = priced_of(e, slot), stage_ends_of(e)
    first = slot * e.stage_count
    end_ns = start_ns
    for index in range(e.stage_count):
        stage = item(stages_of(e), index)
        if stage.after != index - 1:  # otherwise it follows the stage before, whose end is at hand
            end_ns = item(ends_ns, first + stage.after) if stage.after >= 0 else start_ns
        if stage.queues:
            end_ns = max(end_ns, item(clocks_of(e), stage.resource))
        if stage.price >= 0:
            end_ns += item(durations_ns, stage.price)
        if stage.queues:
            clocks_of(e)[np.uint64(stage.resource)] = end_ns
        ends_ns[np.uint64(first + index)] = end_ns


@compiled(inline=True)
def _end_of(e: Engine, stage: int) -> int:
    """Return when a stage of the running step ends."""
    return item(stage_ends_of(e), e.slot * e.stage_count + stage)


@compiled(inline=True)
def decide(e: Engine, now_ns: int) -> None:
    """Let the engine decide at `now_ns` what is due, and note what it decides next and when."""
    if e.phase == UPDATE:
        next_step_ns = max(_end_of(e, e.next_step_after), now_ns)
        update(e, e.slot, now_ns)
        if e.ahead:
            e.slot = 1 - e.slot
            p = plan_at(e, e.slot)
            e.phase = START
            e.due_ns = max(next_step_ns, p.scheduled_ns + p.hidden_ns)
        else:
            e.phase = SCHEDULE
            e.due_ns = next_step_ns
        return
    starts = e.phase == START
    slot, in_flight_step, in_flight_draft_length = e.slot, NO_STEP, 0
    if starts:
        price(e, slot, now_ns)
        _occupy(e, slot, now_ns)
        e.phase = UPDATE
        e.due_ns = _end_of(e, e.results_after)
        e.ahead = 0
        if not e.asynchronous:
            return
        p = plan_at(e, slot)
        slot, in_flight_step, in_flight_draft_length = 1 - slot, p.number, p.draft_length
    entries = schedule(e, slot, now_ns, in_flight_step, in_flight_draft_length)
    if starts:
        e.ahead = entries > 0
    elif entries > 0:
        e.phase = START
        e.due_ns = now_ns + plan_at(e, slot).hidden_ns
    elif plan_at(e, slot).preempted:
        e.phase = SCHEDULE  # a lone request that outgrew the memory is admitted anew at this very instant
    else:
        e.phase = WAIT
        e.due_ns = next_event_ns(e)


@compiled(inline=True)
def deliver(e: Engine, r: int, now_ns: int) -> int:
    """Hand over request `r`, which arrives at `now_ns`; return until when its client waits at most.

    That is `now_ns` itself when the request can never run: it is rejected as it arrives.
    """
    schedule_arrival(e, r, now_ns)
    if e.phase == WAIT:
        e.due_ns = min(e.due_ns, now_ns)
    return now_ns if request_at(e, r).cannot_run else patience_ends_ns(e, r)
