"""Requests from a workload section: counts, classes, cancellations, files of lengths."""

import json
import pickle

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.scenario.workload import Workload
from simulator.traffic.workload import generate, workload_notes
from tests.traffic_figures import describe

FIXED = {"kind": "fixed", "tokens": 20}


def workload(**fields):
    """A workload of 100 closed-loop requests unless `fields` say otherwise."""
    settings = {"arrivals": {"kind": "closed", "concurrency": 4}, "requests": 100, **fields}
    return Workload.model_validate_json(json.dumps(settings))


def test_closed_loop_issues_the_first_clients_and_leaves_the_rest_open():
    requests = generate(workload(), seed=1)
    assert requests.arrival_ns.tolist() == [0] * 4 + [-1] * 96
    assert (requests.successor == -1).all()
    assert (requests.session == -1).all()
    assert requests.prefix_block_tokens == 0
    assert requests.prefix_start.tolist() == [0] * 101


def test_burst_comes_all_at_once():
    assert (generate(workload(arrivals={"kind": "burst"}), seed=1).arrival_ns == 0).all()


@pytest.mark.parametrize(
    ("lengths", "low", "high"),
    [
        ({"kind": "fixed", "tokens": 7}, 7, 7),
        ({"kind": "uniform", "low": 3, "high": 5}, 3, 5),
        ({"kind": "lognormal", "median": 100, "p95": 400, "min": 50, "max": 300}, 50, 300),
        ({"kind": "lognormal", "median": 1e-9, "p95": 1e-9}, 1, 1),
    ],
)
def test_lengths_keep_to_their_bounds_and_reach_them(lengths, low, high):
    requests = generate(workload(requests=2000, prompt_tokens=lengths), seed=3)
    assert requests.prompt_tokens.min() == low
    assert requests.prompt_tokens.max() == high


def test_uniform_lengths_are_equally_likely_at_both_ends():
    tokens = generate(
        workload(requests=30_000, prompt_tokens={"kind": "uniform", "low": 1, "high": 3}), 5
    ).prompt_tokens
    counts = np.bincount(tokens)[1:]
    assert np.abs(counts - 10_000).max() < 4 * np.sqrt(30_000 * 2 / 9)


def test_lognormal_runs_through_median_and_95th_percentile():
    lengths = {"kind": "lognormal", "median": 1000, "p95": 4000}
    tokens = generate(workload(requests=100_000, output_tokens=lengths), seed=5).output_tokens
    for share, at in ((0.5, 1000), (0.95, 4000)):
        below = np.mean(tokens <= at)
        rounding = 5e-4  # to whole tokens
        assert abs(below - share) < 4 * np.sqrt(share * (1 - share) / 100_000) + rounding


def test_lognormal_collects_what_lies_beyond_its_bounds():
    lengths = {"kind": "lognormal", "median": 1000, "p95": 4000, "max": 4000}
    tokens = generate(workload(requests=100_000, output_tokens=lengths), seed=5).output_tokens
    assert abs(np.mean(tokens == 4000) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 100_000) + 5e-4


def test_absurdly_small_medians_do_not_overflow():
    lengths = {"kind": "lognormal", "median": 1e-300, "p95": 1e9}
    tokens = generate(workload(requests=1000, output_tokens=lengths), seed=5).output_tokens
    assert tokens.min() == 1
    assert tokens.max() <= 10**9


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.txt", "3\n5\r\n\n9\n"),
        ("headed.csv", "tokens\n3\n5\n9\n"),
        ("wide.csv", "id,output_tokens,prompt_tokens\na,1,3\nb,1,5\nc,1,9\n"),
        ("list.json", "[3, 5.0, 9]"),
        ("named.json", '{"prompt_tokens": [3, 5, 9], "output_tokens": [1]}'),
    ],
)
def test_empirical_lengths_come_from_the_file(tmp_path, name, text):
    (tmp_path / name).write_text(text, newline="")
    requests = generate(workload(prompt_tokens={"kind": "empirical", "file": name}), 1, tmp_path)
    assert set(requests.prompt_tokens.tolist()) == {3, 5, 9}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("3\nabc\n", 2, "not a number"),
        ("3\n0\n", 2, "too short"),
        ("3\n-4\n", 2, "not a number of tokens"),
        ("3\n2.5\n", 2, "not a number of tokens"),
        ("3\nnan\n", 2, "not a finite number"),
        ("a,b\n1,2\n", 1, "several columns"),
        ("", None, "holds no lengths"),
        ("[1, 2", 1, "not JSON"),
        ('{"other": [1]}', None, "no list of lengths"),
        ("[true]", None, "not a number"),
    ],
)
def test_broken_files_of_lengths_name_the_line(tmp_path, text, line, what):
    (tmp_path / "lengths").write_text(text)
    with pytest.raises(InputError) as error:
        generate(workload(output_tokens={"kind": "empirical", "file": "lengths"}), 1, tmp_path)
    (problem,) = error.value.problems
    assert (problem.file, problem.line) == (str(tmp_path / "lengths"), line)
    assert what in problem.message
    assert pickle.loads(pickle.dumps(error.value)).problems == error.value.problems


