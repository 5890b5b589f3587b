"""The page of rules of thumb says what the figures say today."""

from __future__ import annotations

import re
from itertools import groupby

import pytest

from calibration.acceptance.claims.claim import Claim, band_of
from calibration.acceptance.claims.measured_claims import high_temperature
from calibration.acceptance.claims.page import all_claims, anchor, claims_page, heading
from simulator.results.estimate import Estimate
from tests.measured_rows import measured_row
from tests.shared_data import ROOT

WAYS = ("greedy", "sampled")
PAGE = ROOT / "docs" / "claims.md"


def test_the_page_is_what_its_command_writes_and_every_verdict_is_borne_out() -> None:
    claims = all_claims()
    assert [claim.rule for claim in claims if not claim.borne_out] == []
    assert claims_page(claims) == PAGE.read_text(encoding="utf-8"), "python -m calibration.acceptance.claims"


def test_links_of_the_table_lead_to_their_claims() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = {anchor(line.removeprefix("## ")) for line in text.splitlines() if line.startswith("## ")}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) == headings


def test_tables_have_as_many_cells_in_every_row() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    tables = [list(group) for bar, group in groupby(lines, lambda line: line.startswith("|")) if bar]
    assert len(tables) > 5
    for rows in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_unknown_figures_give_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="not required"):
        band_of(None)
    with pytest.raises(RuntimeError, match="not required"):
        band_of(Estimate(1.0))


def test_a_verdict_that_the_figures_left_is_marked() -> None:
    claim = Claim("Water flows uphill.", "wrong", "", "1 m down.", "decodesim methods", borne_out=False)
    assert heading(claim) == "Water flows uphill"
    assert "judged again" in claims_page([claim])


def test_heat_is_judged_by_how_drafts_are_made() -> None:
    def rows(drawn: float) -> dict[str, list[dict[str, object]]]:
        ways = (("greedy", 0.3), ("sampled", drawn))
        hot_rows = [measured_row(alpha, 4, 3.0, how) for how, alpha in ways]
        return {
            "rows": [measured_row(0.8, 4), *hot_rows, *(measured_row(0.7, 4, 1.0, how) for how, _ in ways)]
        }

    assert high_temperature(None).outcome == "not measured yet"
    result = high_temperature(rows(0.9))
    assert (result.outcome, result.borne_out) == ("holds where", True)
    assert "| layer-skip | drawn | 0.80 | 0.70 | 0.90 |" in result.finding
    assert not high_temperature(rows(0.2)).borne_out
    partial = [
        measured_row(0.5, 4, draft="eagle"),
        *(measured_row(0.4, 4, 1.0, how, draft="eagle") for how in WAYS),
    ]
    both = high_temperature({"rows": [*rows(0.9)["rows"], *partial]})
    assert "| eagle | drawn | 0.50 | 0.40 | – |" in both.finding
