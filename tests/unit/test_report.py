"""The report: what the page holds and leaves out, the words of the verdict, kept studies, the command."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from click.testing import Result as Answer

import dashboards.study
from dashboards.assumptions import assumptions, parts_read
from dashboards.change import BETTER, EVEN, WORSE, direction, growth, percent, percent_range
from dashboards.headline import headlines
from dashboards.markup import linked, sentence, tag, text
from dashboards.measures import best_draft_lengths, classes_table, measures_table
from dashboards.report import write_report
from dashboards.stragglers import Stragglers, stragglers
from dashboards.study import STUDY_FILE, Study, study_of
from dashboards.subject import Subject, subject_of, subjects_at
from experiments.cli import decodesim
from simulator.errors import InputError
from simulator.results.estimate import Estimate
from simulator.results.verdict import Verdict
from simulator.scenario import load_scenario
from simulator.setup import setup_of
from simulator.simulation import simulate
from simulator.step.state import DONE
from tests.subjects import (
    ARM,
    EXAMPLE,
    SMALL,
    break_even_row,
    by_hand,
    estimate,
    small_result,
    small_subject,
    with_arms_saturated,
    with_break_even,
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of the small example."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report([small_subject()], path).read_text("utf-8")


def without_scripts(page: str) -> str:
    return re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)


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
        "How late tokens come",
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
        "Host time, exposed, per step",
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
    arms = {"plain": result.arms["plain"], evil: result.arms[ARM]}
    records = {"plain": result.records["plain"], evil: result.records[ARM]}
    named = replace(
        result,
        arms=arms,
        records=records,
        comparison={evil: result.comparison[ARM]},
        scenario={**result.scenario, "name": evil},
        notes=(evil,),
    )
    subject = Subject(named, None, Study(), f"{evil} is not here.")
    written = write_report([subject], tmp_path / "report.html").read_text("utf-8")
    assert "<script>alert" not in written
    assert "&lt;script&gt;alert(1)" in written
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', written, re.DOTALL)
    assert data is not None
    assert evil in {trace.get("name") for figure in json.loads(data[1]).values() for trace in figure["data"]}


def test_several_results_have_contents_and_places_of_their_own(tmp_path: Path) -> None:
    subjects = [small_subject(), replace(small_subject(), study=Study())]
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


# --- words ------------------------------------------------------------------------------------------------


def headline_of(ratio: Estimate, outcome: str, metric: str = "throughput") -> tuple[str, tuple[str, ...]]:
    name = "throughput_speedup" if metric == "throughput" else "tpot_mean_speedup"
    said = f"{ARM}: {outcome}: {metric} × {ratio.value:.2f} (1.00 to 2.00): the reason: in full"
    (headline,) = headlines(by_hand({}, {}, {name: ratio}, Verdict(outcome, said)))
    return headline.claim, headline.support


@pytest.mark.parametrize(
    ("ratio", "outcome", "metric", "claim"),
    [
        (
            Estimate(1.15, (1.14, 1.16), (1.05, 1.28)),
            "pays",
            "throughput",
            f"{ARM} pays: the same GPUs serve 15% more tokens per second (5% to 28% with the model's error).",
        ),
        (
            Estimate(0.8, (0.79, 0.81), (0.7, 0.9)),
            "loses",
            "throughput",
            f"{ARM} does not pay: the same GPUs serve 20% fewer tokens per second "
            "(10% to 30% with the model's error).",
        ),
        (
            Estimate(1.02, (1.01, 1.03), (0.93, 1.12)),
            "undecided",
            "throughput",
            f"{ARM} may or may not pay: the same GPUs serve 2% more tokens per second "
            "(between 7% fewer and 12% more with the model's error).",
        ),
        (
            Estimate(1.5, (1.4, 1.6), (1.2, 1.8)),
            "pays",
            "TPOT speedup",
            f"{ARM} pays: at the same traffic answers stream 50% faster (20% to 80% with the model's error).",
        ),
    ],
)
def test_the_claim_is_a_sentence_that_a_manager_understands(
    ratio: Estimate, outcome: str, metric: str, claim: str
) -> None:
    assert headline_of(ratio, outcome, metric) == (claim, ("The reason: in full.",))


def test_the_tail_is_told_with_its_price() -> None:
    plain = {"tpot_s.p99": 0.02, "itl_s.p99": 0.1, "ttft_s.p99": 0.9}
    fast = {"tpot_s.p99": 0.04, "itl_s.p99": 0.09, "ttft_s.p99": 1.1}
    ratios = {
        "tpot_p99_speedup": estimate(0.5),
        "itl_p99_ratio": estimate(0.9, 0.05),
        "ttft_p99_ratio": estimate(1.22, 0.3),
    }
    (headline,) = headlines(by_hand(plain, fast, ratios))
    said = " ".join(headline.support).replace("\u00a0", " ")
    assert "The P99 worsens: time per output token 20.0 → 40.0 ms" in said
    assert "improves: gap between emissions 100 → 90.0 ms" in said
    assert "stays within the error: time to first token 900 ms → 1.10 s" in said
    directions = {change.label: change.direction for change in headline.changes}
    assert directions == {"TPOT, P99": WORSE, "ITL, P99": BETTER, "TTFT, P99": EVEN}


def test_the_break_even_stands_beside_the_scenarios_acceptance() -> None:
    rows = [break_even_row(64, 0.5, "pays"), break_even_row(1, 0.1, "pays")]
    (headline,) = headlines(with_break_even(by_hand({}, {}), rows))
    assert (
        "At 64 clients it needs an acceptance α of 0.50 (0.45 to 0.55) to break even; the scenario has 0.70."
        in headline.support
    )


def with_requests(slow: int, without: int, count: int = 2000) -> Subject:
    """A subject of `count` requests of 101 tokens at 10 ms each; the first `slow` of them take 50 ms, and
    the first `without` never draft.
    """
    subject, numbers = by_hand({}, {}), np.arange(count)
    (record, *_) = small_result().records[ARM]
    tpot_ns = np.where(numbers < slow, 50_000_000, 10_000_000)
    record = replace(
        record,
        arrival_ns=numbers,
        first_ns=numbers,
        last_ns=numbers + 100 * tpot_ns,
        emitted_tokens=np.full(count, 101),
        decode_rounds=np.full(count, 50),
        draft_rounds=np.where(numbers < without, 0, 50),
        status=np.full(count, DONE),
        first_measured=0,
        end_measured=count,
    )
    return replace(subject, result=replace(subject.result, records={ARM: (record,)}))


def test_slow_requests_without_drafts_are_found() -> None:
    found = stragglers(with_requests(slow=100, without=100), ARM)
    assert found == Stragglers(1.0, 0.05, pytest.approx(0.01))
    assert found.explain_the_tail
    half = stragglers(with_requests(slow=100, without=60), ARM)
    assert half is not None
    assert (half.of_slowest, half.of_all) == (0.6, 0.03)


def test_without_a_difference_drafts_do_not_explain_the_tail() -> None:
    evenly = stragglers(with_requests(slow=4000, without=2800, count=4000), ARM)
    assert evenly is not None
    assert evenly.of_slowest == evenly.of_all == 0.7
    assert not evenly.explain_the_tail
    none = stragglers(with_requests(slow=100, without=0), ARM)
    assert none is not None
    assert not none.explain_the_tail


def test_too_few_requests_or_saturation_tell_nothing_of_the_tail() -> None:
    subject = with_requests(slow=100, without=100)
    assert stragglers(with_requests(slow=10, without=10, count=900), ARM) is None
    assert stragglers(with_requests(slow=100, without=1900), ARM) is None
    assert stragglers(with_arms_saturated(subject, ARM), ARM) is None
    assert stragglers(by_hand({}, {}), ARM) is None


def test_the_verdict_says_who_is_slow_and_why() -> None:
    subject = with_requests(slow=100, without=100)
    (headline,) = headlines(subject)
    assert (
        "All of the slowest 1% by TPOT go without drafts (5.0% of all do); the P99 of those that draft is "
        "10.0 ms."
    ) in headline.support
    note = f"{ARM}: 4.5% of the requests outgrow the drafter's 4,096 tokens, and go on without drafts"
    (headline,) = headlines(replace(subject, result=replace(subject.result, notes=(note,))))
    assert any(
        "(4.5% of the requests outgrow the drafter's 4,096 tokens)" in line for line in headline.support
    )


def test_an_acceptance_that_nobody_gave_is_said() -> None:
    subject = by_hand({}, {})
    provenance = replace(subject.result.provenance, defaults_used={f"speculation.{ARM}.acceptance": {}})
    (headline,) = headlines(replace(subject, result=replace(subject.result, provenance=provenance)))
    assert headline.support[-1].startswith("The acceptance is a default, not a measurement")


@pytest.mark.parametrize(("saturated", "who"), [(("plain",), "plain"), (("plain", ARM), "both arms")])
def test_a_load_above_capacity_is_said(saturated: tuple[str, ...], who: str) -> None:
    (headline,) = headlines(with_arms_saturated(by_hand({}, {}), *saturated))
    assert any(f"more than {who} can serve" in line for line in headline.support)


def test_speedups_of_times_are_turned_round() -> None:
    ratio = Estimate(0.5, (0.4, 0.6), (0.25, 0.8))
    assert growth("tpot_p99_speedup", ratio) == Estimate(2.0, (1 / 0.6, 2.5), (1.25, 4.0))
    assert growth("itl_p99_ratio", ratio) == ratio
    assert growth("throughput_speedup", ratio) == ratio
    assert direction("tpot_p99_speedup", growth("tpot_p99_speedup", ratio)) == WORSE
    assert direction("throughput_speedup", ratio) == WORSE
    assert direction("itl_p99_ratio", ratio) == BETTER
    assert direction("itl_p99_ratio", Estimate(0.9, (0.8, 1.0), (0.7, 1.1))) == EVEN
    assert direction("itl_p99_ratio", Estimate(0.9)) == EVEN


def test_growth_reads_as_percent_until_it_is_large() -> None:
    assert [percent(x) for x in (1.15, 0.62, 1.0, 1.004, 2.04, 19.2)] == [
        "+15%",
        "−38%",
        "0%",
        "0%",
        "+104%",
        "× 19.2",
    ]
    assert percent_range((0.94, 1.28)) == "−6% to +28%"


def test_markup_escapes_all_but_markup() -> None:
    assert tag("b", "<i>", tag("u", "&"), cls="a", aria_label='"', title=None) == (
        '<b class="a" aria-label="&quot;">&lt;i&gt;<u>&amp;</u></b>'
    )
    assert text("a<b") == "a&lt;b"
    assert sentence("mixed Case") == "Mixed Case."
    assert sentence("Done!") == "Done!"


def test_addresses_become_links_without_their_punctuation() -> None:
    assert linked("see (https://a.b/c), or <d>") == (
        'see (<a href="https://a.b/c" rel="noreferrer">a.b/c</a>), or &lt;d&gt;'
    )


# --- tables -----------------------------------------------------------------------------------------------


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
    document = {**small_subject().study.break_even[ARM]}
    document |= {"best_draft_length": {"64": {"0.5": 2, "0.9": 8}}, "cost_ratio": {"64": 0.147}}
    shown = best_draft_lengths(replace(small_subject(), study=Study({ARM: document})))
    assert shown is not None
    assert re.sub(r"<[^>]+>", " ", shown).split()[-4:] == ["64", "2", "8", "0.147"]
    assert best_draft_lengths(by_hand({}, {})) is None


def test_the_parts_of_the_profile_that_were_read_are_found() -> None:
    scenario = small_subject().scenario
    assert scenario is not None
    plain, speculative = (parts_read(setup_of(scenario, arm)) for arm in (None, scenario.speculation[0]))
    assert plain <= speculative
    assert {"gemm/fp8", "attention/fp8", "allreduce", "prefill", "elementwise", "sampler"} <= plain
    assert not {name for name in speculative if name.startswith(("mla", "experts"))}


def test_switched_off_mechanisms_are_a_warning() -> None:
    subject = by_hand({}, {}, run={"mechanisms": {"prefill": False, "kv_limit": True}})
    assert "prefill: the answer leaves out what they do" in assumptions(subject)
    assert "leaves out" not in assumptions(small_subject())


def test_notes_of_a_break_even_are_given_but_not_those_of_its_rows() -> None:
    row = {**break_even_row(64, None, "unreachable"), "note": "the target is missed"}
    document = {"rows": [row], "best_draft_length": {}, "cost_ratio": {}}
    document["notes"] = ["3% of the requests outgrow the drafter", "64, draft length 3: the target is missed"]
    shown = assumptions(replace(by_hand({}, {}), study=Study({ARM: document})))
    assert f"{ARM}: 3% of the requests outgrow the drafter" in shown
    assert "the target is missed" not in shown


# --- studies and files ------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a study was simulated; the simulation itself is left out."""
    calls: list[int] = []
    study = small_subject().study

    def simulate_study(*_: Any) -> Study:
        calls.append(1)
        return study

    monkeypatch.setattr(dashboards.study, "_simulate", simulate_study)
    return calls


