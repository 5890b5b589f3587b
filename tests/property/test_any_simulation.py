"""Any scenario that the parser lets through can be simulated: figures that are numbers or null, books that
balance, and no error but `InputError`. Tiny requests, and every setting at its edges."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.results.record import RunRecord
from simulator.results.result import Result, dump_json
from simulator.scenario import Scenario, parse_scenario
from simulator.simulation import simulate
from simulator.step.state import CANCELLED, DONE, REJECTED, TIMED_OUT

RATE = st.sampled_from([0.0, 1e-12, 0.3, 0.7, 1 - 1e-12, 1.0])
TOKENS = st.one_of(st.integers(1, 40), st.sampled_from([1, 15, 16, 17, 2047, 2049]))
SECONDS = st.sampled_from([0.0, 1e-9, 0.01, 1.0, 1e6])


def form(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


def just(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def lengths(tokens: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, Any]]:
    pairs = st.tuples(tokens, tokens).map(sorted)
    return st.one_of(
        form(kind=just("fixed"), tokens=tokens),
        pairs.map(lambda pair: {"kind": "uniform", "low": pair[0], "high": pair[1]}),
        pairs.map(lambda pair: {"kind": "lognormal", "median": pair[0], "p95": pair[1], "max": pair[1]}),
    )


PROMPTS = lengths(st.one_of(TOKENS, TOKENS, TOKENS, just(131_070, 131_072, 10**7)))
OUTPUTS = lengths(st.integers(1, 40))
ARRIVALS = st.one_of(
    form(kind=just("closed"), concurrency=just(1, 3, 64, 1_000_000), think_time_s=SECONDS),
    form(kind=just("burst")),
    form(kind=just("poisson"), rate_per_s=just(1e-9, 1e-7, 1e-3, 5, 1e6)),
    form(kind=just("gamma"), rate_per_s=just(1e-3, 5, 1e6), cv=just(1e-9, 3, 100)),
    form(kind=just("profile"), rates_per_s=just([[0, 0], [1, 5]], [[0, 5], [1, 1e-6]])),
)
ACCEPTANCE = st.one_of(
    form(model=just("geometric"), alpha=RATE),
    form(model=just("fixed"), rate=RATE),
    form(model=just("positional"), conditional=st.lists(RATE, min_size=1, max_size=4)),
    form(model=just("decay"), alpha=RATE, delta=just(-10, 0, 0.2, 10)),
    form(
        model=just("hierarchical"),
        alpha=RATE,
        delta=just(-10, 0.1, 10),
        request_sd=just(0, 1, 10),
        drift_sd=just(0, 1, 10),
        drift_correlation=just(0, 0.9, 1 - 1e-9),
    ),
    form(model=just("geometric"), mean_acceptance_length=just(1, 1.7, 4), at_draft_length=st.integers(1, 6)),
)
GATED = form(
    model=just("gated"), match=RATE, stickiness=RATE, first=RATE, run=RATE, request_sd=just(0, 1, 10)
)
DRAFT_LENGTH = just(
    *(0, 1, 3, 128), {"policy": "goodput", "max": 5}, [[1, 2, 5], [3, 3, 0], [4, None, 1]], [[1, 2, 4]]
)
VARIANT = st.one_of(
    form(
        name=just("a"),
        method=just("eagle3"),
        draft_length=DRAFT_LENGTH,
        max_context_tokens=just(None, 1, 30, 10**9),
        acceptance=ACCEPTANCE,
    ),
    form(name=just("a"), method=just("ngram"), draft_length=DRAFT_LENGTH, acceptance=GATED),
)
CLASSES = just(
    [],
    [{"name": "x", "share": 1}],
    [{"name": "x", "share": 0, "drafts": False}, {"name": "plain", "share": 0.1 + 0.2}],
    [{"name": "a", "share": 0.5, "drafts": False, "output_tokens": {"kind": "fixed", "tokens": 1}}],
)
SCENARIOS = form(
    target=form(model=just("llama-3.1-8b-instruct"), kv_cache=just("bf16", "fp8")),
    hardware=form(
        gpu=just("h100-sxm"),
        replicas=just(1, 1, 1, 3),
        router=just("round-robin", "least-loaded", "session", "prefix"),
    ),
    engine=form(
        preset=just("vllm-0.33", "sglang-0.5"),
        scheduler=just(None, "prefill-apart"),
        max_num_seqs=just(1, 2, 64),
        max_num_batched_tokens=just(1, 3, 2048),
        chunked_prefill=st.booleans(),
        prefix_caching=st.booleans(),
        gpu_memory_utilization=just(*[0.92] * 6, 0.27, 0.01),
    ),
    speculation=st.one_of(VARIANT.map(lambda variant: [variant]), just([])),
    workload=form(
        arrivals=ARRIVALS,
        requests=st.integers(1, 12),
        prompt_tokens=PROMPTS,
        output_tokens=OUTPUTS,
        ends=just("eos", "max_tokens"),
        timeout_s=just(None, None, 1e-9, 0.05, 1e6),
        cancel_fraction=just(0, 0, 0.5, 1),
        sessions=just(
            None,
            {"turns": 1, "gap_s": 0},
            {"turns": 3, "gap_s": 0.01, "shared_prefix_tokens": 33},
            {"turns": 1000, "gap_s": 1e6, "shared_prefix_tokens": 10**5},
        ),
        classes=CLASSES,
    ),
    slo=just(None, {"ttft_p99_s": 1e-9}, {"ttft_p99_s": 1.0, "tpot_p99_s": 1e9}),
    run=form(
        seed=just(0, 2**63 - 1),
        replications=just(1, 2),
        backend=just("auto", "pipeline"),
        mechanisms=st.dictionaries(
            just(
                *("prefill", "kv_limit", "graph_padding", "heterogeneity", "stop_trim"),
                *("ghost_rows", "host_overlap", "context_growth"),
            ),
            st.booleans(),
            max_size=4,
        ),
    ),
)


@given(SCENARIOS)
def test_any_scenario_is_refused_or_answered(data: dict[str, Any]) -> None:
    try:
        scenario = parse_scenario(json.dumps(data), "s.json", Path("."))
        result = simulate(scenario)
    except InputError as error:
        assert all(problem.message and problem.field for problem in error.problems), str(error)  # noqa: PT017
        event("refused")
        return
    event("answered")
    assert json.loads(dump_json(result.to_json()))["schema"] == "decodesim/simulate-1"
    for name, variant in result.variants.items():
        for path, estimate in variant.estimates.items():
            if estimate is not None:
                check_figure(scenario, path, estimate.value)
        for record in result.records[name]:
            check_books(scenario, record)
    check_same_traffic(result)


def check_figure(scenario: Scenario, path: str, value: float) -> None:
    """Finite, not negative, and within what the figure can be."""
    assert math.isfinite(value), path
    assert value >= 0, path
    leaf = path.rpartition(".")[2]
    if leaf.endswith(("_fraction", "_attainment", "_coverage", "_rate")) and leaf != "request_rate":
        assert value <= 1 + 1e-12, path
    if leaf == "mean_acceptance_length":
        assert 1 <= value <= scenario.speculation[0].max_draft_length + 1, path


def check_books(scenario: Scenario, record: RunRecord) -> None:
    """Everybody came and ended once, and every token has its owner."""
    n = len(record.status)
    assert n == scenario.workload.requests
    ended = [int((record.status == status).sum()) for status in (DONE, CANCELLED, TIMED_OUT, REJECTED)]
    assert sum(ended) == n
    assert (record.arrival_ns >= 0).all()
    assert (record.ended_ns >= record.arrival_ns).all()
    assert record.emitted_tokens.sum() == record.totals["emitted_tokens"]
    assert (record.emitted_tokens[record.status == DONE] >= 1).all()
    assert (record.emitted_tokens[record.status == REJECTED] == 0).all()
    assert (record.accepted_tokens <= record.drafted_tokens).all()
    assert (record.draft_rounds <= record.decode_rounds).all()
    assert record.totals["peak_blocks"] <= record.totals["total_blocks"]


def check_same_traffic(result: Result) -> None:
    """All variants meet the same requests; who is never late in either is told the same number of tokens."""
    plain = result.records["plain"]
    for records in result.records.values():
        assert len(records) == len(plain)
        for record, other in zip(records, plain, strict=True):
            assert (record.traffic_class == other.traffic_class).all()
            both = (record.status == DONE) & (other.status == DONE)
            if result.scenario["run"]["mechanisms"]["stop_trim"]:
                assert (record.emitted_tokens[both] == other.emitted_tokens[both]).all()
