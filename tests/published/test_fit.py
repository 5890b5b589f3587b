"""The fit of the presets' free parameters: its rules, its arithmetic, and that what ships is what it gave."""

import json
from dataclasses import replace
from importlib import resources
from types import SimpleNamespace

import numpy as np
import pytest

from calibration.validation.fit.fit import TYPICAL, fit
from calibration.validation.fit.parameters import PARAMETERS, candidate_presets, start
from calibration.validation.fit.solve import LinearisedErrors, from_scale, to_scale
from calibration.validation.fit.split import STEPS, fit_half
from calibration.validation.fit.write import rewritten
from calibration.validation.reconstruction.published_run import PublishedRun
from simulator.engines.presets import load_preset
from tests.published_cases import committed_runs

THROUGHPUT = SimpleNamespace(quantity="throughput")
RECORD = json.loads(
    resources.files("calibration").joinpath("published", "fit.json").read_text(encoding="utf-8")
)


def test_the_record_names_more_sources_than_parameters_and_both_halves():
    fitted = [entry for entry in RECORD["parameters"].values() if entry["fitted"]]
    assert RECORD["parameter_count"] == len(fitted) < RECORD["source_count"]
    assert RECORD["source_count"] == len(RECORD["fit_sources"])
    assert not set(RECORD["fit_sources"]) & set(RECORD["other_sources"])
    assert min(len(RECORD["fit_sources"]), len(RECORD["other_sources"])) >= 8


def test_nothing_is_fitted_on_one_source_or_for_one_model():
    for name, entry in RECORD["parameters"].items():
        assert entry["fitted"] == (len(entry["rests_on"]) >= 2), name
        assert set(entry["rests_on"]) <= set(RECORD["fit_sources"]), name
        low, high = entry["interval_us"]
        assert low <= entry["value_us"] <= high, name
        if not entry["fitted"]:
            assert entry["value_us"] == pytest.approx(entry["before_us"], rel=0.05), name


def test_the_shipped_presets_hold_the_values_of_the_record():
    for parameter in PARAMETERS:
        value_us = RECORD["parameters"][parameter.name]["value_us"]
        for name in parameter.presets:
            assert 1e6 * parameter.of(load_preset(name)[0]) == pytest.approx(value_us, rel=1e-3, abs=1e-3)


SIMULATED_SINCE = frozenset({"glm47f_h100pcie_mtp_steps3_nooverlap", "glm47f_h100pcie_mtp_steps1_specv2"})
"""Cases of which plain decoding alone was simulated when the fit was made: MTP layers of a model without."""


def as_it_was(run: PublishedRun) -> PublishedRun:
    """The run as the fit met it."""
    if run.case.case_id not in SIMULATED_SINCE:
        return run
    return replace(run, spec=None, acceptance_from="none")


def test_the_half_follows_from_the_names_of_the_sources_alone():
    """Every second source of a class: adding a figure to a case, or an error to a row, changes nothing.

    Sources that came in after the fit are in neither half: no parameter was fitted on them. Cases
    are as they could be simulated then.
    """
    drawn = {*RECORD["fit_sources"], *RECORD["other_sources"]}
    runs = [as_it_was(run) for run in committed_runs() if run.case.source_id in drawn]
    half = fit_half(runs)
    assert half == fit_half(list(reversed(runs)))
    assert set(RECORD["fit_sources"]) <= set(half)
    assert half == fit_half([with_other_figures(run) for run in runs])


def with_other_figures(run: PublishedRun) -> PublishedRun:
    """The run as if something else had been measured."""
    other = tuple(replace(entry, value=3 * entry.value) for entry in run.published)
    return replace(run, published=other)


def test_every_error_class_says_what_it_leans_on():
    names = {parameter.name for parameter in PARAMETERS}
    assert all(set(leans) <= names for leans in RECORD["sensitivity"].values())
    moved = {name for leans in RECORD["sensitivity"].values() for name in leans}
    assert moved >= {name for name, entry in RECORD["parameters"].items() if entry["fitted"]}
    assert set(RECORD["rotation"]) == {"0", "1", "2", "3", "4", "all"}