def test_a_study_is_kept_and_used_again(tmp_path: Path, counted: list[int]) -> None:
    scenario = load_scenario(EXAMPLE, SMALL)
    first = study_of(small_result(), scenario, tmp_path)
    second = study_of(small_result(), scenario, tmp_path)
    assert first == second
    assert len(counted) == 1
    assert [file.name for file in tmp_path.iterdir()] == [STUDY_FILE]


def test_a_study_of_another_result_or_a_damaged_one_is_not_used(tmp_path: Path, counted: list[int]) -> None:
    scenario = load_scenario(EXAMPLE, SMALL)
    study_of(small_result(), scenario, tmp_path)
    study_of(replace(small_result(), notes=("another",)), scenario, tmp_path)
    assert len(counted) == 2
    for damaged in ("{", "[]", '{"schema": "decodesim/study-9"}', ""):
        (tmp_path / STUDY_FILE).write_text(damaged)
        study_of(small_result(), scenario, tmp_path)
    assert len(counted) == 6


def test_a_study_that_cannot_be_kept_is_made_all_the_same(tmp_path: Path, counted: list[int]) -> None:
    (tmp_path / "file").write_text("")
    assert study_of(small_result(), load_scenario(EXAMPLE, SMALL), tmp_path / "file") == small_subject().study
    assert len(counted) == 1


