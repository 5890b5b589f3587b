"""Raw files, figures, speedups and verdicts of the loop on a serving engine."""

import json
import math
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.engine_loop.compare import CellRow, LoopComparison, turning_load
from calibration.engine_loop.cpu_time import group_cpu_s, machine_cpu_s, process_cpu_s
from calibration.engine_loop.engine_python import find_python
from calibration.engine_loop.loop import interrupted_when_terminated
from calibration.engine_loop.matrix import MATRICES, PLAIN, REQUESTS_FOR_P99, LoopCell
from calibration.engine_loop.raw import Figures, acceptance_of, kept_lines, raw_cell
from calibration.engine_loop.rounds import MeasuredCell
from calibration.engine_loop.server import EngineServer
from calibration.engine_loop.tables import tables_of
from simulator.errors import InputError
from tests.shared_data import SHARED, needs_shared

REAL = SHARED / "formats" / "real-vllm-0.32"

BENCH = {
    "duration": 2.0,
    "input_lens": [64, 64],
    "output_lens": [3, 5],
    "ttfts": [0.1, 0.2],
    "itls": [[0.010, 0.030], [0.0201, 0.0202, 0.0203]],
}


def figures(tpot_s: float, **other: float) -> Figures:
    """Figures with that TPOT."""
    base = dict.fromkeys(Figures.__dataclass_fields__, 1.0)
    return Figures(**base | {"tpot_s": tpot_s} | other)


def row(variant: str, clients: int, measured_s: float, predicted_s: float, requests: int = 16) -> CellRow:
    """A cell with these TPOTs."""
    cell = LoopCell(variant, requests, 64, clients)
    predicted = figures(predicted_s)
    return CellRow(cell, figures(measured_s), predicted, predicted, None if variant == PLAIN else 2.0)


def test_figures_of_a_raw_file_are_the_clients() -> None:
    raw = raw_cell(LoopCell(PLAIN, 2, 3, 1), "2026-01-01T00:00:00+00:00", BENCH, "", "")
    figures = Figures.of_raw(raw)
    assert figures.tpot_s == pytest.approx((0.040 / 2 + 0.0606 / 4) / 2)
    assert figures.ttft_s == pytest.approx(0.15)
    assert figures.itl_s == pytest.approx(np.mean([0.010, 0.030, 0.0201, 0.0202, 0.0203]))
    assert figures.throughput_tokens_per_s == pytest.approx(4.0)
    assert figures.ttft_p99_s == pytest.approx(np.quantile([0.1, 0.2], 0.99))


@needs_shared
def test_a_raw_file_keeps_the_counters_that_acceptance_needs() -> None:
    texts = [(REAL / f"ngram-c16.{when}.metrics.txt").read_text("utf-8") for when in ("before", "after")]
    raw = raw_cell(LoopCell("ngram-k3", 2, 64, 16), "", BENCH, *texts)
    short, complete = acceptance_of(raw), acceptance_of({"before": texts[0], "after": texts[1]})
    assert len(raw["after"]) < 0.3 * len(texts[1])
    for key in ("mean_acceptance_length", "conditional_acceptance", "draft_coverage", "gated"):
        assert short[key] == complete[key]


def test_other_counters_are_left_out() -> None:
    assert kept_lines("process_start_time_seconds 1\nvllm:generation_tokens_total 5\n") == (
        "vllm:generation_tokens_total 5\n"
    )


def test_speedups_compare_with_plain_decoding_at_the_same_load() -> None:
    rows = (
        row(PLAIN, 1, 0.010, 0.011), row(PLAIN, 8, 0.030, 0.030),
        row("ngram", 1, 0.008, 0.0088), row("ngram", 8, 0.040, 0.029), row("ngram", 32, 0.1, 0.1),
    )  # fmt: skip
    comparison = LoopComparison(rows)
    gain, loss = comparison.speedups
    assert (gain.measured, gain.predicted) == (pytest.approx(1.25), pytest.approx(1.25))
    assert gain.called_right
    assert loss.must_be_called
    assert not loss.called_right
    by_name = {target.name: target for target in comparison.targets}
    assert by_name["gains and losses called wrong"].value == 1
    assert by_name["gains and losses called wrong"].met is False
    assert by_name["plain TPOT at loads not calibrated, median"].value == pytest.approx(math.log(1.1) / 2)
    assert by_name["P99 TPOT, largest"].value is None


def raw_of(tpots_s: list[float], clients: int, variant: str = PLAIN) -> dict[str, Any]:
    """The raw file of requests of two gaps each, with these TPOTs."""
    count = len(tpots_s)
    bench = {"duration": 2.0, "input_lens": [64] * count, "output_lens": [3] * count}
    bench |= {"ttfts": [0.1] * count, "itls": [[tpot_s, tpot_s] for tpot_s in tpots_s]}
    return raw_cell(LoopCell(variant, count, 3, clients), "2026-01-01T00:00:00+00:00", bench, "", "")


def test_a_cell_is_the_median_of_its_rounds_which_show_its_noise() -> None:
    rounds = [raw_of([tpot_s] * 4, 2) for tpot_s in (0.020, 0.030, 0.022)]
    cell = MeasuredCell.of_rounds(rounds)
    assert cell.figures.tpot_s == pytest.approx(0.022)
    assert cell.tpot_rounds_s == pytest.approx((0.020, 0.030, 0.022))
    assert cell.noise == pytest.approx(np.std([20, 30, 22], ddof=1) / math.sqrt(3) / 24)


