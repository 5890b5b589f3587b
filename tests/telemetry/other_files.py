"""A known run as the files of SGLang, TensorRT-LLM, GuideLLM, AIPerf and Prometheus' query API."""

from __future__ import annotations

import json

from prometheus_client.parser import text_string_to_metric_families

from tests.telemetry import vllm_files
from tests.telemetry.known_run import KnownRun
from tests.telemetry.vllm_files import intervals


def sglang_log(run: KnownRun, rounds_each: int = 40, early: bool = False) -> str:
    """SGLang's decode lines; every line covers as many steps. `early`: accept rate as before 2026."""
    lines = ["[2026-05-04 10:15:04 TP0] Prefill batch. #new-seq: 1, #new-token: 512, #running-req: 7,"]
    for _, own in intervals(run, rounds_each):
        length = 1 + sum(own) / len(own)
        rate = length / (run.draft_length + 1) if early else (length - 1) / run.draft_length
        lines.append(
            f"[2026-05-04 10:15:05 TP0] Decode batch{'.' if early else ','} #running-req: {run.concurrency}, "
            f"#token: 4612, token usage: 0.03, accept len: {length:.2f}, accept rate: {rate:.2f}, "
            f"cuda graph: True, gen throughput (token/s): 1904.41, #queue-req: 0, "
        )
    return "\n".join(lines) + "\n"


def sglang_metrics(run: KnownRun) -> str:
    """SGLang's gauges, of two ranks that say the same."""
    values = {
        "num_running_reqs": run.concurrency,
        "num_queue_reqs": 0,
        "token_usage": 0.03,
        "gen_throughput": 1904.41,
        "spec_accept_length": run.mean_length,
        "spec_accept_rate": run.accepted_tokens / run.drafted_tokens,
        "spec_num_steps": run.draft_length,
        "spec_num_draft_tokens": run.draft_length + 1,
    }
    lines = []
    for name, value in values.items():
        lines.append(f"# TYPE sglang:{name} gauge")
        lines += [
            f'sglang:{name}{{model_name="m",tp_rank="{rank}",pp_rank="0"}} {value!r}' for rank in (0, 1)
        ]
    return "\n".join(lines) + "\n"


def sglang_responses(run: KnownRun, rounds_each: int = 50) -> str:
    """SGLang's responses, a list."""
    document = []
    for _, own in intervals(run, rounds_each):
        tokens = 1 + sum(own) + len(own)
        info = {
            "prompt_tokens": run.prompt_tokens,
            "completion_tokens": tokens,
            "e2e_latency": run.ttft_s + len(own) * run.step_s,
            "spec_verify_ct": len(own),
            "spec_num_correct_drafts": sum(own),
            "spec_num_proposed_drafts": len(own) * run.draft_length,
            "spec_accept_length": tokens / len(own),
        }
        document.append({"text": "...", "meta_info": info})
    return json.dumps(document)


def sglang_bench(run: KnownRun) -> str:
    """A line of `sglang.bench_serving`."""
    document: dict[str, object] = {
        "backend": "sglang",
        "dataset_name": "sharegpt",
        "request_rate": float("inf"),
        "max_concurrency": run.concurrency,
        "server_info": {"speculative_num_steps": run.draft_length, "version": "0.5.23"},
        "duration": run.duration_s,
        "completed": run.requests,
        "total_input_tokens": run.requests * run.prompt_tokens,
        "total_output_tokens": run.output_tokens,
        "request_throughput": run.requests / run.duration_s,
        "input_throughput": run.requests * run.prompt_tokens / run.duration_s,
        "output_throughput": run.output_tokens / run.duration_s,
        "concurrency": float(run.concurrency),
        "accept_length": run.mean_length,
    }
    for name, value in (("ttft", run.ttft_s), ("tpot", run.tpot_s), ("itl", run.tpot_s)):
        document |= {f"{kind}_{name}_ms": value * 1e3 for kind in ("mean", "median", "p99")}
    return json.dumps(document) + "\n"


