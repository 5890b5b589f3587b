"""PromQL for the quantities of a rollout, by engine. Names: the metrics pages of vLLM and SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

WINDOW = "10m"


class EngineQueries(NamedTuple):
    """An engine's expressions; None where it does not export the quantity. Latencies are in seconds."""

    acceptance_length: str | None
    rounds: str | None
    latency: Mapping[str, str]
    """Path of a result → expression."""
    note: str = ""


def _p99(**metrics: str) -> dict[str, str]:
    """The P99 of each latency, from the engine's histogram of it."""
    return {
        f"{latency}_s.p99": f"histogram_quantile(0.99, sum by (le) (rate({metric}_bucket[{WINDOW}])))"
        for latency, metric in metrics.items()
    }


QUERIES: Mapping[str, EngineQueries] = {
    "vllm": EngineQueries(
        f"1 + sum(rate(vllm:spec_decode_num_accepted_tokens_total[{WINDOW}])) / "
        f"sum(rate(vllm:spec_decode_num_drafts_total[{WINDOW}]))",
        f"sum(increase(vllm:spec_decode_num_drafts_total[{WINDOW}]))",
        _p99(
            ttft="vllm:time_to_first_token_seconds",
            itl="vllm:inter_token_latency_seconds",
            tpot="vllm:request_time_per_output_token_seconds",
        ),
        "The smallest bucket of `vllm:inter_token_latency_seconds` ends at 10 ms: P99 ITL below that is not "
        "resolved.",
    ),
    "sglang": EngineQueries(
        "avg(sglang:spec_accept_length)",
        None,
        _p99(ttft="sglang:time_to_first_token_seconds", itl="sglang:inter_token_latency_seconds"),
        "SGLang exports the acceptance length as a gauge, without counts, so its interval is not known. "
        "Gate on a benchmark, and alert on the gauge.",
    ),
    "trtllm": EngineQueries(
        None,
        None,
        {},
        "TensorRT-LLM exports no Prometheus counters of acceptance: gate on its benchmark reports.",
    ),
}
"""Engine, as launch configurations name it → its queries."""
