"""Every scenario and study of the examples is valid, and one scenario prints every key that there is."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from experiments.study.load import load_study
from simulator.errors import InputError
from simulator.scenario import defaults_used, load_scenario
from tests.shared_data import ROOT, SHARED, needs_shared

STUDIES = sorted((ROOT / "examples").glob("*.study.yaml"))
EXAMPLES = sorted(set((ROOT / "examples").glob("*.yaml")) - set(STUDIES))
COMPLETE = ROOT / "examples" / "llama-3.3-70b-eagle3-h100.yaml"

FORMS = frozenset({"arrivals", "prompt_tokens", "output_tokens", "acceptance"})
"""Fields that take one of several forms, each with its own keys: the file shows one form."""

SHOWN_AS_A_COMMENT = {
    "engine.host.lookup_per_sequence_s": "lookup_per_sequence_s: 0.0:",
    "engine.host.lookup_step_s": "lookup_step_s: 0.0,",
    "engine.host.prompt_token_s": "prompt_token_s: ",
    "engine.host.request_latency_s": "# of host too: request_latency_s: ",
    "engine.host.request_s": "request_s: ",
    "engine.scheduler": "# scheduler: ",
    "run.precision_metric": "# precision_metric: ",
    "speculation.eagle3-k3.draft_layers": "draft_layers: null",
    "speculation.eagle3-k3.draft_window_tokens": "draft_window_tokens: 512",
    "speculation.eagle3-k3.window": "window: 15",
    "workload.temperature": "# temperature: ",
}
"""Keys that the complete example names without setting them."""

NOT_BUILT = {
    "hardware": ("pipeline_parallel", "nodes", "pools", "failures", "autoscale"),
    "speculation": ("draft_device",),
}
"""Keys of the documented scenario that are refused as unknown until what they ask for is simulated."""


def read(text: str) -> Any:
    """The plain data of a YAML text."""
    return YAML(typ="safe", pure=True).load(text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_load_and_are_described(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.name
    assert f"`{path.name}`" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_studies_load_and_are_described(path: Path) -> None:
    assert load_study(path).axes
    assert f"`{path.name}`" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


def is_spelled_out(path: str, data: Any) -> bool:
    """Whether a dotted path of a scenario is a key of its file, or belongs to a field of several forms."""
    *parents, key = path.split(".")
    for name in parents:
        data = (
            next(variant for variant in data if variant["name"] == name)
            if isinstance(data, list)
            else data[name]
        )
    return key in data or parents[-1] in FORMS


def test_the_complete_example_prints_every_key() -> None:
    text = COMPLETE.read_text(encoding="utf-8")
    data, defaults = read(text), defaults_used(load_scenario(COMPLETE))
    left_out = [path for path in defaults if not is_spelled_out(path, data)]
    assert left_out == list(SHOWN_AS_A_COMMENT)
    assert all(comment in text for comment in SHOWN_AS_A_COMMENT.values())


def test_a_key_left_out_is_noticed() -> None:
    data = read(COMPLETE.read_text(encoding="utf-8"))
    del data["speculation"][0]["tree"]
    assert not is_spelled_out("speculation.eagle3-k3.tree", data)
    assert is_spelled_out("engine.host.step_s", data)


@needs_shared
def test_the_complete_example_is_the_documented_scenario() -> None:
    documented = re.search(
        r"```yaml\n(.*?)```", (SHARED / "scenario.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert documented is not None
    expected, documented_fields = read(documented[1]), read(COMPLETE.read_text(encoding="utf-8"))
    for section, keys in NOT_BUILT.items():
        place = expected[section][0] if isinstance(expected[section], list) else expected[section]
        for key in keys:
            del place[key]
    assert documented_fields == expected
    assert str(documented_fields) == str(expected), "the keys are the same, their order is not"


@pytest.mark.parametrize("path", [f"hardware.{key}" for key in NOT_BUILT["hardware"]])
def test_a_key_of_hardware_that_is_not_built_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="unknown key"):
        load_scenario(COMPLETE, [f"{path}=1"])


@pytest.mark.parametrize("key", NOT_BUILT["speculation"])
def test_a_key_of_a_variant_that_is_not_built_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="unknown key"):
        load_scenario(COMPLETE, [f"speculation.eagle3-k3.{key}=1"])
