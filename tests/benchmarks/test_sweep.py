"""What a sweep costs beyond its simulations: grid, processes, checks, estimates and store, in CPU time.

1,600 cells: 20 acceptances × 8 draft lengths × 10 loads, 4,000 requests each in a closed loop, with prompts
and KV memory, on two workers, first imports included.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import time
import tracemalloc
from pathlib import Path

from experiments.cell import Cell
from experiments.runner.pools import local_pool
from experiments.store.store import Store
from experiments.study.grid import StudyGrid
from experiments.study.load import load_study
from experiments.study.study import Study
from experiments.sweep import sweep
from simulator.results.summary import MeasuredRun
from simulator.runs.replications import replication_seed, traffic_of
from simulator.runs.variant import CompiledVariant
from simulator.scenario import scenario_from_data

STUDY = """\
scenario:
  target: {model: llama-3.3-70b-instruct, weights: fp8, kv_cache: fp8}
  hardware: {gpu: h100-sxm, tensor_parallel: 4}
  speculation:
    - {name: eagle3, method: eagle3, draft_length: 3, acceptance: {model: geometric, alpha: 0.7}}
  workload:
    arrivals: {kind: closed, concurrency: 64}
    requests: 4000
    prompt_tokens: {kind: lognormal, median: 300, p95: 900}
    output_tokens: {kind: uniform, low: 100, high: 300}
  run: {replications: 1}
axes:
  workload.arrivals.concurrency: {from: 1, to: 256, steps: 10, scale: log}
  speculation.eagle3.draft_length: {from: 1, to: 8, steps: 8}
  speculation.eagle3.acceptance.alpha: {from: 0.05, to: 1.0, steps: 20}
keep: [throughput_speedup, tpot_mean_speedup, throughput_tokens_per_s, mean_batch]
"""
CELLS = 20 * 8 * 10
SAMPLE = 200
"""Cells whose simulations are run by themselves: a random eighth, an eighth of the time."""
MOST_OVERHEAD = 0.30
MOST_CPU_S = 60
MOST_GROWTH = 1.1


def study_in(folder: Path) -> Study:
    """The study, from a file."""
    path = folder / "bench.study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return load_study(path)


def cpu_s() -> float:
    """CPU seconds of this process and of those that it started, which have to end first."""
    for child in multiprocessing.active_children():
        child.join()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def simulation_s(cell: Cell) -> float:
    """CPU seconds of one run of a cell's speculative variant, with its figures."""
    scenario = scenario_from_data(json.loads(cell.scenario))
    variant = CompiledVariant.compile(scenario, scenario.speculation[0])
    requests, seed = traffic_of(scenario, 0), replication_seed(0, 0)
    begun = time.process_time()
    MeasuredRun.of(variant.run(requests, seed), variant.measurement_scope, intervals=False)
    return time.process_time() - begun


def test_a_sweep_costs_little_more_than_its_simulations(tmp_path: Path) -> None:
    begun = cpu_s()
    study = study_in(tmp_path)
    store = Store.create_or_open(tmp_path / "s.db", study.document, study.sha256)
    with store, local_pool(2) as pool:
        standing = sweep(study, store, pool)
    whole_s = cpu_s() - begun
    assert (standing.cells, standing.done) == (CELLS, CELLS)
    sample = random.Random(0).sample(list(StudyGrid(study).cells()), SAMPLE)
    simulation_s(sample[0])  # loads the machine code
    alone_s = sum(map(simulation_s, sample)) * CELLS / SAMPLE
    overhead = whole_s / alone_s - 1
    print(f"\n{CELLS:,} cells: {whole_s:.1f} s of CPU, simulations {alone_s:.1f} s, overhead {overhead:.0%}")
    assert overhead < MOST_OVERHEAD
    assert whole_s < MOST_CPU_S


def test_memory_does_not_grow_with_the_cells(tmp_path: Path) -> None:
    """The first 100,000 of a study's 800,000 cells are counted, made and forgotten; nothing is run."""
    path = tmp_path / "large.study.yaml"
    path.write_text(STUDY.replace("steps: 20", "steps: 10000"), encoding="utf-8")
    study = load_study(path)
    assert StudyGrid(study).count(10**9) == 800_000
    peaks = []
    for most in (2_000, 100_000):
        tracemalloc.start()
        for number, cell in enumerate(StudyGrid(study).cells()):
            assert cell.scenario
            if number == most:
                break
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    print(f"\npeak of 2,000 cells {peaks[0] / 1e6:.2f} MB, of 100,000 {peaks[1] / 1e6:.2f} MB")
    assert peaks[1] < MOST_GROWTH * peaks[0]
