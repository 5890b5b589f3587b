"""Every registered acceptance model keeps the protocol; one of your own takes a class and no more."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from simulator.acceptance import (
    GATED,
    MODELS,
    TRACE,
    AcceptanceEntry,
    AcceptanceModel,
    acceptance_model,
    compile_acceptance,
)
from simulator.acceptance.tables import AcceptanceTables
from simulator.errors import InputError
from tests.acceptance_reference import first_rounds, one_class, survival_scores, tables_of

K = 4

EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "fixed": [{"rate": 0.45}],
    "geometric": [{"alpha": 0.7}, {"mean_acceptance_length": 2.3, "at_draft_length": 3}],
    "positional": [{"conditional": [0.6, 0.7, 0.8]}, {"survival": [0.73, 0.52, 0.35]}],
    "decay": [
        {"alpha": 0.8, "delta": 0.2},
        {"mean_acceptance_length": 2.3, "at_draft_length": 3, "delta": -0.1},
    ],
    "hierarchical": [
        {"alpha": 0.7, "delta": 0.1, "request_sd": 0.8, "drift_sd": 0.0, "drift_correlation": 0.0},
        {"alpha": 0.6, "delta": 0.0, "request_sd": 0.4, "drift_sd": 0.5, "drift_correlation": 0.9},
        {"mean_acceptance_length": 2.3, "at_draft_length": 3, "delta": 0.1, "request_sd": 0.5},
    ],
    "ranked": [{"chances": [0.6, 0.15, 0.1]}, {"chances": [[0.7, 0.1], [0.6, 0.2, 0.1], [0.5]]}],
    "gated": [
        {"match": 0.3, "stickiness": 0.4, "first": 0.6, "run": 0.9},
        {"match": 0.3, "stickiness": 0.4, "first": 0.6, "run": 0.9, "request_sd": 1.3},
    ],
    "trace": [{"file": "trace.json"}],
}

IMPOSSIBLE: dict[str, list[dict[str, Any]]] = {
    "fixed": [{}, {"rate": 1.1}, {"rate": "much"}],
    "geometric": [
        {},
        {"alpha": -0.1},
        {"alpha": math.nan},
        {"alpha": 0.5, "mean_acceptance_length": 2.0},
        {"alpha": True},
    ],
    "positional": [
        {},
        {"conditional": []},
        {"conditional": [0.5, 1.5]},
        {"survival": [0.5, 0.6]},
        {"conditional": 0.5},
    ],
    "decay": [{"delta": 0.1}, {"alpha": 0.5, "delta": math.inf}, {"alpha": 2, "delta": 0.1}],
    "hierarchical": [
        {"alpha": 0.5, "request_sd": -1},
        {"alpha": 0.5, "drift_sd": 11},
        {"alpha": 0.5, "drift_correlation": 1.5},
        {"mean_acceptance_length": 2.0, "at_draft_length": 2.5},
    ],
    "ranked": [{}, {"chances": []}, {"chances": [0.7, 0.4]}, {"chances": [[0.5], 0.2]}, {"chances": [1.2]}],
    "gated": [
        {"match": 0.3, "first": 0.6, "run": 0.9, "match_tokens": 0.5},
        {"match": 0.3, "first": 0.6},
        {"match": 1.3, "first": 0.6, "run": 0.9},
        {"match": 0.3, "first": 0.6, "run": 0.9, "request_sd": -1},
    ],
    "trace": [{}, {"file": "absent.json"}, {"file": 3}],
}


@dataclass(frozen=True)
class EverySecond(AcceptanceModel):
    """A model of somebody else's: even positions are certain."""

    name: ClassVar[str] = "every-second"
    level: float

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> EverySecond:
        return cls(entry.number("alpha"))

    @property
    def alpha(self) -> float:
        return self.level

    def conditional(self, depth: int) -> np.ndarray:
        return np.where(np.arange(depth) % 2 == 0, self.level, 1.0)

    def shifted(self, delta_logit: float) -> EverySecond:
        return replace(self, level=1 / (1 + (1 / self.level - 1) * math.exp(-delta_logit)))

    def with_alpha(self, alpha: float) -> EverySecond:
        return replace(self, level=alpha)


CASES = [(name, index) for name in EXAMPLES for index in range(len(EXAMPLES[name]))]


@pytest.fixture(params=[*CASES, ("every-second", 0)], ids=lambda case: f"{case[0]}-{case[1]}")
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AcceptanceModel:
    """Each example of each model, and one that is registered here only."""
    name, index = request.param
    if name == "every-second":
        monkeypatch.setitem(MODELS, name, EverySecond)
        return acceptance_model({"model": name, "alpha": 0.6}, K)
    _write_trace(tmp_path)
    return acceptance_model({"model": name, **EXAMPLES[name][index]}, K, tmp_path)


def _write_trace(folder: Path) -> None:
    sequences = [[1 + (i * i + r) % (K + 1) for i in range(30)] for r in range(3)]
    (folder / "trace.json").write_text(json.dumps({"sequences": sequences}), encoding="utf-8")


def test_every_registered_model_is_tested() -> None:
    assert set(EXAMPLES) == set(MODELS) == set(IMPOSSIBLE)
    assert all(model.name == name for name, model in MODELS.items())


def test_rates_are_probabilities_and_agree(model: AcceptanceModel) -> None:
    conditional, survival = model.conditional(K), model.survival(K)
    assert conditional.shape == survival.shape == (K,)
    assert ((conditional >= 0) & (conditional <= 1)).all()
    assert (np.diff(survival) <= 0).all()
    assert survival == pytest.approx(np.cumprod(conditional), abs=1e-12)
    assert model.mean_acceptance_length(K) == pytest.approx(1 + survival.sum(), abs=1e-12)


