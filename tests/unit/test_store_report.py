"""The page of a store: tables of its maps, their pictures, and what is said of cells without figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from dashboards.figures import STUDY_FIGURES, study_choice, study_needed, study_regret, study_speedup
from dashboards.figures.heat import border
from dashboards.figures.settings import setting_text, setting_title, where_text
from dashboards.report import reported_at, write_report
from dashboards.stored import THRESHOLD, StoredStudy, is_store, stored_study
from dashboards.study_article import findings
from experiments.cli import decodesim
from experiments.run_cell import run_cell
from experiments.store.columns import REAL, SETTING, column_with_meaning
from experiments.store.store import Store
from experiments.study.grid import StudyGrid
from experiments.study.load import load_study
from simulator.errors import InputError
from tests.shared_data import ROOT
from tests.stored_studies import (
    ALPHAS,
    CLIENTS,
    GPUS,
    LENGTHS,
    LOADS,
    PROMPTS,
    VARIANTS,
    break_even_study,
    speedup_study,
)
from tests.subjects import by_hand

STUDY = f"""
name: A small map
scenario: {ROOT / "examples" / "textbook-h100.yaml"}
axes:
  workload.arrivals.concurrency: [1, 8]
  speculation.eagle3.draft_length: [1, 3]
measure: breakeven
keep: [break_even_alpha, break_even_verdict, speedup_at.0.7]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real store of four cells."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
    study = load_study(folder / "study.yaml", ["workload.requests=100", "run.replications=1"])
    with Store.create_or_open(folder / "map.db", study.document, study.sha256) as store:
        for cell in StudyGrid(study).cells():
            store.add(cell, run_cell(cell))
    return folder / "map.db"


def test_needed_has_a_row_per_variant_and_cell_with_its_band() -> None:
    table = study_needed.prepare(break_even_study())
    assert len(table.rows) == len(VARIANTS) * len(GPUS) * len(PROMPTS) * len(LOADS) * len(LENGTHS)
    assert table.distinct("picture") == [f"{variant}, K = {k}" for variant in VARIANTS for k in LENGTHS]
    assert table.facts["own"] == {"head": 0.7, "draft": 0.7}
    for row in table.records():
        if row["place"] == "2 · 16,384":
            assert (row["outcome"], row["needed"]) == ("does-not-fit", None)
        else:
            assert 0 <= row["low"] <= row["needed"] <= row["high"]
    assert {row["where"] for row in table.records()} > {"4 GPUs, 1,024 prompt tokens, 1 client"}


def test_needed_is_drawn_with_both_lines_and_figures_in_the_cells() -> None:
    table = study_needed.prepare(break_even_study())
    part = table.where(picture="head, K = 3")
    figure = study_needed.draw(part)
    heat, threshold, own = figure.data
    assert (threshold.name, own.name) == (f"α {THRESHOLD:g}", "α of the scenario, 0.7")
    assert list(figure.layout.xaxis.ticktext) == ["1", "4", "16", "64", "256"]
    assert len(figure.layout.yaxis.ticktext) == len(GPUS) * len(PROMPTS)
    row = list(figure.layout.yaxis.ticktext).index("4 · 1,024")
    needed = [row["needed"] for row in part.where(place="4 · 1,024").records()]
    assert list(heat.text[row]) == [f"{alpha:.2f}"[1:] for alpha in needed]
    assert [depth > 0 for depth in heat.z[row]] == [alpha < THRESHOLD for alpha in needed]
    unfit = list(figure.layout.yaxis.ticktext).index("2 · 16,384")
    assert set(heat.text[unfit]) == {"×"}
    assert set(heat.z[unfit]) == {None}
    assert "does not fit" in study_needed.caption(table)
    assert "does not fit" not in study_needed.caption(study_needed.prepare(break_even_study(())))


