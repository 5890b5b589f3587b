"""The fast driver: compose, price and apply in one compiled loop,
while nothing else can act before the horizon.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.numerics.compiled import compiled
from simulator.step.price import price
from simulator.step.queues import next_event_ns
from simulator.step.schedule import schedule
from simulator.step.state import NO_STEP
from simulator.step.update import update
from simulator.step.views import plan_at


@compiled(entry=True)
def fast_forward(engine: NDArray[np.void], horizon_ns: int) -> None:
    """Run the engine until its next decision lies at or beyond `horizon_ns`,
    or nothing is left to do (docs/step.md §5).
    """
    e = engine[0]
    while e.now_ns < horizon_ns:
        if not e.ready:
            now_ns = e.now_ns
            if schedule(e, e.slot, now_ns, NO_STEP, 0) == 0:
                # a lone request that outgrew the memory is admitted anew at once
                if not plan_at(e, e.slot).preempted:
                    e.now_ns = next_event_ns(e)
                continue
            e.now_ns = now_ns + plan_at(e, e.slot).hidden_ns
            e.ready = 1
        slot, start_ns = e.slot, e.now_ns
        p = plan_at(e, slot)
        price(e, slot, start_ns)
        ahead = 0
        if e.asynchronous:
            ahead = schedule(e, 1 - slot, start_ns, p.number, p.draft_length)
        emission_ns = start_ns + p.host_ns + p.verify_ns + p.accept_ns
        end_ns = emission_ns + p.draft_ns
        update(e, slot, emission_ns if e.emits_before_drafting else end_ns)
        e.now_ns = end_ns
        e.ready = 0
        if ahead > 0:
            e.slot = 1 - slot
            e.ready = 1
            e.now_ns = max(end_ns, start_ns + plan_at(e, 1 - slot).hidden_ns)
