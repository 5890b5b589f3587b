"""`decodesim profile`: quality, comparisons and the four numbers of a device that is known exactly."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calibration.fit import fit_profile
from calibration.fit.numbers import four_numbers
from calibration.fit.quality import quality
from calibration.profile_json import dumps
from dashboards.figures import device_response, device_verify
from experiments.cli import decodesim
from simulator.costs.profiles import parse_profile
from simulator.errors import InputError
from simulator.models.catalogue import load_model
from tests.synthetic_device import MODEL, Device, measured
from tests.unit.test_cost_measured import places

NAME = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    return fit_profile(measured(), "mine").profile


@pytest.fixture
def folder(profile: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.json").write_text(dumps(profile), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(decodesim, ["profile", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_quality_is_told_part_by_part(folder: Path) -> None:
    answer_text = answer("check", "mine.json")
    assert (answer_text["profile"], answer_text["quality"]) == ("mine.json", "good")
    parts = {part["name"]: part for part in answer_text["parts"]}
    assert parts["gemm/bf16"]["median_error_percent"] < parts["gemm/bf16"]["limit_percent"]
    assert {part["quality"] for part in answer_text["parts"] if part["status"] != "measured"} == {
        "not measured"
    }
    assert {"kind", "driver", "torch", "threads", "date"} <= set(answer_text["device"])
    text = run("check", "mine.json").stdout
    assert "elementwise" in text
    assert "inherited or assumed, not measured here:" in text


def test_a_bad_part_is_called_poor_and_named(folder: Path, profile: dict[str, Any]) -> None:
    bad = copy.deepcopy(profile)
    part = next(part for part in bad["parts"] if part["name"] == "attention/bf16")
    part["residual"] |= {"p50_percent": 14.0, "noise_percent": 5.0}
    bad["provenance"]["checks"] = [{"name": "stack plain", "error_percent": 20.0}]
    (folder / "bad.json").write_text(dumps(bad), "utf-8")
    text = answer("check", "bad.json")
    assert text["quality"] == "poor"
    assert [part["name"] for part in text["parts"] if part["quality"] == "poor"] == ["attention/bf16"]
    assert any("14 %, beyond its limit of 12 %" in note for note in text["notes"])
    assert any("vary by 5 %" in note for note in text["notes"])
    assert any("complete passes are 20 % off" in note for note in text["notes"])


@pytest.mark.parametrize("name", ["h100-sxm", "a100-sxm-80gb"])
def test_shipped_and_inherited_profiles_are_checked_alike(name: str) -> None:
    text = answer("check", name)
    assert text["quality"] == ("usable" if name == "h100-sxm" else "not measured")
    assert run("check", name).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "nothing.json"], "nothing.json"),
        (["check", "h100"], "did you mean"),
        (["compare", "mine.json", "nothing.json"], "nothing.json"),
        (["check", "old.json"], "decodesim calibrate"),
        (["check", "text.json"], "text.json"),
        (["check", "mine.json", "--draft", NAME], "--model: is missing"),
        (["check", "mine.json", "--model", "nobody"], "unknown model"),
        (["check", "mine.json", "--html", "/nowhere/there/page.html"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_2(
    folder: Path, profile: dict[str, Any], arguments: list[str], message: str
) -> None:
    (folder / "old.json").write_text(dumps(profile | {"schema": "decodesim/profile-0"}), "utf-8")
    (folder / "text.json").write_text("not json", "utf-8")
    done = run(*arguments)
    if "/nowhere/there/page.html" in arguments:
        (folder / "file").write_text("", "utf-8")
        done = run(*arguments[:-1], str(folder / "file" / "page.html"))
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_strange_words_about_itself_are_refused_or_told(folder: Path, profile: dict[str, Any]) -> None:
    rng = random.Random(0)
    for path in places(profile):
        if not {"residual", "provenance"} & set(path):
            continue
        raw = json.loads(json.dumps(profile))
        here = raw
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = rng.choice([None, -1, "x", [], {}, 3, [1], {"x": 1}])
        with contextlib.suppress(InputError):
            read = parse_profile(json.dumps(raw), "mine.json")
            assert quality(read)["parts"]
            four_numbers(read, MODEL)


def test_profiles_without_a_shape_in_common_say_so(folder: Path, profile: dict[str, Any]) -> None:
    other = copy.deepcopy(profile)
    part = next(part for part in other["parts"] if part["name"] == "gemm/bf16")
    part["table"]["shapes"] = [[n + 64, k] for n, k in part["table"]["shapes"]]
    (folder / "other.json").write_text(dumps(other), "utf-8")
    text = answer("compare", "mine.json", "other.json")
    assert "gemm/bf16" not in {row["op"] for row in text["rows"]}
    assert any("share no shape: gemm/bf16" in note for note in text["notes"])


def test_the_four_numbers_hold_what_is_true(profile: dict[str, Any]) -> None:
    numbers = four_numbers(profile, MODEL)
    device = Device()
    low, high = numbers["hbm_bandwidth_bytes_per_s"]["ci95"]
    assert low <= 2e10 <= high
    assert numbers["batch_response"][0]["band"] == numbers["batch_response"][0]["ci95"]
    for row in numbers["batch_response"]:
        low, high = row["ci95"]
        assert low <= device.step_us(row["batch"], 1, 1024) * 1e-6 <= high
    rows = {(row["batch"], row["draft_length"]): row["ratio"] for row in numbers["verify_overhead"]}
    for (batch, drafts), ratio in rows.items():
        true = device.step_us(batch, drafts + 1, 1024) / device.step_us(batch, 1, 1024)
        assert ratio["value"] == pytest.approx(true, rel=0.02)
        assert ratio["ci95"][0] < ratio["value"] < ratio["ci95"][1]
    assert rows[16, 7]["value"] > rows[16, 1]["value"] > 1
    draft = numbers["draft_pass_s"][0]
    layer_us = (
        device.layer_us(1, 1, 1024)
        + device.prepare_us(1)
        + device.head_us(1)
        + sum(device.samplers["greedy"])
    )
    assert draft["ci95"][0] <= layer_us * 1e-6 <= draft["ci95"][1]


def test_the_numbers_are_in_json_text_and_page(folder: Path) -> None:
    done = run("check", "mine.json", "--model", NAME, "--draft", NAME, "--html", "page.html", "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert {"hbm_bandwidth_bytes_per_s", "batch_response", "draft_pass_s", "verify_overhead"} <= set(document)
    text = run("check", "mine.json", "--model", NAME).stdout
    for title in ("Memory bandwidth reached", "Plain step and draft pass", "Verify step ÷ plain step"):
        assert title in text
    page = (folder / "page.html").read_text("utf-8")
    assert "device-response" in page
    assert "default-src 'none'" in page


def test_shipped_profiles_have_the_numbers_too() -> None:
    text = answer("check", "h100-sxm", "--model", "llama-3.1-8b-instruct", "--draft", "llama-3.2-1b-instruct")
    assert text["hbm_bandwidth_bytes_per_s"]["value"] == pytest.approx(3.0e12, rel=0.05)
    rows = {(row["batch"], row["draft_length"]): row["ratio"]["value"] for row in text["verify_overhead"]}
    assert rows[1, 3] == pytest.approx(1.05, abs=0.03)  # what the prototype of the cost model gave
    assert rows[256, 3] == pytest.approx(1.68, abs=0.1)
    plain = {row["batch"]: 1e3 * row["value"] for row in text["batch_response"]}
    assert [plain[b] for b in (1, 64, 256)] == pytest.approx([6.5, 10.9, 21.5], rel=0.12)


def test_figures_show_what_the_numbers_say(profile: dict[str, Any]) -> None:
    numbers = four_numbers(profile, MODEL)
    response, verify = device_response.prepare(numbers), device_verify.prepare(numbers)
    assert response.where(curve="plain step")["time"] == [row["value"] for row in numbers["batch_response"]]
    assert verify.where(batch=4, draft_length=0)["time"] == [1.0]
    lines = {trace.name for trace in device_verify.draw(verify).data if trace.name}
    assert lines == {f"batch {batch}" for batch in (1, 2, 4, 8, 16)}
    assert len(device_response.draw(response).data) == 6
    assert "at batch 16" in device_response.finding(response)[0]


def test_a_profile_against_itself_is_1(folder: Path) -> None:
    rows = answer("compare", "mine.json", "mine.json")["rows"]
    assert {row["ratio"] for row in rows} == {1.0}
    assert {"gemm/bf16", "attention/bf16", "elementwise", "sampler"} == {row["op"] for row in rows}
    assert "mine ÷ mine, medians over shapes" in run("compare", "mine.json", "mine.json").stdout


def test_a_slower_operator_shows_where_it_is_slower(folder: Path, profile: dict[str, Any]) -> None:
    slow = copy.deepcopy(profile)
    part = next(part for part in slow["parts"] if part["name"] == "gemm/bf16")
    part["table"]["us"] = [[1.5 * us for us in row] for row in part["table"]["us"]]
    (folder / "slow.json").write_text(dumps(slow), "utf-8")
    text = answer("compare", "mine.json", "slow.json")
    for row in text["rows"]:
        assert row["ratio"] == pytest.approx(1.5 if row["op"] == "gemm/bf16" else 1.0, rel=0.01), row
    assert any("not compared" in note for note in text["notes"])


def test_public_tables_of_two_gpus_differ_by_their_bandwidth() -> None:
    rows = {(row["op"], row["at"]): row for row in answer("compare", "h100-sxm", "h200-sxm")["rows"]}
    assert rows["gemm/bf16", "m = 1"]["ratio"] == pytest.approx(3.35 / 4.8, abs=0.15)
    assert rows["gemm/bf16", "m = 4096"]["ratio"] == pytest.approx(1.0, abs=0.05)
    assert rows["gemm/bf16", "m = 1"]["n"] == 360


def test_another_model_takes_the_rest_by_its_own_traffic(profile: dict[str, Any]) -> None:
    small, large = (
        four_numbers(profile, load_model(f"smollm2-{size}-instruct")) for size in ("135m", "360m")
    )
    assert large["batch_response"][0]["value"] > 1.5 * small["batch_response"][0]["value"]
