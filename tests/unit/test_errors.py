"""What bad input looks like when it is printed."""

import pickle

import pytest

from simulator.errors import InputError, Problem, did_you_mean, unknown_name


def test_a_problem_prints_place_field_value_and_what_is_allowed() -> None:
    problem = Problem("s.yaml", 3, 7, "speculation.0.alpha", 1.5, "must be at most 1", "0 to 1")
    assert str(problem) == "s.yaml:3:7: speculation.0.alpha: must be at most 1 (got 1.5), 0 to 1"


def test_parts_that_are_unknown_are_left_out() -> None:
    assert str(Problem(message="no such file")) == "no such file"
    assert str(Problem(file="s.yaml", message="is empty")) == "s.yaml: is empty"
    assert (
        str(Problem(field="--tp", value="x", message="is not a number")) == "--tp: is not a number (got 'x')"
    )


def test_a_long_value_is_cut_and_stays_on_one_line() -> None:
    printed = str(Problem(message="bad", value="line\n" * 1000))
    assert len(printed) < 120
    assert "\n" not in printed


def test_an_error_takes_text_one_problem_or_several() -> None:
    assert InputError("bad").problems == (Problem(message="bad"),)
    assert InputError(Problem(message="bad")).problems == (Problem(message="bad"),)
    both = InputError([Problem(message="one"), Problem(message="two")])
    assert str(both) == "one\ntwo"
    assert isinstance(both, ValueError)


def test_an_error_survives_the_way_to_another_process() -> None:
    error = InputError([Problem("f", 1, 2, "a.b", 3, "wrong", "right"), Problem(message="two")])
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


def test_places_are_filled_in_only_where_unknown() -> None:
    error = InputError([Problem(message="one"), Problem(file="t.csv", line=9, message="two")])
    assert [str(p) for p in error.at("s.yaml", 4, 2, "x").problems] == [
        "s.yaml:4:2: x: one",
        "t.csv:9:2: x: two",
    ]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("H100-SXN", "h100-sxm"), ("h200sxm", "h200-sxm"), ("tpu", None), ("h2", None), ("H20", "h200-sxm")],
)
def test_the_closest_name_is_offered(wrong: str, meant: str | None) -> None:
    assert did_you_mean(wrong, ["h100-sxm", "h200-sxm"]) == meant


def test_an_unknown_name_lists_the_known_ones() -> None:
    printed = str(
        unknown_name("GPU", "h100-sxn", ["h200-sxm", "h100-sxm"], field="hardware.gpu", also="a path")
    )
    assert printed == (
        "hardware.gpu: unknown GPU, did you mean 'h100-sxm'? (got 'h100-sxn'), "
        "known: h100-sxm, h200-sxm; or a path"
    )
