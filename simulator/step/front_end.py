"""The front end before an engine: an event loop that works on all requests in it in turns, then a tokenizer
that takes one prompt after another (docs/step.md §2).

Everybody in the loop gets the same share of it, in whole nanoseconds; what is left of a division goes into
the next one, so that nothing is lost. As all have the same work, who entered first leaves first, and the
whole way is a queue: of `arrived`, the first `joined_count` have joined the engine's queue, those up to
`parsed_count` are with the tokenizer, those up to `entered_count` in the loop, and the others on their way.
"""

from __future__ import annotations

from simulator.numerics.compiled import compiled
from simulator.step.state import NEVER
from simulator.step.views import Engine, arrived_of, request_at


@compiled()
def next_entry_ns(e: Engine) -> int:
    """Return when the next of those that arrived enters the loop, NEVER when all have."""
    if e.entered_count == e.arrived_count:
        return NEVER
    return request_at(e, arrived_of(e)[e.entered_count]).arrival_ns + e.request_latency_ns


@compiled()
def enter(e: Engine, now_ns: int) -> None:
    """Let the next request into the loop."""
    _share_loop(e, now_ns)
    request_at(e, arrived_of(e)[e.entered_count]).front_end_ns = e.loop_share_ns + e.request_ns
    e.entered_count += 1


@compiled()
def next_parsed_ns(e: Engine) -> int:
    """Return when the next request leaves the loop if nobody enters before, NEVER when it is empty."""
    inside = e.entered_count - e.parsed_count
    if inside == 0:
        return NEVER
    left_ns = request_at(e, arrived_of(e)[e.parsed_count]).front_end_ns - e.loop_share_ns
    return e.loop_now_ns + max(left_ns * inside - e.loop_carry_ns, 0)


@compiled()
def hand_to_tokenizer(e: Engine, now_ns: int) -> None:
    """Take the first request out of the loop and line its prompt up for the tokenizer."""
    _share_loop(e, now_ns)
    q = request_at(e, arrived_of(e)[e.parsed_count])
    e.tokenizer_free_ns = max(e.tokenizer_free_ns, now_ns) + int(e.prompt_token_ns * q.prompt + 0.5)
    q.front_end_ns = e.tokenizer_free_ns
    e.parsed_count += 1


@compiled()
def next_join_ns(e: Engine) -> int:
    """Return when the next prompt is tokenized, NEVER when the tokenizer has none."""
    if e.joined_count == e.parsed_count:
        return NEVER
    return request_at(e, arrived_of(e)[e.joined_count]).front_end_ns


@compiled()
def _share_loop(e: Engine, now_ns: int) -> None:
    """Share the time since the last change among those in the loop."""
    inside = e.entered_count - e.parsed_count
    if inside > 0:
        time_ns = now_ns - e.loop_now_ns + e.loop_carry_ns
        e.loop_share_ns += time_ns // inside
        e.loop_carry_ns = time_ns % inside
    else:
        e.loop_carry_ns = 0
    e.loop_now_ns = now_ns
