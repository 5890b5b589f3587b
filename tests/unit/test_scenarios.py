"""The random scenarios are worth running: every rare event occurs in them, and the oracle keeps its books."""

from collections import Counter
from typing import Any

from tests.oracle import Oracle
from tests.scenarios import SEEDS, any_uniform, scenario

RARE = (
    "preemptions cut_drafts trimmed_tokens ghost_rows mixed_steps eager_steps piecewise_steps full_steps "
    "done timed_out cancelled rejected"
)


def run(seed: int) -> Oracle:
    case = scenario(seed)
    acceptance = case["acceptance"]
    oracle = Oracle(case["engine"], case["prices"], case["requests"], acceptance, any_uniform)
    oracle.run()
    return oracle


def test_a_seed_names_one_scenario() -> None:
    assert scenario(7) == scenario(7)
    assert scenario(7) != scenario(8)


def test_every_rare_event_occurs_and_the_books_balance() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        oracle = run(seed)
        events: dict[str, Any] = {**oracle.counters, **Counter(r["status"] for r in oracle.requests)}
        seen.update(name for name in RARE.split() if events.get(name, 0) > 0)
        assert len(oracle.free) == oracle.engine["total_blocks"], seed
        assert not oracle.waiting, seed
        assert not oracle.running, seed
        totals: Counter[str] = Counter()
        for r in oracle.requests:
            assert r["status"] != "unfinished", seed
            assert r["arrival_ns"] <= r["ended_ns"], seed
            if r["first_ns"] >= 0:
                assert r["arrival_ns"] <= r["admitted_ns"] < r["first_ns"] <= r["last_ns"] <= r["ended_ns"], (
                    seed
                )
            if oracle.on["stop_trim"]:
                assert r["emitted_tokens"] <= r["stop"], seed
                assert r["status"] not in ("done", "cancelled") or r["emitted_tokens"] == r["stop"], seed
            totals.update({name: r[name] for name in ("emitted_tokens", "accepted_tokens", "decode_rounds")})
        # Each sampling entry yields one token and its accepted drafts, less what the stop trims.
        prefills = sum(e[5] and not e[3] for step in oracle.steps for e in step[-1])
        yielded = totals["decode_rounds"] + totals["accepted_tokens"] - oracle.counters["trimmed_tokens"]
        if oracle.timeout is None:  # otherwise the last chunk of a prompt may have been for nobody
            assert totals["emitted_tokens"] == yielded + prefills, seed
        assert yielded <= totals["emitted_tokens"] <= yielded + prefills, seed
    assert {name: seen[name] >= 15 for name in RARE.split()} == dict.fromkeys(RARE.split(), True), seen
