"""Writes docs/claims.md from the claims."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.acceptance.claims.claim import Claim, table
from calibration.acceptance.claims.engine_claims import engine_claims
from calibration.acceptance.claims.measured_claims import measured_claims
from calibration.acceptance.claims.published_claims import published_claims
from calibration.acceptance.claims.simulated_claims import simulated_claims

_HEAD = """# Rules of thumb, tested

Common claims about speculative decoding, with the figures that decide them. Written by
`python -m calibration.acceptance.claims`; not edited by hand. The scenario is
[examples/textbook-h100.yaml](../examples/textbook-h100.yaml) (Llama-3.3-70B in FP8 with EAGLE-3 on
four H100s, prompts of 500 tokens) with fewer requests. Brackets hold the band: sampling error, and ± 10 % on
the ratio of step times. α is the acceptance per token, given that all earlier drafts were accepted.
E is tokens per round."""


def all_claims() -> list[Claim]:
    """Every claim with its verdict: simulated, measured, published, of engines. Takes half a minute."""
    return [*simulated_claims(), *measured_claims(), *published_claims(), *engine_claims()]


def claims_page(claims: Sequence[Claim]) -> str:
    """The text of the page: a table of verdicts, then each claim with its figures."""
    rows = [[f"[{claim.rule}](#{anchor(heading(claim))})", _verdict(claim)] for claim in claims]
    parts = [_HEAD, table(["claim", "verdict"], rows)]
    for claim in claims:
        verdict = _verdict(claim)
        parts.append(f"## {heading(claim)}\n\n**{verdict[0].upper()}{verdict[1:]}.**\n\n{claim.finding}")
        parts.append(f"```bash\n{claim.rerun}\n```")
    return "\n\n".join(parts) + "\n"


def heading(claim: Claim) -> str:
    """The rule without its full stop."""
    return claim.rule.removesuffix(".")


def anchor(text: str) -> str:
    """The anchor that Markdown gives a heading: letters, digits and hyphens, in lower case."""
    letters = "".join(letter for letter in text.lower() if letter.isalnum() or letter in " -_")
    return letters.replace(" ", "-")


def _verdict(claim: Claim) -> str:
    return (
        claim.verdict
        if claim.borne_out
        else f"{claim.verdict} (to be judged again: the figures have changed)"
    )
