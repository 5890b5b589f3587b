"""The page of rules of thumb says what the figures say today."""

from __future__ import annotations

import re

from calibration.acceptance.claims.claim import Claim
from calibration.acceptance.claims.page import all_claims, anchor, claims_page, heading
from tests.shared_data import ROOT

PAGE = ROOT / "docs" / "claims.md"


def test_the_page_is_what_its_command_writes_and_every_verdict_is_borne_out() -> None:
    claims = all_claims()
    assert [claim.rule for claim in claims if not claim.borne_out] == []
    assert claims_page(claims) == PAGE.read_text(encoding="utf-8"), "python -m calibration.acceptance.claims"


def test_links_of_the_table_lead_to_their_claims() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = {anchor(line.removeprefix("## ")) for line in text.splitlines() if line.startswith("## ")}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) == headings


def test_a_verdict_that_the_figures_left_is_marked() -> None:
    claim = Claim("Water flows uphill.", "wrong", "", "1 m down.", "decodesim methods", borne_out=False)
    assert heading(claim) == "Water flows uphill"
    assert "judged anew" in claims_page([claim])
