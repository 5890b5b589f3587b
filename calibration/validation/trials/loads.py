"""The load of a point: how many requests at once, how fast they come, and how many there were."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from calibration.validation.trials.cases import VARIANTS, Case, Facts, number, variant_facts
from calibration.validation.trials.habits import habit_of

LOAD_NOT_STATED = "load not stated"

_CLOSED = ("batch_size", "concurrency", "running_requests", "concurrency_cap")
"""Keys of a point that say how many requests are in flight at once."""
_ALL_AT_ONCE = ("inf", "infinity", "infinite", "max", "saturation", "saturated")
MOST_IN_FLIGHT = 100_000
_ENOUGH = 256
"""Requests of a run whose source does not say how many it sent; whoever runs it may take more or fewer."""
_ROUNDS = 8
_BURST = 1000


class Load(NamedTuple):
    """`arrivals` in the form of the scenario file. `batch`: requests in flight, where that is the load."""

    arrivals: Mapping[str, Any]
    batch: float | None
    title: str
    requests: int
    sent: int | None = None
    """Requests of the published run, where they are known."""
    max_num_seqs: int | None = None
    runs_together: bool = False
    """`batch` requests were in the engine together: no number of clients of which some may wait."""
    notes: tuple[str, ...] = ()


def load_of(case: Case, point: Facts, ranks: float) -> Load | str:
    """The load of a point, or why it cannot be told. `ranks`: over which a load per rank is spread."""
    sent = _sent(case, point)
    habit = habit_of(case) if sent is None else None
    found = _load(case, point, ranks, sent)
    if isinstance(found, str):
        return found
    found = _as_they_begin(case, point, found)
    if habit is None:
        return found
    usual = habit.prompts or round((habit.prompts_per_client or 0) * (found.batch or 0))
    if not usual:
        return found
    note = f"{habit.tool} sends {usual} requests"
    return found._replace(requests=usual, sent=usual, notes=(*found.notes, note))


def _load(case: Case, point: Facts, ranks: float, sent: int | None) -> Load | str:
    limit = number(point.get("max_num_seqs"))
    seats = int(limit) if limit is not None and 1 <= limit <= MOST_IN_FLIGHT else None
    for key in (*_CLOSED, "max_num_seqs"):
        value = number(point.get(key))
        if value is not None and 1 <= value <= MOST_IN_FLIGHT:
            return _closed(value, key, sent, seats)
    per_rank = number(point.get("concurrency_per_rank")) or number(point.get("batch_size_per_rank"))
    if per_rank is not None and 1 <= per_rank * ranks <= MOST_IN_FLIGHT:
        note = f"{per_rank:g} requests on each of {ranks:g} ranks taken as {per_rank * ranks:g} in all"
        return _closed(per_rank * ranks, "concurrency", sent)._replace(runs_together=True, notes=(note,))
    if str(point.get("request_rate_rps")).lower() in _ALL_AT_ONCE:
        return _burst(sent)
    rate = number(point.get("request_rate_rps"))
    if rate is not None and 0 < rate <= 1e6:
        title = f"rate {rate:g}/s"
        return Load({"kind": "poisson", "rate_per_s": rate}, None, title, sent or _BURST, sent)
    return _unsaid(case, point, sent)


def _as_they_begin(case: Case, point: Facts, load: Load) -> Load:
    """Clients that are let in at a rate do not begin together; once all are at work, the rate asks for more
    than they can send.
    """
    if load.arrivals["kind"] != "closed" or load.batch is None or load.runs_together:
        return load
    rate = number(point.get("request_rate_rps"))
    if rate is None and re.search(r"request[-_ ]rate\s*=\s*c(?:oncurrency)?\b", case.text):
        rate = load.batch
    if rate is None or not MOST_IN_FLIGHT / 1e6 <= rate <= 1e6:
        return load
    note = f"{load.batch:g} clients begin at {rate:g}/s"
    arrivals = {**load.arrivals, "ramp_s": load.batch / rate}
    return load._replace(arrivals=arrivals, notes=(*load.notes, note))


def _unsaid(case: Case, point: Facts, sent: int | None) -> Load | str:
    """A load that the point has no key for: from its axis, its variants' counts, or the words of the case."""
    text = case.text
    if case.load_axis == "saturation" or re.search(r"infinite request rate|rate inf(?!\w)|offline", text):
        capped = _counted(point, ("max_concurrency",)) if case.load_axis != "saturation" else None
        if capped is None:
            return _burst(sent)
    counted = _counted(point, ("max_concurrency", "mean_concurrency", "peak_concurrent"))
    if counted is not None:
        return _closed(counted, "concurrency", sent)._replace(notes=("load from the client's counts",))
    words = re.search(r"(?:batch(?: size)?|bs|concurrency)\s*(?:=|of)?\s*(\d+)\b", text)
    if words and 1 <= int(words[1]) <= MOST_IN_FLIGHT:
        key = "concurrency" if words[0].startswith("concurrency") else "batch_size"
        return _closed(float(words[1]), key, sent)._replace(notes=("load from the source's words",))
    if case.kind == "acceptance":  # what survives does not depend on who else is there
        return _closed(1.0, "batch_size", sent)._replace(notes=("load not stated: one request at a time",))
    return LOAD_NOT_STATED


def _burst(sent: int | None) -> Load:
    notes = () if sent else (f"requests not stated: {_BURST} at once",)
    return Load({"kind": "burst"}, None, "saturation", sent or _BURST, sent, notes=notes)


def _closed(value: float, key: str, sent: int | None, seats: int | None = None) -> Load:
    clients = max(1, round(value))
    title = f"{'batch' if key == 'batch_size' else key} {clients}"
    requests = sent or max(_ENOUGH, _ROUNDS * clients)
    together = key in ("batch_size", "running_requests")
    arrivals = {"kind": "closed", "concurrency": clients}
    return Load(arrivals, float(clients), title, requests, sent, seats, together)


def _sent(case: Case, point: Facts) -> int | None:
    """Requests that were sent, where the source says so."""
    counts = [_counted(point, ("num_requests",)), number(point.get("num_requests_sent"))]
    found = next((n for n in (*counts, case.workload.num_prompts) if n is not None and 1 <= n <= 1e6), None)
    return None if found is None else round(found)


def _counted(point: Facts, keys: tuple[str, ...]) -> float | None:
    """What the client counted in its plain run, else in the other."""
    for side in VARIANTS:
        facts = variant_facts(point, side)
        for key in keys:
            value = number(facts.get(key))
            if value is not None and 1 <= value <= MOST_IN_FLIGHT:
                return value
    return None
