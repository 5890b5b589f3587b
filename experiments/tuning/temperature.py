"""How acceptance falls with the temperature, by the committed measurements of SmolLM2's drafters."""

from __future__ import annotations

from functools import cache
from statistics import fmean
from typing import NamedTuple

from calibration.acceptance import gallery

SOURCE = "SmolLM2-135M on code and prose, calibration/data/acceptance-smollm2.json"
DRAWN, BEST = "sampled", "greedy"


class TemperatureRow(NamedTuple):
    """α relative to temperature 0: of drafts that are best tokens, and of drawn ones."""

    temperature: float
    best_tokens: float
    drawn: float


@cache
def temperature_rows() -> tuple[TemperatureRow, ...]:
    """The mean over all drafters that were measured both ways at every temperature."""
    measured = gallery.read(gallery.ACCEPTANCE)
    curves = gallery.alpha_curves(measured["rows"]) if measured else []
    by_way = {
        way: {
            (c.draft, c.domain): dict(zip(c.temperatures, c.alphas, strict=True))
            for c in curves
            if c.draft_sampling == way
        }
        for way in (BEST, DRAWN)
    }
    pairs = [pair for pair in by_way[BEST] if pair in by_way[DRAWN]]
    longest = max((len(by_way[BEST][pair]) for pair in pairs), default=0)
    pairs = [pair for pair in pairs if len(by_way[BEST][pair]) == len(by_way[DRAWN][pair]) == longest]
    if not pairs:
        return ()
    temperatures = sorted(by_way[BEST][pairs[0]])
    cold = temperatures[0]

    def relative(way: str, temperature: float) -> float:
        return fmean(by_way[way][pair][temperature] for pair in pairs) / fmean(
            by_way[way][pair][cold] for pair in pairs
        )

    return tuple(TemperatureRow(t, relative(BEST, t), relative(DRAWN, t)) for t in temperatures)


def hottest(alpha: float, needed: float, way: str) -> float | None:
    """The highest measured temperature up to which `alpha` stays above `needed`; None where it never does."""
    answer = None
    for row in temperature_rows():
        if alpha * (row.best_tokens if way == BEST else row.drawn) < needed:
            break
        answer = row.temperature
    return answer
