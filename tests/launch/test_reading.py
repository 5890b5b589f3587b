"""Launch configurations as people have them: read into scenarios, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.launch import read_vllm
from calibration.launch.line import parse_line
from calibration.launch.read_sglang import read as read_sglang
from calibration.launch.read_trtllm import read as read_trtllm
from experiments.cli import decodesim
from simulator.errors import InputError
from simulator.scenario import load_scenario
from tests.shared_data import SHARED, needs_shared

LINE = (
    "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 4 --max_num_seqs=64 --speculative-config "
    """'{"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B", "num_speculative_tokens": 3}'"""
)
SAME_CONFIG = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 5}


def init(*arguments: object) -> Result:
    """`decodesim init` in this process."""
    return CliRunner().invoke(decodesim, ["init", *map(str, arguments)])


def test_a_line_becomes_a_scenario_and_flags_replace_what_it_states(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    done = init(
        "--from-vllm", LINE, "--gpu", "h200-sxm", "--concurrency", 32, "--draft-length", 5, "-o", file
    )
    assert done.exit_code == 0, done.stderr
    scenario = load_scenario(file)
    (variant,) = scenario.speculation
    assert (variant.method, variant.draft) == ("eagle3", "eagle3-llama-3.3-70b-yuhuili")
    assert (variant.draft_length, scenario.hardware.tensor_parallel) == (5, 4)
    assert (scenario.hardware.gpu, scenario.engine.max_num_seqs) == ("h200-sxm", 64)
    assert "acceptance assumed" in done.stderr
    refused = init("--from-vllm", LINE, "-o", file)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "exists already" in refused.stderr


@pytest.mark.parametrize(
    "options",
    [
        f"--speculative-config '{json.dumps(SAME_CONFIG)}'",
        "--speculative_config={}".format(json.dumps(SAME_CONFIG).replace(" ", "").replace('"', '\\"')),
        "-sc \"{'method': 'ngram', 'num_speculative_tokens': 4, 'prompt_lookup_max': 5}\"",
        "--speculative-config.method ngram --speculative-config.num_speculative_tokens 4 "
        "--speculative-config.prompt_lookup_max 5",
        "--speculative-model '[ngram]' --num-speculative-tokens 4 --ngram-prompt-lookup-max 5",
        "--spec-method ngram --spec-tokens 4 -sc '{\"prompt_lookup_max\": 5}'",
    ],
)
def test_every_spelling_of_a_vllm_configuration_is_the_same(options: str) -> None:
    for line in (
        f"vllm serve Qwen/Qwen3-32B {options}",
        f"vllm serve --model Qwen/Qwen3-32B \\\n  {options}",
    ):
        launch = read_vllm.read(line)
        assert launch.speculation == SAME_CONFIG
        assert launch.scenario["speculation"] == [{"method": "ngram", "draft_length": 4}]
        assert launch.scenario["target"] == {"model": "qwen3-32b"}


def test_a_container_tells_the_version_and_its_own_options_are_left_alone() -> None:
    launch = read_vllm.read(
        "docker run --gpus all -e HF_TOKEN=secret -p 8000:8000 --ipc=host vllm/vllm-openai:v0.11.2 "
        "--model Qwen/Qwen3-32B --enforce-eager --tensor-parallel-size 2"
    )
    assert launch.version == "0.11.2"
    assert launch.scenario["engine"]["preset"] == "vllm-0.11.2"
    assert launch.scenario["hardware"] == {"tensor_parallel": 2}
    assert launch.notes == ("not simulated: --enforce-eager",)


def test_ngram_on_the_host_is_a_synchronous_vllm() -> None:
    launch = read_vllm.read("vllm serve Qwen/Qwen3-32B --spec-method ngram --spec-tokens 3")
    assert launch.scenario["engine"]["preset"].endswith("-sync")
    on_gpu = read_vllm.read("vllm serve Qwen/Qwen3-32B --spec-method ngram_gpu --spec-tokens 3")
    assert "preset" not in on_gpu.scenario["engine"]


def test_sglangs_own_choice_of_a_tree() -> None:
    llama = read_sglang(
        "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct "
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    )
    (variant,) = llama.scenario["speculation"]
    assert variant["draft"] == "eagle3-llama-3.1-8b"
    assert variant["tree"] == {"depth": 5, "top_k": 4, "nodes": 8, "dynamic": True}
    qwen = read_sglang("sglang serve --model-path Qwen/Qwen3-32B --speculative-algorithm EAGLE3")
    assert qwen.scenario["speculation"] == [{"method": "eagle3", "draft_length": 3}]


@needs_shared
def test_the_examples_of_the_formats() -> None:
    folder = SHARED / "formats" / "examples"
    line = (folder / "sglang_launch_args.txt").read_text(encoding="utf-8")
    (variant,) = read_sglang(line).scenario["speculation"]
    assert (variant["method"], variant["draft_length"]) == ("eagle3", 3)
    adaptive = (
        f"{line.strip()} --speculative-adaptive --speculative-adaptive-config sglang_adaptive_config.json"
    )
    (variant,) = read_sglang(adaptive, base_dir=folder).scenario["speculation"]
    assert variant["draft_length"] == [[1, 15, 5], [16, 63, 2], [64, None, 0]]
    text = (folder / "trtllm_config.mtp_schedule.yaml").read_text(encoding="utf-8")
    (variant,) = read_trtllm(text, "file").scenario["speculation"]
    assert variant["draft_length"] == [[1, 4, 3], [5, 16, 2], [17, 64, 1], [65, None, 0]]
    dynamic = (folder / "vllm_speculative_config.dynamic.json").read_text(encoding="utf-8")
    launch = read_vllm.read(f"vllm serve Qwen/Qwen3-32B -sc '{dynamic}'")
    assert launch.scenario["speculation"][0]["draft_length"] == [[1, 8, 4], [9, 32, 2], [33, None, 0]]


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        (("--from-vllm", "vllm serve 'x"), "no closing quotation"),
        (("--from-vllm", ""), "is empty"),
        (("--from-vllm", "vllm serve --port 8"), "is missing"),
        (("--from-vllm", "vllm serve qwen3-32b -tp two"), "a whole number"),
        (("--from-vllm", "vllm serve qwen3-32b -sc '{\"method\": '"), "is not YAML"),
        (("--from-vllm", "vllm serve qwen3-32b -sc ngram"), "is no JSON object"),
        (("--from-vllm", 'vllm serve qwen3-32b -sc \'{"method": "dream"}\''), "unknown method"),
        (("--from-vllm", "python -m sglang.launch_server --model-path x"), "--from-sglang"),
        (("--from-sglang", "vllm serve x"), "--from-vllm"),
        (("--from-trtllm", "nowhere.yaml"), "no such file"),
        (("--from-vllm", "vllm serve x", "--from-sglang", "y"), "cannot be combined"),
        (("--from-vllm", "vllm serve qwen3-32b", "--alpha", "0.5"), "has no meaning without a method"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], stated: str) -> None:
    done = init(*arguments)
    assert done.exit_code == 2, done.output
    assert stated in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


WORDS = st.sampled_from(
    [
        *"vllm serve qwen3-32b -sc --speculative-config --max-num-seqs --model -tp 4".split(),
        *"[1] [ngram] ' \" { } : \\".split(),
        *"--speculative-algorithm EAGLE3 --speculative-num-steps NaN -1 1e999 8k --x=1 --.a - -- = 0".split(),
        '\'{"method": "eagle3", "num_speculative_tokens": -1}\'',
        '\'{"num_speculative_tokens_per_batch_size": [[1, 2, 3], [0, "a"]]}\'',
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS | st.text(max_size=6), max_size=12).map(" ".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    for option in ("--from-vllm", "--from-sglang"):
        done = init(option, text)
        assert done.exit_code in (0, 2), done.output
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception


YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "speculative_config kv_cache_config decoding_type max_draft_len draft_len_schedule 4 dtype "
                "tensor_parallel_size "
                "max_batch_size use_dynamic_tree max_concurrency model speculative_model".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(YAML)
def test_any_configuration_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: object) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(json.dumps(data), encoding="utf-8")
    done = init("--from-trtllm", file, "--model", "qwen3-32b")
    assert done.exit_code in (0, 2), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception


def test_nothing_of_a_line_is_expanded_or_run() -> None:
    line = parse_line("vllm serve $(touch /tmp/x) `id` $HOME", "line")
    assert line.arguments == ("$(touch", "/tmp/x)", "`id`", "$HOME")
    with pytest.raises(InputError):
        parse_line("x" * 200_000, "line")
