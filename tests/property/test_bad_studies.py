"""Whatever stands in a study file, it is a study whose cells can be made, or errors at real lines."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from experiments.study.grid import StudyGrid
from experiments.study.load import load_study
from simulator.errors import InputError
from tests.property.test_bad_input import HOSTILE, MARKS, VALUES, leaves
from tests.studies import ALPHA, CONCURRENCY, DRAFT_LENGTH, SCENARIO

TEXT = f"""{SCENARIO}axes:
  {ALPHA}: {{from: 0.1, to: 0.9, steps: 9}}
  {CONCURRENCY}: [1, 64]
  {DRAFT_LENGTH}: [3, [[1, null, 5]]]
  hardware.tensor_parallel: [2, 4]
zip: [[{CONCURRENCY}, {DRAFT_LENGTH}]]
where: [concurrency > 0, alpha < 2]
seeds: 2
measure: [simulate, breakeven]
keep: [verdict, eagle3.break_even_alpha]
refine: {{metric: eagle3.break_even_alpha, level: 0.5}}
"""
DATA: dict[str, Any] = YAML(typ="safe", pure=True).load(TEXT)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the study file is written, again and again."""
    return tmp_path_factory.mktemp("studies") / "s.yaml"


def refused(place: Path, text: str) -> bool:
    """Whether the text is no study; every error points into it. Of a study some cells are made."""
    place.write_bytes(text.encode("utf-8", "replace"))
    lines = max(1, len(text.splitlines()))
    try:
        study = load_study(place)
        StudyGrid(study).count(100)
        for cell in islice(StudyGrid(study).cells(), 5):
            assert set(cell.settings) >= {*study.paths, "seed"}
            assert json.loads(cell.scenario)
            assert len(cell.key) == 64
    except InputError as error:
        assert error.problems, "an error that says nothing"  # noqa: PT017
        for problem in error.problems:
            assert "\n" not in str(problem)
            assert problem.message
            assert problem.file == str(place)
            assert problem.line is None or 1 <= problem.line <= lines
        return True
    return False


def replaced(path: tuple[str | int, ...], value: object) -> str:
    """The study with another value at a place, as JSON."""
    data = json.loads(json.dumps(DATA))
    holder: Any = data
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return json.dumps(data, indent=1)


def test_the_study_is_one(place: Path) -> None:
    assert not refused(place, TEXT)
    assert not refused(place, json.dumps(DATA, indent=1))


@given(st.data())
def test_a_text_with_pieces_cut_or_put_in(place: Path, data: st.DataObject) -> None:
    text = TEXT
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        text = text[:start] + data.draw(st.one_of(MARKS, st.text(max_size=5))) + text[end:]
    refused(place, text)


@settings(max_examples=40)
@given(st.sampled_from(leaves(DATA)[1:]), VALUES)
def test_any_value_in_the_place_of_another(place: Path, path: tuple[str | int, ...], value: object) -> None:
    refused(place, replaced(path, value))


def test_every_place_with_every_hostile_value(place: Path) -> None:
    places = [path for path in leaves(DATA)[1:] if path[0] != "scenario" or len(path) == 1]
    count = sum(refused(place, replaced(path, value)) for path in places for value in HOSTILE[::2])
    assert count > len(places) * len(HOSTILE[::2]) / 2