def test_a_missing_file_of_lengths_names_the_field(tmp_path):
    with pytest.raises(InputError, match=r"workload\.prompt_tokens\.file: no such file"):
        generate(workload(prompt_tokens={"kind": "empirical", "file": "none"}), 1, tmp_path)


def test_without_classes_there_is_one():
    mixed = workload()
    assert len(mixed.traffic_classes) == 1
    assert (generate(mixed, 1).traffic_class == 0).all()


def test_classes_take_their_shares_and_their_own_lengths():
    code = {"name": "code", "share": 0.3, "prompt_tokens": {"kind": "fixed", "tokens": 11}}
    chat = {"name": "chat", "share": 0.5, "output_tokens": {"kind": "uniform", "low": 5, "high": 6}}
    mixed = workload(requests=50_000, classes=[code, chat], prompt_tokens=FIXED, output_tokens=FIXED)
    requests = generate(mixed, seed=2)
    assert [entry.name for entry in mixed.traffic_classes[:2]] == ["code", "chat"]
    assert len(mixed.traffic_classes) == 3
    shares = np.bincount(requests.traffic_class) / 50_000
    assert np.abs(shares - [0.3, 0.5, 0.2]).max() < 4 * np.sqrt(0.25 / 50_000)
    is_code, is_chat = requests.traffic_class == 0, requests.traffic_class == 1
    assert set(requests.prompt_tokens[is_code].tolist()) == {11}
    assert set(requests.prompt_tokens[~is_code].tolist()) == {20}
    assert set(requests.output_tokens[is_chat].tolist()) == {5, 6}
    assert set(requests.output_tokens[~is_chat].tolist()) == {20}


def test_classes_that_take_everything_leave_no_other():
    halves = [{"name": name, "share": 0.5} for name in ("a", "b")]
    mixed = workload(classes=halves)
    assert [entry.name for entry in mixed.traffic_classes] == ["a", "b"]
    assert set(generate(mixed, 1).traffic_class.tolist()) == {0, 1}


def test_a_class_of_no_share_gets_nothing():
    mixed = workload(requests=5000, classes=[{"name": "none", "share": 0.0}, {"name": "all", "share": 1.0}])
    assert (generate(mixed, 1).traffic_class == 1).all()


def test_cancelled_clients_leave_between_the_first_and_the_last_token():
    requests = generate(
        workload(requests=40_000, output_tokens={"kind": "fixed", "tokens": 5}, cancel_fraction=0.25), 4
    )
    after = requests.cancel_after_tokens
    assert abs(np.mean(after > 0) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 40_000)
    counts = np.bincount(after, minlength=5)[1:]
    assert len(counts) == 4
    assert np.abs(counts - counts.sum() / 4).max() < 4 * np.sqrt(counts.sum() * 3 / 16)


def test_a_single_token_cannot_be_cancelled():
    requests = generate(workload(output_tokens={"kind": "fixed", "tokens": 1}, cancel_fraction=1.0), 4)
    assert (requests.cancel_after_tokens == 0).all()


def test_everybody_else_cancels_when_all_shall():
    requests = generate(workload(output_tokens={"kind": "fixed", "tokens": 2}, cancel_fraction=1.0), 4)
    assert (requests.cancel_after_tokens == 1).all()


def test_arrays_have_the_promised_types():
    requests = generate(workload(sessions={"turns": 3}), 1)
    for name, values in requests._asdict().items():
        if name != "prefix_block_tokens":
            assert values.dtype == (np.int32 if name == "traffic_class" else np.int64), name
            assert values.flags.c_contiguous, name
            assert values.flags.writeable, name


def test_a_million_requests_hold_little_more_than_their_arrays():
    requests = generate(workload(requests=1_000_000), seed=0)
    held = sum(values.nbytes for values in requests if isinstance(values, np.ndarray))
    assert held <= 80_000_000


def test_description_of_a_small_burst():
    summary = describe(
        generate(workload(requests=3, prompt_tokens=FIXED, arrivals={"kind": "burst"}), 1), ["all"]
    )
    assert summary["requests"] == 3
    assert summary["classes"] == {"all": 3}
    assert summary["prompt_tokens"] == {
        "mean": 20,
        "p50": 20,
        "p90": 20,
        "p95": 20,
        "p99": 20,
        "min": 20,
        "max": 20,
    }
    assert summary["arrivals"] == {"known": 3, "span_s": 0.0, "rate_per_s": None, "cv": None}
    assert summary["prefix"] == {"block_tokens": None, "known_fraction": None, "ideal_hit_rate": None}
    json.dumps(summary, allow_nan=False)


def test_drawn_traffic_needs_no_notes():
    assert workload_notes(workload()) == ()
