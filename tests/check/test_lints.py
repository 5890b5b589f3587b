"""Every lint finds its cause, and nothing else does; without the cause it is silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.launch.registry import artefacts
from experiments.check.lints import lints
from experiments.cli import decodesim
from simulator.scenario import load_scenario
from tests.check.cases import CASES, Case, eagle3
from tests.shared_data import ROOT, SHARED, needs_shared

ENDINGS = {"trtllm": "config.yaml", "config": "spec.json", "scenario": "s.yaml"}


def check(*arguments: object) -> Result:
    """The command in this process."""
    return CliRunner().invoke(decodesim, ["check", *map(str, arguments)])


def findings(done: Result) -> dict[str, Any]:
    """Code → finding."""
    assert done.exit_code in (0, 1), done.output
    document = json.loads(done.stdout)
    by_code = {finding["code"]: finding for finding in document["findings"]}
    errors = any(finding["severity"] == "error" for finding in by_code.values())
    assert done.exit_code == int(errors)
    return by_code


def run(case: Case, text: str, options: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """The findings in one of the inputs of a case."""
    if case.form in ENDINGS:
        file = folder / ENDINGS[case.form]
        file.write_text(text, encoding="utf-8")
        if case.form == "trtllm":
            return findings(check("--from-trtllm", file, "--json", *options))
        return findings(check(file, "--json", *options))
    return findings(check(f"--from-{case.form}", text, "--json", *options))


@pytest.mark.parametrize("case", CASES, ids=[f"{case.code}-{case.form}" for case in CASES])
def test_removing_the_cause_removes_the_lint_and_no_other(case: Case, tmp_path: Path) -> None:
    bad_options = case.options if case.bad_options is None else case.bad_options
    bad = run(case, case.bad, bad_options, tmp_path)
    good = run(case, case.good, case.options, tmp_path)
    assert set(bad) - set(good) == {case.code}
    assert not set(good) - set(bad)
    finding = bad[case.code]
    assert finding.keys() >= {"code", "severity", "field", "text", "fix"}
    assert finding["text"]
    assert finding["fix"]


def test_every_lint_has_a_case_and_a_source() -> None:
    assert {case.code for case in CASES} == set(lints())
    assert all(lint.source and lint.title for lint in lints().values())


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/*-h100.yaml")), ids=lambda file: file.name)
def test_the_examples_are_clean(file: Path) -> None:
    by_code = findings(check(file, "--json"))
    allowed = {"draft-tp"} if file.name.startswith("two-drafters") else set()
    assert {code for code, finding in by_code.items() if finding["severity"] != "info"} <= allowed


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/*-h100.yaml")), ids=lambda file: file.name)
def test_what_is_written_for_an_engine_has_no_error(file: Path, tmp_path: Path) -> None:
    scenario = load_scenario(file)
    for engine, artefact in artefacts(scenario, scenario.speculation[0]).items():
        if engine == "trtllm":
            (tmp_path / "t.yaml").write_text(artefact.text, encoding="utf-8")
            done = check("--from-trtllm", tmp_path / "t.yaml", "--json")
        else:
            done = check(f"--from-{engine}", artefact.text, "--json")
        assert done.exit_code == 0, done.output


@needs_shared
def test_files_are_told_apart_by_content(tmp_path: Path) -> None:
    folder = SHARED / "formats" / "examples"
    quiet = {
        "trtllm_config.eagle3.yaml": set(),
        "trtllm_config.mtp_schedule.yaml": {"permanent-switch-off"},
        "vllm_speculative_config.eagle3.json": set(),
        "vllm_speculative_config.dynamic.json": {"piecewise-schedule"},
        "vllm_speculative_config.legacy_medusa.json": {"method-removed"},
        "vllm_speculative_config.synthetic.json": {"synthetic-acceptance"},
        "vllm_speculative_config.ngram.json": {"ngram-synchronous"},
        "sglang_adaptive_config.json": set(),
        "sglang_launch_args.txt": {"no-scenario"},
    }
    for name, codes in quiet.items():
        assert set(findings(check(folder / name, "--json"))) == codes, name


def test_people_read_the_fix_below_the_finding() -> None:
    done = check("--from-vllm", f"{eagle3()} --enforce-eager")
    assert done.exit_code == 0
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("warning [eager] --enforce-eager: ")
    assert second.startswith("  → ") or second.startswith("→ ")
    assert check("--from-vllm", eagle3()).stdout == "nothing found\n"


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x00\xff\x00")
    (tmp_path / "empty").write_text("", encoding="utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "trt.txt").write_text("trtllm-serve x --config y", encoding="utf-8")
    for arguments in (
        (tmp_path / "none",),
        (tmp_path,),
        *((tmp_path / name,) for name in ("binary", "empty", "list.json", "trt.txt")),
        ("--from-vllm", "vllm serve 'x"),
        ("--from-vllm", "vllm serve x", "--concurrency", "many"),
        (tmp_path / "none", "--from-vllm", "vllm serve x"),
    ):
        done = check(*arguments)
        assert done.exit_code == 2, (arguments, done.output)
        assert len(done.stderr.splitlines()) == 1, done.stderr


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            "method model num_speculative_tokens num_speculative_tokens_per_batch_size enforce_eager "
            "max_model_len draft_tensor_parallel_size rejection_sample_method disable_by_batch_size x".split()
        ),
        st.sampled_from(
            ["eagle3", "ngram", "x", -1, 3, 10**30, 1.5, True, None, [], [[1, 2, 3]], [[1]], {"1": 2}]
        ),
        max_size=6,
    )
)
def test_any_configuration_is_checked_or_refused(config: dict[str, Any]) -> None:
    line = f"vllm serve qwen3-32b -sc '{json.dumps(config)}'"
    done = check("--from-vllm", line, "--json")
    assert done.exit_code in (0, 1, 2), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
