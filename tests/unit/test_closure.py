"""The closed loop's arithmetic: brackets, break-evens, steadiness, and what was calibrated."""

from __future__ import annotations

import pytest

from calibration.measurements import Measurement


def pair(alpha: float, tokens: float, plain_s: float, cycle_s: float):  # type: ignore[no-untyped-def]
    """A pair with nothing but these times."""
    from calibration.closure.measured_point import StepPair

    return StepPair(alpha, tokens, plain_s, 0.0, cycle_s / 2, 0.0, (cycle_s / 4, cycle_s / 4), 256, 260)


def measured(*pairs, draft_length: int = 2):  # type: ignore[no-untyped-def]
    """A point with these pairs."""
    from calibration.closure.measured_point import MeasuredPoint
    from calibration.closure.points import LoopPoint

    return MeasuredPoint(LoopPoint(2, draft_length, 256, 1), pairs)


def layer(batch: int, queries: int, context: int) -> Measurement:
    """A layer that was timed in place."""
    shape = {"batch": batch, "queries": queries, "context": context, "hidden": 576}
    return Measurement("layer", "in_place", shape, "bf16", 1.0, 1.0, 1e-3, 1e-3, 1e-3, 8, (1e-3,))


def test_speedups_are_those_of_pairs_and_the_break_even_lies_between_them() -> None:
    """A machine that slows down to a third between two pairs changes neither."""
    result = measured(
        pair(0.4, 1.6, 0.01, 0.02),
        pair(0.4, 1.6, 0.03, 0.06),
        pair(0.8, 2.5, 0.01, 0.02),
        pair(0.8, 2.5, 0.03, 0.06),
    )
    assert [dial.speedup for dial in result.dials] == pytest.approx([0.8, 1.25])
    outcome, alpha = result.break_even
    assert (outcome, alpha) == ("found", pytest.approx(0.6))  # halfway: 0.8 and 1.25 are as far from 1


@pytest.mark.parametrize(
    ("alpha", "tokens", "outcome"),
    [
        (1.0, 1.9, "unreachable"),
        (0.0, 2.5, "always"),
        (0.5, 1.9, "not bracketed"),
        (0.5, 2.5, "not bracketed"),
    ],
)
def test_one_sided_dials_say_what_they_can(alpha: float, tokens: float, outcome: str) -> None:
    assert measured(pair(alpha, tokens, 0.01, 0.02)).break_even == (outcome, None)


def test_acceptances_to_dial_lie_around_where_tokens_make_up_for_the_time() -> None:
    from calibration.closure.measured_point import bracket
    from calibration.closure.points import LoopPoint
    from simulator.breakeven.theory import tokens_per_verify

    point = LoopPoint(1, 3, 256, 1)
    low, high = bracket(point, [pair(0.5, 1.0, 0.01, 0.02)])
    assert tokens_per_verify(low, 3) < 2 < tokens_per_verify(high, 3)
    assert bracket(point, [pair(0.5, 1.0, 0.01, 0.05)]) == (1.0,)
    assert bracket(point, [pair(0.5, 1.0, 0.01, 0.009)]) == (0.0,)


def test_points_that_a_bench_has_measured_are_found_whatever_they_grow_to() -> None:
    from calibration.closure.points import LoopPoint, calibrated_points

    point = LoopPoint(4, 3, 256, 2)
    assert calibrated_points([point], [layer(4, 4, 192), layer(4, 4, 768), layer(2, 4, 270)]) == []
    assert calibrated_points([point], [layer(4, 4, 270)]) == [point]
    assert calibrated_points([point], [layer(4, 1, 265)]) == [point]


@pytest.mark.parametrize("quick", [True, False])
def test_no_point_of_the_loop_is_calibrated(quick: bool) -> None:
    from calibration.closure.closure import MODES
    from calibration.closure.points import calibrated_points
    from calibration.microbench.subject import grid_of

    points = MODES[quick].points
    assert {point.batch for point in points} >= {1, 12}
    assert {point.context for point in points} >= {256, 512}
    for kind in ("cpu", "cuda"):
        for size in (True, False):
            grid = grid_of(kind, size)
            contexts = {*grid.contexts, *grid.layer_contexts}
            shapes = [layer(b, q, c) for b in range(1, 17) for q in range(1, 10) for c in contexts]
            assert calibrated_points(points, shapes) == []


def test_most_steps_of_the_loop_are_new_in_batch_and_query_tokens_too() -> None:
    from calibration.closure.points import FULL
    from calibration.microbench.subject import grid_of

    known = set(grid_of("cpu", False).steps(10_000))
    new = [point for point in FULL if (point.batch, point.draft_length + 1) not in known]
    assert len(new) > 2 / 3 * len(FULL)
    assert {point.draft_length for point in FULL} == {1, 2, 3, 4, 5, 6, 7}
    assert {point.batch for point in FULL} >= {1, 16}


def test_a_machine_is_busy_when_its_reference_step_is_not_steady() -> None:
    from calibration.closure.reference import Reference

    assert Reference.of([[1.0, 1.02], [0.99, 1.01]] * 5).busy is None
    assert "P90/P10" in str(Reference.of([[1.0, 1.9]] * 10).busy)
    assert "odd and even" in str(Reference.of([[1.0], [1.07]] * 10).busy)


def test_a_drift_that_both_sides_met_is_told_and_refuses_nothing() -> None:
    from calibration.closure.reference import Reference

    result = Reference.of([[1.0, 1.01]] * 20 + [[1.1, 1.11]] * 20)
    assert result.busy is None
    assert result.drift == pytest.approx(0.1, abs=0.01)


def test_a_busy_machine_gives_no_figures_and_says_why() -> None:
    from calibration.closure.closure import Closure
    from calibration.closure.text_check import TextCheck
    from calibration.measurements import DeviceNotes

    device = DeviceNotes("cpu", "a CPU", None, 1, 1, 1, 2, "", "2.13", "")
    run = Closure(
        device, (), None, TextCheck(True, 0.4), 2, 1.0, busy="machine busy: others work here"
    ).to_json()
    assert run["notes"] == ["machine busy: others work here"]
    assert set(run["summary"].values()) == {None}
    assert {"step_median_abs_log_error", "speedup_median_abs_log_error", "breakeven"} <= run["summary"].keys()
