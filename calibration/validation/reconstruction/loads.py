"""The load of a point: concurrent requests, arrival rate and number of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from calibration.validation.reconstruction.cases import VARIANTS, PublishedCase, variant_facts
from calibration.validation.reconstruction.conventions import convention_of
from calibration.validation.reconstruction.figures import CLOSED_KEYS
from calibration.validation.reconstruction.placement import per_rank
from calibration.validation.reconstruction.sections import Facts, number

LOAD_NOT_STATED = "load not stated"

_ALL_AT_ONCE = ("inf", "infinity", "infinite", "max", "saturation", "saturated")
MAX_IN_FLIGHT = 100_000
_MIN_REQUESTS = 256
"""Least number of requests of a run whose source does not state how many it sent."""
_REQUESTS_PER_CLIENT = 8
_BURST_REQUESTS = 1000
_LONGEST_RAMP_S = 86_400.0


class PublishedLoad(NamedTuple):
    """`arrivals` is the scenario's section. `batch`: requests in flight, if the load is stated that way."""

    arrivals: Mapping[str, Any]
    batch: float | None
    title: str
    requests: int
    sent: int | None = None
    """Number of requests of the published run, where it is known."""
    max_num_seqs: int | None = None
    runs_together: bool = False
    """Whether `batch` counts requests running in the engine rather than clients, some of which may wait."""
    notes: tuple[str, ...] = ()


def load_of(case: PublishedCase, point: Facts, ranks: float) -> PublishedLoad | str:
    """The load of a point, or the reason why it is unknown. A load per rank is multiplied by `ranks`."""
    sent = _sent(case, point)
    convention = convention_of(case) if sent is None else None
    load = _load(case, point, ranks, sent)
    if isinstance(load, str):
        return load
    load = _with_ramp(case, point, load)
    if convention is None:
        return load
    usual = convention.prompts or round((convention.prompts_per_client or 0) * (load.batch or 0))
    if not usual:
        return load
    note = f"{convention.tool} sends {usual} requests"
    return load._replace(requests=usual, sent=usual, notes=(*load.notes, note))


def _load(case: PublishedCase, point: Facts, ranks: float, sent: int | None) -> PublishedLoad | str:
    limit = number(point.get("max_num_seqs"))
    max_num_seqs = int(limit) if limit is not None and 1 <= limit <= MAX_IN_FLIGHT else None
    if (explicit := _explicit(case, ranks, sent, max_num_seqs)) is not None:
        return explicit
    for key in (*CLOSED_KEYS, "max_num_seqs"):
        value = number(point.get(key))
        if value is not None and 1 <= value <= MAX_IN_FLIGHT:
            return _closed(value, key, sent, max_num_seqs)
    each = per_rank(case, point)
    if each is not None and 1 <= each * ranks <= MAX_IN_FLIGHT:
        note = f"{each:g} requests on each of {ranks:g} ranks taken as {each * ranks:g} in all"
        return _closed(each * ranks, "concurrency", sent)._replace(runs_together=True, notes=(note,))
    if str(point.get("request_rate_rps")).lower() in _ALL_AT_ONCE:
        return _burst(sent)
    rate = number(point.get("request_rate_rps"))
    if rate is not None and 0 < rate <= 1e6:
        return _at_rate(rate, sent)
    return _counted_load(case, point, sent)


def _explicit(
    case: PublishedCase, ranks: float, sent: int | None, max_num_seqs: int | None
) -> PublishedLoad | None:
    """The load that explicit fields state; None if they leave it to the point's keys."""
    load = case.load
    clients = load.concurrency
    if clients is None and load.concurrency_per_rank is not None:
        return None  # `per_rank` below
    if load.kind == "burst":
        return _burst(sent)
    if load.kind == "rate" and load.request_rate_rps is not None and 0 < load.request_rate_rps <= 1e6:
        return _at_rate(load.request_rate_rps, sent)
    if clients is None or not 1 <= clients <= MAX_IN_FLIGHT:
        return None
    key = "batch_size" if load.kind == "static_batch" else "concurrency"
    return _closed(clients, key, sent, max_num_seqs)


def _at_rate(rate: float, sent: int | None) -> PublishedLoad:
    arrivals = {"kind": "poisson", "rate_per_s": rate}
    return PublishedLoad(arrivals, None, f"rate {rate:g}/s", sent or _BURST_REQUESTS, sent)


def _with_ramp(case: PublishedCase, point: Facts, load: PublishedLoad) -> PublishedLoad:
    """The load with a ramp, if clients start at a rate: once all have started, the rate no longer limits
    them.
    """
    if load.arrivals["kind"] != "closed" or load.batch is None or load.runs_together:
        return load
    if case.load.ramp_s is not None and 0 < case.load.ramp_s <= _LONGEST_RAMP_S:
        rate: float | None = load.batch / case.load.ramp_s
    else:
        rate = number(point.get("request_rate_rps")) or case.load.request_rate_rps
    if rate is None or not MAX_IN_FLIGHT / 1e6 <= rate <= 1e6:
        return load
    note = f"{load.batch:g} clients begin at {rate:g}/s"
    arrivals = {**load.arrivals, "ramp_s": load.batch / rate}
    return load._replace(arrivals=arrivals, notes=(*load.notes, note))


def _counted_load(case: PublishedCase, point: Facts, sent: int | None) -> PublishedLoad | str:
    """A load for which nothing is stated: the client's own limit on requests in flight."""
    counted = _counted(point, ("max_concurrency", "mean_concurrency"))
    if counted is not None:
        return _closed(counted, "concurrency", sent)._replace(notes=("load from the client's counts",))
    if case.kind == "acceptance":  # acceptance does not depend on the other requests of the batch
        return _closed(1.0, "batch_size", sent)._replace(notes=("load not stated: one request at a time",))
    return LOAD_NOT_STATED


def _burst(sent: int | None) -> PublishedLoad:
    notes = () if sent else (f"requests not stated: {_BURST_REQUESTS} at once",)
    return PublishedLoad({"kind": "burst"}, None, "saturation", sent or _BURST_REQUESTS, sent, notes=notes)


def _closed(value: float, key: str, sent: int | None, max_num_seqs: int | None = None) -> PublishedLoad:
    clients = max(1, round(value))
    title = f"{'batch' if key == 'batch_size' else key} {clients}"
    requests = sent or max(_MIN_REQUESTS, _REQUESTS_PER_CLIENT * clients)
    runs_together = key in ("batch_size", "running_requests")
    arrivals = {"kind": "closed", "concurrency": clients}
    return PublishedLoad(arrivals, float(clients), title, requests, sent, max_num_seqs, runs_together)


def _sent(case: PublishedCase, point: Facts) -> int | None:
    """Number of requests sent, where the source states it."""
    counts = [_counted(point, ("num_requests",)), number(point.get("num_requests_sent"))]
    count = next((n for n in (*counts, case.workload.num_prompts) if n is not None and 1 <= n <= 1e6), None)
    return None if count is None else round(count)


def _counted(point: Facts, keys: tuple[str, ...]) -> float | None:
    """The client's count in its plain run, else in its speculative run."""
    for side in VARIANTS:
        facts = variant_facts(point, side)
        for key in keys:
            value = number(facts.get(key))
            if value is not None and 1 <= value <= MAX_IN_FLIGHT:
                return value
    return None
