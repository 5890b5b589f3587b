"""Lengths of a run have the mean that was published; a lookup drafts in the rounds that find something."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from calibration.validation.curve_prediction import CurvePoint
from calibration.validation.predict import PredictionInput, predict, with_means
from calibration.validation.reconstruction.lengths import lengths_of
from calibration.validation.reconstruction.reconstruct import published_runs_of_cases
from calibration.validation.reconstruction.sections import PublishedFramework, PublishedWorkload
from calibration.validation.reconstruction.settings import UNSPLIT_PROMPTS
from calibration.validation.row import input_of
from simulator.acceptance import Gated
from simulator.runs.replications import make_traffic
from tests.published_cases import committed_runs
from tests.published_runs import case, run, scenario, with_words

CHAT = {"kind": "lognormal", "median": 150.0, "p95": 700.0, "max": 2000}


def test_drawn_lengths_are_stretched_to_the_mean_and_stay_in_their_range() -> None:
    chat = scenario(8, workload={**scenario(8).workload.model_dump(), "output_tokens": CHAT})
    drawn = make_traffic(chat, 0)
    result = with_means(drawn, {"output_tokens": 240.0})
    assert float(result.output_tokens.mean()) == pytest.approx(240, rel=0.01)
    assert 1 <= result.output_tokens.min() <= result.output_tokens.max() <= drawn.output_tokens.max()
    assert (np.argsort(result.output_tokens, kind="stable")[-1]) == np.argmax(drawn.output_tokens)
    assert result.prompt_tokens is drawn.prompt_tokens
    means = {"output_tokens": 240.0}
    tokens = [
        predict(PredictionInput(chat, None, sent=60, mean_tokens=mean_tokens)).figures["plain"]
        for mean_tokens in (means, {})
    ]
    assert tokens[0] != tokens[1]


def test_only_published_means_are_held() -> None:
    workload = PublishedWorkload(dataset="sharegpt", input_len_tokens={"mean": 342.0})
    about = case([{"concurrency": 4, "baseline": {"output_tok_per_s": 100.0}}], workload=workload)
    [result] = published_runs_of_cases([about])
    assert result.mean_tokens == {"prompt_tokens": pytest.approx(342.0)}
    assert input_of(result).mean_tokens == result.mean_tokens
    assert input_of(replace(result, published=())).mean_tokens == result.mean_tokens


def test_what_is_taken_where_nothing_is_said_is_the_middle_of_what_others_say() -> None:
    lengths_by_kind: dict[str, dict[str, list[float]]] = {"prompt_tokens": {}, "output_tokens": {}}
    for committed in committed_runs():
        for field, mean in committed.mean_tokens.items():
            lengths_by_kind[field].setdefault(committed.case.source_id, []).append(mean)
    about = case([{"concurrency": 4, "baseline": {"output_tok_per_s": 100.0}}], workload=PublishedWorkload())
    taken = lengths_of(about, {}, None)
    assert taken.assumed == ("prompt_tokens", "output_tokens")
    for field, mean in (("prompt_tokens", taken.prompt_mean), ("output_tokens", taken.output_mean)):
        assert len(lengths_by_kind[field]) > 10
        assert mean == pytest.approx(median(map(median, lengths_by_kind[field].values())), rel=0.02)


@pytest.mark.parametrize(
    ("note", "tokens", "message"),
    [
        ("raw question text, no chat template", 58, "58 tokens, usual for gsm8k without a chat template"),
        ("with a chat template", 120, "120 tokens, usual for gsm8k"),
    ],
)
def test_questions_without_a_chat_template_are_shorter(note: str, tokens: float, message: str) -> None:
    asked = with_words(case(workload=PublishedWorkload(dataset="GSM8K")), note)
    result = lengths_of(asked, {}, None)
    assert result.prompt_mean == pytest.approx(tokens)
    assert f"input length not published: {message}" in result.notes


@pytest.mark.parametrize(
    ("note", "mean", "longest"),
    [
        ("server: vllm serve m --max-model-len 2048 --no-enable-prefix-caching", 1311, 1792),
        ("python -m sglang.launch_server --context-length=2k", 1311, 1792),
        ("--max-model-len 131072", 5000, 40_000),
        ("--max-model-len 128", 5000, 40_000),
        ("--max-model-len 260", 5000, 40_000),
        ("max_model_len 2,048", 1311, 1792),
    ],
)
def test_a_server_takes_no_prompt_that_its_context_has_no_room_for(
    note: str, mean: float, longest: int
) -> None:
    """The mean of a log-normal (5,000, 0.7) below 1,792 tokens, from draws: 1,311."""
    asked = PublishedWorkload(dataset="SWE-bench", output_len_tokens={"nominal": 256, "max": 256})
    result = lengths_of(with_words(case(workload=asked), note), {}, None)
    assert result.prompt_mean == pytest.approx(mean, rel=0.01)
    assert result.prompt["max"] == longest
    assert result.assumed == ("prompt_tokens",)


def test_prompts_of_tensorrt_llm_are_whole_unless_it_is_told_to_cut_them() -> None:
    def prefills_whole(prompt: int, note: str = "", engine: str = "TensorRT-LLM") -> bool:
        message = PublishedWorkload(dataset="random", input_len_tokens=prompt, output_len_tokens=100)
        about = case(
            [{"concurrency": 4, "baseline": {"output_tok_per_s": 100.0}}],
            workload=message,
            framework=PublishedFramework(name=engine, version="1.0"),
        )
        [result] = published_runs_of_cases([with_words(about, note)])
        assert result.plain is not None
        assert (UNSPLIT_PROMPTS in result.choices) is not result.plain.engine.chunked_prefill
        return not result.plain.engine.chunked_prefill

    assert prefills_whole(1000)
    assert not prefills_whole(32_000), "longer than a step: it must have been told"
    assert not prefills_whole(1000, "--enable_chunked_prefill true")
    assert prefills_whole(1000, "enable_chunked_prefill: false")
    assert not prefills_whole(1000, engine="vLLM")
    assert not prefills_whole(1000, engine="LMDeploy")


@pytest.mark.parametrize(
    ("message", "counted", "note", "dataset", "fixed"),
    [
        (256, None, "greedy, ignore_eos", "gsm8k", True),
        (256, None, "greedy", "gsm8k", False),
        (256, None, "run without --ignore-eos", "gsm8k", False),
        (256, None, "ignore_eos: false", "gsm8k", False),
        (256, None, "--ignore-eos", "sharegpt", False),
        (200, 199.9, "", "instructcoder", True),
        (200, 163.0, "", "instructcoder", False),
        (199, 199.2, "", "sharegpt", False),
    ],
)
def test_outputs_are_of_one_length_where_nothing_but_a_limit_ends_them(
    message: int, counted: float | None, note: str, dataset: str, fixed: bool
) -> None:
    counts = {} if counted is None else {"total_output_tokens": 100 * counted, "num_requests": 100}
    point = {"concurrency": 4, "baseline": {"output_tok_per_s": 100.0, **counts}}
    about = case([point], workload=PublishedWorkload(dataset=dataset, output_len_tokens=message))
    result = lengths_of(with_words(about, note), point, None)
    assert (result.output["kind"] == "fixed") is fixed
    assert result.ends_foreseen or not fixed, "an engine knows the limit that it stops at"


def test_a_lookup_drafts_only_where_it_finds_something() -> None:
    entry = {"model": "gated", "match": 0.3, "first": 0.5, "run": 0.7}
    variant = {"name": "spec", "method": "ngram", "draft_length": 3, "acceptance": entry}
    looked_up = scenario(8, speculation=[variant])
    point = CurvePoint(input_of(run([], looked_up)), None)
    for alpha, match in ((0.1, 0.3), (0.3, 0.3), (0.6, 0.6), (1.0, 1.0)):
        model = point.with_alpha(alpha)
        assert isinstance(model, Gated)
        assert model.match_probability == pytest.approx(match)
        assert model.match_probability * model.first == pytest.approx(alpha)
