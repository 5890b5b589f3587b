"""Bad scenarios: every error at once, each with line, column, field, value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import InputError, Problem
from simulator.scenario import defaults_used, load_scenario, parse_scenario
from simulator.speculation import registered
from simulator.speculation.base import Method
from tests.scenario_texts import MINIMAL, WITH_VARIANT


def problems_of(text: str, *overrides: str, base_dir: Path = Path(".")) -> list[Problem]:
    with pytest.raises(InputError) as error:
        parse_scenario(text, "s.yaml", base_dir, overrides)
    return list(error.value.problems)


def test_all_errors_of_a_file_at_once_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        """\
target: {modle: llama-3.3-70b-instruct}
hardware:
  gpu: h100x
  tensor_parallel: four
speculation:
  - method: eagle3
    draft_length: -1
    acceptance: {model: geometric, alpha: 1.5}
workload:
  arrivals: {kind: closed, concurrency: 0}
  prompt_tokens: {kind: fixed, tokens: -5}
run:
  precision: .nan
  seed: 0
  seed: 1
""",
        "utf-8",
    )
    with pytest.raises(InputError) as error:
        load_scenario(file)
    result = [(p.line, p.column, p.field) for p in error.value.problems]
    assert result == [
        (1, 9, "target.model"),
        (1, 10, "target.modle"),
        (3, 8, "hardware.gpu"),
        (4, 20, "hardware.tensor_parallel"),
        (7, 19, "speculation.eagle3-k-1.draft_length"),
        (8, 43, "speculation.eagle3-k-1.acceptance.alpha"),
        (10, 41, "workload.arrivals.concurrency"),
        (11, 40, "workload.prompt_tokens.tokens"),
        (13, 14, "run.precision"),
        (15, 3, "run.seed"),
    ]
    text = str(error.value)
    assert f"{file}:8:43: speculation.eagle3-k-1.acceptance.alpha: is out of range (got 1.5), must be" in text
    assert "did you mean model?" in text
    assert "did you mean 'h100-sxm'?" in text
    assert "stands twice, first on line 14" in text


@pytest.mark.parametrize(
    ("path", "value", "field", "message"),
    [
        ("target.model", "llama-4", "target.model", "unknown model"),
        ("target.model", "nowhere/config.json", "target.model", "is not there"),
        ("target.weights", "fp4", "target.weights", "must be one of bf16, fp8, fp8_block, int4, mxfp4"),
        ("hardware.gpu", "v100", "hardware.gpu", "h200-sxm"),
        ("hardware.tensor_parallel", "3", "hardware.tensor_parallel", "for example 1, 2, 4, 8"),
        ("hardware.tensor_parallel", "2.5", "hardware.tensor_parallel", "must be a whole number"),
        ("hardware.expert_parallel", "3", "hardware.expert_parallel", "a divisor of 4"),
        ("hardware.attention_dp", "3", "hardware.attention_dp", "a divisor of 4"),
        ("hardware.attention_dp", "2", "hardware.attention_dp", "1, and hardware.replicas"),
        ("hardware.router", "random", "hardware.router", "least-loaded"),
        (
            "workload.arrivals",
            "{kind: trace, file: t.csv, start_s: 20, end_s: 10}",
            "workload.arrivals.end_s",
            "more than start_s, 20",
        ),
        ("engine.preset", "tgi-3", "engine.preset", "vllm-0.33"),
        ("engine.scheduler", "mix", "engine.scheduler", "prefill-apart"),
        ("engine.scheduler", "''", "engine.scheduler", "empty"),
        ("engine.gpu_memory_utilization", "0", "engine.gpu_memory_utilization", "above 0 to 1"),
        ("engine.chunked_prefill", "1", "engine.chunked_prefill", "must be true or false"),
        ("engine.host.step_s", "-1", "engine.host.step_s", "out of range"),
        ("ARM.name", "plain", "speculation.plain.name", "reserved"),
        ("ARM.name", "a=b", "speculation.a=b.name", "without ="),
        ("ARM.method", "eagle9", "ARM.method", "eagle3"),
        ("ARM.draft", "no-head", "ARM.draft", "unknown drafter"),
        ("ARM.draft", "eagle-llama-3.1-8b", "ARM.draft", "known for eagle3"),
        ("ARM.method", "ngram", "ARM.draft", "must be null"),
        ("ARM.draft_length", "-1", "ARM.draft_length", "0 to 128"),
        ("ARM.draft_length", "[[1, 15, 5], [17, null, 3]]", "ARM.draft_length[1][0]", "gap"),
        ("ARM.draft_length", "[[1, 15, 5], [15, null, 3]]", "ARM.draft_length[1][0]", "overlaps"),
        ("ARM.draft_length", "[[2, null, 5]]", "ARM.draft_length[0][0]", "must start"),
        ("ARM.draft_length", "[[1, null, 5], [9, 9, 1]]", "ARM.draft_length[0][1]", "rows follow"),
        ("ARM.draft_length", "[]", "ARM.draft_length", "is empty"),
        (
            "ARM.acceptance",
            "{model: positional, conditional: [2]}",
            "ARM.acceptance.conditional[0]",
            "0 to 1",
        ),
        ("ARM.draft_length", "{policy: best, max: 7}", "ARM.draft_length.policy", "must be goodput"),
        ("ARM.draft_tensor_parallel", "2", "ARM.draft_tensor_parallel", "1 or 4"),
        ("ARM.tree", "{depth: 3}", "ARM.tree.nodes", "is missing"),
        ("ARM.acceptance.alpha", "1.01", "ARM.acceptance.alpha", "0 to 1"),
        ("ARM.acceptance.alpha", ".inf", "ARM.acceptance.alpha", "not finite"),
        (
            "ARM.acceptance.mean_acceptance_length",
            "2.1",
            "ARM.acceptance.mean_acceptance_length",
            "together with alpha, which it determines",
        ),
        (
            "ARM.acceptance",
            "{model: geometric, mean_acceptance_length: 5, at_draft_length: 3}",
            "ARM.acceptance.mean_acceptance_length",
            "more than a step can emit",
        ),
        ("ARM.acceptance", "{model: decay}", "ARM.acceptance.alpha", "missing"),
        ("ARM.acceptance", "{model: geo}", "ARM.acceptance.model", "did you mean geometric?"),
        ("ARM.acceptance", "{alpha: 0.5}", "ARM.acceptance.model", "missing"),
        (
            "ARM.acceptance",
            "{model: positional, survival: [0.5, 0.6]}",
            "ARM.acceptance.survival[1]",
            "never rises",
        ),
        (
            "ARM.acceptance",
            "{model: positional, conditional: [0.5, 2]}",
            "ARM.acceptance.conditional[1]",
            "out of range",
        ),
        ("ARM.acceptance", "{model: trace, file: none.jsonl}", "ARM.acceptance.file", "no such file"),
        ("ARM.acceptance", "{file: none.json}", "ARM.acceptance.file", "no such file"),
        ("workload.arrivals", "{kind: trace, file: none.csv}", "workload.arrivals.file", "no such file"),
        (
            "workload.arrivals",
            "{kind: trace, file: none.csv, format: azur}",
            "workload.arrivals.format",
            "azure",
        ),
        ("workload.arrivals", "{kind: poisson, rate_per_s: 0}", "workload.arrivals.rate_per_s", "above 0"),
        (
            "workload.arrivals",
            "{kind: profile, rates_per_s: [[0, 1], [0, 2]]}",
            "workload.arrivals.rates_per_s[1][0]",
            "does not come after",
        ),
        (
            "workload.arrivals",
            "{kind: profile, rates_per_s: [[0, 1], [9, 0]]}",
            "workload.arrivals.rates_per_s[1][1]",
            "never come",
        ),
        (
            "workload.arrivals",
            "{kind: poison, rate_per_s: 1}",
            "workload.arrivals.kind",
            "did you mean poisson?",
        ),
        (
            "workload.prompt_tokens",
            "{kind: lognormal, median: 9, p95: 8}",
            "workload.prompt_tokens.p95",
            "≥ median",
        ),
        ("workload.prompt_tokens", "900", "workload.prompt_tokens", "fixed, uniform, lognormal, empirical"),
        ("workload.requests", "0", "workload.requests", "1 to 10,000,000"),
        ("workload.cancel_fraction", "-0.1", "workload.cancel_fraction", "0 to 1"),
        ("workload.classes.code.share", "1.2", "workload.classes.code.share", "0 to 1"),
        (
            "workload.classes",
            "[{name: a, share: 0.8}, {name: b, share: 0.3}]",
            "workload.classes",
            "sum to 1.1",
        ),
        (
            "workload.classes",
            "[{name: a, share: 0.1}, {name: a, share: 0.3}]",
            "workload.classes.a.name",
            "entry 0",
        ),
        (
            "workload.classes.code.acceptance",
            "{eagle4: {model: geometric, alpha: 0.4}}",
            "workload.classes.code.acceptance.eagle4",
            "known: eagle3-k3",
        ),
        ("slo", "{}", "slo", "limits nothing"),
        ("run.seed", "-1", "run.seed", "out of range"),
        ("run.replications", "0", "run.replications", "1 to 1,000"),
        ("run.mechanisms.prefil", "false", "run.mechanisms.prefil", "did you mean prefill?"),
        ("run", "null", "run", "must be a mapping"),
    ],
)
def test_what_is_refused_and_what_is_said(path: str, value: str, field: str, message: str) -> None:
    path, field = (text.replace("ARM", "speculation.eagle3-k3") for text in (path, field))
    result = [p for p in problems_of(WITH_VARIANT, f"{path}={value}") if p.field == field]
    assert result, [str(p) for p in problems_of(WITH_VARIANT, f"{path}={value}")]
    assert message in " ".join(str(p) for p in result)
    assert all(p.file == f"--set {path}" or p.line is not None for p in result)


def test_two_variants_of_one_name() -> None:
    twice = WITH_VARIANT.replace("speculation:\n", "speculation:\n  - {name: eagle3-k3, method: ngram}\n")
    assert [(p.line, p.field, p.message) for p in problems_of(twice)] == [
        (8, "speculation.eagle3-k3.name", "is the name of entry 0 too")
    ]


def test_a_missing_field_is_reported_where_it_belongs() -> None:
    (problem,) = problems_of(
        "target: {model: llama-3.3-70b-instruct}\nhardware:\n  gpu: h100-sxm\nworkload: {}\n"
    )
    assert (problem.line, problem.column, problem.field) == (4, 11, "workload.arrivals")
    assert problem.allowed == (
        "must be a mapping with kind one of closed, burst, poisson, gamma, profile, trace"
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is empty"),
        ("# nothing\n", 1, "is empty"),
        ("- a\n- b\n", 1, "is no mapping"),
        ("just text", 1, "is no mapping"),
        ("a: [1, 2\nb: 3\n", 2, "is not YAML"),
        ("a: b: c\n", 1, "is not YAML"),
        ("--- {a: 1}\n--- {a: 2}\n", 2, "is not YAML"),
        ("a: *b\n", 1, "is not YAML"),
        ("a: &x [*x]\n", 1, "is too large"),
        ("a: " + "[" * 60 + "]" * 60, 1, "is too large"),
        ("a: " + "[" * 5000 + "]" * 5000, 1, "is nested too deeply"),
        ("? [a, b]\n: c\n", 1, "a key is no text"),
        ("a: !!python/object x\n", 1, "has a YAML tag"),
        ("a: " + "1" * 6000 + "\n", 1, "is no whole number"),
        ("\x00", 1, "is not YAML"),
    ],
)
def test_text_that_is_no_scenario(text: str, line: int, message: str) -> None:
    problem = next(p for p in problems_of(text) if message in str(p))
    assert (problem.file, problem.line) == ("s.yaml", line)


def test_an_alias_bomb_is_refused() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    (problem,) = problems_of("\n".join(["l0: &l0 [x]", *levels]))
    assert problem.message == "is too large"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    for name, message in (
        ("none.yaml", "no such file"),
        (".", "is a directory"),
        ("latin.yaml", "is not UTF-8"),
    ):
        with pytest.raises(InputError, match=message):
            load_scenario(tmp_path / name)
    with pytest.raises(InputError, match="too long for a scenario"):
        load_scenario("/dev/zero")
    with pytest.raises(InputError, match="null byte"):
        load_scenario("a\0b")


def test_acceptance_read_from_a_file_becomes_part_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "acceptance.json").write_text('{"conditional_acceptance": [0.73, 0.712, 0.673]}', "utf-8")
    replaced = parse_scenario(
        WITH_VARIANT,
        base_dir=tmp_path,
        overrides=["speculation.eagle3-k3.acceptance={file: acceptance.json}"],
    )
    assert replaced.speculation[0].acceptance.model_dump(exclude_none=True) == {
        "model": "positional",
        "conditional": (0.73, 0.712, 0.673),
    }


def test_a_measured_gate_becomes_part_of_the_scenario(tmp_path: Path) -> None:
    gate = '{"match": 0.3, "stickiness": 0.2, "first": 0.6, "run": 0.9}'
    row = '{"draft": "ngram", "draft_length": 3, "conditional_acceptance": [0.6], "gated": ' + gate + "}"
    (tmp_path / "acceptance.json").write_text('{"rows": [' + row + "]}", "utf-8")
    entry = "speculation.eagle3-k3.acceptance={file: acceptance.json, draft: ngram}"
    replaced = parse_scenario(WITH_VARIANT, base_dir=tmp_path, overrides=[entry])
    assert replaced.speculation[0].acceptance.model_dump(exclude_none=True) == {
        "model": "gated", "match": 0.3, "stickiness": 0.2, "first": 0.6, "run": 0.9, "request_sd": 0.0,
    }  # fmt: skip


def test_an_acceptance_file_that_holds_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}", "utf-8")
    (problem,) = problems_of(
        WITH_VARIANT, "speculation.eagle3-k3.acceptance={file: a.json}", base_dir=tmp_path
    )
    assert problem.file == str(tmp_path / "a.json")
    (problem,) = problems_of(
        WITH_VARIANT, "speculation.eagle3-k3.acceptance={file: a.json, alpha: 0.5}", base_dir=tmp_path
    )
    assert problem.field == "speculation.eagle3-k3.acceptance.alpha"


def test_a_config_that_is_no_transformer_and_a_profile_of_the_future(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "resnet"}', "utf-8")
    (tmp_path / "gpu.json").write_text('{"schema": "decodesim/profile-99"}', "utf-8")
    result = problems_of(
        MINIMAL, "target.model=config.json", "hardware.gpu=gpu.json", "run.seed=-1", base_dir=tmp_path
    )
    text = "\n".join(str(problem) for problem in result)
    for part in ("config.json", "gpu.json", "decodesim/profile-1", "run.seed"):
        assert part in text


def test_a_method_without_a_draft_takes_the_catalogues(tmp_path: Path) -> None:
    scenario = parse_scenario(MINIMAL + "speculation: [{method: eagle3}, {method: ngram}]\n")
    assert [variant.draft for variant in scenario.speculation] == ["eagle3-llama-3.3-70b", None]
    used = defaults_used(scenario)
    assert used["speculation.eagle3-k3.draft"] == "eagle3-llama-3.3-70b"
    (problem,) = problems_of(MINIMAL + "speculation: [{method: draft_model}]\n")
    assert (problem.line, problem.field) == (5, "speculation.draft_model-k3.draft")


def test_a_method_registered_a_moment_ago_is_known() -> None:
    method = Method(name="mine", title="", source="", drafter=None, drafter_has_kv=False)
    (problem,) = problems_of(MINIMAL + "speculation: [{method: mine}]\n")
    assert problem.field == "speculation.mine-k3.method"
    with registered(method):
        assert parse_scenario(MINIMAL + "speculation: [{method: mine}]\n").speculation[0].method == "mine"


def test_json_is_a_scenario_file_too(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    text = parse_scenario(MINIMAL, overrides=['name="\\ud83d\\ude00 caf\\u00e9"']).canonical_json()
    file.write_text(text.replace(",", ",\n\t"), "utf-8")
    assert load_scenario(file).name == "😀 café"
    file.write_text(text.replace(",", ",\n\t").replace('"concurrency":64', '"concurrency":"64"'), "utf-8")
    with pytest.raises(
        InputError, match=r"s\.json:\d+:\d+: workload\.arrivals\.concurrency: has the wrong type"
    ):
        load_scenario(file)


def test_what_is_wrong_twice_is_said_once() -> None:
    arrivals = "{kind: profile, rates_per_s: [[0, 0]]}"
    (problem,) = problems_of(MINIMAL, f"workload.arrivals={arrivals}")
    assert problem.message == "stays for ever, so that the last requests never come"
    assert problem.value == 0
