"""Maps every quantity that sources publish to a figure of a prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping

from calibration.validation.predict import PLAIN, SPEC, Prediction
from calibration.validation.reconstruction.figures import SPEEDUP_TERMS
from simulator.results.catalogue import CATALOGUE, REPORTED_BY_CLIENTS

SPEEDUP, COST_SHARE, STEP_RATIO, CROSSOVER = "speedup", "cost_share", "step_ratio", "crossover_batch"
ACCEPTANCE_LENGTH = "acceptance_length"

PATHS: Mapping[str, str] = {
    "throughput": "throughput_tokens_per_s",
    **{
        f"{CATALOGUE[name].word}_{statistic}": f"{name}.{statistic}"
        for name in REPORTED_BY_CLIENTS
        for statistic in ("mean", "p99")
    },
    ACCEPTANCE_LENGTH: "mean_acceptance_length",
}
"""Quantity of one variant → path of its figure, SI."""

SMALLEST_SHARE = 1e-4
"""Share assigned to a part of a step that takes no time, because a predicted figure must be positive."""

QUANTITIES = (SPEEDUP, *PATHS, COST_SHARE, STEP_RATIO, CROSSOVER)

_STAGES: Mapping[str, str] = {"draft": "draft", "verify": "verify", "sampling": "accept", "host": "host"}
"""Part of a step in publications → stage of a uniform step."""


def predicted(
    prediction: Prediction,
    quantity: str,
    variant: str,
    part: str | None = None,
    speedup_of: str | None = None,
    per_token: bool = False,
) -> float:
    """The figure to compare with a published one, in SI units; NaN where the prediction has none.

    `per_token`: a published ITL is a gap divided by the tokens that end it.
    """
    if quantity == SPEEDUP:
        return speedup_of_figures(
            prediction.figures.get(PLAIN, {}), prediction.figures.get(SPEC, {}), speedup_of
        )
    if quantity == COST_SHARE:
        step = prediction.steps.get(variant, {})
        stage = _STAGES.get(part or "")
        return max(step[stage] / step["total"], SMALLEST_SHARE) if step and stage else math.nan
    if quantity == STEP_RATIO:
        plain, spec = prediction.steps.get(PLAIN), prediction.steps.get(SPEC)
        return spec["verify"] / plain["verify"] if plain and spec else math.nan
    figures = prediction.figures.get(variant, {})
    path = PATHS.get(quantity, "")
    if per_token:
        path = path.replace("itl_s.", "itl_token_s.")
    figure = figures.get(path, math.nan)
    if (
        quantity == ACCEPTANCE_LENGTH
    ):  # sources average over all rounds, also those in which prompt lookup found nothing
        return 1 + (figure - 1) * figures.get("draft_coverage", math.nan)
    return figure


def speedup_of_figures(
    plain: Mapping[str, float], spec: Mapping[str, float], speedup_of: str | None = None
) -> float:
    """Speedup (> 1 is better) in the source's own terms; in output tokens/s where it names none that is
    known.
    """
    quantity, more_is_better = SPEEDUP_TERMS.get(speedup_of or "", SPEEDUP_TERMS["output_tok_per_s"])
    before, after = (figures.get(PATHS[quantity], math.nan) for figures in (plain, spec))
    if not (before > 0 and after > 0):
        return math.nan
    return after / before if more_is_better else before / after
