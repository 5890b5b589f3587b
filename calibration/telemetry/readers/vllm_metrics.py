"""vLLM's `/metrics`: scrapes of V1 and V0 engines, differenced, summed over engines.

`spec_decode_num_drafts` counts rounds with a draft. `inter_token_latency_seconds` has one sample per decode
step of a request, so its count is the number of decode steps, and rounds ÷ steps is the draft coverage.
V0 counts emitted tokens, accepted ones and one per round, in place of rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calibration.telemetry.buckets import Histogram, first_histogram, latencies_of
from calibration.telemetry.fields import draft_length_of
from calibration.telemetry.reading import Counts, Finding, MeasuredAcceptance, Reading, RoundBlock, Source
from calibration.telemetry.scrapes import Increase, Scrape, Series, increase_of

FORMAT = "vllm-metrics"

_ROUNDS = "vllm:spec_decode_num_drafts"
_DRAFTED = "vllm:spec_decode_num_draft_tokens"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
_ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos"
_EMITTED = "vllm:spec_decode_num_emitted_tokens"
_SPECULATION = (_ROUNDS, _DRAFTED, _ACCEPTED, _ACCEPTED_AT, _EMITTED)
_TOKENS = ("vllm:prompt_tokens", "vllm:generation_tokens")
_PREEMPTIONS, _SUCCESS = "vllm:num_preemptions", "vllm:request_success"
_FAILED = ("abort", "error")
"""Reasons for which `request_success` counts a request that did not succeed."""

_LATENCIES = {
    "ttft_s": ("vllm:time_to_first_token_seconds",),
    "itl_s": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "tpot_s": ("vllm:request_time_per_output_token_seconds",),
    "e2e_s": ("vllm:e2e_request_latency_seconds",),
}
"""Latency → its histogram, today's name first."""
_MEANS = {
    "prompt_tokens_mean": "vllm:request_prompt_tokens",
    "output_tokens_mean": "vllm:request_generation_tokens",
    "queue_s_mean": "vllm:request_queue_time_seconds",
}
_ITERATIONS = "vllm:iteration_tokens_total"
_GAUGES = {
    "running_requests": ("vllm:num_requests_running",),
    "waiting_requests": ("vllm:num_requests_waiting",),
    "kv_cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}
_HISTOGRAMS = (*(name for names in _LATENCIES.values() for name in names), *_MEANS.values(), _ITERATIONS)

COUNTERS = frozenset((*_SPECULATION, *_TOKENS, _PREEMPTIONS, _SUCCESS)) | {
    f"{name}{part}" for name in _HISTOGRAMS for part in ("_sum", "_count", "_bucket")
}
NAMES = COUNTERS | {name for names in _GAUGES.values() for name in names}
"""Every name that is read, less `_total`."""


def reading_of(scrapes: Sequence[Scrape]) -> Reading:
    """What the scrapes of one server say."""
    increase = increase_of(scrapes, COUNTERS)
    findings: list[Finding] = [*_findings(scrapes, increase)]
    totals, left_out = _whole_engines(increase.total)
    findings += left_out
    histograms, latencies = latencies_of(_LATENCIES, totals, findings)
    v0 = any(series.name == _EMITTED for series in totals)
    version = "V0 (before 0.10)" if v0 else None
    sources = dict.fromkeys(Source(scrape.file, FORMAT, "vllm", version) for scrape in increase.scrapes)
    steps, generated = histograms.get("itl_s"), _sum(totals, "vllm:generation_tokens")
    first_tokens = histograms["ttft_s"].count if "ttft_s" in histograms else 0.0
    return Reading(
        name=increase.name,
        sources=tuple(sources),
        acceptance=_acceptance(increase, totals),
        latencies=latencies,
        decode_steps=steps.count if steps else None,
        decoded_tokens=generated - first_tokens if generated and first_tokens else None,
        load=_load(increase, totals, histograms, findings),
        traits={"model": ", ".join(_labels(totals, "model_name"))},
        findings=tuple(findings),
    )


def _acceptance(increase: Increase, totals: Mapping[Series, float]) -> MeasuredAcceptance | None:
    total = _counts(totals)
    if total is None or not total.rounds:
        return None
    steps = [_counts(_whole_engines(step)[0]) for step in increase.steps] if len(increase.steps) > 1 else []
    blocks = tuple(RoundBlock(step) for step in steps if step is not None and step.rounds)
    draft_length = draft_length_of(total.rounds, total.drafted, total.accepted_at)
    since = "since the server started" if increase.since_start else "between the scrapes"
    return MeasuredAcceptance(total, draft_length, f"counters of the server, {since}", blocks=blocks)


def _counts(values: Mapping[Series, float]) -> Counts | None:
    """Rounds and tokens of all engines; None without the counters of speculation."""
    accepted = _sum(values, _ACCEPTED)
    drafted = _sum(values, _DRAFTED)
    rounds = _sum(values, _ROUNDS)
    emitted = _sum(values, _EMITTED)
    if rounds is None and emitted is not None and accepted is not None:
        rounds = emitted - accepted
    if rounds is None or accepted is None or rounds < 0.0:
        return None
    at: dict[int, float] = {}
    for series, value in values.items():
        place = series.label("position") if series.name == _ACCEPTED_AT else None
        if place is not None and place.isdecimal() and len(place) < 5:
            at[int(place)] = at.get(int(place), 0.0) + value
    accepted_at = tuple(at[place] for place in sorted(at)) if sorted(at) == list(range(len(at))) else ()
    return Counts(rounds, accepted, drafted, accepted_at)


def _whole_engines(values: Mapping[Series, float]) -> tuple[dict[Series, float], list[Finding]]:
    """The values without engines whose counters of speculation are not all there, as in a cut file."""
    has: dict[tuple[str | None, str | None], set[str]] = {}
    for series in values:
        if series.name in _SPECULATION:
            key = (series.label("model_name"), series.label("engine"))
            has.setdefault(key, set()).add(series.name)
    every = set().union(*has.values()) if has else set()
    broken = {key for key, names in has.items() if names != every}
    if not broken:
        return dict(values), []
    names = ", ".join(sorted(engine or "?" for _, engine in broken))
    text = f"engine {names} lacks some counters of speculation and is left out: is the file cut?"
    complete = {
        series: value
        for series, value in values.items()
        if series.name not in _SPECULATION
        or (series.label("model_name"), series.label("engine")) not in broken
    }
    return complete, [Finding("incomplete-counters", "warning", text)]


def _load(
    increase: Increase,
    totals: Mapping[Series, float],
    histograms: Mapping[str, Histogram],
    findings: list[Finding],
) -> dict[str, float]:
    gauges = [_sum_or_mean(key, names, increase.last) for key, names in _GAUGES.items()]
    load = {key: value for key, value in zip(_GAUGES, gauges, strict=True) if value is not None}
    for key, name in _MEANS.items():
        histogram = first_histogram((name,), totals, findings)
        if histogram is not None:
            load[key] = histogram.mean
    engine_steps = first_histogram((_ITERATIONS,), totals, findings)
    request_steps = sum(histograms[key].count for key in ("itl_s", "ttft_s") if key in histograms)
    if engine_steps is not None and request_steps:
        load["mean_batch"] = request_steps / engine_steps.count
    for key, name in (("requests", _SUCCESS), ("preemptions", _PREEMPTIONS)):
        value = _sum(totals, name)
        if value is not None:
            load[key] = value
    failed = [value for series, value in totals.items() if series.label("finished_reason") in _FAILED]
    if failed:
        load["failed_requests"] = sum(failed)
    return load


def _sum_or_mean(key: str, names: Sequence[str], scrapes: Sequence[Scrape]) -> float | None:
    """A gauge over all engines: requests add, shares of a cache are averaged."""
    values = [value for scrape in scrapes for series, value in scrape.values.items() if series.name in names]
    if not values:
        return None
    return sum(values) / len(values) if key == "kv_cache_usage" else sum(values)


def _findings(scrapes: Sequence[Scrape], increase: Increase) -> list[Finding]:
    findings = []
    if increase.resets:
        text = (
            "counters begin anew between the scrapes (the server restarted, or these are two servers): what "
            "follows counts from there; for several servers, give two scrapes of each"
        )
        findings.append(Finding("counters-reset", "warning", text))
    if increase.since_start:
        text = "one scrape counts since the server started, warm-up included; two give what lies between"
        findings.append(Finding("since-start", "info", text))
    if increase.crossed:
        names = ", ".join(name.partition(":")[2] for name in increase.crossed)
        text = f"counters fell while others grew, and are left out: {names}; is a file cut?"
        findings.append(Finding("incomplete-counters", "warning", text))
    models = sorted({name for scrape in scrapes for name in _labels(scrape.values, "model_name")})
    if len(models) > 1:
        findings.append(
            Finding("several-models", "warning", f"the counters of {', '.join(models)} are added up")
        )
    return findings


def _labels(values: Mapping[Series, float], label: str) -> list[str]:
    labels = {series.label(label) for series in values}
    return sorted(value for value in labels if value is not None)


def _sum(values: Mapping[Series, float], name: str) -> float | None:
    amounts = [value for series, value in values.items() if series.name == name]
    return sum(amounts) if amounts else None
