"""Break-even maps: what rows say, up to which load an acceptance is enough, best choices and regret."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest

from experiments.maps.choice import PLAIN, choices
from experiments.maps.study_map import UNREACHABLE_ALPHA, MapCell, StudyMap, study_map
from simulator.breakeven.theory import alpha_from_tokens_per_verify, tokens_per_verify
from tests.shared_data import ROOT
from tests.stored_studies import (
    ALPHAS,
    GPUS,
    LENGTHS,
    LOADS,
    PROMPTS,
    VARIANTS,
    break_even_study,
    overhead,
    speedup_study,
)


def a_map(*unfit: tuple[int, int]) -> StudyMap:
    return break_even_study(unfit).map


def test_axes_are_what_varies_but_load_and_draft_lengths() -> None:
    result = a_map()
    assert result.load == "workload.arrivals.concurrency"
    assert result.axes == ("hardware.tensor_parallel", "workload.prompt_tokens.tokens")
    assert len(result.cells) == len(VARIANTS) * len(GPUS) * len(PROMPTS) * len(LOADS) * len(LENGTHS)
    assert result.alphas == ALPHAS
    lines = result.lines()
    assert len(lines) == len(result.cells) / len(LOADS)
    assert all([cell.load for cell in line] == list(LOADS) for line in lines.values())


def test_settings_that_go_with_the_load_make_no_axis() -> None:
    rows = [
        {"workload.arrivals.concurrency": n, "workload.requests": 10 * n, "gpus": g, "status": "done",
         "x.break_even_alpha": 0.5, "x.break_even_verdict": "pays"}
        for n in (1, 2, 4) for g in (1, 2)
    ]  # fmt: skip
    result = study_map(rows, ["workload.arrivals.concurrency", "workload.requests", "gpus"])
    assert result.axes == ("gpus",)
    assert {cell.variant for cell in result.cells} == {"x"}
    assert {cell.draft_length for cell in result.cells} == {None}


def test_a_study_without_loads_lies_along_its_longest_axis() -> None:
    rows = [{"k": k, "gpus": g, "x.break_even_alpha": 0.1 * k} for k in (1, 2, 3, 4) for g in (1, 2)]
    result = study_map(rows, ["gpus", "k"])
    assert (result.load, result.axes) == ("k", ("gpus",))
    assert study_map([], []).cells == ()


def test_cells_say_what_is_needed_and_why_not() -> None:
    result = a_map((2, 16384))
    for cell in result.cells:
        gpus, prompt = cell.place
        if list(cell.place) == [2, 16384]:
            assert (cell.outcome, cell.required_alpha(), len(cell.speedups)) == ("does-not-fit", None, 0)
            continue
        cost = 1 + overhead(
            cell.variant, int(gpus or 0), int(prompt or 0), int(cell.load), cell.draft_length or 0
        )
        exact = alpha_from_tokens_per_verify(cost, cell.draft_length or 0)
        assert cell.required_alpha() == (UNREACHABLE_ALPHA if exact is None else pytest.approx(exact))
        low, high = cell.required_alpha(0), cell.required_alpha(1)
        assert low is not None
        assert high is not None
        assert low <= (cell.required_alpha() or 0) <= high
        assert cell.speedups[0.7].value == pytest.approx(
            tokens_per_verify(0.7, cell.draft_length or 0) / cost
        )


def line(*needed: float | None, band: float = 0.05) -> list[MapCell]:
    """Cells at 1, 2, 4, … clients; None: no α is enough."""
    cells = []
    for place, alpha in enumerate(needed):
        row: dict[str, str | float]
        row = {"x.break_even_verdict": "unreachable" if alpha is None else "pays"}
        if alpha is not None:
            ends = {"band_low": alpha - band, "band_high": alpha + band}
            row["x.break_even_alpha"] = alpha
            row |= {f"x.break_even_alpha.{end}": value for end, value in ends.items()}
        cells.append(MapCell(2.0**place, (), "x", 3, row))
    return cells


@pytest.fixture
def limit_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The function of the page's own script."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("break_even_limits").limit_of


def test_the_limit_lies_where_the_line_crosses_the_acceptance(limit_of: Any) -> None:
    result = limit_of(line(0.1, 0.2, 0.4, 0.6), 0.3)
    assert result is not None
    assert result.load == pytest.approx(2 * math.sqrt(2))
    assert [result.low, result.high] == pytest.approx([2 * 2**0.25, 2 * 2**0.75])
    assert result.crossings == 1


def test_limits_at_the_ends_of_the_line_and_beyond(limit_of: Any) -> None:
    nowhere, everywhere = limit_of(line(0.5, 0.6), 0.3), limit_of(line(0.1, 0.2), 0.3)
    assert nowhere is not None
    assert everywhere is not None
    assert (nowhere.load, nowhere.high) == (0.0, 0.0)
    assert (everywhere.load, everywhere.low) == (math.inf, math.inf)
    beyond = limit_of(line(0.5, None), 0.7)
    assert beyond is not None
    assert 1 < beyond.load < 2
    assert limit_of([], 0.5) is None
    unfit = MapCell(4.0, (), "x", 3, {"status": "does-not-fit"})
    assert limit_of([*line(0.1, 0.2), unfit], 0.5) is None


def test_the_first_stop_counts_and_further_crossings_are_told(limit_of: Any) -> None:
    result = limit_of(line(0.1, 0.5, 0.2, 0.6), 0.3)
    assert result is not None
    assert 1 < result.load < 2
    assert result.crossings == 3


def test_the_best_choice_is_the_largest_speedup_over_variants_and_draft_lengths() -> None:
    for alpha in ALPHAS:
        result = choices(a_map(), alpha)
        assert len(result) == len(GPUS) * len(PROMPTS) * len(LOADS)
        for choice in result:
            gpus, prompt = choice.place
            gains = {
                (variant, k): tokens_per_verify(alpha, k)
                / (1 + overhead(variant, int(gpus or 0), int(prompt or 0), int(choice.load), k))
                for variant in VARIANTS
                for k in LENGTHS
            }
            best = max(gains, key=lambda option: gains[option])
            assert choice.best == (best if gains[best] > 1 else PLAIN)
            top = max(1.0, gains[best])
            for option, gain in gains.items():
                regret = choice.regret(option)
                assert regret.value == pytest.approx(1 - gain / top)
                assert regret.ci95 is not None
                assert regret.band is not None
                assert regret.band[0] <= regret.ci95[0] <= regret.value <= regret.ci95[1] <= regret.band[1]
            assert choice.regret(PLAIN).value == pytest.approx(1 - 1 / top)
            assert choice.regret(choice.best).value == 0
            assert choice.as_good(0.02)[0] == choice.best


def test_the_band_moves_all_options_alike_and_so_only_against_plain_decoding() -> None:
    choice = next(
        candidate
        for candidate in choices(a_map(), 0.85)
        if list(candidate.place) == [2, 1024] and candidate.load == 1
    )
    best = choice.speedups[choice.best].value
    low, high = choice.regret(("head", 1)).band or (0, 0)
    sampling = choice.regret(("head", 1)).ci95 or (0, 0)
    assert (low, high) == pytest.approx(sampling, rel=0.02)
    low, high = choice.regret(PLAIN).band or (0, 0)
    assert (low, high) == pytest.approx((1 - 1.1 / best, 1 - 0.9 / best), rel=0.01)
    unsure = next(
        candidate
        for candidate in choices(a_map(), 0.7)
        if list(candidate.place) == [4, 1024] and candidate.load == 256
    )
    assert unsure.best == ("head", 1)
    assert (unsure.regret(unsure.best).band or (0, 0))[1] > 0, "plain decoding may be better after all"


def test_one_variant_alone_chooses_among_its_own() -> None:
    result = choices(a_map(), 0.85, ("draft",))
    assert {option[0] for choice in result for option in choice.speedups} == {"draft", "plain"}
    assert choices(a_map(), 0.123) == ()


def test_places_that_do_not_fit_have_no_choice() -> None:
    places = {choice.place for choice in choices(a_map((2, 16384)), 0.7)}
    assert (2, 16384) not in places
    assert len(places) == len(GPUS) * len(PROMPTS) - 1


def test_simulated_studies_make_a_map_too() -> None:
    result = speedup_study().map
    assert result.axes == ("speculation.head.acceptance.alpha",)
    speedups = [cell.estimate("throughput_speedup") for cell in result.cells if cell.variant == "head"]
    assert all(speedup is not None and speedup.band is not None for speedup in speedups)
    assert all(cell.required_alpha() is None for cell in result.cells)
