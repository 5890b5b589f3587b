"""What docs/scenario.md shows is what the scenario file takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from simulator.errors import InputError
from simulator.scenario import load_scenario, parse_scenario
from tests.scenario_texts import WITH_VARIANT
from tests.shared_data import ROOT

PAGE = (ROOT / "docs" / "scenario.md").read_text("utf-8")
PLACES = {
    "arrivals": "workload.arrivals",
    "prompt_tokens": "workload.prompt_tokens",
    "output_tokens": "workload.output_tokens",
    "draft_length": "speculation.eagle3-k3.draft_length",
    "tree": "speculation.eagle3-k3.tree",
    "classes": "workload.classes",
    "slo": "slo",
}


def forms() -> list[tuple[str, str]]:
    """(path, value) of every form in the table."""
    result = []
    for row in re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \| (.*) \|$", PAGE, re.MULTILINE):
        values = [value for value in re.findall(r"`([^`]+)`", row[1]) if value[0] in "{[3"]
        result += [
            (PLACES[name], value)
            for name in re.findall(r"`([a-z_]+)`", row[0])
            if name in PLACES
            for value in values
        ]
    return result


def test_the_page_shows_every_form() -> None:
    shown = {path for path, _ in forms()}
    assert shown == set(PLACES.values())
    assert len(forms()) == 6 + 4 + 4 + 3 + 2 + 1 + 1


@pytest.mark.parametrize(("path", "value"), forms())
def test_every_form_is_taken(path: str, value: str, tmp_path: Path) -> None:
    for name in ("trace.csv", "lengths.csv"):
        (tmp_path / name).write_text("1\n", "utf-8")
    read = parse_scenario(WITH_VARIANT, base_dir=tmp_path, overrides=[f"{path}={value}"]).model_dump(
        mode="json"
    )
    here: Any = read
    for key in path.split("."):
        here = here[0] if isinstance(here, list) else here[key]
    assert holds(here, YAML(typ="safe").load(value))


def holds(read: Any, stated_value: Any) -> bool:
    """Whether what was read says at least what was given."""
    if isinstance(stated_value, dict):
        return all(holds(read[key], value) for key, value in stated_value.items())
    if isinstance(stated_value, list):
        return len(read) == len(stated_value) and all(map(holds, read, stated_value))
    return bool(read == stated_value)


def test_the_example_runs_and_the_errors_are_those_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"^```\n(scenario\.yaml:.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    Path("scenario.yaml").write_text(example, "utf-8")
    assert load_scenario("scenario.yaml").speculation[0].draft == "eagle3-llama-3.3-70b"
    Path("scenario.yaml").write_text(example.replace("h100-sxm", "h100sxm").replace("0.7", "7"), "utf-8")
    with pytest.raises(InputError) as error:
        load_scenario("scenario.yaml")
    for line, expected in zip(str(error.value).splitlines(), shown.splitlines(), strict=True):
        assert line.startswith(expected.removesuffix("…"))
