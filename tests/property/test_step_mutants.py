"""Faults planted in the step, one at a time: comparing with the oracle must notice each of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MUTANTS = {
    "no KV slots ahead": ("step/compose.py", "+ tokens + e.lookahead_tokens\n", "+ tokens\n"),
    "rejected drafts stay computed": ("step/apply.py", "q.computed -= drafts - accepted", "q.computed -= 0"),
    "ghosts counted per request": ("step/apply.py", "ghost_rows += entry.tokens", "ghost_rows += 1"),
    "preempted go to the tail": (
        "step/compose.py",
        "    push_waiting_head(e, r)",
        "    push_waiting_tail(e, r)",
    ),
    "surplus of the last round leaves": (
        "step/apply.py",
        "min(gain, q.output - q.emitted) if e.stop_trim else gain",
        "gain",
    ),
    "eager one token early": (
        "step/price.py",
        "    if tokens <= e.graph_cap:",
        "    if tokens < e.graph_cap:",
    ),
    "eager launches wait for the GPU": ("step/price.py", "p.composed_ns, plan_at", "start_ns, plan_at"),
    "eager launches do not queue": ("step/price.py", "plan_at(e, 1 - slot).launched_ns", "0"),
    "tokens leave after the drafts": (
        "fast_forward.py",
        "emission_ns if e.emits_before_drafting else end_ns",
        "end_ns",
    ),
    "hidden host work is not hidden": ("fast_forward.py", "max(end_ns, start_ns + ", "(end_ns + "),
    "drafts that do not fit are kept": ("step/compose.py", "max(0, tokens - missing)", "drafts"),
    "one draft pass too many": ("step/price.py", "later * (p.draft_length - 1)", "later * p.draft_length"),
    "context charged per query token": (
        "step/price.py",
        "context_sum += q.prompt + emitted - 1 + entry.tokens",
        "context_sum += (q.prompt + emitted - 1) * entry.tokens + entry.tokens",
    ),
    "admission goes on after a preemption": (
        "step/compose.py",
        "while not plan_at(e, slot).preempted and ",
        "while ",
    ),
    "a client waits one tick too long": (
        "step/queues.py",
        "return q.arrival_ns + e.timeout_ns",
        "return q.arrival_ns + e.timeout_ns + 1",
    ),
    "the front end forgets what it could not divide": (
        "step/front_end.py",
        "e.loop_carry_ns = time_ns % inside",
        "e.loop_carry_ns = 0",
    ),
    "the front end parses one after another": (
        "step/front_end.py",
        "max(left_ns * inside - e",
        "max(left_ns - e",
    ),
    "prompts are tokenized at once": ("step/front_end.py", "max(e.tokenizer_free_ns, now_ns)", "now_ns"),
    "the match is never remembered": (
        "step/survive.py",
        "    q.matched = finds_match(e, r)",
        "    q.matched = 0",
    ),
}
CHECK = """
import sys
from tests import step_harness as harness
from tests.property.test_step_equals_oracle import expected
from tests.scenarios import SEEDS, scenario
for seed in SEEDS:
    case = scenario(seed)
    if harness.outcome(harness.run_fast(case)) != expected(case):
        print("caught by scenario", seed)
        sys.exit(0)
print("survived")
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_oracle_notices(name: str, tmp_path: Path) -> None:
    file, right, wrong = MUTANTS[name]
    shutil.copytree(ROOT / "simulator", tmp_path / "simulator")
    shutil.copytree(ROOT / "tests", tmp_path / "tests")
    source = tmp_path / "simulator" / file
    text = source.read_text()
    assert text.count(right) == 1, f"{right!r} must stand once in {file}"
    text = text.replace(right, wrong)
    if "push_waiting_tail" in wrong:
        text = text.replace("pop_waiting, push_waiting_head", "pop_waiting, push_waiting_tail")
    source.write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "caught" in run.stdout