def sglang_table(run: KnownRun) -> str:
    """The same as the client prints it."""
    rows = [
        ("Backend:", "sglang"),
        ("Traffic request rate:", "inf"),
        ("Max request concurrency:", f"{run.concurrency}"),
        ("Successful requests:", f"{run.requests}"),
        ("Benchmark duration (s):", f"{run.duration_s:.2f}"),
        ("Total input tokens:", f"{run.requests * run.prompt_tokens}"),
        ("Total generated tokens:", f"{run.output_tokens}"),
        ("Total generated tokens (retokenized):", f"{run.output_tokens}"),
        ("Request throughput (req/s):", f"{run.requests / run.duration_s:.2f}"),
        ("Input token throughput (tok/s):", f"{run.requests * run.prompt_tokens / run.duration_s:.2f}"),
        ("Output token throughput (tok/s):", f"{run.output_tokens / run.duration_s:.2f}"),
        ("Concurrency:", f"{run.concurrency:.2f}"),
        ("Accept length:", f"{run.mean_length:.2f}"),
    ]
    for name, value in (("TTFT", run.ttft_s), ("TPOT", run.tpot_s), ("ITL", run.tpot_s)):
        rows += [(f"{kind} {name} (ms):", f"{value * 1e3:.2f}") for kind in ("Mean", "Median", "P99")]
    table = "\n".join(f"{name:<40} {value:<10}" for name, value in rows)
    return f"============ Serving Benchmark Result ============\n{table}\n{'=' * 50}\n"


def trtllm_report(run: KnownRun, old: bool = False) -> str:
    """What `trtllm-bench` prints."""
    tag, word = ("AR", "Rate") if old else ("AL", "Length")
    statistics = ("MINIMUM", "MAXIMUM", "AVERAGE", "P50    ", "P90    ", "P95    ", "P99    ")
    lines = [
        "= REQUEST DETAILS ",
        f"Number of requests:             {run.requests}",
        f"Average Output Length (tokens): {run.output_tokens / run.requests:.4f}",
        f"Total Output Throughput (tokens/sec):             {run.output_tokens / run.duration_s:.4f}",
        *(f"[TPOT] {name}: {run.tpot_s * 1e3:.4f}" for name in statistics),
        *(f"[TTFT] {name}: {run.ttft_s * 1e3:.4f}" for name in statistics),
        f"-- Acceptance {word} Details --------------------------------",
        "",
        *(f"[{tag}] {name}: {run.mean_length:.2f}" for name in statistics),
    ]
    return "\n".join(lines) + "\n"


def trtllm_json(run: KnownRun) -> str:
    """Its report as JSON."""

    def alike(value: float) -> dict[str, float]:
        return dict.fromkeys(("minimum", "maximum", "average", "p50", "p90", "p95", "p99"), value)

    report = {
        "engine": {"model": run.model, "version": "1.3.0"},
        "request_info": {"num_requests": run.requests, "avg_output_length": run.output_tokens / run.requests},
        "performance": {"system_output_throughput_tok_s": run.output_tokens / run.duration_s},
        "streaming_metrics": {
            "tpot_percentiles": alike(run.tpot_s * 1e3),
            "ttft_percentiles": alike(run.ttft_s * 1e3),
        },
        "decoding_stats": {"mode": "Eagle3", "acceptance_length_percentiles": alike(run.mean_length)},
    }
    return json.dumps(report, indent=4)


