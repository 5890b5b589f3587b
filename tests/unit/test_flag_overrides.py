"""Flags in front of a scenario file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.errors import InputError
from simulator.scenario import Scenario, load_scenario

DATA: dict[str, Any] = {
    "target": {"model": "llama-3.3-70b-instruct", "weights": "fp8"},
    "hardware": {"gpu": "h100-sxm", "tensor_parallel": 4},
    "speculation": [{"method": "eagle3", "draft_length": 3}],
    "workload": {"arrivals": {"kind": "poisson", "rate_per_s": 2.0}},
}
HIERARCHICAL = {
    "model": "hierarchical",
    "mean_acceptance_length": 2.5,
    "at_draft_length": 3,
    "request_sd": 0.4,
}


def loaded(folder: Path, flags: dict[str, Any], *overrides: str, **changes: Any) -> Scenario:
    file = folder / "s.yaml"
    file.write_text(yaml.safe_dump({**DATA, **changes}))
    return load_scenario(file, overrides, flags)


def variant_of(acceptance: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"method": "eagle3", "acceptance": acceptance}]


def test_flags_change_what_the_file_states_and_set_comes_last(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, {"tensor_parallel": 8, "gpu": "h200-sxm"}, "hardware.gpu=h100-sxm")
    assert (scenario.hardware.tensor_parallel, scenario.hardware.gpu) == (8, "h100-sxm")
    assert loaded(tmp_path, {"preset": "sglang-0.5"}).engine.preset == "sglang-0.5"
    assert loaded(tmp_path, {"model": None}) == loaded(tmp_path, {})


def test_the_method_of_the_file_by_an_engines_name_keeps_its_variant(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, {"method": "eagle-3"}, speculation=variant_of(HIERARCHICAL))
    assert scenario.speculation[0].acceptance.model == "hierarchical"


def test_a_drafter_on_all_gpus_follows_the_target_and_one_on_a_single_gpu_stays(tmp_path: Path) -> None:
    variants = [
        {"method": "eagle3", "name": "wide", "draft_tensor_parallel": 4},
        {"method": "eagle3", "name": "narrow", "draft_tensor_parallel": 1},
    ]
    scenario = loaded(tmp_path, {"tensor_parallel": 8}, speculation=variants)
    assert [variant.draft_tensor_parallel for variant in scenario.speculation] == [8, 1]


def test_clients_make_other_arrivals_a_closed_loop_and_keep_what_a_closed_loop_has(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"concurrency": 16}).workload.arrivals.model_dump() == {
        "kind": "closed", "concurrency": 16, "think_time_s": 0.0, "ramp_s": 0.0,
    }  # fmt: skip
    pausing = {"arrivals": {"kind": "closed", "concurrency": 4, "think_time_s": 1.5}}
    arrivals = loaded(tmp_path, {"concurrency": 16}, workload=pausing).workload.arrivals
    assert arrivals.model_dump() == {"kind": "closed", "concurrency": 16, "think_time_s": 1.5, "ramp_s": 0.0}


def test_alpha_keeps_the_other_parameters_of_a_model_that_has_an_alpha(tmp_path: Path) -> None:
    changed = (
        loaded(tmp_path, {"alpha": 0.65}, speculation=variant_of(HIERARCHICAL)).speculation[0].acceptance
    )
    assert changed.model_dump(exclude_none=True) == {
        "model": "hierarchical", "alpha": 0.65, "delta": 0.0, "request_sd": 0.4, "drift_sd": 0.0,
        "drift_correlation": 0.0,
    }  # fmt: skip
    rates = {"model": "positional", "conditional": [0.8, 0.6, 0.5]}
    changed = loaded(tmp_path, {"alpha": 0.65}, speculation=variant_of(rates)).speculation[0].acceptance
    assert changed.model_dump(exclude_none=True) == {"model": "geometric", "alpha": 0.65}


def test_a_method_replaces_the_variants_and_none_leaves_plain_decoding(tmp_path: Path) -> None:
    assert [v.method for v in loaded(tmp_path, {"method": "ngram", "draft_length": 4}).speculation] == [
        "ngram"
    ]
    assert loaded(tmp_path, {"method": "eagle3"}) == loaded(tmp_path, {})
    assert loaded(tmp_path, {"method": "none"}).speculation == ()


def test_a_flag_of_speculation_asks_which_of_several_variants_it_means(tmp_path: Path) -> None:
    two = [{"method": "eagle3", "draft_length": 3}, {"method": "ngram", "name": "prompts"}]
    with pytest.raises(InputError) as error:
        loaded(tmp_path, {"alpha": 0.6}, speculation=two)
    assert str(error.value) == (
        "--alpha: does not say which of the variants it changes: eagle3-k3, prompts (got 0.6), "
        "--set speculation.eagle3-k3.acceptance.alpha=0.6"
    )
    with pytest.raises(InputError, match="--draft-length: has no meaning without a method"):
        loaded(tmp_path, {"draft_length": "3"}, speculation=[])


def test_what_is_wrong_is_reported_at_the_flag(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--tp: hardware\.tensor_parallel: is out of range \(got 0\)"):
        loaded(tmp_path, {"tensor_parallel": 0})
    with pytest.raises(InputError, match=r"^--gpu: hardware\.gpu: unknown GPU"):
        loaded(tmp_path, {"gpu": "tpu"})


def test_a_variant_without_a_name_is_known_by_its_derived_name(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, {}, "speculation.eagle3-k3.draft_length=2")
    assert [(variant.name, variant.draft_length) for variant in scenario.speculation] == [("eagle3-k3", 2)]


def test_a_file_in_a_flag_is_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError) as error:
        loaded(tmp_path, {"model": "config.json"})
    assert "here/config.json" in str(error.value)
