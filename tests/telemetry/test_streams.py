"""Lines of files: cleaned, of bounded length, in bounded memory."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path

import pytest

from calibration.telemetry.answer import read
from calibration.telemetry.lines import CUT, MOST_LINE_CHARACTERS, Line, clean, lines_of, opened
from calibration.telemetry.reading import Counts, RoundBlock
from calibration.telemetry.samples import BlockSeries, Samples
from simulator.errors import InputError
from tests.shared_data import ROOT
from tests.telemetry import vllm_files
from tests.telemetry.known_run import drawn

MOST_MEGABYTES = 200
"""Memory that a log of any size may take."""


def texts(content: bytes) -> list[tuple[str, bool]]:
    """The lines of a content and whether each is whole."""
    return [(line.text, line.is_complete) for line in lines_of(io.BufferedReader(io.BytesIO(content)))]  # type: ignore[arg-type]


def test_lines_and_carriage_returns() -> None:
    document = texts(b"one\r\ntwo\n  0%|   |\r 50%|## |\r100%|####|\nlast")
    assert document == [
        ("one", True),
        ("two", True),
        ("  0%|   |", True),
        (" 50%|## |", True),
        ("100%|####|", True),
        ("last", False),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO", "(APIServer pid=1) INFO"),
        ("^[[32mINFO^[[0m", "INFO"),
        ("\x1b]0;title\x07text", "text"),
        ("no\u00a0break\u200b", "no break"),
        ("plain", "plain"),
    ],
)
def test_terminal_codes_and_odd_spaces_go(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_an_endless_line_is_cut() -> None:
    document = list(lines_of(io.BufferedReader(io.BytesIO(b"x" * (3 << 20) + b"\nnext\n"))))  # type: ignore[arg-type]
    assert [line.is_complete for line in document] == [False, True]
    assert len(document[0].text) == MOST_LINE_CHARACTERS
    assert document[1] == Line(2, "next")
    assert CUT not in document[0].text


def test_gzip_within_gzip_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "twice"
    path.write_bytes(gzip.compress(gzip.compress(b"vllm " * 1000)))
    with pytest.raises(InputError, match="binary"), opened(str(path)) as stream:
        stream.read()


def test_a_scrape_of_millions_of_label_sets_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    with path.open("w") as file:
        for number in range(110_000):
            file.write(f'vllm:spec_decode_num_drafts_total{{engine="{number}"}} 1.0\n')
    with pytest.raises(InputError, match="more than 100,000 label sets"):
        read([str(path)])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell peak memory")
def test_a_log_of_any_size_takes_little_memory(tmp_path: Path) -> None:
    """The memory of a process that reads 64 MB of log, a fifth of which are lines on speculation."""
    text = (
        vllm_files.log(drawn(3, 0.7, 5000))
        + "INFO:     127.0.0.1:47164 - POST /v1/completions 200 OK\n" * 4000
    )
    path = tmp_path / "server.log"
    with path.open("w") as file:
        for _ in range(64_000_000 // len(text)):
            file.write(text)
    code = (
        "import sys\n"
        "from calibration.telemetry.answer import read\n"
        "found = read(sys.argv[1:]).to_json()\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(found['draft_rounds'], int(status['VmHWM'].split()[0]) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    rounds, megabytes = done.stdout.split()
    assert float(rounds) == 5000 * (64_000_000 // len(text))
    assert int(megabytes) < MOST_MEGABYTES


def test_many_blocks_are_merged_and_lose_nothing() -> None:
    series = BlockSeries()
    for number in range(20_000):
        series.add(RoundBlock(Counts(1.0, float(number % 4), 3.0, (1.0, 0.0, 0.0)), float(number % 7)))
    blocks = series.blocks()
    assert len(blocks) < 5000
    assert sum(block.counts.rounds for block in blocks) == 20_000
    assert sum(block.counts.accepted for block in blocks) == 30_000
    running = sum((block.running or 0.0) * block.counts.rounds for block in blocks) / 20_000
    assert running == pytest.approx(2.99985, abs=1e-4)


def test_percentiles_of_many_samples_are_within_their_bins() -> None:
    exact, binned = Samples(), Samples()
    exact.extend(number / 1e5 for number in range(1, 100_001))
    for number in range(1_200_000):
        binned.add((number % 100_000 + 1) / 1e5)
    few, many = exact.latency(), binned.latency()
    assert few is not None
    assert many is not None
    assert few.values["p90"] == pytest.approx(0.9, rel=1e-4)
    for name, value in few.values.items():
        assert many.values[name] == pytest.approx(value, rel=2e-3)
    assert many.count == 1_200_000
