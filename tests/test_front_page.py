"""The figures on the front page are those of ACCURACY.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_errors_on_the_front_page_are_those_of_the_generated_table() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    accuracy = (ROOT / "ACCURACY.md").read_text(encoding="utf-8")
    section = readme[readme.index("no fit has seen") : readme.index("## Limits")]
    shown = [text for row in section.splitlines() for text in re.findall(r"(\d+\.\d) %", row)]
    assert len(shown) >= 12
    missing = [figure for figure in shown if f"{figure}%" not in accuracy]
    assert not missing


def test_the_front_page_counts_the_committed_cases() -> None:
    from calibration.validation.reconstruction.cases import committed_cases

    cases = committed_cases()
    text = f"{len(cases)} cases of {len({case.source_id for case in cases})} sources"
    assert text in (ROOT / "README.md").read_text(encoding="utf-8")