def test_the_noise_of_a_single_round_is_that_of_its_waves() -> None:
    """Requests that run together share their steps: four pairs are four samples."""
    pairs = [0.020, 0.024, 0.022, 0.026]
    cell = MeasuredCell.of_rounds([raw_of([tpot_s for tpot_s in pairs for _ in range(2)], 2)])
    assert cell.noise == pytest.approx(np.std(pairs, ddof=1) / 2 / np.mean(pairs))
    assert MeasuredCell.of_rounds([raw_of([0.02, 0.03], 2)]).noise is None


def test_a_speedup_compares_rounds_that_ran_close_to_one_another() -> None:
    """The machine is twice as slow in the second round: the speedup is 2 in all of them."""
    plain = replace(row(PLAIN, 4, 0.02, 0.02), tpot_rounds_s=(0.02, 0.04, 0.02), noise=0.2)
    variant = replace(row("ngram", 4, 0.01, 0.01), tpot_rounds_s=(0.01, 0.02, 0.01), noise=0.2)
    (speedup,) = LoopComparison((plain, variant)).speedups
    assert speedup.measured == pytest.approx(2.0)
    assert speedup.noise == pytest.approx(0.0, abs=1e-12)
    (once,) = LoopComparison((replace(plain, tpot_rounds_s=(0.02,)), variant)).speedups
    assert once.noise == pytest.approx(math.hypot(0.2, 0.2))


def test_tails_are_claimed_with_enough_requests_alone() -> None:
    few, many = (row(PLAIN, 16, 0.03, 0.03, count) for count in (REQUESTS_FOR_P99 - 1, REQUESTS_FOR_P99))
    assert not any(title.startswith("P99") for title in tables_of(LoopComparison((few,))))
    assert any(title.startswith("P99") for title in tables_of(LoopComparison((many,))))


@pytest.mark.parametrize(
    ("points", "load"),
    [
        ([(1, 1.4), (4, 1.1), (16, 1 / 1.1)], 8.0),
        ([(1, 0.9), (4, 0.8)], None),
        ([(1, 1.4), (4, 1.1)], None),
    ],
)
def test_a_gain_turns_where_the_line_of_logarithms_falls_through_one(
    points: list[tuple[int, float]], load: float | None
) -> None:
    assert turning_load(points) == (load if load is None else pytest.approx(load))


def test_rows_survive_their_json() -> None:
    before = row("ngram", 4, 0.02, 0.021)
    assert CellRow.from_json(json.loads(json.dumps(before.to_json()))) == before


@pytest.mark.parametrize("name", MATRICES)
def test_all_variants_follow_one_another_at_each_load(name: str) -> None:
    matrix = MATRICES[name]
    cells, count = list(matrix.cells()), len(matrix.variants)
    assert len({cell.name for cell in cells}) == len(cells)
    for first in range(0, len(cells), count):
        group = cells[first : first + count]
        assert [cell.variant for cell in group] == [variant.name for variant in matrix.variants]
        assert len({cell.load for cell in group}) == 1
    assert {cell.name for cell in cells if cell.claims_p99} == matrix.p99
    assert replace(cells[0], requests=REQUESTS_FOR_P99).claims_p99


@pytest.mark.parametrize("name", MATRICES)
def test_rounds_go_forth_and_back_and_long_cells_are_measured_once(name: str) -> None:
    matrix = MATRICES[name]
    visits = list(matrix.visits())
    counts = Counter(cell.name for cell, _ in visits)
    for cell in matrix.cells():
        assert counts[cell.name] == (1 if cell.claims_p99 else matrix.rounds)
    load = [(cell.variant, number) for cell, number in visits if cell.clients == 1]
    names = [variant.name for variant in matrix.variants]
    expected = [(variant, 1) for variant in names] + [(variant, 2) for variant in names[::-1]]
    assert load[: 2 * len(names)] == expected[: len(names) * min(matrix.rounds, 2)]


def test_the_cpu_time_of_a_group_is_part_of_the_machines() -> None:
    machine_s, own_s = machine_cpu_s(), process_cpu_s(os.getpid())
    deadline_s = time.process_time() + 0.1
    while time.process_time() < deadline_s:
        pass
    tick_s = 0.02
    assert process_cpu_s(os.getpid()) - own_s >= 0.1 - tick_s
    assert machine_cpu_s() - machine_s >= 0.1 - 2 * tick_s
    assert process_cpu_s(os.getpid()) <= group_cpu_s(os.getpgid(0))


def test_an_engine_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="make engine"):
        find_python(tmp_path / "python")


FAKE_SERVER = """#!{python}
import http.server, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("{folder}/child", "w").write(str(child.pid))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"vllm:generation_tokens_total 5\\n")
    def log_message(self, *_): pass
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def state_of(process: int) -> str | None:
    """The state of a process as the kernel names it; None if it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def reaches(process: int, states: tuple[str | None, ...]) -> bool:
    """Whether a process is in one of the states within some seconds."""
    for _ in range(100):
        if state_of(process) in states:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_server_leaves_no_process_behind(tmp_path: Path, error: Any) -> None:
    script = tmp_path / "vllm"
    script.write_text(FAKE_SERVER.format(python=sys.executable, folder=tmp_path))
    os.chmod(script, 0o700)
    server = EngineServer(tmp_path / "python", tmp_path / "model", None, tmp_path / "log")
    try:
        with server:
            server.wait()
            child = int((tmp_path / "child").read_text())
            assert "generation_tokens" in server.metrics()
            assert server.front_end_cpu_s() >= 0
            server.freeze()
            assert reaches(child, ("T",))
            server.thaw()
            assert reaches(child, ("S", "R"))
            if error is not None:
                raise error
    except KeyboardInterrupt:
        assert error is KeyboardInterrupt
    assert reaches(child, (None, "Z"))


def test_a_terminated_run_stops_its_servers_like_an_interrupted_one() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupted_when_terminated():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
