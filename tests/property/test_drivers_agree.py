"""Random real scenarios: the pipeline and the compiled loop leave the same record, and every book balances.

Every array of the record is compared with ==. Counters prove that the rare events occurred.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from simulator.results.record import RunRecord
from simulator.runs.variant import CompiledVariant
from simulator.step.state import CANCELLED, REJECTED, TIMED_OUT, State
from simulator.traffic.workload import Requests
from tests.balance import check_balance
from tests.random_runs import random_variant, serves_any
from tests.runs import differences, traffic

SEEDS = range(150)


def test_both_drivers_leave_the_same_record_and_balance(tmp_path: Path, states: list[State]) -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        variant = random_variant(seed, tmp_path)
        requests = traffic(variant.scenario, seed)
        if not serves_any(variant, requests):
            continue
        fast = variant.run(requests, seed)
        assert fast.driver == "fast_forward"
        check_balance(variant, requests, fast, states, f"seed {seed}")
        slow = random_variant(seed, tmp_path, backend="pipeline").run(requests, seed)
        assert slow.driver == "pipeline"
        check_balance(variant, requests, slow, states, f"seed {seed}, pipeline")
        assert differences(fast, slow) == [], f"seed {seed}"
        seen.update(happened(variant, requests, fast))
    assert {name: count for name, count in seen.items() if count < 5} == {}
    assert len(seen) == 23


def happened(variant: CompiledVariant, requests: Requests, record: RunRecord) -> list[str]:
    """What occurred in a run."""
    totals, settings = record.totals, variant.settings
    acceptance = variant.variant.acceptance.model if variant.variant is not None else "none"
    events = {
        "preempted": totals["preemptions"] > 0,
        "timed out": (record.status == TIMED_OUT).any(),
        "timed out midway": ((record.status == TIMED_OUT) & (record.emitted_tokens > 0)).any(),
        "cancelled": (record.status == CANCELLED).any(),
        "rejected": (record.status == REJECTED).any(),
        "ghosts": totals["ghost_rows"] > 0,
        "trimmed": totals["trimmed_tokens"] > 0,
        "cut drafts": totals["cut_drafts"] > 0,
        "prefix hits": totals["prefix_hit_tokens"] > 0,
        "prefix hits with a lost match": totals["prefix_hit_tokens"] > 0 and settings.loses_last_match,
        "recorded traffic": variant.scenario.workload.arrivals.kind == "trace",
        "sessions": (requests.successor >= 0).any(),
        "drift": acceptance == "hierarchical" and totals["emitted_tokens"] > 0,
        "replayed acceptance": acceptance == "trace",
        "gated": acceptance == "gated",
        "a class that does not draft": len(variant.acceptance) > 1 and variant.acceptance[0] is None,
        "K by batch": len(set(settings.draft_length_by_batch)) > 1,
        "prefill apart": not settings.mixes_prefill,
        "mixed": totals["mixed_steps"] > 0,
        "eager": totals["eager_steps"] > 0,
        "synchronous": not settings.asynchronous,
        "ragged": settings.ragged,
        "one token a request": (record.emitted_tokens == 1).any(),
    }
    return [name for name, did in events.items() if did]