def test_planted_values_are_found_beside_a_source_that_is_simply_wrong():
    rng = np.random.default_rng(3)
    slopes = rng.normal(size=(60, len(PARAMETERS))) * 0.2
    truth = rng.normal(size=len(PARAMETERS)) * 0.2
    sources = tuple(f"s{i // 10}" for i in range(60))
    errors = -slopes @ truth
    errors[50:] += 1.2
    step = LinearisedErrors(errors, slopes, sources).solve()
    assert step == pytest.approx(truth, abs=0.06)


class Straight:
    """Runs of a world in which log errors are straight lines on the scale of the fit."""

    def __init__(self, slopes, sources, truth):
        self.slopes, self.sources, self.truth = slopes, sources, truth

    def linear(self, _runs, values):
        moved = to_scale(np.array([values[parameter.name] for parameter in PARAMETERS]), TYPICAL) - self.truth
        return LinearisedErrors(self.slopes @ moved, self.slopes, self.sources), [THROUGHPUT] * len(
            self.slopes
        )


def test_a_parameter_that_one_source_tells_stays_and_the_others_are_fitted_without_it():
    rng = np.random.default_rng(5)
    count = sum(parameter.quantities == STEPS for parameter in PARAMETERS)
    slopes = np.zeros((60, len(PARAMETERS)))
    slopes[:, :count] = rng.normal(size=(60, count)) * 0.2
    slopes[20:, 1] = 0.0  # the first source alone tells it
    sources = tuple(f"s{i // 20}" for i in range(60))
    begin = to_scale(np.array(list(start().values())), TYPICAL)
    truth = begin + 0.5
    truth[1] = begin[1]
    values, fitted = fit((), Straight(slopes, sources, truth), rounds=3)
    names = [parameter.name for parameter in PARAMETERS]
    assert fitted == [name for name in names[:count] if name != names[1]]
    expected = dict(zip(names, from_scale(truth, TYPICAL), strict=True))
    for name in names:
        assert values[name] == pytest.approx(expected[name] if name in fitted else start()[name], rel=0.02)


def test_a_source_weighs_the_same_however_many_rows_it_has():
    slopes = np.ones((11, 1)) * 0.1
    errors = np.array([0.01] * 10 + [-0.01])
    step = LinearisedErrors(errors, slopes, ("many",) * 10 + ("one",)).solve()
    assert step == pytest.approx([0.0], abs=1e-9)


def test_the_scale_of_the_fit_reaches_zero():
    typical = np.array([1e-4, 1e-4])
    values = np.array([0.0, 3e-3])
    assert from_scale(to_scale(values, typical), typical) == pytest.approx(values)
    assert from_scale(np.array([-1.0, 0.5]), typical)[0] == 0.0


def test_candidates_are_presets_that_hold_their_values(tmp_path):
    values = {name: 2 * value + 1e-6 for name, value in start().items()}
    paths = candidate_presets(values, tmp_path)
    for parameter in PARAMETERS:
        for name in parameter.presets:
            assert parameter.of(load_preset(paths[name])[0]) == pytest.approx(values[parameter.name])
            shipped = load_preset(name)[0]
            assert load_preset(paths[name])[0].graph_sizes == shipped.graph_sizes


def test_writing_changes_the_numbers_and_nothing_else():
    folder = resources.files("simulator").joinpath("data", "engines")
    shipped = {parameter.name: parameter.of(load_preset(parameter.presets[0])[0]) for parameter in PARAMETERS}
    for name in {name for parameter in PARAMETERS for name in parameter.presets}:
        text = folder.joinpath(f"{name}.json").read_text("utf-8")
        assert json.loads(rewritten(text, name, shipped)) == json.loads(text)
        changed = json.loads(rewritten(text, name, {key: 7e-3 for key in shipped}))
        moved = {parameter.preset_field for parameter in PARAMETERS if name in parameter.presets}
        assert {key for key in changed["host"] if changed["host"][key] == 7e-3} == moved
        assert {**changed, "host": None} == {**json.loads(text), "host": None}