def test_the_finding_counts_where_the_rule_of_thumb_holds() -> None:
    table = study_needed.prepare(break_even_study())
    known = [row for row in table.where(variant="head").records() if row["needed"] is not None]
    surely = sum(row["high"] < THRESHOLD for row in known) / len(known)
    (head, _) = study_needed.finding(table)
    assert head.startswith("head needs an α of ")
    assert f"0.55 is surely enough in {surely:.0%} of the cells" in head


def test_the_choice_is_drawn_as_the_variants_colour_and_its_draft_length() -> None:
    table = study_choice.prepare(break_even_study())
    assert table.distinct("alpha") == list(ALPHAS)
    assert "2 · 16,384" not in table.distinct("place")
    for picture in table.distinct("picture"):
        part = table.where(picture=picture)
        figure = study_choice.draw(part)
        heats = [trace for trace in figure.data if trace.type == "heatmap"]
        shown = {trace.name for trace in figure.data if trace.type == "bar"}
        assert shown == set(part["variant"])
        cells = sum(value is not None for heat in heats for row in heat.z for value in row)
        assert cells == len(part.rows)
    unsure = [row for row in table.records() if not row["sure"]]
    assert unsure
    assert all(row["low"] <= 1 for row in unsure)
    best = max(table.records(), key=lambda row: float(row["speedup"]))
    assert f"at most × {best['speedup']:.2f}" in " ".join(study_choice.finding(table))


def test_regret_of_a_draft_length_is_the_mean_over_places_and_its_worst() -> None:
    table = study_regret.prepare(break_even_study())
    assert table.distinct("draft_length") == [0, *LENGTHS]
    for row in table.records():
        assert 0 <= row["regret"] <= row["worst"] < 1
        assert row["low"] <= row["worst"] <= row["high"]
    for picture in table.distinct("picture"):
        part = table.where(picture=picture)
        for load in LOADS:
            assert min(part.where(load=load)["regret"]) < 0.05
    (heat,) = study_regret.draw(table.where(picture="head, α 0.7")).data
    assert len(heat.z) == 1 + len(LENGTHS)
    assert heat.text[0][0] == f"{100 * table.where(picture='head, α 0.7', draft_length=0)['regret'][0]:.0f}"


def test_a_simulated_study_shows_its_speedups_with_the_line_at_one() -> None:
    table = study_speedup.prepare(speedup_study())
    assert len(table.rows) == len(LOADS) * len(ALPHAS)
    heat, line = study_speedup.draw(table).data
    assert heat.text[0][0] == f"{table['speedup'][0]:.2f}"
    assert line.name == "as fast as plain decoding"
    assert "faster than plain decoding in" in study_speedup.finding(table)[0]


def test_pictures_without_figures_say_why() -> None:
    simulated, needed = speedup_study(), break_even_study()
    assert "measure: breakeven" in (study_needed.prepare(simulated).missing or "")
    assert "speedup_at" in (study_choice.prepare(simulated).missing or "")
    assert "speedup_at" in (study_regret.prepare(simulated).missing or "")
    assert "measure: simulate" in (study_speedup.prepare(needed).missing or "")


def test_more_places_than_one_can_read_make_no_map() -> None:
    rows = [
        {CLIENTS: load, "a": a, "b": b, "status": "done", "head.break_even_alpha": 0.5}
        for load, a, b in product((1, 2), range(8), range(8))
    ]
    columns = tuple(column_with_meaning(name, SETTING, REAL) for name in (CLIENTS, "a", "b"))
    document = {"name": "wide", "axes": {}, "scenario": {"speculation": [{"name": "head"}]}}
    table = study_needed.prepare(StoredStudy(document, "", columns, tuple(rows)))
    assert table.missing == "64 combinations of a · b are too many rows for a map."


