"""Rules of thumb that are tested on the committed measurement of SmolLM2-135M."""

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


def high_temperature(measured: Mapping[str, Any] | None) -> Claim:
    """α falls to 1 ÷ |vocabulary|."""
    curves = gallery.alpha_curves(measured["rows"]) if measured else []
    curves_by_drafter = {
        draft: [
            [curve for curve in curves if (curve.draft, curve.draft_sampling) == (draft, how)]
            for how in _WAYS
        ]
        for draft in dict.fromkeys(curve.draft for curve in curves)
    }
    curves_by_drafter = {draft: ways for draft, ways in curves_by_drafter.items() if all(ways)}
    if not curves_by_drafter:
        return Claim(_RULE, "not measured yet", "", "", _REMEASURE, borne_out=True)
    temperatures = sorted(
        {
            t
            for pair in curves_by_drafter.values()
            for curves in pair
            for curve in curves
            for t in curve.temperatures
        }
    )
    rows, borne_out = [], True
    for draft, ways in curves_by_drafter.items():
        for name, way_curves in zip(("best tokens", "drawn"), ways, strict=True):
            mean = gallery.mean_over_domains(way_curves)
            rows.append([draft, name, *(f"{mean[t]:.2f}" if t in mean else "–" for t in temperatures)])
            cold_alpha, hot_alpha = mean[min(mean)], mean[max(mean)]
            if max(mean) == temperatures[-1]:  # skips drafters that were not measured at high temperature
                borne_out &= (
                    hot_alpha < cold_alpha / 2 if name == "best tokens" else hot_alpha > 0.8 * cold_alpha
                )
    columns = ["drafter", "drafts", *(f"T = {t:g}" for t in temperatures)]
    return Claim(
        _RULE,
        "holds where",
        "the drafts are the drafter's best tokens, and even then only in the limit; drafts drawn at the same "
        "temperature are still accepted",
        "SmolLM2-135M, mean over code and prose, K = "
        f"{gallery.BY_TEMPERATURE_AT}:\n\n{table(columns, rows)}\n\nA best token is accepted with "
        f"probability p(x*), which is 1 ÷ {_VOCABULARY:,} = {1 / _VOCABULARY:.5f} for a flat distribution. A "
        "drawn token is accepted with probability 1 − TV(p, q): a high temperature flattens both "
        "distributions, so that they become alike. vLLM takes the best tokens by default, so its users see α "
        'fall. From 0.27 on, `"draft_sample_method": "probabilistic"` in `speculative_config` draws them.',
        _REMEASURE,
        borne_out=borne_out,
    )


_WAYS = ("greedy", "sampled")


def measured_claims() -> list[Claim]:
    """All measured claims, in the order of the page."""
    return [high_temperature(gallery.read(gallery.ACCEPTANCE))]
