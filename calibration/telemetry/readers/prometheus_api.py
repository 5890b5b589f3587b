"""Answers of Prometheus' query API: the samples of an engine's `/metrics` as a server of metrics keeps them.

`{"status", "data": {"resultType": "vector" | "matrix", "result": [{"metric", "value" | "values"}]}}`; a
sample is `[time_s, "value"]` (https://prometheus.io/docs/prometheus/latest/querying/api/).
"""

from __future__ import annotations

from collections.abc import Iterator

from calibration.telemetry.fields import DamagedError, RecordFields, number_of
from calibration.telemetry.scrapes import Series, canonical


def is_answer(record: RecordFields) -> bool:
    """Whether a record is an answer with instant or range vectors."""
    return record.part("data").text("resultType") in ("vector", "matrix") and "status" in record


def samples_of(record: RecordFields, names: frozenset[str]) -> Iterator[list[tuple[Series, float]]]:
    """The samples of `names` at each time, in order of time; nothing where the answer has none of them.

    Raises DamagedError when names are missing, as in the answer to `rate(…)`, when the series are of several
    servers, or when their times differ: growth between such samples is no growth of one server.
    """
    series_in_time: dict[Series, dict[float, float]] = {}
    instances: set[str] = set()
    for part in record.part("data").parts("result"):
        labels = part.part("metric").texts()
        if "__name__" not in labels:
            raise DamagedError(
                "the query took the names of the metrics away: ask for the metrics themselves, "
                '{__name__=~"vllm:.*"}'
            )
        name = canonical(labels.pop("__name__"))
        if name not in names:
            continue
        instances.add(labels.get("instance", ""))
        series = Series(name, tuple(sorted(labels.items())))
        if series in series_in_time:
            raise DamagedError(f"{name} has two values for the same labels")
        series_in_time[series] = dict(_timed(sample) for sample in _rows(part))
    if len(instances) > 1:
        raise DamagedError(f"is of {len(instances)} instances: ask for one, with instance=…")
    times = {tuple(sorted(values)) for values in series_in_time.values()}
    if len(times) > 1:
        raise DamagedError("the series have different times: ask for a time in which all of them are there")
    for time_s in next(iter(times), ()):
        yield [(series, values[time_s]) for series, values in series_in_time.items()]


def _rows(part: RecordFields) -> list[object]:
    return part.items("values") if part.is_list("values") else [part.items("value")]


def _timed(sample: object) -> tuple[float, float]:
    """The time, in s, and the value of a sample. Raises DamagedError."""
    if not isinstance(sample, list) or len(sample) != 2:
        raise DamagedError("a sample is not a time and a value")
    time_s, value = sample
    return number_of(str(time_s)), number_of(str(value))
