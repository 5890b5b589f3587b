"""The figures on the front page are those of the pages that they summarise."""

import gzip
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def read(page: str) -> str:
    """The text of a page, its lines joined."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def accuracy_section() -> str:
    """What the front page says of errors."""
    return read("README.md").partition("## How accurate")[2]


def row(label: str, statistic: str) -> str:
    """What a target of ACCURACY.md reached, as printed there."""
    match = re.search(rf"\| {label} \| {statistic} \| [^|]+ \| ([^|]+?) \|", read("ACCURACY.md"))
    assert match, (label, statistic)
    return match[1]


def test_errors_on_published_measurements_are_those_of_the_generated_table() -> None:
    section = accuracy_section()
    median_error, tail_error = row("speedup", "median over sources"), row("speedup", "pooled P90")
    assert f"{median_error.replace('%', ' %')} (median of sources)" in section
    assert f"{tail_error.replace('%', ' %')} (P90 of points)" in section
    assert f"off by {row('ttft_mean of plain serving', 'median over sources').replace('%', ' %')}" in section


def test_predicted_losses_are_those_of_the_generated_table() -> None:
    stated = re.search(r"(\d+) of (\d+) losses are predicted", accuracy_section())
    assert stated
    predicted, losses = int(stated[1]), int(stated[2])
    count = re.search(r"gain or loss, of (\d+) losses", read("ACCURACY.md"))
    assert count
    assert losses == int(count[1])
    assert f"{predicted / losses:.0%}" == row("losses", "predicted as losses")


def test_the_front_page_counts_the_committed_cases() -> None:
    from calibration.validation.reconstruction.cases import committed_cases

    cases = committed_cases()
    assert f"{len(cases)} cases of {len({case.source_id for case in cases})} sources" in read("README.md")


def test_the_front_page_counts_the_recorded_scenarios_of_the_scheduler() -> None:
    with gzip.open(ROOT / "tests/engine/traces.jsonl.gz", "rt", encoding="utf-8") as lines:
        count = sum(1 for line in lines if line.strip())
    assert f"on {count:,} recorded random workloads" in accuracy_section()