@pytest.mark.parametrize(
    ("axis", "own"),
    [
        ("workload.requests", {"head": 0.7, "ahead": 0.8}),
        ("speculation.head.acceptance.alpha", {"ahead": 0.8}),
        ("speculation.ahead.acceptance", {"head": 0.7}),
        ("speculation.1.acceptance.alpha", {"ahead": 0.8}),
        ("speculation.2.acceptance.alpha", {"head": 0.7}),
    ],
)
def test_a_variant_whose_acceptance_varies_has_no_alpha_of_its_own(axis: str, own: dict[str, float]) -> None:
    variants = [
        {},
        *({"name": variant, "acceptance": {"alpha": a}} for variant, a in (("head", 0.7), ("ahead", 0.8))),
    ]
    study = StoredStudy({"axes": {axis: [1, 2]}, "scenario": {"speculation": variants}}, "", (), ())
    assert study.scenario_alpha == own


def test_borders_run_along_the_edges_of_cells_that_differ() -> None:
    x, y = border([[False, False], [False, True], [None, True]])
    pieces = {((x[i], y[i]), (x[i + 1], y[i + 1])) for i in range(0, len(x), 3)}
    assert pieces == {((0.5, 0.5), (0.5, 1.5)), ((0.5, 0.5), (1.5, 0.5))}
    assert x[2::3] == y[2::3] == [None, None]


def test_settings_in_words() -> None:
    assert setting_title("workload.prompt_tokens.tokens") == "prompt tokens"
    assert setting_title("speculation.eagle3.draft_length") == "draft length of eagle3"
    assert setting_title("workload.prompt_tokens.median") == "prompt tokens"
    assert setting_title("engine.max_num_seqs") == "max num seqs"
    assert setting_title("seed") == "seed"
    assert [setting_text(value) for value in (1024.0, 0.55, "h100-sxm", None)] == [
        "1,024", "0.55", "h100-sxm", "none",
    ]  # fmt: skip
    assert where_text(["hardware.gpu"], ["h200"], "workload.arrivals.rate_per_s", 2.5) == (
        "h200, 2.5 requests per second"
    )
    axes = ["speculation.head.acceptance.alpha", "hardware.tensor_parallel"]
    assert where_text(axes, [0.7, 4], CLIENTS, 1) == "α of head 0.7, 4 GPUs, 1 client"


def test_the_page_of_a_store_holds_its_maps_and_what_it_rests_on(store: Path, tmp_path: Path) -> None:
    assert is_store(store)
    study = stored_study(store)
    assert study.title == "A small map"
    assert study.counts == {"done": 4}
    runner = CliRunner()
    done = runner.invoke(decodesim, ["report", str(store), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("A small map", "4 cells: 4 done", "Acceptance needed to pay", "eagle3.break_even_alpha"):
        assert words in page
    assert all(line in page for line in findings(study))
    assert "study.json" not in [path.name for path in store.parent.iterdir()]


def test_stores_and_results_share_a_page(tmp_path: Path) -> None:
    result = by_hand({"throughput_tokens_per_s": 100.0}, {"throughput_tokens_per_s": 150.0})
    page = write_report([break_even_study(), result, speedup_study()], tmp_path / "page.html")
    text = page.read_text(encoding="utf-8")
    assert "3 scenarios and studies" in text
    assert text.count("<article") == 3
    assert 'id="result-3"' in text
    assert all(figure.title in text for figure in STUDY_FIGURES.values())


def test_what_is_no_store_and_what_is_empty_are_bad_input(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(InputError, match=r"other\.db"):
        reported_at(other)
    study = load_study(store.parent / "study.yaml")
    with Store.create_or_open(tmp_path / "empty.db", study.document, study.sha256):
        pass
    with pytest.raises(InputError, match="no cells yet"):
        reported_at(tmp_path / "empty.db")


def test_cells_that_failed_are_listed_with_their_reason() -> None:
    study: StoredStudy = replace(break_even_study(), reasons=(("failed", "it <broke>", 2),))
    from dashboards.page import Drawings
    from dashboards.study_article import study_article

    text = study_article(study, 1, Drawings())
    assert "Cells without figures" in text
    assert "it &lt;broke&gt;" in text
