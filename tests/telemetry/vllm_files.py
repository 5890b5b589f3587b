"""A known run as vLLM's files: metrics, logs of three wordings, benchmark results and tables, responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from tests.telemetry.known_run import KnownRun

_BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


def metrics(run: KnownRun, *, started: float | None = 1.7e9, earlier: KnownRun | None = None) -> str:
    """`/metrics` after a run, and after an `earlier` one by the same engines if there was one."""
    lines = (
        []
        if started is None
        else ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {started}"]
    )
    engines = range(len(run.accepted))
    parts = {
        engine: [own.with_engine(engine) for own in (earlier, run) if own is not None] for engine in engines
    }

    def counter(name: str, values: Mapping[int, float], label: str = "") -> None:
        if not label:
            lines.extend((f"# HELP {name} Something.", f"# TYPE {name} counter"))
        lines.extend(
            f'{name}{{engine="{engine}",model_name="{run.model}"{label}}} {float(value)}'
            for engine, value in values.items()
        )

    def total(name: str) -> dict[int, float]:
        return {engine: float(sum(getattr(part, name) for part in own)) for engine, own in parts.items()}

    counter("vllm:spec_decode_num_drafts_total", total("rounds"))
    counter("vllm:spec_decode_num_draft_tokens_total", total("drafted_tokens"))
    counter("vllm:spec_decode_num_accepted_tokens_total", total("accepted_tokens"))
    lines.append("# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter")
    for place in range(run.draft_length):
        values = {
            engine: float(sum(part.accepted_at[place] for part in own)) for engine, own in parts.items()
        }
        counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", values, f',position="{place}"')
    counter("vllm:generation_tokens_total", total("output_tokens"))
    for engine in engines:
        lines.append(
            f'vllm:num_requests_running{{engine="{engine}",model_name="{run.model}"}} {run.concurrency}.0'
        )
        lines.append(f'vllm:kv_cache_usage_perc{{engine="{engine}",model_name="{run.model}"}} 0.25')
    for name, value, samples in (
        ("time_to_first_token_seconds", "ttft_s", "requests"),
        ("inter_token_latency_seconds", "step_s", "rounds"),
        ("request_time_per_output_token_seconds", "tpot_s", "requests"),
    ):
        lines.append(f"# TYPE vllm:{name} histogram")
        for engine, own in parts.items():
            lines.extend(
                _histogram(
                    f"vllm:{name}", engine, run.model, [(getattr(p, value), getattr(p, samples)) for p in own]
                )
            )
    return "\n".join(lines) + "\n"


def _histogram(name: str, engine: int, model: str, samples: Sequence[tuple[float, int]]) -> Iterator[str]:
    labels = f'engine="{engine}",model_name="{model}"'
    count = sum(number for _, number in samples)
    for bound in _BUCKETS_S:
        below = sum(number for value, number in samples if value <= bound)
        yield f'{name}_bucket{{{labels},le="{bound}"}} {float(below)}'
    yield f'{name}_bucket{{{labels},le="+Inf"}} {float(count)}'
    yield f"{name}_count{{{labels}}} {float(count)}"
    yield f"{name}_sum{{{labels}}} {sum(value * number for value, number in samples)!r}"


def metrics_v0(run: KnownRun) -> str:
    """`/metrics` of a V0 engine: counters of tokens but no rounds; times and KV use under older names."""
    labels = f'{{model_name="{run.model}"}}'
    lines = [
        f"vllm:spec_decode_draft_acceptance_rate{labels} NaN",
        f"vllm:spec_decode_num_accepted_tokens_total{labels} {float(run.accepted_tokens)}",
        f"vllm:spec_decode_num_draft_tokens_total{labels} {float(run.drafted_tokens)}",
        f"vllm:spec_decode_num_emitted_tokens_total{labels} {float(run.decoded_tokens)}",
        f"vllm:gpu_cache_usage_perc{labels} 0.5",
        *_histogram("vllm:time_per_output_token_seconds", 0, run.model, [(run.step_s, run.rounds)]),
    ]
    return "\n".join(lines) + "\n"


def intervals(run: KnownRun, rounds_each: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The rounds of every logging interval, engine by engine."""
    for engine, own in enumerate(run.accepted):
        for first in range(0, len(own), rounds_each):
            yield engine, own[first : first + rounds_each]


def log(run: KnownRun, rounds_each: int = 50, wording: str = "now") -> str:
    """The server's log, in the wording of today or of about 0.8 (`early`)."""
    lines = [
        "(APIServer pid=1) INFO 12-01 00:16:46 [api_utils.py:347]   version 0.32.0",
        "Loading weights: 100%",
    ]
    for engine, own in intervals(run, rounds_each):
        accepted, drafted = sum(own), len(own) * run.draft_length
        rates = ", ".join(f"{count / len(own):.3f}" for count in run.positions(own))
        length, share = 1.0 + accepted / len(own), 100.0 * accepted / drafted
        counts = (
            f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {rates}"
        )
        lines.append(
            f"INFO 12-01 00:18:21 [loggers.py:335] Engine {engine:03d}: Avg prompt throughput: 7.7 tokens/s, "
            f"Avg generation throughput: 100.0 tokens/s, Running: {run.concurrency} reqs, Waiting: 0 reqs, "
            f"GPU KV cache usage: 25.0%, Prefix cache hit rate: 0.0%"
        )
        if wording == "now":
            lines.append(
                "INFO 12-01 00:18:21 [metrics.py:120] SpecDecoding metrics: "
                f"Mean acceptance length: {length:.2f}, Accepted throughput: 9.00 tokens/s, "
                f"Drafted throughput: 58.19 tokens/s, {counts}, Avg Draft acceptance rate: {share:.1f}%"
            )
        else:
            lines.append(
                "INFO 06-06 14:20:34 [metrics.py:86] SpecDecoding metrics: "
                f"Draft acceptance rate: {share:.1f}%, Mean acceptance length: {length:.2f}, {counts}"
            )
    return "\n".join(lines) + "\n"


