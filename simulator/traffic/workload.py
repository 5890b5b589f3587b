"""The `workload` section of a scenario as requests: the same for every variant that shares the seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from simulator.numerics.arrays import Ints
from simulator.traces import NOT_GIVEN
from simulator.traffic.arrivals import check_clock, draw_arrivals
from simulator.traffic.lengths import LengthDraws, draw_lengths
from simulator.traffic.recorded import load_trace
from simulator.traffic.sessions import SESSION_BLOCK_TOKENS, build_sessions
from simulator.traffic.streams import stream
from simulator.units import NS_PER_S, seconds_to_ns

if TYPE_CHECKING:
    from simulator.scenario.arrivals import ArrivalsTrace
    from simulator.scenario.lengths import Lengths
    from simulator.scenario.workload import Sessions, Workload


class Requests(NamedTuple):
    """`n` requests in the order in which they are issued; all lengths are at least 1.

    `arrival_ns` (n,): -1 where it is not known before another request ends (closed loop, later turns of a
    session). `prompt_tokens`, `output_tokens` (n,); the prompt of a later turn holds the turns before it.
    `traffic_class` (n,) int32: index into `workload.traffic_classes`. `successor` (n,): the next turn of the
    same session, issued `successor_delay_ns` after this one ends; -1 none. `cancel_after_tokens` (n,):
    output token at which the client cancels; 0 never. `prefix_ids[prefix_start[r]:prefix_start[r + 1]]`:
    dense ids of the leading full blocks of request r, `prefix_block_tokens` each (0: no prefix
    information), shared exactly when all tokens up to the block's end are equal. In sessions they cover
    the output too, which the next turn starts with. `session` (n,): -1 none.
    """

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    traffic_class: NDArray[np.int32]
    successor: Ints
    successor_delay_ns: Ints
    cancel_after_tokens: Ints
    prefix_start: Ints
    prefix_ids: Ints
    prefix_block_tokens: int
    session: Ints

    @property
    def mean_context_tokens(self) -> float:
        """Mean context of a decode: every output token of every request counts once."""
        tokens = self.output_tokens
        return float((tokens * (self.prompt_tokens + tokens / 2)).sum() / tokens.sum())


def generate(workload: Workload, seed: int, base_dir: Path | str = ".") -> Requests:
    """The requests of a workload. Relative file names are relative to `base_dir`.

    Lengths, classes, arrivals and cancellations come from streams of their own, so that none shifts
    another, and request r does not depend on how many there are. A closed loop leaves all arrivals but the
    first `concurrency` open: clients issue the next request (or session) in order as they become free.

    Raises InputError for a trace or a file of lengths that cannot be used.
    """
    base_dir = Path(base_dir)
    if workload.arrivals.kind == "trace":
        return _recorded(workload, workload.arrivals, seed, base_dir)
    n = workload.requests
    turns, gap_s = (workload.sessions.turns, workload.sessions.gap_s) if workload.sessions else (1, 0.0)
    conversations = -(-n // turns)
    traffic_class = np.repeat(_classes(workload, seed, conversations), turns)[:n]
    own_tokens = _lengths(workload, "prompt_tokens", seed, traffic_class, base_dir)
    output_tokens = _lengths(workload, "output_tokens", seed, traffic_class, base_dir)
    cancel_after_tokens = _cancellations(workload.cancel_fraction, seed, output_tokens)
    arrival_ns = np.full(n, -1, dtype=np.int64)
    arrival_ns[::turns] = draw_arrivals(workload.arrivals, seed, conversations, turns, gap_s)
    _check_pauses(workload, conversations, int(arrival_ns.max()) / NS_PER_S)
    single = Requests(
        arrival_ns=arrival_ns,
        prompt_tokens=own_tokens,
        output_tokens=output_tokens,
        traffic_class=traffic_class,
        successor=np.full(n, -1, dtype=np.int64),
        successor_delay_ns=np.zeros(n, dtype=np.int64),
        cancel_after_tokens=cancel_after_tokens,
        prefix_start=np.zeros(n + 1, dtype=np.int64),
        prefix_ids=np.zeros(0, dtype=np.int64),
        prefix_block_tokens=0,
        session=np.full(n, -1, dtype=np.int64),
    )
    return single if workload.sessions is None else _in_sessions(single, workload.sessions)


def workload_notes(workload: Workload, base_dir: Path | str = ".") -> tuple[str, ...]:
    """Return what a reader of the results must know of the traffic: rows that were dropped, lengths that were
    estimated, settings without effect.

    Raises InputError for a trace that cannot be used.
    """
    if workload.arrivals.kind != "trace":
        return ()
    notes = list(load_trace(workload.arrivals, Path(base_dir)).notes)
    if any(entry.prompt_tokens or entry.output_tokens for entry in workload.classes):
        notes.append("the lengths of workload.classes have no effect: lengths come from the trace")
    if workload.sessions is not None:
        notes.append("workload.sessions has no effect: sessions come from the trace")
    return tuple(notes)


def _check_pauses(workload: Workload, conversations: int, last_arrival_s: float) -> None:
    """Raises InputError when think times and pauses between turns push arrivals beyond the clock's end."""
    arrivals, sessions = workload.arrivals, workload.sessions
    pauses_s = (sessions.turns - 1) * sessions.gap_s if sessions else 0.0
    field = "workload.sessions.gap_s"
    if arrivals.kind == "closed":
        # The next client that is free takes the next session, so no client has more than one above the mean.
        each_s, rounds = pauses_s + arrivals.think_time_s, conversations / arrivals.concurrency + 1
        field = "workload.arrivals.think_time_s" if arrivals.think_time_s > pauses_s else field
        pauses_s = each_s * rounds
    check_clock(last_arrival_s + pauses_s, "with its pauses the last request comes", field)


