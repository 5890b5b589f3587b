"""Tables of the committed measurements: acceptance by method and temperature, by draft length, by tree, and
the cost of typical acceptance. docs/acceptance_gallery.py prints and draws them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calibration.text_table import TextTable
from simulator.breakeven.theory import best_draft_length_of, tokens_per_verify

DATA = Path(__file__).resolve().parents[1] / "data"
ACCEPTANCE, TREES, TYPICAL = (DATA / f"{name}-smollm2.json" for name in ("acceptance", "trees", "typical"))
BY_TEMPERATURE_AT = 4
"""Draft length at which drafters and temperatures are compared."""
COST_RATIOS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
"""Time of one more draft (its pass and its row in verification) ÷ time of a plain step."""
MAX_DRAFTS = 8
LONG_DRAFTS = (4, 8, 12, 16)

JsonRows = Sequence[Mapping[str, Any]]


def read(path: Path) -> Mapping[str, Any] | None:
    """The measurement in a file; None if it has not been made yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def select(rows: JsonRows, **values: Any) -> list[Mapping[str, Any]]:
    """The rows that have these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in values.items())]


def distinct(rows: JsonRows, key: str) -> list[Any]:
    """The distinct values of a key, in order of first appearance."""
    return list(dict.fromkeys(row[key] for row in rows))


def interval(figure: Mapping[str, Any] | None, digits: int = 2) -> str:
    """A figure with half the width of its interval, `0.79 ± 0.03`; a dash if nothing was measured."""
    if figure is None or figure["value"] is None:
        return "–"
    ends = figure.get("ci95")
    text = f"{figure['value']:.{digits}f}"
    return text if ends is None else f"{text} ± {(ends[1] - ends[0]) / 2:.{digits}f}"


class AlphaCurve(NamedTuple):
    """One drafter in one domain: α by temperature, with half-widths of the intervals."""

    draft: str
    domain: str
    draft_sampling: str
    temperatures: tuple[float, ...]
    alphas: tuple[float, ...]
    half_widths: tuple[float, ...]


def alpha_curves(rows: JsonRows) -> list[AlphaCurve]:
    """α by temperature for every drafter, domain and draft sampling, at `BY_TEMPERATURE_AT` drafts.

    Temperature 0 is greedy for both kinds of draft sampling. For a tree, α is that of the first candidate.
    """
    fixed_length = select(rows, draft_length=BY_TEMPERATURE_AT)
    curves = []
    for draft in distinct(fixed_length, "draft"):
        for domain in distinct(fixed_length, "domain"):
            for sampling in ("greedy", "sampled"):
                measured = [
                    row
                    for row in select(fixed_length, draft=draft, domain=domain)
                    if row["alpha_from_distributions"]
                ]
                hot = {row["temperature"]: row for row in measured if row["draft_sampling"] == sampling}
                greedy = {row["temperature"]: row for row in measured if row["temperature"] == 0.0}
                curve_rows = [row for _, row in sorted((greedy | hot).items())]
                if not hot or len(curve_rows) < 2:
                    continue
                alphas = [row["alpha_from_distributions"] for row in curve_rows]
                ends = [alpha["ci95"] or (alpha["value"], alpha["value"]) for alpha in alphas]
                curves.append(
                    AlphaCurve(
                        draft,
                        domain,
                        sampling,
                        tuple(row["temperature"] for row in curve_rows),
                        tuple(alpha["value"] for alpha in alphas),
                        tuple((high - low) / 2 for low, high in ends),
                    )
                )
    return curves


def mean_over_domains(curves: Sequence[AlphaCurve]) -> dict[float, float]:
    """α by temperature, averaged over the curves that have it."""
    alphas_by_temperature: dict[float, list[float]] = {}
    for curve in curves:
        for temperature, alpha in zip(curve.temperatures, curve.alphas, strict=True):
            alphas_by_temperature.setdefault(temperature, []).append(alpha)
    return {
        temperature: sum(alphas) / len(alphas)
        for temperature, alphas in sorted(alphas_by_temperature.items())
    }


def alpha_table(curves: Sequence[AlphaCurve]) -> TextTable:
    """α by method, domain and temperature."""
    temperatures = sorted({t for curve in curves for t in curve.temperatures})
    rows = []
    for curve in curves:
        cells = {
            temperature: f"{alpha:.2f} ± {half:.2f}"
            for temperature, alpha, half in zip(
                curve.temperatures, curve.alphas, curve.half_widths, strict=True
            )
        }
        drafts = "best tokens" if curve.draft_sampling == "greedy" else "drawn"
        rows.append([curve.draft, curve.domain, drafts, *(cells.get(t, "–") for t in temperatures)])
    return TextTable(["drafter", "domain", "drafts", *(f"T = {t:g}" for t in temperatures)], rows)


class LengthCurve(NamedTuple):
    """Tokens per verify by draft length, measured and by two theories.

    `geometric` uses only the acceptance at K = 1. `positional` uses the acceptance rate at each position of
    the longest drafts.
    """

    label: str
    draft_lengths: tuple[int, ...]
    measured: tuple[Mapping[str, Any], ...]
    geometric: tuple[float, ...]
    positional: tuple[float, ...]


def length_curves(rows: JsonRows, draft: str) -> list[LengthCurve]:
    """Tokens per verify by K for one drafter, for every domain and setting with several K."""
    drafter_rows = [row for row in select(rows, draft=draft) if 1 <= row["draft_length"] <= MAX_DRAFTS]
    curves = []
    for temperature in distinct(drafter_rows, "temperature"):
        for sampling in distinct(drafter_rows, "draft_sampling"):
            for domain in distinct(drafter_rows, "domain"):
                setting_rows = select(
                    drafter_rows, temperature=temperature, draft_sampling=sampling, domain=domain
                )
                by_length = {row["draft_length"]: row for row in setting_rows}
                if len(by_length) < 4 or 1 not in by_length:
                    continue
                lengths = sorted(by_length)
                alpha = by_length[1]["mean_acceptance_length"]["value"] - 1.0
                survival = [rate["value"] for rate in by_length[lengths[-1]]["acceptance_rate_at"]]
                drafts = "" if temperature == 0.0 else ", best tokens" if sampling == "greedy" else ", drawn"
                curves.append(
                    LengthCurve(
                        f"{domain}, T = {temperature:g}{drafts}",
                        tuple(lengths),
                        tuple(by_length[k]["mean_acceptance_length"] for k in lengths),
                        tuple(tokens_per_verify(alpha, k) for k in lengths),
                        tuple(1.0 + sum(survival[:k]) for k in lengths),
                    )
                )
    return curves


def length_table(curves: Sequence[LengthCurve]) -> TextTable:
    """Tokens per verify by K, measured and by the theories."""
    lengths = sorted({k for curve in curves for k in curve.draft_lengths})
    rows = []
    for curve in curves:
        for name, values in (
            ("measured", [interval(length) for length in curve.measured]),
            ("geometric, from K = 1", [f"{length:.2f}" for length in curve.geometric]),
            (
                f"by position, from K = {curve.draft_lengths[-1]}",
                [f"{length:.2f}" for length in curve.positional],
            ),
        ):
            cells = dict(zip(curve.draft_lengths, values, strict=True))
            rows.append([curve.label, name, *(cells.get(k, "–") for k in lengths)])
    return TextTable(["requests", "E", *(f"K = {k}" for k in lengths)], rows)


def best_length_table(curves: Sequence[LengthCurve]) -> TextTable:
    """The best K and its speedup by cost ratio, from the measured lengths; K = 0 means that drafting does not
    pay.
    """
    rows = []
    for curve in curves:
        tokens = [1.0, *(length["value"] for length in curve.measured)]
        steps = (0, *curve.draft_lengths)
        cells = []
        for ratio in COST_RATIOS:
            cycle_s = [1.0 + ratio * k for k in steps]
            best = best_draft_length_of(tokens, cycle_s)
            cells.append(f"{steps[best]} ({tokens[best] / cycle_s[best]:.2f} ×)")
        rows.append([curve.label, *cells])
    return TextTable(["requests", *(f"cost ratio {ratio:g}" for ratio in COST_RATIOS)], rows)


def too_long_table(rows: JsonRows, draft: str) -> TextTable | None:
    """The effect of drafts beyond the useful length at temperature 0: E stops rising and the speed falls."""
    greedy_rows = select(rows, draft=draft, temperature=0.0)
    lengths = [k for k in LONG_DRAFTS if any(row["draft_length"] == k for row in greedy_rows)]
    if len(lengths) < 2:
        return None
    lines: list[list[str]] = []
    for domain in distinct(greedy_rows, "domain"):
        by_length = {
            row["draft_length"]: row["mean_acceptance_length"] for row in select(greedy_rows, domain=domain)
        }
        lines.append([domain, "E", *(interval(by_length.get(k)) for k in lengths)])
        for ratio in COST_RATIOS[:4]:
            speeds = [
                f"{by_length[k]['value'] / (1.0 + ratio * k):.2f}" if k in by_length else "–" for k in lengths
            ]
            lines.append([domain, f"× plain, cost ratio {ratio:g}", *speeds])
    return TextTable(["requests", "", *(f"K = {k}" for k in lengths)], lines)


def quantised_table(rows: JsonRows) -> TextTable | None:
    """α of drafters that are the target with weights rounded to fewer bits."""
    fixed_length = [
        row for row in select(rows, draft_length=BY_TEMPERATURE_AT) if row["draft"].startswith("quantised:")
    ]
    bits = sorted(distinct(fixed_length, "draft"), key=lambda draft: int(draft.partition(":")[2]))
    settings = (
        (0.0, "greedy", "T = 0"),
        (1.0, "greedy", "T = 1, best tokens"),
        (1.0, "sampled", "T = 1, drawn"),
    )
    lines = []
    for draft in bits:
        for domain in distinct(fixed_length, "domain"):
            cells = []
            for temperature, sampling, _ in settings:
                matches = select(
                    fixed_length, draft=draft, domain=domain, temperature=temperature, draft_sampling=sampling
                )
                cells.append(interval(matches[0]["alpha_from_distributions"] if matches else None))
            lines.append([draft.replace(":", ", ") + " bits", domain, *cells])
    return TextTable(["drafter", "domain", *(name for *_, name in settings)], lines) if bits else None


def tree_table(trees: Mapping[str, Any]) -> TextTable:
    """Mean acceptance length by tree plan."""
    rows = [
        [row["plan"], f"{row['nodes']}", f"{row['depth']}", interval(row["mean_acceptance_length"])]
        for row in trees["plans"]
    ]
    return TextTable(["drafts", "max nodes", "max levels", "E, mean over requests"], rows)


def typical_table(typical: Mapping[str, Any]) -> TextTable:
    """Tokens per verify under the exact rule and Medusa's rule."""
    rows = [
        [
            f"T = {row['temperature']:g}, {'best tokens' if row['draft_sampling'] == 'greedy' else 'drawn'}",
            interval(row["exact"]),
            interval(row["typical"]),
            f"{row['distortion']:.2f}",
        ]
        for row in typical["rows"]
    ]
    return TextTable(
        [
            "drafts",
            "E, exact rule",
            "E, typical acceptance",
            "distance of its distribution from the target's",
        ],
        rows,
    )