def guidellm(run: KnownRun) -> str:
    """A report of GuideLLM with one benchmark."""

    def summary(mean: float) -> dict[str, object]:
        percentiles = dict.fromkeys(("p50", "p90", "p95", "p99"), mean)
        return {
            "successful": {"mean": mean, "count": run.requests, "std_dev": 0.0, "percentiles": percentiles}
        }

    metrics = {
        "request_totals": {"successful": run.requests, "errored": 0},
        "request_latency": summary(run.ttft_s + run.decode_s / run.requests),
        "time_to_first_token_ms": summary(run.ttft_s * 1e3),
        "inter_token_latency_ms": summary(run.tpot_s * 1e3),
        "time_per_output_token_ms": summary(run.tpot_s * 1e3 * 1.1),
        "output_tokens_per_second": summary(run.output_tokens / run.duration_s),
        "output_token_count": summary(run.output_tokens / run.requests),
        "iter_tokens_per_iteration": summary(run.mean_length),
    }
    strategy = {"type_": "concurrent", "streams": run.concurrency}
    benchmark = {"config": {"strategy": strategy}, "metrics": metrics, "requests": {"successful": []}}
    return json.dumps({"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [benchmark]}, indent=1)


def guidellm_table(run: KnownRun) -> str:
    """GuideLLM's tables of latency and throughput, in milliseconds to one decimal."""
    ttft, itl = run.ttft_s * 1e3, run.tpot_s * 1e3
    throughput = run.output_tokens / run.duration_s
    return (
        "ℹ Request Latency Statistics (Completed Requests)\n"
        "|============|=========|========|=======|=======|======|======|======|======|\n"
        "| Benchmark  | Request Latency || TTFT         || ITL        || TPOT       ||\n"
        "| Strategy   | Sec             || ms           || ms         || ms         ||\n"
        "|            | Mdn     | p95    | Mdn   | p95   | Mdn  | p95  | Mdn  | p95  |\n"
        "|------------|---------|--------|-------|-------|------|------|------|------|\n"
        f"| concurrent | 5.0     | 5.4    | {ttft:.1f} | {ttft:.1f} | {itl:.1f} | {itl:.1f} | 78.5 | 84.2 |\n"
        "|============|=========|========|=======|=======|======|======|======|======|\n"
        "\nℹ Server Throughput Statistics (All Requests)\n"
        "|============|=======|======|=========|==============|===============|==============|\n"
        "| Benchmark  | Requests             ||| Input Tokens | Output Tokens | Total Tokens |\n"
        "| Strategy   | Concurrency || Per Sec | Per Sec      | Per Sec       | Per Sec      |\n"
        "|            | Mdn   | Mean | Mean                                               ||||\n"
        "|------------|-------|------|---------|--------------|---------------|--------------|\n"
        f"| concurrent | 8.0   | 8.0  | 0.4     | 65.8         | {throughput:.1f} | 88.9         |\n"
        "|============|=======|======|=========|==============|===============|==============|\n"
    )


def aiperf(run: KnownRun) -> str:
    """AIPerf's summary."""

    def metric(unit: str, value: float, count: int | None = None) -> dict[str, object]:
        alike = (
            {} if count is None else {**dict.fromkeys(("p50", "p90", "p95", "p99"), value), "count": count}
        )
        return {"unit": unit, "avg": value, **alike}

    document = {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "request_throughput": metric("requests/sec", run.requests / run.duration_s),
        "request_count": metric("requests", float(run.requests)),
        "request_latency": metric("ms", (run.ttft_s + run.decode_s / run.requests) * 1e3, run.requests),
        "time_to_first_token": metric("ms", run.ttft_s * 1e3, run.requests),
        "inter_token_latency": metric("ms", run.tpot_s * 1e3, run.requests),
        "inter_chunk_latency": metric("ms", run.step_s * 1e3, run.rounds),
        "output_token_throughput": metric("tokens/sec", run.output_tokens / run.duration_s),
        "output_sequence_length": metric("tokens", run.output_tokens / run.requests, run.requests),
        "total_spec_decode_steps": metric("count", float(run.rounds)),
        "total_accepted_draft_tokens": metric("tokens", float(run.accepted_tokens)),
        "total_draft_tokens": metric("tokens", float(run.drafted_tokens)),
        "pooled_spec_decode_acceptance_histogram": {
            str(number): count for number, count in enumerate(run.histogram) if count
        },
        "spec_decode_token_weighted_acceptance_length": metric("ratio", run.mean_length),
    }
    return json.dumps(document, indent=2)


def aiperf_records(run: KnownRun, rounds_each: int = 50) -> str:
    """AIPerf's records, one request a line."""
    lines = []
    for number, (_, own) in enumerate(intervals(run, rounds_each)):
        tokens = 1 + sum(own) + len(own)
        metrics = {
            "time_to_first_token": {"value": run.ttft_s * 1e3, "unit": "ms"},
            "inter_token_latency": {"value": len(own) * run.step_s * 1e3 / (tokens - 1), "unit": "ms"},
            "inter_chunk_latency": {"value": [run.step_s * 1e3] * len(own), "unit": "ms"},
            "output_sequence_length": {"value": tokens, "unit": "tokens"},
            "input_sequence_length": {"value": run.prompt_tokens, "unit": "tokens"},
        }
        histogram = {str(count): own.count(count) for count in sorted(set(own))}
        speculation = {
            "engine": "vllm",
            "mean_acceptance_length": 1 + sum(own) / len(own),
            "acceptance_histogram": histogram,
            "num_accepted_draft_tokens": sum(own),
            "num_draft_tokens": len(own) * run.draft_length,
            "num_spec_steps": len(own),
            "num_spec_tokens": run.draft_length,
        }
        metadata = {"session_num": number, "turn_index": 0, "benchmark_phase": "profiling"}
        record = {
            "metadata": metadata,
            "metrics": metrics,
            "spec_decode_acceptance": speculation,
            "error": None,
        }
        lines.append(json.dumps(record))
    return "\n".join(lines) + "\n"


def aiperf_table(run: KnownRun) -> str:
    """AIPerf's table, with a name that goes on in the next row."""
    ttft, itl = f"{run.ttft_s * 1e3:,.2f}", f"{run.tpot_s * 1e3:,.2f}"
    throughput = f"{run.output_tokens / run.duration_s:,.2f}"
    return (
        "               NVIDIA AIPerf | LLM Metrics\n"
        "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━┓\n"
        "┃                    Metric ┃       avg ┃       p99 ┃       p50 ┃\n"
        "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━┩\n"
        f"│             Time to First │ {ttft:>9} │ {ttft:>9} │ {ttft:>9} │\n"
        "│                Token (ms) │           │           │           │\n"
        f"│  Inter Token Latency (ms) │ {itl:>9} │ {itl:>9} │ {itl:>9} │\n"
        f"│   Output Token Throughput │ {throughput:>9} │       N/A │       N/A │\n"
        "│              (tokens/sec) │           │           │           │\n"
        "└───────────────────────────┴───────────┴───────────┴───────────┘\n"
    )


def aiperf_csv(run: KnownRun) -> str:
    """AIPerf's CSV."""
    ttft, itl = run.ttft_s * 1e3, run.tpot_s * 1e3
    return (
        "Metric,avg,min,max,p50,p99\n"
        f"Time to First Token (ms),{ttft:.4f},{ttft:.4f},{ttft:.4f},{ttft:.4f},{ttft:.4f}\n"
        f"Inter Token Latency (ms),{itl:.4f},{itl:.4f},{itl:.4f},{itl:.4f},{itl:.4f}\n"
        "\nMetric,Value\n"
        f"Output Token Throughput (tokens/sec),{run.output_tokens / run.duration_s:.4f}\n"
        f"Request Count (requests),{run.requests}\n"
    )


def prometheus_api(run: KnownRun) -> str:
    """The answer of Prometheus' query API to an instant query for all of vLLM's metrics."""
    lines = [line for line in vllm_files.metrics(run).splitlines() if line.startswith("vllm:")]
    result = [
        {
            "metric": {"__name__": sample.name, "instance": "10.0.0.1:8000", "job": "vllm", **sample.labels},
            "value": [1796084408.781, str(sample.value)],
        }
        for family in text_string_to_metric_families("\n".join(lines) + "\n")
        for sample in family.samples
    ]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}, indent=1)
