"""A million requests stay within 500 MB of memory: it grows with requests, never with tokens or steps."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.runs import drafting_variant, run, small_scenario
from tests.shared_data import ROOT

LIMIT_MB = 500
PROGRAM = """
import resource, sys
from simulator.results.measure import measure
from simulator.simulation import simulate
from tests.runs import drafting_variant, run, small_scenario

def peak_mb():
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except OSError:
        unit = 2**20 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

scenario = small_scenario(
    {
        "engine.max_num_seqs": 256,
        "engine.max_num_batched_tokens": 8192,
        "workload.requests": int(sys.argv[2]),
        "workload.arrivals.concurrency": 256,
        "workload.prompt_tokens": {"kind": "lognormal", "median": 20, "p95": 60},
        "workload.output_tokens": {"kind": "fixed", "tokens": int(sys.argv[3])},
        "run.replications": 1,
    }
)
if sys.argv[1] == "run":
    record = run(drafting_variant(scenario))
    tokens = int(record.emitted_tokens.sum())
    assert measure(record)["throughput_tokens_per_s"] > 0
else:
    result = simulate(scenario, keep_requests=False)
    tokens = int(result.variants["eagle3"].estimates["throughput_tokens_per_s"].value)
print(tokens, peak_mb())
"""


def peak_mb(what: str, requests: int, output_tokens: int) -> tuple[int, float]:
    """Tokens and the largest resident memory of a fresh process, in MB.

    The machine code is made beforehand, as it is kept on disk. The high-water mark is the process's own
    (`VmHWM`): `ru_maxrss` of a child starts from what its parent had.
    """
    run(drafting_variant(small_scenario()))
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, str(requests), str(output_tokens)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    tokens, peak = ran.stdout.split()
    return int(tokens), float(peak)


@pytest.mark.parametrize("what", ["run", "simulate"])
def test_a_million_requests_stay_within_500_mb(what: str) -> None:
    tokens, peak = peak_mb(what, 1_000_000, 8)
    assert peak < LIMIT_MB
    assert tokens == 8_000_000 or what == "simulate"


def test_memory_does_not_grow_with_tokens() -> None:
    short, long = peak_mb("run", 20_000, 8), peak_mb("run", 20_000, 400)
    assert long[0] == 50 * short[0]
    assert long[1] < short[1] + 5
