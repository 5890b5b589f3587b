"""The calls for notebooks: typed records, arrays by name, and the example that uses nearly all of them."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import api
from simulator.errors import InputError
from simulator.results.estimate import Estimate
from tests.shared_data import ROOT
from tests.studies import ALPHA, study

SMALL = {
    "target": {"model": "llama-3.1-8b-instruct"},
    "hardware": {"gpu": "h100-sxm"},
    "speculation": [
        {"name": "eagle3", "method": "eagle3", "acceptance": {"model": "geometric", "alpha": 0.7}}
    ],
    "workload": {
        "arrivals": {"kind": "closed", "concurrency": 4},
        "requests": 60,
        "prompt_tokens": {"kind": "fixed", "tokens": 100},
        "output_tokens": {"kind": "uniform", "low": 20, "high": 60},
    },
    "run": {"replications": 3},
}


def test_a_scenario_comes_from_a_file_a_mapping_or_another_scenario(tmp_path: Path) -> None:
    scenario = api.load(SMALL, "workload.requests=80")
    assert scenario.workload.requests == 80
    assert api.load(scenario, "hardware.gpu=h200-sxm").hardware.gpu == "h200-sxm"
    file = tmp_path / "scenario.yaml"
    file.write_text(scenario.model_dump_json(), encoding="utf-8")
    assert api.load(file) == api.load(str(file)) == scenario
    with pytest.raises(InputError, match=r"--set hardware\.gpu"):
        api.load(scenario, "hardware.gpu=h300")


def test_an_answer_becomes_arrays_of_one_length() -> None:
    scenario = api.load(SMALL)
    result = api.simulate(scenario)
    variants = api.columns(result)
    assert list(variants["arm"]) == ["plain", "eagle3"]
    estimate = result.variants["eagle3"]["throughput_tokens_per_s"]
    assert estimate is not None
    assert estimate.ci95 is not None
    assert variants["throughput_tokens_per_s"][1] == estimate.value
    assert variants["throughput_tokens_per_s_low"][1] == estimate.ci95[0]
    assert np.isnan(variants["mean_acceptance_length"][0])
    assert list(variants["verdict"]) == [None, result.comparison["eagle3"].verdict.outcome]
    rows = api.columns(api.break_even(scenario, concurrency=[1, 4], draft_length=[2, 3]))
    assert list(rows["concurrency"]) == [1, 1, 4, 4]
    assert rows["simulated_alpha_band_low"].dtype == np.float64
    changes = api.columns(api.what_if(scenario, "hardware.gpu=h200-sxm", ["engine.host.step_s=0"]))
    assert set(changes["alternative"]) == {"gpu=h200-sxm", "step_s=0"}
    held = api.columns(api.memory(scenario))
    assert held["kv_tokens"][0] > held["kv_tokens"][1]
    grid = api.columns(api.speedup_map(scenario, concurrency=[1, 4], alpha=[0.5, 0.9]))
    assert len(grid["speedup"]) == 4
    for table in (variants, rows, changes, held, grid):
        assert len({len(values) for values in table.values()}) == 1


def test_requests_are_those_of_the_records() -> None:
    result = api.simulate(api.load(SMALL))
    requests = api.requests(result, "eagle3")
    assert len(requests["ttft_s"]) == 3 * 60
    measured = requests["measured"] == 1
    outcome = result.variants["eagle3"]["ttft_s.mean"]
    assert outcome is not None
    means = [requests["ttft_s"][measured & (requests["replication"] == r)].mean() for r in range(3)]
    assert np.mean(means) == pytest.approx(outcome.value)
    assert api.requests(result, "nobody") == {}


def test_a_precision_is_met() -> None:
    result = api.simulate(api.load(SMALL), precision="5%")
    for variant in result.variants.values():
        outcome = variant["throughput_tokens_per_s"]
        assert outcome is not None
        assert outcome.relative_half_width <= 0.05


@dataclass(frozen=True)
class Mine:
    name: str
    gain: Estimate | None


def test_a_plan_wants_an_slo_and_cases_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="slo"):
        api.plan(api.load(SMALL), rate_per_s=2.0)
    with pytest.raises(InputError, match=r"cases\.json"):
        api.validate(tmp_path / "cases.json")


def test_a_map_is_of_a_variant_that_is_there() -> None:
    with pytest.raises(InputError, match="unknown variant"):
        api.speedup_map(api.load(SMALL), variant="eagle4")
    with pytest.raises(InputError, match="speculation: is empty, so there is nothing to compare"):
        api.speedup_map(api.load(SMALL, "speculation=[]"))


def test_a_cluster_has_its_own_workers(tmp_path: Path) -> None:
    read = study(tmp_path, f"axes:\n  {ALPHA}: [0.5]\n")
    with pytest.raises(InputError, match="cannot be combined with the address of a cluster"):
        api.sweep(read, tmp_path / "s.db", workers=2, dask="tcp://127.0.0.1:1")


def test_records_of_ones_own_have_columns_too() -> None:
    table = api.columns([Mine("a", Estimate(1.0, (0.5, 1.5))), Mine("b", None)])
    assert list(table["name"]) == ["a", "b"]
    assert table["gain_high"][0] == 1.5
    assert np.isnan(table["gain"][1])
    with pytest.raises(TypeError, match="has no rows"):
        api.columns(3)


def test_every_call_is_documented_and_answers_with_a_record() -> None:
    page = (ROOT / "docs" / "library.md").read_text("utf-8")
    table = set(re.findall(r"^\| `(\w+)\(", page, re.MULTILINE))
    assert table == set(api.__all__)
    for name in api.__all__:
        call = getattr(api, name)
        assert call.__doc__
        documented = re.search(rf"^\| `{name}\((.*?)\)`", page, re.MULTILINE)
        assert documented is not None
        words = [word.split("=")[0].strip(" *") for word in documented[1].split(",")]
        assert set(words) <= set(inspect.signature(call).parameters), name


def test_the_module_is_light() -> None:
    heavy = (
        "print({'numpy', 'pydantic', 'numba', 'scipy'} & {name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, experiments.api\n{heavy}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "set()"


@pytest.fixture(scope="module")
def notebook() -> tuple[dict[str, Any], str]:
    """What the example's cells leave behind, and what they print.

    `import decodesim` gives the module of this checkout: another checkout may be the one that is installed.
    """
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "decodesim", api)
        left = runpy.run_path(str(ROOT / "examples" / "notebook.py"))
    return left, out.getvalue()


def test_the_notebook_runs(notebook: tuple[dict[str, Any], str]) -> None:
    left, printed = notebook
    assert "eagle3: pays: throughput × 1." in printed
    assert "9 cells, 0 failed" in printed
    assert (left["cells"]["eagle3.break_even_alpha"] > 0).all()
    records = ("result", "answer", "bars", "spread", "standing")
    assert all(is_dataclass(left[name]) for name in records)


def test_the_notebook_has_cells_and_uses_the_calls() -> None:
    text = (ROOT / "examples" / "notebook.py").read_text("utf-8")
    assert text.count("# %%") > 12
    unused = [name for name in api.__all__ if f"decodesim.{name}(" not in text]
    assert unused == ["speedup_map"]