def _in_sessions(requests: Requests, sessions: Sessions) -> Requests:
    """The same requests as the turns of sessions, each prompt preceded by the turns before it.

    A client that cancels has read, and keeps in the conversation, what came until then.
    """
    cancelled = requests.cancel_after_tokens > 0
    answer_tokens = np.where(cancelled, requests.cancel_after_tokens, requests.output_tokens)
    session_turns = build_sessions(
        requests.prompt_tokens, answer_tokens, sessions.turns, sessions.shared_prefix_tokens
    )
    return requests._replace(
        prompt_tokens=session_turns.prompt_tokens,
        session=session_turns.session,
        successor=session_turns.successor,
        successor_delay_ns=np.where(session_turns.successor >= 0, seconds_to_ns(sessions.gap_s), 0),
        prefix_start=session_turns.prefix_start,
        prefix_ids=session_turns.prefix_ids,
        prefix_block_tokens=SESSION_BLOCK_TOKENS,
    )


def _recorded(workload: Workload, arrivals: ArrivalsTrace, seed: int, base_dir: Path) -> Requests:
    """The requests of a trace: times and lengths as recorded, classes and cancellations drawn.

    `rate_scale` plays the trace so many times faster, the pauses within sessions included.
    """
    trace = load_trace(arrivals, base_dir)
    n = trace.requests
    of_session = _first_of_session(trace.session)
    traffic_class = _classes(workload, seed, n)[of_session]
    output_tokens = trace.output_tokens.copy()
    if (output_tokens == NOT_GIVEN).any():
        drawn = _lengths(workload, "output_tokens", seed, traffic_class, base_dir)
        output_tokens = np.where(output_tokens == NOT_GIVEN, drawn, output_tokens)
    pauses_ns = np.bincount(trace.session + 1, weights=trace.successor_delay_ns).max()
    last_s = float(trace.arrival_ns.max() + pauses_ns) / NS_PER_S / arrivals.rate_scale
    check_clock(last_s, "at this rate the last request comes", "workload.arrivals.rate_scale")
    scaled = np.rint(trace.arrival_ns / arrivals.rate_scale).astype(np.int64)
    return Requests(
        arrival_ns=np.where(trace.arrival_ns >= 0, scaled, -1),
        prompt_tokens=trace.prompt_tokens.copy(),  # the trace is shared: callers may write to theirs
        output_tokens=output_tokens,
        traffic_class=traffic_class,
        successor=trace.successor.copy(),
        successor_delay_ns=np.rint(trace.successor_delay_ns / arrivals.rate_scale).astype(np.int64),
        cancel_after_tokens=_cancellations(workload.cancel_fraction, seed, output_tokens),
        prefix_start=trace.prefix_start.copy(),
        prefix_ids=trace.prefix_ids.copy(),
        prefix_block_tokens=trace.prefix_block_tokens,
        session=trace.session.copy(),
    )


def _first_of_session(session: Ints) -> Ints:
    """For each request the first one of its session, or itself; shape (n,)."""
    request = np.arange(len(session), dtype=np.int64)
    first = np.full(int(session.max(initial=-1)) + 1, len(session), dtype=np.int64)
    member = session >= 0
    np.minimum.at(first, session[member], request[member])
    request[member] = first[session[member]]
    return request


def _classes(workload: Workload, seed: int, n: int) -> NDArray[np.int32]:
    """The class of each of `n` requests, drawn by share; shape (n,)."""
    entries = workload.traffic_classes
    if len(entries) == 1:
        return np.zeros(n, dtype=np.int32)
    ends = np.cumsum([entry.share for entry in entries])[:-1]
    drawn = np.searchsorted(ends, stream(seed, "traffic_class").random(n), side="right")
    return drawn.astype(np.int32)


def _lengths(
    workload: Workload,
    kind: Literal["prompt_tokens", "output_tokens"],
    seed: int,
    traffic_class: NDArray[np.int32],
    base_dir: Path,
) -> Ints:
    """Prompt or output lengths (n,), each request's from its class's distribution, or the workload's."""
    n = len(traffic_class)
    draws = LengthDraws(seed, kind, n)
    default: Lengths = getattr(workload, kind)
    entries = workload.traffic_classes
    forms: list[Lengths] = [getattr(entry, kind) or default for entry in entries]
    try:
        if len(entries) == 1:
            return draw_lengths(forms[0], draws, slice(None), base_dir=base_dir, column=kind)
        tokens = np.empty(n, dtype=np.int64)
        for index, form in enumerate(forms):
            chosen = traffic_class == index
            tokens[chosen] = draw_lengths(form, draws, chosen, base_dir=base_dir, column=kind)
        return tokens
    except InputError as error:
        raise error.at(field=f"workload.{kind}.file") from None


def _cancellations(fraction: float, seed: int, output_tokens: Ints) -> Ints:
    """The output token at which each client cancels (n,), from 1 to one before the last; 0 never."""
    n = len(output_tokens)
    if fraction == 0:
        return np.zeros(n, dtype=np.int64)
    cancels = (stream(seed, "cancel").random(n) < fraction) & (output_tokens > 1)
    cancelled_at = 1 + (stream(seed, "cancel/after").random(n) * (output_tokens - 1)).astype(np.int64)
    return np.where(cancels, cancelled_at, 0)
