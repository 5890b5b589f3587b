"""SGLang's `/metrics`: gauges of acceptance and load, histograms of latency.

SGLang exports no counters of speculation and nothing by position: the gauges give the mean acceptance length
of the last logging interval. Every rank of tensor and pipeline parallelism reports; rank 0 is taken.
`inter_token_latency_seconds` is the gap of a chunk ÷ its tokens, once per token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from calibration.telemetry.buckets import latencies_of
from calibration.telemetry.fields import LONGEST_DRAFT
from calibration.telemetry.reading import (
    Counts,
    Finding,
    MeasuredAcceptance,
    Reading,
    RoundBlock,
    Source,
    Stated,
)
from calibration.telemetry.scrapes import Scrape, Series, increase_of

FORMAT = "sglang-metrics"

_LENGTH, _RATE = "sglang:spec_accept_length", "sglang:spec_accept_rate"
_STEPS, _WINDOW = "sglang:spec_num_steps", "sglang:spec_num_draft_tokens"
_RUNNING, _WAITING, _USAGE = "sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"
_THROUGHPUT = "sglang:gen_throughput"
_GAUGES = frozenset((_LENGTH, _RATE, _STEPS, _WINDOW, _RUNNING, _WAITING, _USAGE, _THROUGHPUT))
_LATENCIES = {
    "ttft_s": ("sglang:time_to_first_token_seconds",),
    "itl_token_s": ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    "e2e_s": ("sglang:e2e_request_latency_seconds",),
}
_REQUESTS, _PROMPT, _OUTPUT = "sglang:num_requests", "sglang:prompt_tokens", "sglang:generation_tokens"

COUNTERS = frozenset((_REQUESTS, _PROMPT, _OUTPUT)) | {
    f"{name}{part}"
    for names in _LATENCIES.values()
    for name in names
    for part in ("_sum", "_count", "_bucket")
}
NAMES = COUNTERS | _GAUGES
"""Every name that is read, less `_total`."""


def reading_of(scrapes: Sequence[Scrape]) -> Reading:
    """What the scrapes of one server say."""
    scrapes = [_rank_0(scrape) for scrape in scrapes]
    increase = increase_of(scrapes, COUNTERS)
    totals = increase.total
    findings: list[Finding] = []
    _, latencies = latencies_of(_LATENCIES, totals, findings)
    if increase.resets:
        text = "counters begin anew between the scrapes: what follows counts from there"
        findings.append(Finding("counters-reset", "warning", text))
    acceptance, stated = _acceptance(scrapes)
    return Reading(
        name=increase.name,
        sources=tuple(dict.fromkeys(Source(scrape.file, FORMAT, "sglang") for scrape in increase.scrapes)),
        acceptance=acceptance,
        stated=stated,
        latencies=latencies,
        throughput_tokens_per_s=_sum(increase.last[-1].values, _THROUGHPUT) or None,
        load=_load(increase.last[-1], totals),
        findings=tuple(findings),
    )


def _rank_0(scrape: Scrape) -> Scrape:
    """The scrape without the ranks that repeat what rank 0 reports."""
    known_values = {
        series: value
        for series, value in scrape.values.items()
        if series.label("tp_rank") in (None, "0") and series.label("pp_rank") in (None, "0")
    }
    return Scrape(scrape.file, scrape.name, known_values, scrape.started)


def _acceptance(scrapes: Sequence[Scrape]) -> tuple[MeasuredAcceptance | None, tuple[Stated, ...]]:
    blocks = tuple(block for scrape in scrapes for block in _blocks(scrape))
    if not blocks:
        return None, ()
    total = sum((block.counts for block in blocks), Counts(0.0, 0.0))
    lengths = {value for scrape in scrapes if (value := _steps(scrape)) is not None}
    longest = max(lengths, default=0.0)
    draft_length = int(longest) if 1.0 <= longest <= LONGEST_DRAFT else None
    rates = [value for scrape in scrapes for value in _values(scrape.values, _RATE)]
    stated = [
        Stated("spec_accept_length", total.mean_length, "tokens emitted per round, the bonus token included")
    ]
    if rates:
        stated.append(
            Stated("spec_accept_rate", sum(rates) / len(rates), "as this version of SGLang defines it")
        )
    basis = "the gauge of the server's last logging interval, weighted by running requests"
    return MeasuredAcceptance(total, draft_length, basis, counted=False, blocks=blocks), tuple(stated)


def _blocks(scrape: Scrape) -> Iterator[RoundBlock]:
    """One block per data-parallel rank. An idle server keeps its last gauge, and weighs as one request."""
    for series, length in scrape.values.items():
        if series.name == _LENGTH and length >= 1.0:
            running = scrape.values.get(Series(_RUNNING, series.labels))
            weight = max(running or 1.0, 1.0)
            steps = _steps(scrape)
            chain = steps is not None and steps + 1 == _sum(scrape.values, _WINDOW)
            drafted = weight * steps if chain and steps else None
            yield RoundBlock(Counts(weight, weight * (length - 1.0), drafted), running)


def _steps(scrape: Scrape) -> float | None:
    """Drafts in a row: the steps of the drafter, or for a chain one less than the window that is verified."""
    steps = next(iter(_values(scrape.values, _STEPS)), None)
    window = next(iter(_values(scrape.values, _WINDOW)), None)
    return steps if steps is not None else None if window is None else max(window - 1.0, 0.0)


def _load(scrape: Scrape, totals: Mapping[Series, float]) -> dict[str, float]:
    usage = _values(scrape.values, _USAGE)
    load = {
        "running_requests": _sum(scrape.values, _RUNNING),
        "waiting_requests": _sum(scrape.values, _WAITING),
        "kv_cache_usage": sum(usage) / len(usage) if usage else None,
        "requests": _sum(totals, _REQUESTS),
    }
    return {key: value for key, value in load.items() if value is not None}


def _values(values: Mapping[Series, float], name: str) -> list[float]:
    return [value for series, value in values.items() if series.name == name]


def _sum(values: Mapping[Series, float], name: str) -> float | None:
    amounts = _values(values, name)
    return sum(amounts) if amounts else None
