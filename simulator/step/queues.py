"""Requests on their way in and out: arrivals, the front end, the waiting queue,
give-ups, and what follows when a request ends.
"""

from __future__ import annotations

from simulator.numerics.compiled import compiled
from simulator.step.blocks import release_blocks
from simulator.step.clients import NO_REQUEST, follow_up, patience_ends_ns
from simulator.step.front_end import enter, hand_to_tokenizer, next_entry_ns, next_join_ns, next_parsed_ns
from simulator.step.state import CANCELLED, DONE, NEVER, NOT_ARRIVED, REJECTED, RUNNING, TIMED_OUT, WAITING
from simulator.step.views import (
    Engine,
    arrived_of,
    clients_of,
    ended_of,
    followups_of,
    known_arrivals_of,
    request_at,
    running_of,
    totals_of,
    waiting_of,
)


@compiled()
def schedule_arrival(e: Engine, r: int, arrival_ns: int) -> None:
    """Enter request `r` among the follow-ups, which stay in order of (arrival, number)."""
    request_at(e, r).arrival_ns = arrival_ns
    e.quiet_until_ns = min(e.quiet_until_ns, arrival_ns)
    index = e.followup_tail
    while index > e.followup_head:
        before = followups_of(e)[index - 1]
        earlier = request_at(e, before).arrival_ns
        if earlier < arrival_ns or (earlier == arrival_ns and before < r):
            break
        followups_of(e)[index] = before
        index -= 1
    followups_of(e)[index] = r
    e.followup_tail += 1


@compiled()
def next_event_ns(e: Engine) -> int:
    """Return when the next client gives up, or a request gets on on its way to the engine's queue; NEVER when
    nothing comes.
    """
    when = min(_next_give_up_ns(e), next_join_ns(e), next_parsed_ns(e))
    return min(when, _next_arrival_ns(e), next_entry_ns(e))


@compiled()
def _next_arrival_ns(e: Engine) -> int:
    when = NEVER
    if e.known_arrival_index < len(known_arrivals_of(e)):
        when = request_at(e, known_arrivals_of(e)[e.known_arrival_index]).arrival_ns
    if e.followup_head < e.followup_tail:
        when = min(when, request_at(e, followups_of(e)[e.followup_head]).arrival_ns)
    return when


@compiled()
def _next_give_up_ns(e: Engine) -> int:
    """Return when the patience of the next client ends whose request has not."""
    if e.timeout_ns == NEVER:
        return NEVER
    while e.give_up_index < e.arrived_count:
        r = arrived_of(e)[e.give_up_index]
        if request_at(e, r).status < DONE:
            return patience_ends_ns(e, r)
        e.give_up_index += 1
    return NEVER


@compiled()
def _pop_arrival(e: Engine) -> int:
    """Take the next arrival, in order of (arrival, number)."""
    if e.known_arrival_index < len(known_arrivals_of(e)):
        r = known_arrivals_of(e)[e.known_arrival_index]
        if e.followup_head < e.followup_tail:
            other = followups_of(e)[e.followup_head]
            a, b = request_at(e, r).arrival_ns, request_at(e, other).arrival_ns
            if b < a or (b == a and other < r):
                e.followup_head += 1
                return other
        e.known_arrival_index += 1
        return r
    e.followup_head += 1
    return followups_of(e)[e.followup_head - 1]


@compiled()
def push_waiting_tail(e: Engine, r: int) -> None:
    """Append request `r` to the waiting queue."""
    size = len(waiting_of(e))
    waiting_of(e)[(e.waiting_head + e.waiting_count) % size] = r
    e.waiting_count += 1


@compiled()
def push_waiting_head(e: Engine, r: int) -> None:
    """Put request `r` before all waiting ones: where a preempted request goes."""
    e.waiting_head = (e.waiting_head - 1) % len(waiting_of(e))
    waiting_of(e)[e.waiting_head] = r
    e.waiting_count += 1


@compiled()
def pop_waiting(e: Engine) -> None:
    """Take the first waiting request out."""
    e.waiting_head = (e.waiting_head + 1) % len(waiting_of(e))
    e.waiting_count -= 1


