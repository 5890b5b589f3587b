"""Acceptance models: values, exact inversion, files, tables."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.acceptance import (
    GATED,
    TABLE,
    TRACE,
    AcceptanceModel,
    Decay,
    Fixed,
    Gated,
    Geometric,
    Hierarchical,
    Positional,
    Trace,
    acceptance_model,
    compile_acceptance,
    read_sequences,
)
from simulator.acceptance.base import logistic, logit
from simulator.acceptance.tables import normal_quantiles
from simulator.errors import InputError
from simulator.scenario.acceptance import AcceptanceGated, AcceptanceHierarchical, AcceptancePositional
from tests.acceptance_reference import Traffic, tables_of

# Values


def test_logit_and_logistic_at_their_ends() -> None:
    assert logistic(np.array([-math.inf, 0.0, math.inf])).tolist() == [0.0, 0.5, 1.0]
    assert (logit(0.0), logit(1.0)) == (-math.inf, math.inf)
    assert float(logistic(logit(1e-12))) == pytest.approx(1e-12, rel=1e-12)


def test_fixed_mixes_floor_and_ceil() -> None:
    assert Fixed(0.5, 5).conditional(5).tolist() == [1.0, 1.0, 0.5, 0.0, 0.0]
    assert Fixed(0.5, 5).mean_acceptance_length(5) == 3.5
    assert Fixed(0.5, 4).conditional(4).tolist() == [1.0, 1.0, 0.0, 0.0]
    assert Fixed(0.1, 5).conditional(2).tolist() == [0.5, 0.0]
    assert (Fixed(0.0, 3).mean_acceptance_length(3), Fixed(1.0, 3).mean_acceptance_length(3)) == (1.0, 4.0)


def test_fixed_holds_at_its_draft_length_only() -> None:
    with pytest.raises(InputError, match="more than the 3 drafts"):
        Fixed(0.5, 3).conditional(4)


def test_published_survival() -> None:
    """EAGLE-3 for Llama-3.1-8B as printed by vLLM (vllm-project/vllm#32030): mean acceptance length 1 +
    0.73 + 0.52 + 0.35.
    """
    model = acceptance_model({"model": "positional", "survival": [0.73, 0.52, 0.35]}, 3)
    assert model.mean_acceptance_length(3) == pytest.approx(2.60)
    assert model.alpha == 0.73
    assert model.conditional(5)[3:].tolist() == [0.35 / 0.52] * 2


def test_decay_steps_down_in_logits() -> None:
    model = Decay.from_alpha(0.8, 0.25)
    assert np.diff([logit(float(c)) for c in model.conditional(4)]) == pytest.approx([-0.25] * 3)
    assert Decay.from_alpha(0.8, 0.0).survival(4) == pytest.approx(Geometric(0.8).survival(4))


def test_decay_without_limit_at_certain_acceptance() -> None:
    assert Decay.from_alpha(1.0, 3.0).mean_acceptance_length(4) == 5.0
    assert Decay.from_alpha(0.0, -3.0).mean_acceptance_length(4) == 1.0


def _by_quadrature(model: Hierarchical, k: int) -> float:
    """E of the product of c_1..c_k without drift, by scipy's adaptive quadrature."""
    from scipy.integrate import quad

    def integrand(z: float) -> float:
        rates = [1 / (1 + math.exp(-(model.mu + model.request_sd * z - model.delta * j))) for j in range(k)]
        return math.prod(rates) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    return float(quad(integrand, -12, 12, epsabs=1e-11, limit=400)[0])


@pytest.mark.parametrize("request_sd", [0.2, 1.0, 3.0, 10.0])
def test_population_between_requests_is_the_integral(request_sd: float) -> None:
    model = Hierarchical.from_alpha(0.7, 0.15, request_sd=request_sd)
    for k in (1, 4):
        assert model.survival(k)[-1] == pytest.approx(_by_quadrature(model, k), abs=1e-7)


@pytest.mark.parametrize(("drift_sd", "rho"), [(0.5, 0.9), (2.0, 0.5), (3.0, 0.97)])
def test_population_along_a_request_is_the_integral(drift_sd: float, rho: float) -> None:
    """S_2 and S_3 over the joint normal of v_1, v_2, v_3,
    by a plain sum over a fine grid of AR(1) transitions.
    """
    model = Hierarchical.from_alpha(0.7, 0.2, drift_sd=drift_sd, drift_correlation=rho)
    step = min(0.05, 0.25 * math.sqrt(1 - rho * rho))
    z = np.arange(-8.5, 8.5 + step / 2, step)
    weights = np.exp(-z * z / 2) * step / math.sqrt(2 * math.pi)
    moved = (z[None, :] - rho * z[:, None]) / math.sqrt(1 - rho * rho)
    transition = np.exp(-moved * moved / 2) * step / math.sqrt(2 * math.pi * (1 - rho * rho))
    carried, survival = weights, []
    for j in range(3):
        if j:
            carried = carried @ transition
        carried = carried / (1 + np.exp(-(model.mu + drift_sd * z - 0.2 * j)))
        survival.append(carried.sum())
    assert model.survival(3) == pytest.approx(survival, abs=1e-7)


def test_drift_without_end_is_a_difference_between_requests() -> None:
    lasting = Hierarchical.from_alpha(0.7, 0.1, request_sd=0.6, drift_sd=0.8, drift_correlation=1.0)
    assert lasting.survival(6) == pytest.approx(
        Hierarchical.from_alpha(0.7, 0.1, request_sd=1.0).survival(6), abs=1e-7
    )


def test_drift_without_memory_is_none_between_positions() -> None:
    fresh = Hierarchical.from_alpha(0.7, drift_sd=1.5, drift_correlation=0.0)
    single = Hierarchical.from_alpha(0.7, request_sd=1.5).survival(1)[0]
    assert fresh.survival(4) == pytest.approx([single**j for j in range(1, 5)], abs=1e-7)


def test_without_effects_it_is_decay() -> None:
    assert Hierarchical.from_alpha(0.7, 0.2).survival(5) == pytest.approx(
        Decay.from_alpha(0.7, 0.2).survival(5)
    )


def test_population_conditionals_rise_though_each_request_decays() -> None:
    model = Hierarchical.from_alpha(0.6, 0.1, request_sd=2.0)
    assert (np.diff(model.conditional(6)) > 0).all()
    assert (np.diff(model.conditional_at(np.zeros(1), 6)[0]) < 0).all()


@pytest.mark.parametrize("alpha", [1e-12, 1e-3, 1 - 1e-9])
def test_survival_never_rises_at_the_edges(alpha: float) -> None:
    model = Hierarchical.from_alpha(alpha, 0.3, request_sd=1.0, drift_sd=2.0, drift_correlation=0.9)
    survival = model.survival(16)
    assert (np.diff(survival) <= 0).all()
    assert ((survival >= 0) & (survival <= 1)).all()
    assert ((model.conditional(16) >= 0) & (model.conditional(16) <= 1)).all()


def test_means_by_request_average_to_the_population() -> None:
    model = Hierarchical.from_alpha(0.6, 0.1, request_sd=1.0, drift_sd=0.5, drift_correlation=0.9)
    lengths, shares = model.mean_acceptance_lengths_by_request(5)
    assert shares.sum() == pytest.approx(1.0)
    assert float(lengths @ shares) == pytest.approx(model.mean_acceptance_length(5), abs=1e-9)


def test_gated_counts_rounds_without_a_match() -> None:
    model = Gated(0.2, 0.5, 0.6, 0.9)
    assert model.survival(3) == pytest.approx([0.12, 0.108, 0.0972])
    assert model.match == pytest.approx((0.2, 0.1, 0.6))
    assert model.mean_acceptance_length(3) == pytest.approx(1 + 0.2 * (0.6 + 0.54 + 0.486))


# Inversion of a mean acceptance length


@settings(max_examples=40)
@given(
    st.floats(0.0, 1.0),
    st.integers(1, 12),
    st.sampled_from(
        [
            {"model": "geometric"},
            {"model": "decay", "delta": 0.4},
            {"model": "decay", "delta": -0.3},
            {"model": "hierarchical", "delta": 0.1, "request_sd": 1.0},
            {
                "model": "hierarchical",
                "delta": 0.0,
                "request_sd": 0.5,
                "drift_sd": 0.7,
                "drift_correlation": 0.9,
            },
        ]
    ),
)
def test_a_mean_acceptance_length_is_inverted_exactly(
    share: float, k: int, family: dict[str, object]
) -> None:
    length = 1.0 + k * share
    model = acceptance_model({**family, "mean_acceptance_length": length, "at_draft_length": k}, 3)
    assert model.mean_acceptance_length(k) == pytest.approx(length, abs=2e-12)


def test_published_mean_lengths_give_one_alpha_each() -> None:
    """EAGLE-3 for 8B, K = 2..7 (vllm-project/vllm#20780):
    geometric alphas are not the same, so the chain is no geometric one.
    """
    alphas = []
    for k, length in zip(range(2, 8), (2.36, 2.79, 3.08, 3.32, 3.46, 3.54), strict=True):
        model = acceptance_model(
            {"model": "geometric", "mean_acceptance_length": length, "at_draft_length": k}, 3
        )
        assert sum(model.alpha**j for j in range(k + 1)) == pytest.approx(length, abs=1e-12)
        alphas.append(model.alpha)
    assert max(alphas) - min(alphas) > 0.02


@pytest.mark.parametrize("model", ["geometric", "decay", "hierarchical"])
@pytest.mark.parametrize("length", [0.99, 4.01])
def test_an_unreachable_mean_length_is_refused(model: str, length: float) -> None:
    entry = {"model": model, "delta": 0.1, "mean_acceptance_length": length, "at_draft_length": 3}
    with pytest.raises(
        InputError, match=r"mean_acceptance_length: cannot be reached.*1 to 4 at draft length 3"
    ):
        acceptance_model(entry, 3)


def test_the_draft_length_of_a_mean_must_be_said() -> None:
    with pytest.raises(InputError, match="at_draft_length: is missing"):
        acceptance_model({"model": "geometric", "mean_acceptance_length": 2.0}, 3)


# Entries


def test_an_entry_may_be_a_mapping_a_scenario_section_or_a_model() -> None:
    wanted = Hierarchical.from_alpha(0.6, 0.1, 0.5, 0.3, 0.9)
    fields = {"alpha": 0.6, "delta": 0.1, "request_sd": 0.5, "drift_sd": 0.3, "drift_correlation": 0.9}
    assert acceptance_model({"model": "hierarchical", **fields}, 3) == wanted
    assert acceptance_model(AcceptanceHierarchical(**fields), 3) == wanted
    assert acceptance_model(SimpleNamespace(model="hierarchical", **fields), 3) == wanted
    assert acceptance_model(wanted, 3) is wanted
    assert acceptance_model(AcceptanceGated(match=0.2, first=0.5, run=0.9), 3) == Gated(0.2, 0.0, 0.5, 0.9)
    assert acceptance_model(AcceptancePositional(survival=(0.5, 0.25)), 3) == Positional((0.5, 0.5))


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"did you mean 'geometric'.*decay, fixed, gated, geometric"):
        acceptance_model({"model": "geometrik", "alpha": 0.5}, 3)
    with pytest.raises(InputError, match="model: is missing"):
        acceptance_model({"alpha": 0.5}, 3)


