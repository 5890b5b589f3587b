"""Every scenario that comes with the project is valid, and one of them prints every key a scenario has."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from simulator.scenario import defaults_used, load_scenario
from tests.shared_data import ROOT, SHARED, needs_shared

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
COMPLETE = ROOT / "examples" / "llama-3.3-70b-eagle3-h100.yaml"


def read(text: str) -> Any:
    """The plain data of a YAML text."""
    return YAML(typ="safe", pure=True).load(text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_load_and_are_described(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.name
    assert f"`{path.name}`" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


def test_the_complete_example_leaves_nothing_to_defaults() -> None:
    assert list(defaults_used(load_scenario(COMPLETE))) == []


@needs_shared
def test_the_complete_example_is_the_documented_scenario() -> None:
    documented = re.search(
        r"```yaml\n(.*?)```", (SHARED / "scenario.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert documented is not None
    expected, found = read(documented[1]), read(COMPLETE.read_text(encoding="utf-8"))
    assert found == expected
    assert str(found) == str(expected), "the keys are the same, their order is not"
