"""The same seed gives the same bytes of JSON and of result files, in another process too."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pathlib import Path
from simulator.breakeven.breakeven import breakeven
from simulator.results.result import dump_json
from simulator.scenario import load_scenario
from simulator.simulation import simulate

folder = Path(sys.argv[1])
overrides = ["workload.requests=300", "run.replications=2", f"run.seed={sys.argv[2]}"]
scenario = load_scenario("examples/llama-3.3-70b-eagle3-h100.yaml", overrides)
simulate(scenario, trace_out=folder / "trace.json").write(folder)
(folder / "breakeven.json").write_text(dump_json(breakeven(scenario).to_json()))
"""


def run(folder: Path, seed: int, hash_seed: int) -> dict[str, str]:
    """File → hash of what one process wrote."""
    folder.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(folder), str(seed)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(hash_seed)}, check=True)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def test_two_processes_write_the_same_bytes_and_another_seed_writes_others(tmp_path: Path) -> None:
    first, second, other = (
        run(tmp_path / name, seed, hash_seed)
        for name, seed, hash_seed in (("a", 7, 1), ("b", 7, 2), ("c", 8, 1))
    )
    assert set(first) == {
        "breakeven.json",
        "requests-eagle3-k3.npz",
        "requests-plain.npz",
        "result.json",
        "trace.json",
    }
    assert first == second
    assert all(first[name] != other[name] for name in first)