@compiled()
def _remove_waiting(e: Engine, r: int) -> None:
    size = len(waiting_of(e))
    staying = 0
    for index in range(e.waiting_count):
        other = waiting_of(e)[(e.waiting_head + index) % size]
        if other != r:
            waiting_of(e)[(e.waiting_head + staying) % size] = other
            staying += 1
    e.waiting_count = staying


@compiled()
def remove_ended_running(e: Engine) -> None:
    """Close the gaps that ended requests left among the running ones."""
    staying = 0
    for index in range(e.running_count):
        r = running_of(e)[index]
        if request_at(e, r).status == RUNNING:
            running_of(e)[staying] = r
            staying += 1
    e.running_count = staying


@compiled()
def end_request(e: Engine, r: int, status: int, ended_ns: int) -> None:
    """End request `r`: its blocks go back, and what follows it gets an arrival, or its client is told.

    The caller takes it out of `running` (`remove_ended_running`), once for all that end together.
    """
    q = request_at(e, r)
    if q.status == WAITING:
        _remove_waiting(e, r)
    release_blocks(e, r, False)
    q.status = status
    q.ended_ns = ended_ns
    e.in_system -= 1
    if e.binds_clients:
        following, arrival_ns = follow_up(e, r, ended_ns)
        if following != NO_REQUEST:
            schedule_arrival(e, following, arrival_ns)
    elif status in (DONE, CANCELLED):  # of any other end the client has known since it happened
        clients = clients_of(e)[0]
        ended_of(e)[clients.ended_count] = r
        clients.ended_count += 1


@compiled()
def _arrive(e: Engine) -> None:
    """Let the next request arrive: it is on its way to the front end, or set aside when it can never run."""
    r = _pop_arrival(e)
    q = request_at(e, r)
    q.emitted_before_arrival = totals_of(e)[0].emitted_tokens
    q.in_system_at_arrival = e.in_system
    e.in_system += 1
    totals_of(e)[0].prompt_tokens += q.prompt
    if r == e.first_measured:
        _copy_books(e, 1)
    _copy_books(e, 2)
    if not q.cannot_run:
        q.status = WAITING
        arrived_of(e)[e.arrived_count] = r
        e.arrived_count += 1
    else:
        q.status = NOT_ARRIVED
        end_request(e, r, REJECTED, q.arrival_ns)


@compiled()
def _copy_books(e: Engine, to: int) -> None:
    """Keep what steps and stages add up to now: an edge of the window of the rates."""
    now, then = totals_of(e)[0], totals_of(e)[to]
    then.decode_steps = now.decode_steps
    then.mixed_steps = now.mixed_steps
    then.prefill_steps = now.prefill_steps
    then.host_ns = now.host_ns
    then.verify_ns = now.verify_ns
    then.accept_ns = now.accept_ns
    then.draft_ns = now.draft_ns
    then.attention_ns = now.attention_ns
    then.communication_ns = now.communication_ns


@compiled(inline=True)
def bring_up_to(e: Engine, now_ns: int, results_first: int) -> None:
    """Bring the queues to `now_ns`, in order of time: clients whose patience ended leave,
    requests arrive, pass the front end and join.

    `results_first` is 1 when results of this very instant are still to be applied:
    then what falls on the instant waits.
    """
    if now_ns - results_first >= e.quiet_until_ns:
        _bring_up_to(e, now_ns - results_first)


@compiled()
def _bring_up_to(e: Engine, before_ns: int) -> None:
    while True:
        give_up_ns, arrival_ns = _next_give_up_ns(e), _next_arrival_ns(e)
        join_ns, parsed_ns, entry_ns = next_join_ns(e), next_parsed_ns(e), next_entry_ns(e)
        now_ns = min(give_up_ns, join_ns, parsed_ns, arrival_ns, entry_ns)
        if now_ns > before_ns:
            e.quiet_until_ns = now_ns
            return
        if now_ns == give_up_ns:
            end_request(e, arrived_of(e)[e.give_up_index], TIMED_OUT, now_ns)
            remove_ended_running(e)
        elif now_ns == join_ns:
            r = arrived_of(e)[e.joined_count]
            e.joined_count += 1
            if request_at(e, r).status == WAITING:
                push_waiting_tail(e, r)
        elif now_ns == parsed_ns:
            hand_to_tokenizer(e, now_ns)
        elif now_ns == arrival_ns:
            _arrive(e)
        else:
            enter(e, now_ns)