def test_no_drafts_emit_one_token(model: AcceptanceModel) -> None:
    assert model.mean_acceptance_length(0) == 1.0
    assert len(model.conditional(0)) == 0
    if model.name in EXAMPLES:
        with pytest.raises(InputError, match="draft_length: is negative"):
            model.conditional(-1)


def test_more_drafts_never_emit_less(model: AcceptanceModel) -> None:
    lengths = [model.mean_acceptance_length(k) for k in range(1, K + 1)]
    if model.kind != TRACE:  # a replay's rounds start elsewhere at another K
        assert (np.diff(lengths) >= 0).all()
    assert all(1 <= length <= k + 1 for k, length in enumerate(lengths, 1))


def test_the_family_rises_with_its_shift_and_its_alpha(model: AcceptanceModel) -> None:
    shifted = [model.shifted(delta).mean_acceptance_length(K) for delta in (-2.0, -0.5, 0.0, 0.5, 2.0)]
    assert (np.diff(shifted) > 0).all()
    assert shifted[2] == pytest.approx(model.mean_acceptance_length(K), abs=1e-12)
    by_alpha = [model.with_alpha(alpha).mean_acceptance_length(K) for alpha in (0.0, 0.1, 0.5, 0.9, 1.0)]
    assert (np.diff(by_alpha) > 0).all()
    assert by_alpha[0] == 1.0


def test_the_family_meets_itself(model: AcceptanceModel) -> None:
    """with_alpha and shifted are one family: the same alpha by either way is the same model."""
    moved = model.shifted(0.7)
    assert moved.alpha > model.alpha
    again = model.with_alpha(moved.alpha)
    assert again.alpha == pytest.approx(moved.alpha, abs=1e-14)
    assert again.survival(K) == pytest.approx(moved.survival(K), abs=1e-12)
    assert model.with_alpha(model.alpha).survival(K) == pytest.approx(model.survival(K), abs=1e-12)
    for alpha in (-0.1, 1.1, math.nan):
        if model.name in EXAMPLES:
            with pytest.raises(InputError, match="from 0 to 1"):
                model.with_alpha(alpha)


def test_tables_hold_data_the_step_can_read(model: AcceptanceModel) -> None:
    tables = tables_of(model, 50, 3, K)
    assert tables.kind == model.kind
    assert tables.conditional.shape[0] == 1
    assert tables.conditional.shape[2] == K
    assert ((tables.conditional >= 0) & (tables.conditional <= 1)).all()
    shapes = {"request_effect": (50,), "normal_quantiles": (1024,), "drafts": (1,), "matched_before": (50,)}
    matches = (50,) if tables.match_by_request else (1,)
    shapes |= {"match_after_miss": matches, "match_after_match": matches}
    for name, shape in shapes.items():
        assert getattr(tables, name).shape == shape
    types = dict.fromkeys(("conditional", "request_effect", "normal_quantiles"), np.dtype(np.float64))
    types |= dict.fromkeys(("match_after_miss", "match_after_match"), np.dtype(np.float64))
    types |= dict.fromkeys(("drafts", "matched_before"), np.dtype(np.bool_))
    types |= dict.fromkeys(("trace_lengths", "trace_start"), np.dtype(np.int64))
    for name, dtype in types.items():
        array = getattr(tables, name)
        assert array.dtype == dtype
        assert array.flags.c_contiguous
    assert 0 <= tables.match_after_miss[0] <= 1
    assert 0 <= tables.match_after_match[0] <= 1


def _same(left: AcceptanceTables, right: AcceptanceTables) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def test_the_same_seed_gives_the_same_tables(model: AcceptanceModel) -> None:
    assert _same(tables_of(model, 50, 3, K), tables_of(model, 50, 3, K))
    differ = model.effects.request_sd > 0 or model.kind == GATED
    assert _same(tables_of(model, 50, 3, K), tables_of(model, 50, 4, K)) == (not differ)


def test_without_heterogeneity_nobody_differs(model: AcceptanceModel) -> None:
    tables = tables_of(model, 50, 3, K, heterogeneity=False)
    assert tables.conditional.shape == (1, 1, K)
    assert tables.drift_sd == 0.0
    assert not tables.request_effect.any()
    assert tables.match_after_miss.tolist() == tables.match_after_match.tolist()
    survival = np.cumprod(tables.conditional[0, 0]) * tables.match_after_miss[0]
    assert survival == pytest.approx(model.survival(K), abs=1e-9)


def test_rounds_have_the_models_survival(model: AcceptanceModel) -> None:
    """Within 3 standard errors; a family member one fifth of a logit away is refused by the same check."""
    rounds, seed = 6000, 2
    tables = tables_of(model, rounds, seed, K, heterogeneity=model.kind != TRACE)
    accepted = first_rounds(tables, seed, K, range(rounds))
    assert np.abs(survival_scores(accepted, model.survival(K))).max() < 3.0
    assert np.abs(survival_scores(accepted, model.shifted(0.2).survival(K))).max() > 3.0


@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name in IMPOSSIBLE for i in range(len(IMPOSSIBLE[name]))]
)
def test_impossible_values_are_refused_with_field_and_range(name: str, index: int, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        acceptance_model({"model": name, **IMPOSSIBLE[name][index]}, K, tmp_path)
    for problem in error.value.problems:
        assert problem.message
        assert problem.field or problem.file
        assert problem.allowed


def test_a_model_of_ones_own_compiles_beside_the_others() -> None:
    tables = compile_acceptance([EverySecond(0.5)], one_class(4), 0, 3)
    assert tables.conditional.tolist() == [[[0.5, 1.0, 0.5]]]
