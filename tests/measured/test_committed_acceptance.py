"""The committed measurement: figures from its own rounds, predictions, what temperature does."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibration.acceptance.committed_file import FILE, load, predictions
from calibration.acceptance.page import PAGE, closed_form, written
from calibration.acceptance.report import groups_of
from calibration.acceptance.rows import row_of
from calibration.acceptance.samples import DIGITS, DecodingSetting, RequestSample
from simulator.scenario import load_scenario
from simulator.simulation import simulate

UNTRAINED = ("layer-skip", "ngram", "suffix", "lookahead", "quantised:3")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return load()


def rows(document: Mapping[str, Any], **settings: object) -> list[dict[str, Any]]:
    return [row for row in document["rows"] if all(row[key] == value for key, value in settings.items())]


def row(document: Mapping[str, Any], **settings: object) -> dict[str, Any]:
    (result,) = rows(document, **settings)
    return result


def read_rounds(document: Mapping[str, Any]) -> Iterator[RequestSample]:
    """Yield the samples that `rounds_json` wrote, without their levels and tokens."""
    for group in document["rounds"]:
        setting = DecodingSetting(group["temperature"], group["draft_length"], group["draft_sampling"])
        for prompt, prompt_tokens, max_tokens, drafted, accepted, *nodes in group["requests"]:
            counts = tuple(DIGITS.index(digit) for digit in accepted)
            levels = tuple(DIGITS.index(digit) for digit in drafted)
            if len(levels) != len(counts):
                levels = levels * len(counts)
            yield RequestSample(
                draft=group["draft"],
                domain=group["domain"],
                prompt=prompt,
                prompt_tokens=prompt_tokens,
                setting=setting,
                max_tokens=max_tokens,
                drafted=levels,
                nodes=tuple(DIGITS.index(digit) for digit in nodes[0]) if nodes else levels,
                accepted=counts,
                levels=(),
            )


def test_it_holds_enough_rounds_and_says_where_they_come_from(document: dict[str, Any]) -> None:
    rounds = sum(len(request[4]) for group in document["rounds"] for request in group["requests"])
    assert rounds >= 20_000
    assert rounds == sum(entry["verify_steps"] for entry in document["rows"])
    assert document["verify_steps"] >= rounds
    assert {"target", "dtype", "torch", "transformers", "date", "command"} <= set(document["provenance"])


def test_its_rows_follow_from_its_rounds(document: dict[str, Any]) -> None:
    groups = groups_of(read_rounds(document), by_draft_length=True)
    assert len(groups) == len(document["rows"])
    for group, stored in zip(groups, document["rows"], strict=True):
        again = row_of(group).to_json()
        for key in ("verify_steps", "drafted_tokens", "mean_acceptance_length", "acceptance_rate_at"):
            assert again[key] == stored[key]


def test_models_fitted_to_short_drafts_predict_longer_ones_and_other_prompts(
    document: dict[str, Any],
) -> None:
    asked: dict[str, set[int]] = {"draft lengths": set(), "prompts": set()}
    for entry in document["predictions"]:
        for prediction in entry["predictions"]:
            measured, predicted = prediction["measured"], prediction["predicted"][entry["best"]]
            low, high = measured["ci95"]
            slack = 0.03 * measured["value"]
            assert low - slack <= predicted <= high + slack, (
                entry["domain"],
                entry["temperature"],
                prediction,
            )
            asked[prediction["question"]].add(prediction["draft_length"])
    assert asked["draft lengths"] == {5, 6, 7, 8, 12, 16}
    assert asked["prompts"] == set(range(1, 9))
    assert {(entry["domain"], entry["temperature"]) for entry in document["predictions"]} >= {
        (domain, temperature) for domain in ("code", "prose") for temperature in (0.0, 1.0)
    }


def test_the_predictions_follow_from_the_rounds_that_fits_may_see(document: dict[str, Any]) -> None:
    """Made again with the rounds of unused prompts emptied: predictions may not move."""
    unused = frozenset(document["unused_prompts"])
    samples = [
        replace(draft_round, accepted=(0,) * len(draft_round.accepted))
        if draft_round.prompt in unused
        else draft_round
        for draft_round in read_rounds(document)
        if draft_round.draft == "layer-skip" and draft_round.setting.temperature == 0.0
    ]
    again = {prediction["domain"]: prediction for prediction in predictions(samples, unused)}
    for entry in document["predictions"]:
        if entry["temperature"] == 0.0:
            fresh = again[entry["domain"]]
            assert fresh["best"] == entry["best"]
            for old, new in zip(entry["predictions"], fresh["predictions"], strict=True):
                expected = old["predicted"][entry["best"]]
                assert new["predicted"][entry["best"]] == pytest.approx(expected, rel=5e-3)


def test_the_two_alphas_agree_in_every_row(document: dict[str, Any]) -> None:
    apart = [entry["alphas_differ_by_standard_errors"] for entry in document["rows"]]
    known = [deviation for deviation in apart if deviation is not None]
    assert len(known) > 20
    assert max(abs(deviation) for deviation in known) < 4.0
    assert sum(abs(deviation) > 2.0 for deviation in known) < 0.15 * len(known)


@pytest.mark.parametrize("domain", ["code", "prose"])
def test_greedy_drafts_collapse_with_temperature_and_sampled_ones_do_not(
    document: dict[str, Any], domain: str
) -> None:
    def alpha(temperature: float, drafts: str) -> float:
        settings = {"draft": "layer-skip", "domain": domain, "draft_length": 4}
        result = row(document, **settings, temperature=temperature, draft_sampling=drafts)
        return float(result["alpha_from_distributions"]["value"])

    assert alpha(1.5, "greedy") < 0.25 * alpha(0.0, "greedy")
    assert alpha(3.0, "greedy") < 0.05
    for temperature in (1.0, 1.5, 2.0, 3.0):
        assert alpha(temperature, "sampled") > alpha(temperature, "greedy")
    assert alpha(1.5, "sampled") > 0.5 * alpha(0.0, "greedy")


@pytest.mark.parametrize("domain", ["code", "prose"])
@pytest.mark.parametrize("draft", ["quantised:3", "student", "eagle", "eagle3", "medusa", "mtp"])
def test_best_tokens_collapse_and_drawn_ones_rise_for_each_drafter(
    document: dict[str, Any], draft: str, domain: str
) -> None:
    [name] = {entry["draft"] for entry in document["rows"] if entry["draft"].rsplit("-", 1)[0] == draft}

    def alpha(temperature: float, drafts: str) -> dict[str, Any]:
        settings = {"draft": name, "domain": domain, "draft_length": 4}
        result = row(document, **settings, temperature=temperature, draft_sampling=drafts)
        return dict(result["alpha_from_distributions"])

    for temperature in (1.5, 2.0, 3.0):
        assert alpha(temperature, "greedy")["value"] < 0.06
    assert alpha(3.0, "sampled")["ci95"][0] > alpha(0.0, "greedy")["ci95"][1]
    assert alpha(3.0, "sampled")["ci95"][0] > alpha(1.0, "sampled")["ci95"][1]


def test_drafts_that_collapse_are_slower_than_none_measured_and_simulated(document: dict[str, Any]) -> None:
    timed = document["speed"]["timed"]
    plain = {
        timing_row["temperature"]: timing_row["seconds_per_token"]
        for timing_row in timed
        if timing_row["draft"] == "plain"
    }
    for timing in timed:
        if (
            timing["temperature"] > 1.0
            and timing["draft_sampling"] == "greedy"
            and timing["draft"] != "plain"
        ):
            assert plain[timing["temperature"]] / timing["seconds_per_token"] < 1.0
            assert closed_form(document, timing) < 1.0
    simulated = {
        (timing_row["temperature"], timing_row["draft_sampling"]): timing_row["verdict"]
        for timing_row in document["speed"]["simulated"]
        if (timing_row["draft"], timing_row["domain"]) == ("layer-skip", "code")
    }
    assert simulated[0.0, "greedy"] == "pays"
    assert simulated[1.5, "greedy"] == "loses"
    assert simulated[1.5, "sampled"] == "pays"


def test_longer_drafts_add_less_and_coarser_weights_cost_acceptance(document: dict[str, Any]) -> None:
    for domain in ("code", "prose"):
        settings = {"draft": "layer-skip", "domain": domain, "temperature": 0.0}
        means = [
            row(document, **settings, draft_length=length)["mean_acceptance_length"]["value"]
            for length in (2, 4, 8, 16)
        ]
        gains = [
            (after - before) / drafts
            for before, after, drafts in zip(means, means[1:], (2, 4, 8), strict=False)
        ]
        assert gains[0] > gains[1] > gains[2] > 0.0
        alphas = [
            row(
                document, draft=f"quantised:{bits}", domain=domain, temperature=1.0, draft_sampling="sampled"
            )["alpha_from_distributions"]["value"]
            for bits in (2, 3, 4, 8)
        ]
        assert alphas == sorted(alphas)
        assert alphas[-1] > 0.9 > alphas[0]


def test_greedy_texts_are_plain_decodings(document: dict[str, Any]) -> None:
    assert set(document["greedy"]) == set(UNTRAINED)
    for compared in document["greedy"].values():
        assert compared["requests"] == 50
        assert compared["tokens"] > 4000  # an end token may come before 100
        for difference in compared["apart"]:  # single precision cannot tell the best two tokens apart here
            assert difference["gap"] < 1e-3
            assert difference["equal_in_double_precision"]
        assert len(compared["apart"]) <= 2


def test_measuring_was_quick_and_small(document: dict[str, Any]) -> None:
    took = document["provenance"]["took"]
    assert took["processor_seconds"] / took["drafted_positions"] * 2000 < 10 * 60
    assert took["peak_memory_bytes"] < 6e9


def test_a_simulation_runs_from_the_file(document: dict[str, Any], tmp_path: Path) -> None:
    text = (
        "target: {model: llama-3.3-70b-instruct, weights: fp8}\n"
        "hardware: {gpu: h100-sxm, tensor_parallel: 4}\n"
        "workload: {arrivals: {kind: closed, concurrency: 8}, requests: 60,"
        " prompt_tokens: {kind: fixed, tokens: 200}, output_tokens: {kind: fixed, tokens: 300}}\n"
        "run: {replications: 2}\n"
        "speculation:\n  - {name: measured, method: eagle3, draft: eagle3-llama-3.3-70b, draft_length: 4,\n"
        f"     acceptance: {{file: {FILE}, draft: layer-skip, temperature: 0, domain: code}}}}\n"
    )
    path = tmp_path / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    result = simulate(load_scenario(path)).to_json()
    shown = result["arms"]["measured"]["mean_acceptance_length"]["value"]
    measured = row(document, draft="layer-skip", temperature=0.0, domain="code", draft_length=4)
    assert shown == pytest.approx(measured["mean_acceptance_length"]["value"], rel=0.03)


def test_the_page_shows_these_figures(document: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- end of") == 7
    assert written(text, document) == text
