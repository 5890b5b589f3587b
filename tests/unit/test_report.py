"""The report page: what it holds, its tables, and that it is one file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dashboards.assumptions import assumptions, parts_read
from dashboards.measures import best_draft_lengths, classes_table, measures_table
from dashboards.report import write_report
from dashboards.study import LoadStudy
from dashboards.subject import ReportedResult
from simulator.errors import InputError
from simulator.runs.setup import setup_of
from tests.subjects import (
    VARIANT,
    break_even_row,
    by_hand,
    estimate,
    small_result,
    small_subject,
    without_scripts,
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of the small example."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report([small_subject()], path).read_text("utf-8")


class Addresses(HTMLParser):
    """What a page would fetch by itself: sources and style sheets, not the links that people click."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if (name in ("src", "srcset", "data", "poster") or (tag == "link" and name == "href")) and value:
                self.fetched.append(value)


def test_the_page_is_one_file_that_fetches_nothing(page: str) -> None:
    parser = Addresses()
    parser.feed(page)
    assert parser.fetched == ["data:,"]
    assert parser.tags.count("script") == 3
    assert not {"iframe", "img", "object", "embed"} & set(parser.tags)
    assert page.count("plotly.js v") == 1
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert "connect-src" not in page


def test_the_page_begins_with_the_verdict_and_ends_with_what_it_rests_on(page: str) -> None:
    shown = without_scripts(page)
    order = [
        'class="claim"',
        "Acceptance needed to pay",
        "Latency distributions",
        "Speedup by load and acceptance",
        "What a step is made of",
        "Drafts accepted",
        "Memory of one GPU",
        "All figures",
        "What this rests on",
    ]
    places = [shown.index(part) for part in order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "part",
    [
        "8 clients · 300 requests, 2 replications · 4 × NVIDIA H100 SXM5 80 GB · vLLM 0.33",
        "EAGLE-3 with 3 drafts a round",
        "meta-llama/Llama-3.3-70B-Instruct",
        "NVIDIA CORPORATION",
        "gemm/fp8",
        'class="status assumed"',
        "Host time per step",
        "workload.output_tokens.min",
        "One more draft ÷ plain step",
    ],
)
def test_the_page_says(page: str, part: str) -> None:
    assert part in without_scripts(page)


def test_the_same_subject_gives_the_same_bytes(page: str, tmp_path: Path) -> None:
    again = write_report([small_subject()], tmp_path / "again" / "report.html")
    assert again.read_text("utf-8") == page


def test_the_figures_are_data_that_no_text_can_break(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    result = small_result()
    variants = {"plain": result.variants["plain"], evil: result.variants[VARIANT]}
    records = {"plain": result.records["plain"], evil: result.records[VARIANT]}
    named = replace(
        result,
        variants=variants,
        records=records,
        comparison={evil: result.comparison[VARIANT]},
        scenario={**result.scenario, "name": evil},
        notes=(evil,),
    )
    subject = ReportedResult(named, None, LoadStudy(), f"{evil} is not here.")
    written = write_report([subject], tmp_path / "report.html").read_text("utf-8")
    assert "<script>alert" not in written
    assert "&lt;script&gt;alert(1)" in written
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', written, re.DOTALL)
    assert data is not None
    assert evil in {trace.get("name") for figure in json.loads(data[1]).values() for trace in figure["data"]}


def test_several_results_have_contents_and_places_of_their_own(tmp_path: Path) -> None:
    subjects = [small_subject(), replace(small_subject(), study=LoadStudy())]
    shown = without_scripts(write_report(subjects, tmp_path / "report.html").read_text("utf-8"))
    assert "2 scenarios" in shown
    identities = re.findall(r'\bid="([^"]+)"', shown)
    assert len(identities) == len(set(identities))
    for target in re.findall(r'href="#([^"]+)"', shown):
        assert target in identities


def test_no_result_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no result"):
        write_report([], tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_a_page_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_report([small_subject()], tmp_path / "file" / "report.html")


def test_measures_stand_with_interval_and_change() -> None:
    subject = by_hand(
        {"throughput_tokens_per_s": 2000.0, "tpot_s.mean": 0.03},
        {"throughput_tokens_per_s": 2300.0, "tpot_s.mean": 0.02},
        {"throughput_speedup": estimate(1.15), "tpot_mean_speedup": estimate(1.5, 0.2)},
    )
    shown = re.sub(r"<[^>]+>", "|", measures_table(subject))
    row = next(line for line in shown.split("Throughput, tokens/s") if "2,300" in line)
    assert "2,000" in row
    assert "± 23" in row
    assert "+15%" in row
    assert "TTFT" not in shown
    assert "−33%" in shown
    assert "−44% to −17%" in shown


def test_classes_have_a_table_only_when_there_are_some() -> None:
    assert classes_table(small_subject()) is None
    figures = {"classes.code.tpot_s.mean": 0.02, "classes.chat.tpot_s.mean": 0.03}
    shown = classes_table(by_hand(figures, figures))
    assert shown is not None
    assert "code: TPOT mean, ms" in shown
    assert "code: TTFT P99" not in shown


def test_best_draft_lengths_come_with_their_cost_ratio() -> None:
    document = {**small_subject().study.break_even[VARIANT]}
    document |= {"best_draft_length": {"64": {"0.5": 2, "0.9": 8}}, "cost_ratio": {"64": 0.147}}
    shown = best_draft_lengths(replace(small_subject(), study=LoadStudy({VARIANT: document})))
    assert shown is not None
    assert re.sub(r"<[^>]+>", " ", shown).split()[-4:] == ["64", "2", "8", "0.147"]
    assert best_draft_lengths(by_hand({}, {})) is None


def test_the_parts_of_the_profile_that_were_read_are_found() -> None:
    scenario = small_subject().scenario
    assert scenario is not None
    plain, speculative = (
        parts_read(setup_of(scenario, variant)) for variant in (None, scenario.speculation[0])
    )
    assert plain <= speculative
    assert {"gemm/fp8", "attention/fp8", "allreduce", "prefill", "elementwise", "sampler"} <= plain
    assert not {name for name in speculative if name.startswith(("mla", "experts"))}


def test_switched_off_mechanisms_are_a_warning() -> None:
    subject = by_hand({}, {}, run={"mechanisms": {"prefill": False, "kv_limit": True}})
    assert "prefill: the answer omits their effects" in assumptions(subject)
    assert "leaves out" not in assumptions(small_subject())


def test_notes_of_a_break_even_are_given_but_not_those_of_its_rows() -> None:
    row = {**break_even_row(64, None, "unreachable"), "note": "the target is missed"}
    document = {"rows": [row], "best_draft_length": {}, "cost_ratio": {}}
    document["notes"] = ["3% of the requests outgrow the drafter", "64, draft length 3: the target is missed"]
    shown = assumptions(replace(by_hand({}, {}), study=LoadStudy({VARIANT: document})))
    assert f"{VARIANT}: 3% of the requests outgrow the drafter" in shown
    assert "the target is missed" not in shown