def test_progress_counts_to_its_total() -> None:
    told: list[tuple[int, int]] = []
    scenario = load_scenario(EXAMPLE, [*SMALL, "engine.max_num_seqs=1", "workload.arrivals.concurrency=1"])
    found = study_of(small_result(), scenario, None, lambda done, total, _: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]
    assert found.speedup[ARM].concurrency == (1,)
    assert found.notes == ()


def test_results_are_found_as_files_folders_and_folders_of_folders(
    tmp_path: Path, counted: list[int]
) -> None:
    small_result().write(tmp_path / "b")
    small_result().write(tmp_path / "a")
    assert len(subjects_at(tmp_path / "a")) == 1
    assert len(subjects_at(tmp_path / "a" / "result.json")) == 1
    assert len(counted) == 1
    assert len(subjects_at(tmp_path)) == 2
    assert len(counted) == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no result"):
        subjects_at(tmp_path / "empty")


def test_a_result_file_without_its_requests_says_so(tmp_path: Path, counted: list[int]) -> None:
    small_result().write(tmp_path)
    for file in tmp_path.glob("*.npz"):
        file.unlink()
    (subject,) = subjects_at(tmp_path)
    shown = without_scripts(write_report([subject], tmp_path / "report.html").read_text("utf-8"))
    assert "The requests are not beside the result" in shown