def log_v0(run: KnownRun, rounds_each: int = 50, restart_after: int | None = None) -> str:
    """The log of a V0 engine, whose totals begin anew after so many intervals."""
    lines, so_far = [], list[int]()
    for number, (_, own) in enumerate(intervals(run.with_engine(0), rounds_each)):
        if restart_after is not None and number == restart_after:
            so_far = []
        so_far.extend(own)
        accepted, drafted = sum(so_far), len(so_far) * run.draft_length
        lines.append(
            "INFO 08-26 12:07:05 metrics.py:427] Speculative metrics: "
            f"Draft acceptance rate: {accepted / drafted:.3f}, System efficiency: 0.642, "
            f"Number of speculative tokens: {run.draft_length}, Number of accepted tokens: {accepted}, "
            f"Number of draft tokens: {drafted}, Number of emitted tokens: {accepted + len(so_far)}."
        )
    return "\n".join(lines) + "\n"


def bench(run: KnownRun) -> dict[str, object]:
    """The result of `vllm bench serve`."""
    total, duration = run.output_tokens, run.duration_s
    document: dict[str, object] = {
        "date": "20261201-002150",
        "backend": "vllm",
        "model_id": run.model,
        "num_prompts": run.requests,
        "request_rate": "inf",
        "max_concurrency": run.concurrency,
        "duration": duration,
        "completed": run.requests,
        "failed": 0,
        "total_input_tokens": run.requests * run.prompt_tokens,
        "total_output_tokens": total,
        "request_throughput": run.requests / duration,
        "output_throughput": total / duration,
        "spec_decode_acceptance_rate": 100.0 * run.accepted_tokens / run.drafted_tokens,
        "spec_decode_acceptance_length": run.mean_length,
        "spec_decode_num_drafts": run.rounds,
        "spec_decode_draft_tokens": run.drafted_tokens,
        "spec_decode_accepted_tokens": run.accepted_tokens,
        "spec_decode_per_position_acceptance_rates": run.rates_at,
    }
    for name, value in (("ttft", run.ttft_s), ("tpot", run.tpot_s), ("itl", run.step_s)):
        document |= {f"{kind}_{name}_ms": value * 1e3 for kind in ("mean", "median", "p99")}
        document[f"std_{name}_ms"] = 0.0
    return document


def bench_json(run: KnownRun) -> str:
    """The same as a file."""
    return json.dumps(bench(run), indent=2)


def bench_table(run: KnownRun) -> str:
    """The same as the client prints it."""
    rows = [
        ("Successful requests:", f"{run.requests}"),
        ("Failed requests:", "0"),
        ("Maximum request concurrency:", f"{run.concurrency}"),
        ("Benchmark duration (s):", f"{run.duration_s:.2f}"),
        ("Total input tokens:", f"{run.requests * run.prompt_tokens}"),
        ("Total generated tokens:", f"{run.output_tokens}"),
        ("Request throughput (req/s):", f"{run.requests / run.duration_s:.2f}"),
        ("Output token throughput (tok/s):", f"{run.output_tokens / run.duration_s:.2f}"),
    ]
    for name, value in (("TTFT", run.ttft_s), ("TPOT", run.tpot_s), ("ITL", run.step_s)):
        rows += [(f"{kind} {name} (ms):", f"{value * 1e3:.2f}") for kind in ("Mean", "Median", "P99")]
    rows += [
        ("Acceptance rate (%):", f"{100 * run.accepted_tokens / run.drafted_tokens:.2f}"),
        ("Acceptance length:", f"{run.mean_length:.2f}"),
        ("Drafts:", f"{run.rounds}"),
        ("Draft tokens:", f"{run.drafted_tokens}"),
        ("Accepted tokens:", f"{run.accepted_tokens}"),
        *((f"  Position {place}:", f"{100 * rate:.2f}") for place, rate in enumerate(run.rates_at)),
    ]
    table = "\n".join(f"{name:<40} {value:<10}" for name, value in rows)
    return f"============ Serving Benchmark Result ============\n{table}\n{'=' * 50}\n"


def responses(run: KnownRun, rounds_each: int = 50) -> str:
    """Responses with per-request metrics, one a line."""
    lines = []
    for _, own in intervals(run, rounds_each):
        histogram = [own.count(number) for number in range(run.draft_length + 1)]
        speculation = {
            "mean_acceptance_length": 1 + sum(own) / len(own),
            "acceptance_histogram": histogram,
            "num_spec_steps": len(own),
            "num_accepted_draft_tokens": sum(own),
            "num_draft_tokens": len(own) * run.draft_length,
            "num_spec_tokens": run.draft_length,
        }
        tokens = 1 + sum(own) + len(own)
        times = {
            "time_to_first_token_ms": run.ttft_s * 1e3,
            "generation_time_ms": len(own) * run.step_s * 1e3,
            "mean_itl_ms": run.step_s * 1e3,
        }
        usage = {"prompt_tokens": run.prompt_tokens, "completion_tokens": tokens}
        lines.append(json.dumps({"usage": usage, "metrics": {**times, "speculative_decoding": speculation}}))
    return "\n".join(lines) + "\n"
