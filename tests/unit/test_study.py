"""Study files: what they say, and that whatever is wrong in one is said at its line before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.study.load import load_study
from simulator.errors import InputError
from tests.studies import ALPHA, CONCURRENCY, DRAFT_LENGTH, SCENARIO, study, study_file

LINES = SCENARIO.count("\n")
BARE = "".join(line.removeprefix("  ") for line in SCENARIO.splitlines(keepends=True)[1:])
"""The scenario as a file of its own."""


def problems(folder: Path, rest: str, scenario: str = SCENARIO) -> list[str]:
    """What is said about a study file, the folder taken away."""
    with pytest.raises(InputError) as error:
        study(folder, rest, scenario)
    return [str(problem).replace(f"{folder}/", "") for problem in error.value.problems]


def place(marked: str) -> str:
    """`line:column` of the § in what follows the scenario."""
    before = marked[: marked.index("§")]
    return f"{LINES + 1 + before.count(chr(10))}:{len(before) - before.rfind(chr(10))}"


def test_axes_of_lists_and_ranges(tmp_path: Path) -> None:
    read = study(
        tmp_path,
        f"axes:\n  {ALPHA}: {{from: 0.1, to: 0.9, steps: 9}}\n"
        f"  {CONCURRENCY}: {{from: 1, to: 256, steps: 17, scale: log}}\n"
        f"  {DRAFT_LENGTH}: [1, [[1, 15, 5], [16, null, 0]], {{policy: goodput, max: 7}}]\n"
        "  hardware.replicas: {from: 3, to: 1, steps: 3}\n",
    )
    values = {axis.path: axis.values for axis in read.axes}
    assert values[ALPHA] == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    assert values[CONCURRENCY] == (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256)
    assert all(type(value) is int for value in values[CONCURRENCY])
    assert values[DRAFT_LENGTH] == (1, [[1, 15, 5], [16, None, 0]], {"policy": "goodput", "max": 7})
    assert values["hardware.replicas"] == (3, 2, 1)


def test_the_scenario_may_be_a_file_and_names_files_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "lengths.csv").write_text("prompt_tokens,output_tokens\n10,20\n", encoding="utf-8")
    (tmp_path / "other.csv").write_text("prompt_tokens,output_tokens\n30,40\n", encoding="utf-8")
    text = BARE.replace("{kind: fixed, tokens: 300}", "{kind: empirical, file: lengths.csv}")
    (tmp_path / "inner" / "base.yaml").write_text(text, encoding="utf-8")
    axes = "axes:\n  workload.prompt_tokens.file: [other.csv, inner/lengths.csv]\n"
    read = study(tmp_path, axes, "scenario: inner/base.yaml\n")
    (axis,) = read.axes
    assert axis.values == (str(tmp_path / "other.csv"), str(tmp_path / "inner" / "lengths.csv"))


def test_a_variant_without_a_name_is_called_by_its_method(tmp_path: Path) -> None:
    unnamed = SCENARIO.replace("name: eagle3, ", "")
    read = study(tmp_path, f"axes:\n  {DRAFT_LENGTH}: [1, 5]\nkeep: [eagle3.verdict]\n", unnamed)
    assert read.axes[0].where == ("speculation", 0, "draft_length")
    moved = study(tmp_path, "", unnamed, ["speculation.eagle3.draft_length=6"])
    assert moved.base["speculation"][0]["draft_length"] == 6
    other = study(tmp_path, "keep: [ngram.verdict]\n", unnamed, ["speculation=[{method: ngram}]"])
    assert other.base["speculation"][0]["name"] == "ngram"


def test_overrides_reach_the_scenario_and_no_axis(tmp_path: Path) -> None:
    path = study_file(tmp_path, f"axes:\n  {CONCURRENCY}: [1, 2]\n")
    assert load_study(path, ["workload.requests=50"]).base["workload"]["requests"] == 50
    for override in (f"{CONCURRENCY}=4", "workload.arrivals={kind: burst}"):
        with pytest.raises(InputError, match=f"sets what the axis {CONCURRENCY} varies"):
            load_study(path, [override])
    with pytest.raises(InputError, match=r"--set workload\.request: .*did you mean requests"):
        load_study(path, ["workload.request=50"])


def test_what_repeats_the_tensor_parallelism_follows_it(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("draft_length: 3,", "draft_length: 3, draft_tensor_parallel: 4,")
    read = study(tmp_path, "axes:\n  hardware.tensor_parallel: [2, 4, 8]\n", scenario)
    assert read.followers == (("speculation", 0, "draft_tensor_parallel"),)
    alone = scenario.replace("draft_tensor_parallel: 4", "draft_tensor_parallel: 1")
    assert study(tmp_path, "axes:\n  hardware.tensor_parallel: [2, 4]\n", alone).followers == ()


def test_a_value_may_be_right_beside_some_values_only(tmp_path: Path) -> None:
    field = "speculation.eagle3.draft_tensor_parallel"
    marked = f"axes:\n  hardware.tensor_parallel: [2, 4]\n  {field}: [4, 2, §8]\n"
    assert len(study(tmp_path, marked.replace("§8", "1")).axes) == 2
    (line,) = problems(tmp_path, marked.replace("§", ""))
    assert line.startswith(f"small.study.yaml:{place(marked)}: {field}: is neither 1 nor the target's (got 8")


def test_a_store_is_shared_by_a_study_and_the_same_one_enlarged(tmp_path: Path) -> None:
    axes = f"axes:\n  {ALPHA}: [0.5, 0.7]\n  {CONCURRENCY}: [1, 2]\n"
    own = study(tmp_path, axes).sha256
    more = f"where: alpha > 0.2\nseeds: 3\naxes:\n  {CONCURRENCY}: [1, 2, 4]\n  {ALPHA}: [0.7]\n"
    assert study(tmp_path, more).sha256 == own
    others = [
        study(tmp_path, axes, overrides=["workload.requests=100"]),
        study(tmp_path, axes + "keep: [verdict]\n"),
        study(tmp_path, axes + "measure: breakeven\n"),
        study(tmp_path, axes + f"  {DRAFT_LENGTH}: [3]\n"),
    ]
    assert len({other.sha256 for other in others} | {own}) == 5


BAD = {
    "unknown field": (f"axes:\n  §{ALPHA[:-2]}a: [0.5]\n", "unknown key, did you mean alpha?"),
    "unknown variant": ("axes:\n  speculation.eagle2.draft_length: [§1]\n", "did you mean 'eagle3'?"),
    "no section": ("axes:\n  workload.requests.more: [§1]\n", "it is no section"),
    "value out of range": (f"axes:\n  {CONCURRENCY}: [1, §0]\n", "is out of range (got 0)"),
    "value of a wrong type": (f"axes:\n  {CONCURRENCY}: [1, §1.5]\n", "must be a whole number"),
    "range out of range": (
        f"axes:\n  {ALPHA}: §{{from: 0.5, to: 1.5, steps: 3}}\n",
        "is out of range (got 1.5)",
    ),
    "unknown name": ("axes:\n  hardware.gpu: [h100-sxm, §h100-smx]\n", "did you mean 'h100-sxm'?"),
    "unknown arrivals": (
        "axes:\n  workload.arrivals: [{kind: closed, concurrency: 1}, §{kind: bust}]\n",
        "did you mean burst?",
    ),
    "the same field twice": (
        f"axes:\n  {DRAFT_LENGTH}: [1]\n  §speculation.0.draft_length: [2]\n",
        f"sets the same field as {DRAFT_LENGTH}",
    ),
    "an axis and its parent": (
        f"axes:\n  {CONCURRENCY}: [1]\n  §workload.arrivals: [{{kind: burst}}]\n",
        f"collides with {CONCURRENCY}",
    ),
    "no values": (f"axes:\n  {ALPHA}: §[]\n", "has no values"),
    "a value twice": (f"axes:\n  {ALPHA}: [0.5, 0.6, §0.5]\n", "occurs twice (got 0.5)"),
    "values together twice": (
        f"axes:\n  {ALPHA}: [0.5, 0.5, §0.5]\n  {DRAFT_LENGTH}: [1, 2, 1]\n"
        f"zip: [[{ALPHA}, {DRAFT_LENGTH}]]\n",
        "occurs twice (got '[0.5, 1]')",
    ),
    "a single value": (f"axes:\n  {ALPHA}: §0.5\n", "has the wrong type"),
    "range without end": (f"axes:\n  {ALPHA}: §{{from: 0.5, steps: 3}}\n", "to: is missing"),
    "range with a typo": (
        f"axes:\n  {ALPHA}: {{from: 0.5, to: 1, §step: 3, steps: 2}}\n",
        "did you mean steps?",
    ),
    "range of no numbers": (
        f"axes:\n  {ALPHA}: {{from: §low, to: 1, steps: 3}}\n",
        "must be a finite number",
    ),
    "logarithm of zero": (
        f"axes:\n  {ALPHA}: {{from: §0, to: 1, steps: 3, scale: log}}\n",
        "has no logarithm (got 0)",
    ),
    "too many values": (f"axes:\n  {ALPHA}: {{from: 0, to: 1, steps: §100000}}\n", "1 to 10,000"),
    "zip of no axis": (
        f"axes:\n  {ALPHA}: [0.5]\n  {DRAFT_LENGTH}: [1]\nzip: [[{ALPHA}, §draft_length]]\n",
        "is not an axis",
    ),
    "zip of unequal axes": (
        f"axes:\n  {ALPHA}: [0.5, 0.6]\n  {DRAFT_LENGTH}: [1]\nzip: [§[{ALPHA}, {DRAFT_LENGTH}]]\n",
        f"different numbers of values: {ALPHA} 2, {DRAFT_LENGTH} 1",
    ),
    "zip of one axis": (
        f"axes:\n  {ALPHA}: [0.5]\nzip: [§[{ALPHA}]]\n",
        "is too short (got 'a list'), 2 entries",
    ),
    "zip of one axis twice": (
        f"axes:\n  {ALPHA}: [0.5]\nzip: [[{ALPHA}, §{ALPHA}]]\n",
        "goes with two others",
    ),
    "condition on no axis": (
        f"axes:\n  {CONCURRENCY}: [1]\nwhere: §concurency > 1\n",
        "did you mean 'concurrency'?",
    ),
    "condition that is none": (
        f"axes:\n  {CONCURRENCY}: [1]\nwhere: [concurrency > 1, §concurrency >]\n",
        "is not a condition",
    ),
    "unknown metric": ("keep: [verdict, §troughput_speedup]\n", "did you mean throughput_speedup?"),
    "metric of no variant": ("keep: [§eagle2.verdict]\n", "did you mean 'eagle3'?"),
    "metric that is not measured": ("keep: [§break_even_alpha]\n", "is not measured by simulate"),
    "unknown measure among several": ("measure: [breakeven, §simulat]\n", "is not known (got 'simulat')"),
    "unknown samples": (f"sample: {{kind: §random, n: 8}}\naxes:\n  {ALPHA}: [0.5]\n", "must be 'sobol'"),
    "unknown measure": ("measure: §simulat\n", "is not known"),
    "unknown key": ("§axis:\n  a: [1]\n", "unknown key, did you mean axes?"),
    "no seeds": ("seeds: §0\n", "is out of range"),
    "seeds beside an axis of seeds": ("seeds: §2\naxes:\n  run.seed: [1, 2]\n", "collides with run.seed"),
    "samples of nothing": ("sample: §{n: 8}\n", "has no axes"),
    "samples of steps": (
        f"sample: {{n: 8}}\naxes:\n  {ALPHA}: {{from: 0, to: 1, steps: §3}}\n",
        "says how many",
    ),
}
"""What is wrong → (keys after the scenario, § before the place; part of what is said)."""


@pytest.mark.parametrize(("marked", "message"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_said_at_its_place(tmp_path: Path, marked: str, message: str) -> None:
    (result,) = problems(tmp_path, marked.replace("§", ""))
    assert result.startswith(f"small.study.yaml:{place(marked)}: ")
    assert message in result


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    result = problems(
        tmp_path,
        f"axes:\n  {ALPHA}: [0.5, 2, -1]\n  {CONCURRENCY}: [0]\n",
        SCENARIO.replace("kind: fixed, tokens: 300", "kind: fixed, tokens: 0"),
    )
    assert [line.split(":")[1] for line in result] == ["9", f"{LINES + 2}", f"{LINES + 2}", f"{LINES + 3}"]


def test_a_scenario_that_is_not_there_and_one_that_is_none(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, "", "scenario: nowhere.yaml\n")
    assert line.startswith("small.study.yaml:1:11: scenario: no such file or directory (got 'nowhere.yaml')")
    (line,) = problems(tmp_path, "", "scenario: [1]\n")
    assert line.startswith("small.study.yaml:1:11: scenario: has the wrong type")
    (line,) = problems(tmp_path, "", "- 1\n")
    assert "is no mapping" in line
    (line,) = problems(tmp_path, "", BARE)
    assert line.startswith("small.study.yaml:1:1: is a scenario, not a study, scenario: FILE and axes")
    (line,) = problems(tmp_path, "", "axes: {}\n")
    assert line.startswith("small.study.yaml:1:1: scenario: is missing")
