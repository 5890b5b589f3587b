"""docs/acceptance.md: its entries, its numbers and its code are true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from simulator.acceptance import MODELS, Hierarchical, acceptance_model
from simulator.breakeven import theory
from tests.shared_data import ROOT

PAGE = (ROOT / "docs" / "acceptance.md").read_text(encoding="utf-8")


def test_every_model_stands_there_with_an_entry_that_runs(tmp_path: Path) -> None:
    (tmp_path / "lengths.json").write_text('{"sequences": [[2, 1, 3, 1], [1, 4, 2]]}', encoding="utf-8")
    measured = {"draft_length": 3, "acceptance_rate_at": [0.7, 0.5, 0.3]}
    (tmp_path / "acceptance.json").write_text(json.dumps(measured), encoding="utf-8")
    entries = [
        YAML(typ="safe", pure=True).load(text) for text in re.findall(r"`(\{(?:model|file):[^`]*\})`", PAGE)
    ]
    assert {entry.get("model") for entry in entries} == {*MODELS, None}
    for entry in entries:
        assert 1.0 < acceptance_model(entry, 3, tmp_path).mean_acceptance_length(3) < 4.0


@pytest.mark.parametrize(
    "row", re.findall(r"^\| (\d\.\d) \| (\S+) \| (\S+) \| (\S+) (\S+) (\S+) \|$", PAGE, re.MULTILINE)
)
def test_the_table_of_requests_that_differ(row: tuple[str, ...]) -> None:
    sd, mean, shown, *conditional = (float(cell) for cell in row)
    model = Hierarchical.from_alpha(0.65, request_sd=sd)
    assert model.mean_acceptance_length(3) == pytest.approx(mean, abs=0.0051)
    assert theory.harmonic_mean(*model.mean_acceptance_lengths_by_request(3)) == pytest.approx(
        shown, abs=0.0051
    )
    assert model.conditional(3) == pytest.approx(conditional, abs=0.0051)


def test_the_table_has_rows() -> None:
    assert len(re.findall(r"^\| \d\.\d \|", PAGE, re.MULTILINE)) == 3


def test_the_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/acceptance.md", "exec"), {})
