"""Results of benchmark clients: `mean_ttft_ms`, `p99_itl_ms` and their kind in seconds, and the load."""

from __future__ import annotations

import re
from collections.abc import Mapping

from calibration.telemetry.fields import RecordFields
from calibration.telemetry.reading import Latency

_KEY = re.compile(r"(mean|median|std|min|max|p\d+(?:\.\d+)?)_(\w+)_ms")
_STATISTIC = {"median": "p50", "p99.9": "p999"}
MS = 1e-3


def latencies_of(
    fields: RecordFields, names: Mapping[str, str], samples: Mapping[str, int | None]
) -> dict[str, Latency]:
    """Latency → its statistics. `names` maps the client's word (`ttft`) to the latency (`ttft_s`), `samples`
    the latency to the number of samples behind it, where known."""
    values: dict[str, dict[str, float]] = {}
    for key in fields:
        match = _KEY.fullmatch(key)
        if match is None or match.group(2) not in names:
            continue
        value_ms = fields.number(key)
        if value_ms is not None:
            statistic = _STATISTIC.get(match.group(1), match.group(1))
            values.setdefault(names[match.group(2)], {})[statistic] = value_ms * MS
    return {
        name: Latency(statistics, samples.get(name))
        for name, statistics in values.items()
        if "mean" in statistics
    }


def request_rate(fields: RecordFields, key: str = "request_rate") -> tuple[float | None, bool]:
    """The request rate, and whether it is unlimited: `"inf"` in vLLM's files, `Infinity` in SGLang's."""
    if fields.text(key) == "inf" or fields.is_infinite(key):
        return None, True
    return (None if fields.text(key) is not None else fields.number(key)), False


def run_load(fields: RecordFields, names: Mapping[str, str]) -> dict[str, float]:
    """The load of a run: fields under the names of `Reading.load`, and the mean tokens of a request."""
    load = {name: fields.number(key) for name, key in names.items()}
    completed = fields.count("completed")
    for name, key in (
        ("prompt_tokens_mean", "total_input_tokens"),
        ("output_tokens_mean", "total_output_tokens"),
    ):
        total = fields.count(key)
        load[name] = total / completed if total is not None and completed else None
    return {name: value for name, value in load.items() if value is not None}