# Trace files


@pytest.mark.parametrize(
    "text",
    [
        '{"sequences": [[2, 1, 3], [1, 4]]}',
        '{"note": "K = 7",\n "sequences": [[2, 1, 3],\n [1, 4]]}',
        "[[2, 1, 3], [1, 4]]",
        "[2, 1, 3]\n[1, 4]\n",
        "2 1 3\n\n1 4",
        "# accepted + 1\n2, 1, 3\n1,4\n",
    ],
)
def test_trace_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.txt").write_text(text, encoding="utf-8")
    model = acceptance_model({"model": "trace", "file": "trace.txt"}, 3, tmp_path)
    assert model == Trace(((2, 1, 3), (1, 4)))


def test_a_broken_trace_says_every_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("2 1 3\n2 0 1\n[1, 2\n4\n1.5 2\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_sequences(path)
    assert [problem.line for problem in caught.value.problems] == [2, 3, 5]
    assert "accepted drafts + 1" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no sequence"),
        ('{"sequences": []}', "holds no sequence"),
        ('{"sequences": [[1, true]]}', r"sequences\[0\]: is not a sequence"),
        ('{"sequences": 3}', "is not a list"),
        ('{"lengths": [[1]]}', "is not a list"),
        ('{"sequences": [[1,\n2}', "trace.txt:2:2: is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[[]]", "is not a sequence"),
    ],
)
def test_files_that_are_no_trace(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_sequences(path)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.txt: cannot be read: No such file"):
        read_sequences(tmp_path / "none.txt")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe1 2")
    with pytest.raises(InputError, match="not UTF-8"):
        read_sequences(tmp_path / "bytes")
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        acceptance_model({"file": "none.json"}, 3, tmp_path)


def test_rounds_of_a_trace_start_where_rounds_end() -> None:
    """[1, 3, 2, 1, 5]: prefill emits the first token; K = 4 starts at entries 2, 5, K = 1 at 2, 4, 5."""
    trace = Trace(((1, 3, 2, 1, 5),))
    assert trace.survival(4).tolist() == [1.0, 1.0, 0.5, 0.5]
    assert trace.survival(1) == pytest.approx([2 / 3])
    assert Trace(((4,),)).survival(2).tolist() == [1.0, 1.0]


# Files of `read` and `accept`

READ = {
    "schema": "decodesim/read-1",
    "draft_length": 3,
    "mean_acceptance_length": {"value": 2.6, "ci95": [2.5, 2.7]},
    "draft_acceptance_rate": 0.533,
    "acceptance_rate_at": [0.73, 0.52, 0.35],
    "conditional_acceptance": [0.73, 0.712, 0.673],
}


def _from(tmp_path: Path, document: object, draft_length: int = 3, **select: object) -> AcceptanceModel:
    (tmp_path / "acceptance.json").write_text(json.dumps(document), encoding="utf-8")
    return acceptance_model({"file": "acceptance.json", **select}, draft_length, tmp_path)


def test_a_file_of_read(tmp_path: Path) -> None:
    assert _from(tmp_path, READ) == Positional((0.73, 0.712, 0.673))
    without = {key: value for key, value in READ.items() if key != "conditional_acceptance"}
    assert _from(tmp_path, without).survival(3) == pytest.approx([0.73, 0.52, 0.35])
    bare = {"draft_length": 3, "mean_acceptance_length": {"value": 2.6}}
    assert _from(tmp_path, bare).mean_acceptance_length(3) == pytest.approx(2.6, abs=1e-12)
    rate = {"draft_length": 4, "draft_acceptance_rate": 0.4, "mean_acceptance_length": None}
    assert _from(tmp_path, rate).mean_acceptance_length(4) == pytest.approx(2.6, abs=1e-12)


def test_positions_that_nobody_reached_are_left_out(tmp_path: Path) -> None:
    assert _from(tmp_path, {"conditional_acceptance": [0.7, {"value": 0.6}, None, 0.5]}) == Positional(
        (0.7, 0.6)
    )


def test_a_file_of_accept(tmp_path: Path) -> None:
    def row(k: int, rate: float, **names: object) -> dict[str, object]:
        return {"draft_length": k, "conditional_acceptance": [rate] * k, **names}

    single = {"target": "a", "draft": "b", "rows": [row(2, 0.5), row(4, 0.6), row(8, 0.7)]}
    assert _from(tmp_path, single, 4) == Positional((0.6,) * 4)
    assert _from(tmp_path, single, 3) == Positional((0.6,) * 4)
    assert _from(tmp_path, single, 9) == Positional((0.7,) * 8)
    several = {"rows": [row(3, 0.7, temperature=0.0), row(3, 0.5, temperature=1.0)]}
    assert _from(tmp_path, several, 3, temperature=1.0) == Positional((0.5,) * 3)
    with pytest.raises(
        InputError, match=r"2 rows answer for draft length 3.*temperature 0\.0; temperature 1\.0"
    ):
        _from(tmp_path, several)
    with pytest.raises(InputError, match=r"no row has temperature 0\.5"):
        _from(tmp_path, several, 3, temperature=0.5)


def test_drafters_of_one_file_are_chosen_by_name(tmp_path: Path) -> None:
    rows = [
        {"draft": name, "domain": domain, "draft_length": 3, "conditional_acceptance": [rate] * 3}
        for name, rate in (("ngram", 0.4), ("eagle3", 0.8))
        for domain in ("code", "prose")
    ]
    assert _from(tmp_path, {"rows": rows}, draft="eagle3", domain="code") == Positional((0.8,) * 3)
    with pytest.raises(InputError, match=r"choose with draft.*draft ngram, domain code; draft eagle3"):
        _from(tmp_path, {"rows": rows}, domain="code")


def test_a_drafter_that_finds_nothing_in_some_rounds_is_gated(tmp_path: Path) -> None:
    gate = {"match": 0.3, "stickiness": 0.2, "first": 0.6, "run": 0.9}
    row = {"draft_length": 4, "conditional_acceptance": [0.6, 0.9, 0.9, 0.9], "gated": gate}
    assert _from(tmp_path, {"rows": [row]}) == Gated(0.3, 0.2, 0.6, 0.9)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "is not a JSON object"),
        ({"rows": [{"draft_length": 3, "gated": 0.5}]}, r"rows\[0\].gated: is no gate"),
        ({"rows": [{"draft_length": 3, "gated": {"match": 1.5, "first": 0.5, "run": 0.5}}]}, "gated.match"),
        ({}, "conditional_acceptance: is missing"),
        ({"rows": []}, "rows: is not a list of measurements"),
        ({"rows": [{"draft_length": 3}]}, r"rows\[0\].conditional_acceptance: is missing"),
        (
            {"rows": [{"draft_length": 1, "conditional_acceptance": [1.2]}]},
            r"rows\[0\].conditional\[0\]: is out of range",
        ),
        ({"conditional_acceptance": 0.7}, "conditional_acceptance: is not a list"),
        ({"conditional_acceptance": ["x"]}, r"conditional_acceptance\[0\]: is not a number"),
        ({"acceptance_rate_at": [0.5, 0.6]}, r"survival\[1\]: is more than the position before"),
        ({"draft_length": 3, "mean_acceptance_length": 4.5}, "mean_acceptance_length: cannot be reached"),
    ],
)
def test_files_without_usable_acceptance(tmp_path: Path, document: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        _from(tmp_path, document)
    assert "acceptance.json" in str(caught.value)


# Tables


def test_the_effect_grid_is_fine_enough() -> None:
    """c_j at any effect is within 1/1000 of its bin's threshold."""
    model = Hierarchical.from_alpha(0.7, 0.3, request_sd=1.0, drift_sd=0.7, drift_correlation=0.9)
    tables = tables_of(model, 1, 0, 4)
    reach = 5.5 * math.hypot(1.0, 0.7)
    effects = np.linspace(-reach, reach, 20_001)
    rows = ((effects - tables.effect_low) * tables.effect_bins_per_unit).astype(int)
    assert rows.min() >= 0
    assert rows.max() < tables.conditional.shape[1]
    assert np.abs(tables.conditional[0, rows] - model.conditional_at(effects, 4)).max() < 1e-3


def test_the_normal_levels_keep_the_population() -> None:
    """1,024 levels in place of a normal move S_1 by less than 1e-5, at the worst correlation (none)."""
    levels = normal_quantiles()
    assert float(levels @ levels) / 1024 == pytest.approx(1.0, abs=1e-12)
    assert levels.tolist() == pytest.approx((-levels[::-1]).tolist())
    for sd in (0.5, 1.5, 3.0):
        model = Hierarchical.from_alpha(0.7, drift_sd=sd)
        drawn = float(logistic(model.mu + sd * levels).mean())
        assert drawn == pytest.approx(model.survival(1)[0], abs=1e-5)


def _two_classes(requests: int = 1000) -> Traffic:
    """70 % of the requests chat with 200 tokens, 30 % code with 400."""
    classes = np.array([0] * 7 + [1] * 3, dtype=np.int32).repeat(requests // 10)
    return Traffic(classes, np.where(classes == 0, 200, 400).astype(np.int64))


def test_classes_keep_their_own_thresholds() -> None:
    tables = compile_acceptance([Geometric(0.7), Geometric(0.4)], _two_classes(), 0, 2)
    assert tables.kind == TABLE
    assert tables.conditional.tolist() == [[[0.7, 0.7]], [[0.4, 0.4]]]
    assert not tables.request_effect.any()


def test_without_heterogeneity_classes_are_blended_by_their_tokens() -> None:
    """Tokens 7 × 200 : 3 × 400; S_j is the blend, not c_j."""
    tables = compile_acceptance([Geometric(0.7), Geometric(0.4)], _two_classes(), 0, 2, heterogeneity=False)
    share = 1400 / 2600
    first = share * 0.7 + (1 - share) * 0.4
    second = (share * 0.49 + (1 - share) * 0.16) / first
    for row in tables.conditional[:, 0, :]:
        assert row == pytest.approx([first, second])


def test_a_class_that_does_not_draft_has_no_part_in_the_blend() -> None:
    tables = compile_acceptance(
        [Geometric(0.7), None], _two_classes(), 0, 2, False, class_drafts=[True, False]
    )
    assert tables.drafts.tolist() == [True, False]
    assert tables.conditional[0, 0] == pytest.approx([0.7, 0.7])
    with pytest.raises(InputError, match="missing for a class that drafts"):
        compile_acceptance([Geometric(0.7), None], _two_classes(), 0, 2)
    nobody = compile_acceptance([None, None], _two_classes(), 0, 2, False, class_drafts=[False, False])
    assert not nobody.conditional.any()


def test_classes_may_spread_differently() -> None:
    models = [
        Hierarchical.from_alpha(0.7, request_sd=0.5),
        Hierarchical.from_alpha(0.4, request_sd=2.0),
        Geometric(0.5),
    ]
    classes = np.arange(900, dtype=np.int32) % 3
    tables = compile_acceptance(models, Traffic(classes, np.full(900, 100)), 0, 2)
    deviations = [tables.request_effect[classes == index].std() for index in range(3)]
    assert deviations[0] == pytest.approx(0.5, rel=0.15)
    assert deviations[1] == pytest.approx(2.0, rel=0.15)
    assert deviations[2] == 0.0
    assert (tables.conditional[2] == 0.5).all()


def test_a_table_class_beside_a_gated_one_always_has_a_match() -> None:
    tables = compile_acceptance([Gated(0.3, 0.5, 0.5, 0.9), Geometric(0.6)], _two_classes(), 0, 2)
    assert tables.kind == GATED
    assert tables.match_after_miss.tolist() == pytest.approx([0.15, 1.0])
    assert tables.match_after_match.tolist() == pytest.approx([0.65, 1.0])
    assert tables.matched_before[700:].all()
    assert tables.matched_before[:700].mean() == pytest.approx(0.3, abs=3 * math.sqrt(0.21 / 700))


def test_gated_classes_blend_behind_one_gate() -> None:
    models = [Gated(0.3, 0.5, 0.5, 0.9), Gated(0.1, 0.0, 0.8, 0.8)]
    tables = compile_acceptance(models, _two_classes(), 0, 3, heterogeneity=False)
    share = 1400 / 2600
    survival = share * models[0].survival(3) + (1 - share) * models[1].survival(3)
    assert tables.match_after_miss.tolist() == tables.match_after_match.tolist()
    assert tables.match_after_miss[0] * np.cumprod(tables.conditional[1, 0]) == pytest.approx(survival)


def test_what_one_arm_cannot_hold_together_is_refused() -> None:
    trace, other = Trace(((1, 2),)), Trace(((2, 2),))
    for models in ([trace, Geometric(0.5)], [trace, other]):
        with pytest.raises(InputError, match="mixes a trace"):
            compile_acceptance(models, _two_classes(), 0, 2)
    assert compile_acceptance([trace, trace], _two_classes(), 0, 2).kind == TRACE
    drifts = [Hierarchical.from_alpha(0.5, drift_sd=sd, drift_correlation=0.5) for sd in (0.5, 0.6)]
    with pytest.raises(InputError, match="different drifts"):
        compile_acceptance(drifts, _two_classes(), 0, 2)


def test_a_trace_is_laid_out_end_to_end() -> None:
    tables = tables_of(Trace(((1, 3), (2, 2, 5))), 4, 0, 3)
    assert tables.kind == TRACE
    assert tables.trace_lengths.tolist() == [1, 3, 2, 2, 5]
    assert tables.trace_start.tolist() == [0, 2, 5]


def test_a_plain_arm_compiles_too() -> None:
    assert tables_of(Geometric(0.5), 3, 0, 0).conditional.shape == (1, 1, 1)
