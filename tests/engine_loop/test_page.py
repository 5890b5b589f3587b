"""docs/engine-loop.md against the raw files of its run."""

import importlib.util
import json
import sys
from statistics import median
from types import ModuleType
from typing import Any

import pytest

from calibration.engine_loop.engine_preset import PlainLoad
from calibration.engine_loop.evaluate import rounds_of
from calibration.engine_loop.matrix import CALIBRATION_LOADS, MATRICES, LoopCell
from calibration.engine_loop.raw import acceptance_of
from tests.shared_data import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """The script that makes the page."""
    sys.path.insert(0, str(DOCS))
    try:
        spec = importlib.util.spec_from_file_location("engine_loop_page", DOCS / "engine_loop.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module


@pytest.fixture(scope="module")
def run(pages: ModuleType) -> Any:
    """The committed run."""
    run = pages.read_run()
    assert run is not None
    return run


def test_the_page_is_what_the_raw_files_say(pages: ModuleType) -> None:
    text = pages.PAGE.read_text("utf-8")
    for name, block in pages.blocks_of(pages.read_run()).items():
        assert f"<!-- {name} -->\n\n{block}\n\n<!-- end -->" in text


def test_predictions_were_written_before_any_cell_began(run: Any) -> None:
    """Times are whole seconds, so the first cell may begin in the second in which they were written."""
    written = run["predictions"]["written"]
    assert all(raw["begun"] >= written for raw in run["cells"].values())
    assert all(raw["begun"] < written for raw in run["calibration"].values())


def test_blind_figures_are_those_that_were_written_down(run: Any) -> None:
    for entry in run["compared"]["cells"]:
        name = LoopCell(**entry["cell"]).name
        assert entry["blind"] == run["predictions"]["cells"][name]["figures"]


def test_acceptance_is_that_of_the_counters(run: Any) -> None:
    for entry in run["compared"]["cells"]:
        rounds = rounds_of(run["cells"], LoopCell(**entry["cell"]).name)
        if entry["tokens_per_verify"] is not None:
            counted = median(acceptance_of(raw)["mean_acceptance_length"]["value"] for raw in rounds)
            assert entry["tokens_per_verify"] == pytest.approx(counted)


def test_cells_are_those_of_a_matrix_and_were_served_whole(run: Any) -> None:
    cells = [LoopCell(**raw["cell"]) for raw in run["cells"].values()]
    assert any(set(cells) <= set(matrix.cells()) for matrix in MATRICES.values())
    for cell, raw in zip(cells, run["cells"].values(), strict=True):
        assert len(raw["ttft_s"]) == len(raw["gaps"]) == cell.requests
        assert set(raw["output_tokens"]) == {cell.output_tokens}
    loads = {PlainLoad.of_rounds([raw]).clients for raw in run["calibration"].values()}
    assert loads == set(CALIBRATION_LOADS)


def test_the_second_prediction_is_compared_with_the_same_measurements(run: Any) -> None:
    first, again = (run[name]["cells"] for name in ("compared", "again"))
    assert [entry["cell"] for entry in again] == [entry["cell"] for entry in first]
    assert [entry["measured"] for entry in again] == [entry["measured"] for entry in first]
    assert [entry["predicted"] for entry in again] != [entry["predicted"] for entry in first]


def test_no_path_or_host_is_committed(pages: ModuleType, run: Any) -> None:
    text = json.dumps(run)
    for word in ('"/', "/home", "/root", "/tmp", "192.168.", "127.0.0.1"):
        assert word not in text
    assert pages.RAW.stat().st_size < 2_000_000
