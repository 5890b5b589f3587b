"""Rules of thumb that the committed measurement on SmolLM2-135M answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.acceptance import gallery
from calibration.acceptance.claims.claim import Claim, table

_VOCABULARY = 49_152
_REMEASURE = (
    "decodesim accept --target builtin --draft layer-skip --temperature 0,1,3 --draft-sampling greedy,sampled"
)
_RULE = "At high temperature α falls to 1 ÷ |vocabulary|."


def hot(measured: Mapping[str, Any] | None) -> Claim:
    """α falls to 1/|vocabulary|."""
    curves = gallery.alpha_curves(measured["rows"]) if measured else []
    both = {
        draft: [[one for one in curves if (one.draft, one.draft_sampling) == (draft, how)] for how in _WAYS]
        for draft in dict.fromkeys(curve.draft for curve in curves)
    }
    both = {draft: ways for draft, ways in both.items() if all(ways)}
    if not both:
        return Claim(_RULE, "not measured yet", "", "", _REMEASURE, borne_out=True)
    temperatures = sorted(
        {one for ways in both.values() for of in ways for curve in of for one in curve.temperatures}
    )
    cells, borne_out = [], True
    for draft, ways in both.items():
        for name, of in zip(("best tokens", "drawn"), ways, strict=True):
            mean = gallery.mean_over_domains(of)
            cells.append([draft, name, *(f"{mean[one]:.2f}" if one in mean else "–" for one in temperatures)])
            cold, heated = mean[min(mean)], mean[max(mean)]
            if max(mean) == temperatures[-1]:  # others were not measured where it is hot
                borne_out &= heated < cold / 2 if name == "best tokens" else heated > 0.8 * cold
    columns = ["drafter", "drafts", *(f"T = {one:g}" for one in temperatures)]
    return Claim(
        _RULE,
        "holds where",
        "the drafts are the drafter's best tokens, and then only in the limit; drawn at the same "
        "temperature they go on being accepted",
        "SmolLM2-135M, mean over code and prose, K = "
        f"{gallery.BY_TEMPERATURE_AT}:\n\n{table(columns, cells)}\n\n"
        f"A best token is accepted with p(x*), which a flat law makes 1 ÷ {_VOCABULARY:,} = "
        f"{1 / _VOCABULARY:.5f}. "
        "A drawn one with 1 − TV(p, q): heat flattens both laws, so that they come together.",
        _REMEASURE,
        borne_out=borne_out,
    )


_WAYS = ("greedy", "sampled")


def measured_claims() -> list[Claim]:
    """All of them, in the page's order."""
    return [hot(gallery.read(gallery.ACCEPTANCE))]
