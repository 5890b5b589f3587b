"""Small engines, prices and requests for timelines that are worked out on paper."""

from typing import Any

from tests.oracle import run_oracle
from tests.oracle_blocks import Record

ROWS = 65
NO_ATTENTION = [[[0.0, 0.0], [0.0, 0.0]]]
HOST = (
    "request_latency_ns",
    "request_ns",
    "prompt_token_ns",
    "step_ns",
    "per_sequence_ns",
    "draft_pass_ns",
    "draft_step_ns",
    "hidden_step_ns",
    "hidden_per_sequence_ns",
)
MECHANISMS = ("prefill", "graph_padding", "stop_trim", "ghost_rows", "host_overlap", "context_growth")
PAIRS = ("prefill_pair_ns", "prefill_window_pair_ns", "draft_prefill_pair_ns")
CHUNKS = (
    "window_tokens",
    "prefill_start_ns",
    "draft_prefill_start_ns",
    "prefill_token_ns",
    "draft_prefill_token_ns",
    "launching_eager_ns",
    "sample_sequence_ns",
    "draft_launching_ns",
)


def prices(**changes: Any) -> Record:
    flat = [0.0] * ROWS
    return {
        **dict.fromkeys(("target_experts", "target_head", "draft_experts", "draft_head"), flat),
        **dict.fromkeys(PAIRS + CHUNKS, 0.0),
        **dict.fromkeys(("launch_full_ns", "launch_piecewise_ns", "launch_eager_ns"), 1000.0),
        "target_tokens": [10.0 * n for n in range(ROWS)],
        "sample": [float(n) for n in range(ROWS)],
        "draft_tokens": [float(n) for n in range(ROWS)],
        "draft_launch_ns": 100.0,
        "attention": NO_ATTENTION,
        "draft_attention": NO_ATTENTION,
        "batch_knots": [1, 2],
        "context_knots": [64, 128],
        **changes,
    }


def engine(draft_length: int = 0, host: Record | None = None, **changes: Any) -> Record:
    return {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 32,
        "block_tokens": 4,
        "total_blocks": 100,
        "max_context_tokens": 2**62,
        "prefix_caching": False,
        "prefix_block_tokens": 0,
        "keys_after_results": False,
        "loses_last_match": False,
        "padded_drafts": 0,
        "asynchronous": False,
        "emits_before_drafting": False,
        "mixes_prefill": True,
        "chunked_prefill": True,
        "reserved_output": 0.0,
        "draft_length_by_batch": [draft_length] * 9,
        "lookahead_tokens": 0,
        "slots_per_request": 0,
        "ragged": False,
        "drafter_has_kv": False,
        "first_pass_rows": "tokens",
        "serial_passes": 0,
        "drafter_max_context_tokens": None,
        "stop_is_foreseen": False,
        "think_time_ns": 0,
        "timeout_ns": None,
        "graph_sizes": list(range(1, 65)),
        "graph_cap": 64,
        "graphs_of_every_length": False,
        "host": dict.fromkeys(HOST, 0.0) | (host or {}),
        "mechanisms": dict.fromkeys(MECHANISMS, True),
        **changes,
    }


def request(
    prompt: int, output: int, arrival: int = 0, cancel: int = 0, names: tuple[int, ...] = ()
) -> Record:
    lengths = {"prompt_tokens": prompt, "output_tokens": output, "cancel_after_tokens": cancel}
    return {**lengths, "arrival_ns": arrival, "traffic_class": 0, "prefix_ids": list(names)}


def simulate(
    engine_: Record,
    requests: list[Record],
    draws: dict[tuple[int, int, int], float] | None = None,
    kind: str = "table",
    prices_: Record | None = None,
) -> tuple[list[Record], Record]:
    acceptance = {"kind": kind, "conditional": [[0.5] * 4], "drafts": [True]}
    acceptance |= {"match_after_miss": [0.5], "match_after_match": [0.95]}
    known = draws or {}
    outcome = run_oracle(engine_, prices_ or prices(), requests, acceptance, lambda *key: known.get(key, 0.9))
    return outcome["requests"], outcome["counters"]


def check(record: Record, **expected: Any) -> None:
    assert {name: record[name] for name in expected} == expected
