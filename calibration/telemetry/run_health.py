"""What is unhealthy about one run: its prompts, its load, its requests, and how its tool states figures."""

from __future__ import annotations

from collections.abc import Iterator

from calibration.telemetry.reading import Finding, Reading, latency_name

_RANDOM = (
    "random",
    "random-ids",
    "random-image",
    "random-mm",
    "random-rerank",
    "synthetic",
    "generated-shared-prefix",
)
"""Data sets of benchmark clients whose prompts are random tokens."""
_FULL_CACHE = 0.95
_FEW_REQUESTS = 100
"""Requests of which the P99 is hardly more than the largest value."""
_QUEUE = 1.0
_STATED_APART = 0.01
_CHUNK_TOKENS = 1.05
SAME_DEFINITION = "1 + accepted ÷ rounds"
"""How `Stated.definition` begins where the tool's figure is defined as ours."""


def findings_of_run(reading: Reading) -> Iterator[Finding]:
    """Every finding on one reading by itself."""
    yield from _on_prompts(reading)
    yield from _on_load(reading)
    yield from _on_figures(reading)


def _on_prompts(reading: Reading) -> Iterator[Finding]:
    traits = reading.traits
    if traits.get("dataset", "").lower() in _RANDOM:
        text = (
            f"prompts of the data set {traits['dataset']!r} are random tokens, on which acceptance "
            f"means nothing: measure it on your own prompts, or sharegpt, spec_bench, hf"
        )
        yield Finding("random-prompts", "warning", text)
    elif "prompts_alike" in traits:
        text = (
            f"all prompts have {traits['prompts_alike']} tokens: if they are random ones, "
            f"acceptance means nothing"
        )
        yield Finding("prompts-alike", "info", text)
    if "ignore_eos" in traits:
        text = "--ignore-eos forces text past its natural end, which changes acceptance"
        yield Finding("ignore-eos", "info", text)


def _on_load(reading: Reading) -> Iterator[Finding]:
    load = reading.load
    if "saturation" in reading.traits:
        text = (
            "all requests were sent at once without --max-concurrency: that measures saturation, "
            "and its latencies are those of a queue"
        )
        yield Finding("saturation-test", "warning", text)
    failed = load.get("failed_requests", 0.0)
    if failed:
        yield Finding("failed-requests", "warning", f"{failed:,.0f} requests failed")
    preemptions = load.get("preemptions", 0.0)
    if preemptions:
        text = f"{preemptions:,.0f} preemptions: the KV cache is too small for the running requests"
        yield Finding("preemptions", "warning", text)
    usage = load.get("kv_cache_usage_max", load.get("kv_cache_usage", 0.0))
    if usage > _FULL_CACHE:
        text = f"{usage:.0%} of the KV cache is in use: requests wait for memory"
        yield Finding("kv-full", "warning", text)
    waiting, running = load.get("waiting_requests", 0.0), load.get("running_requests", 0.0)
    if waiting >= max(_QUEUE, 0.1 * running):
        text = f"{waiting:,.3g} requests wait while {running:,.3g} run: latencies include a queue"
        yield Finding("queue", "info", text)


def _on_figures(reading: Reading) -> Iterator[Finding]:
    requests = reading.load.get("requests")
    with_p99 = [latency_name(name) for name, own in reading.latencies.items() if "p99" in own.values]
    with_p99 = [name for name in with_p99 if not name.startswith("ITL")]
    if requests and requests < _FEW_REQUESTS and with_p99:
        text = (
            f"fewer than {_FEW_REQUESTS} requests: the P99 of {', '.join(with_p99)} is hardly more than the "
            f"largest value"
        )
        yield Finding("few-requests", "info", text)
    acceptance = reading.acceptance
    if acceptance is not None and acceptance.counted:
        for stated in reading.stated:
            same = stated.definition == SAME_DEFINITION
            if same and abs(stated.value - acceptance.total.mean_length) > _STATED_APART * stated.value:
                text = (
                    f"{stated.name} is {stated.value:.3f}, its own counts give "
                    f"{acceptance.total.mean_length:.3f}, which is used"
                )
                yield Finding("stated-differs", "warning", text)
    per_step = reading.tokens_per_step
    if acceptance is None and per_step is not None and per_step > _CHUNK_TOKENS:
        text = (
            f"{per_step:.2f} tokens per streamed chunk without counters of speculation: "
            f"the server speculates unseen, or chunks are merged"
        )
        yield Finding("unseen-speculation", "info", text)