def test_files_of_the_scenario_are_looked_for_here_and_beside_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    (tmp_path / "trace.txt").write_text("4,3,2,1,3,3,2\n")
    text = EXAMPLE.read_text("utf-8").replace(
        "{model: geometric, alpha: 0.7}", "{model: trace, file: trace.txt}"
    )
    (tmp_path / "scenario.yaml").write_text(text)
    assert "trace.txt" in text
    result = simulate(load_scenario(tmp_path / "scenario.yaml", SMALL))
    result.write(tmp_path / "out")
    (elsewhere,) = subjects_at(tmp_path / "out")
    assert elsewhere.scenario is None
    assert "run this where its files lie" in str(elsewhere.why)
    shown = without_scripts(write_report([elsewhere], tmp_path / "report.html").read_text("utf-8"))
    assert "run this where its files lie" in shown
    monkeypatch.chdir(tmp_path)
    (here,) = subjects_at(Path("out"))
    assert here.scenario is not None
    (tmp_path / "trace.txt").rename(tmp_path / "out" / "trace.txt")
    (beside,) = subjects_at(Path("out"))
    assert beside.scenario is not None


def test_a_plain_result_is_studied_on_the_way(tmp_path: Path, counted: list[int]) -> None:
    write_report([small_result()], tmp_path / "report.html")
    assert len(counted) == 1
    assert subject_of(small_result()).study == small_subject().study


# --- the command ------------------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Answer:
    return CliRunner().invoke(decodesim, ["report", *map(str, arguments)])


def test_the_command_writes_one_page_and_says_so(tmp_path: Path, counted: list[int]) -> None:
    small_result().write(tmp_path / "result")
    answer = run(tmp_path / "result", "-o", tmp_path / "page.html", "--json")
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.stdout)
    assert document["results"] == 1
    assert document["bytes"] == (tmp_path / "page.html").stat().st_size
    assert "opens offline" in answer.stderr


def test_the_command_refuses_what_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    for path in (tmp_path, tmp_path / "result.json", tmp_path / "absent"):
        answer = run(path, "-o", tmp_path / "page.html")
        assert answer.exit_code == 2
        assert answer.stdout == ""
        assert "Traceback" not in answer.stderr
    assert not (tmp_path / "page.html").exists()


def test_pictures_need_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]) -> None:
    monkeypatch.delenv("CHROMIUM_PATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    small_result().write(tmp_path / "result")
    answer = run(tmp_path / "result", "-o", tmp_path / "page.html", "--png", tmp_path / "png")
    assert answer.exit_code == 2
    assert "no Chromium: set CHROMIUM_PATH" in answer.stderr
