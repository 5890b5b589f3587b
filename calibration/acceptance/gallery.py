"""What the committed measurements show, as tables: acceptance by method and temperature, by draft length, by
tree, and what typical acceptance costs. docs/acceptance_gallery.py prints and draws them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simulator.breakeven.theory import best_draft_length_of, tokens_per_verify

DATA = Path(__file__).resolve().parents[1] / "data"
ACCEPTANCE, TREES, TYPICAL = (DATA / f"{name}-smollm2.json" for name in ("acceptance", "trees", "typical"))
BY_TEMPERATURE_AT = 4
"""Draft length at which drafters and temperatures are compared."""
COST_RATIOS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
"""Time of one more draft (its pass and its row to verify) ÷ time of a plain step."""
MOST_DRAFTS = 8
TOO_LONG = (4, 8, 12, 16)

Rows = Sequence[Mapping[str, Any]]


class Shown(NamedTuple):
    """A table as text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """As Markdown, figures to the right."""
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.columns, rule, *self.rows))


def read(path: Path) -> Mapping[str, Any] | None:
    """The measurement in a file; None where it is not made yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def chosen(rows: Rows, **wanted: Any) -> list[Mapping[str, Any]]:
    """The rows that have these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def distinct(rows: Rows, key: str) -> list[Any]:
    """The values of a key, in the order in which they first come."""
    return list(dict.fromkeys(row[key] for row in rows))


def interval(figure: Mapping[str, Any] | None, digits: int = 2) -> str:
    """`0.79 ± 0.03`, half the width of the interval; a dash where nothing was measured."""
    if figure is None or figure["value"] is None:
        return "–"
    ends = figure.get("ci95")
    text = f"{figure['value']:.{digits}f}"
    return text if ends is None else f"{text} ± {(ends[1] - ends[0]) / 2:.{digits}f}"


class Curve(NamedTuple):
    """One drafter in one domain: α by temperature, with half the interval."""

    draft: str
    domain: str
    draft_sampling: str
    temperatures: tuple[float, ...]
    alphas: tuple[float, ...]
    halves: tuple[float, ...]


def alpha_curves(rows: Rows) -> list[Curve]:
    """α by temperature of every drafter, domain and way of drafting, at `BY_TEMPERATURE_AT` drafts.

    Temperature 0 is greedy for both ways of drafting. With a tree it is the first candidate's.
    """
    at = chosen(rows, draft_length=BY_TEMPERATURE_AT)
    curves = []
    for draft in distinct(at, "draft"):
        for domain in distinct(at, "domain"):
            for how in ("greedy", "sampled"):
                of = [
                    row for row in chosen(at, draft=draft, domain=domain) if row["alpha_from_distributions"]
                ]
                own = {row["temperature"]: row for row in of if row["draft_sampling"] == how}
                cold = {row["temperature"]: row for row in of if row["temperature"] == 0.0}
                found = [row for _, row in sorted((cold | own).items())]
                if not own or len(found) < 2:
                    continue
                alphas = [row["alpha_from_distributions"] for row in found]
                ends = [one["ci95"] or (one["value"], one["value"]) for one in alphas]
                curves.append(
                    Curve(
                        draft,
                        domain,
                        how,
                        tuple(row["temperature"] for row in found),
                        tuple(one["value"] for one in alphas),
                        tuple((high - low) / 2 for low, high in ends),
                    )
                )
    return curves


def mean_over_domains(curves: Sequence[Curve]) -> dict[float, float]:
    """α by temperature, the mean of the curves that have it."""
    found: dict[float, list[float]] = {}
    for curve in curves:
        for temperature, alpha in zip(curve.temperatures, curve.alphas, strict=True):
            found.setdefault(temperature, []).append(alpha)
    return {temperature: sum(alphas) / len(alphas) for temperature, alphas in sorted(found.items())}


def alpha_table(curves: Sequence[Curve]) -> Shown:
    """α by method, domain and temperature."""
    temperatures = sorted({one for curve in curves for one in curve.temperatures})
    rows = []
    for curve in curves:
        at = {
            temperature: f"{alpha:.2f} ± {half:.2f}"
            for temperature, alpha, half in zip(curve.temperatures, curve.alphas, curve.halves, strict=True)
        }
        drafts = "best tokens" if curve.draft_sampling == "greedy" else "drawn"
        rows.append([curve.draft, curve.domain, drafts, *(at.get(one, "–") for one in temperatures)])
    return Shown(["drafter", "domain", "drafts", *(f"T = {one:g}" for one in temperatures)], rows)


class Lengths(NamedTuple):
    """Tokens per verify by draft length, measured and by two theories.

    `geometric` knows the acceptance at K = 1 alone. `positional` knows how often each position of the longest
    drafts was reached.
    """

    label: str
    draft_lengths: tuple[int, ...]
    measured: tuple[Mapping[str, Any], ...]
    geometric: tuple[float, ...]
    positional: tuple[float, ...]


def length_curves(rows: Rows, draft: str) -> list[Lengths]:
    """Tokens per verify against K of one drafter, for every domain and setting with a scan of K."""
    of = [row for row in chosen(rows, draft=draft) if 1 <= row["draft_length"] <= MOST_DRAFTS]
    curves = []
    for temperature in distinct(of, "temperature"):
        for how in distinct(of, "draft_sampling"):
            for domain in distinct(of, "domain"):
                scan = chosen(of, temperature=temperature, draft_sampling=how, domain=domain)
                by_length = {row["draft_length"]: row for row in scan}
                if len(by_length) < 4 or 1 not in by_length:
                    continue
                lengths = sorted(by_length)
                alpha = by_length[1]["mean_acceptance_length"]["value"] - 1.0
                survival = [one["value"] for one in by_length[lengths[-1]]["acceptance_rate_at"]]
                drafts = "" if temperature == 0.0 else ", best tokens" if how == "greedy" else ", drawn"
                curves.append(
                    Lengths(
                        f"{domain}, T = {temperature:g}{drafts}",
                        tuple(lengths),
                        tuple(by_length[k]["mean_acceptance_length"] for k in lengths),
                        tuple(tokens_per_verify(alpha, k) for k in lengths),
                        tuple(1.0 + sum(survival[:k]) for k in lengths),
                    )
                )
    return curves


def length_table(curves: Sequence[Lengths]) -> Shown:
    """Tokens per verify against K, the theories beside."""
    lengths = sorted({k for curve in curves for k in curve.draft_lengths})
    rows = []
    for curve in curves:
        for name, values in (
            ("measured", [interval(one) for one in curve.measured]),
            ("geometric, from K = 1", [f"{one:.2f}" for one in curve.geometric]),
            (f"by position, from K = {curve.draft_lengths[-1]}", [f"{one:.2f}" for one in curve.positional]),
        ):
            at = dict(zip(curve.draft_lengths, values, strict=True))
            rows.append([curve.label, name, *(at.get(k, "–") for k in lengths)])
    return Shown(["requests", "E", *(f"K = {k}" for k in lengths)], rows)


def best_length_table(curves: Sequence[Lengths]) -> Shown:
    """The best K and its speedup by the cost ratio, from the measured lengths; 0: better not to draft."""
    rows = []
    for curve in curves:
        tokens = [1.0, *(one["value"] for one in curve.measured)]
        steps = (0, *curve.draft_lengths)
        cells = []
        for ratio in COST_RATIOS:
            cycle_s = [1.0 + ratio * k for k in steps]
            best = best_draft_length_of(tokens, cycle_s)
            cells.append(f"{steps[best]} ({tokens[best] / cycle_s[best]:.2f} ×)")
        rows.append([curve.label, *cells])
    return Shown(["requests", *(f"cost ratio {ratio:g}" for ratio in COST_RATIOS)], rows)


def too_long_table(rows: Rows, draft: str) -> Shown | None:
    """What drafts beyond the useful length do at temperature 0: E stands still, the speed falls."""
    cold = chosen(rows, draft=draft, temperature=0.0)
    lengths = [k for k in TOO_LONG if any(row["draft_length"] == k for row in cold)]
    if len(lengths) < 2:
        return None
    shown: list[list[str]] = []
    for domain in distinct(cold, "domain"):
        at = {row["draft_length"]: row["mean_acceptance_length"] for row in chosen(cold, domain=domain)}
        shown.append([domain, "E", *(interval(at.get(k)) for k in lengths)])
        for ratio in COST_RATIOS[:4]:
            speeds = [f"{at[k]['value'] / (1.0 + ratio * k):.2f}" if k in at else "–" for k in lengths]
            shown.append([domain, f"× plain, cost ratio {ratio:g}", *speeds])
    return Shown(["requests", "", *(f"K = {k}" for k in lengths)], shown)


def quantised_table(rows: Rows) -> Shown | None:
    """α of the target's own weights rounded to fewer bits."""
    at = [
        row for row in chosen(rows, draft_length=BY_TEMPERATURE_AT) if row["draft"].startswith("quantised:")
    ]
    bits = sorted(distinct(at, "draft"), key=lambda draft: int(draft.partition(":")[2]))
    ways = ((0.0, "greedy", "T = 0"), (1.0, "greedy", "T = 1, best tokens"), (1.0, "sampled", "T = 1, drawn"))
    shown = []
    for draft in bits:
        for domain in distinct(at, "domain"):
            cells = []
            for temperature, how, _ in ways:
                found = chosen(at, draft=draft, domain=domain, temperature=temperature, draft_sampling=how)
                cells.append(interval(found[0]["alpha_from_distributions"] if found else None))
            shown.append([draft.replace(":", ", ") + " bits", domain, *cells])
    return Shown(["drafter", "domain", *(name for *_, name in ways)], shown) if bits else None


def tree_table(trees: Mapping[str, Any]) -> Shown:
    """Plans of drafts by mean acceptance length."""
    rows = [
        [row["plan"], f"{row['nodes']}", f"{row['depth']}", interval(row["mean_acceptance_length"])]
        for row in trees["plans"]
    ]
    return Shown(["drafts", "most nodes", "most levels", "E, mean over requests"], rows)


def typical_table(typical: Mapping[str, Any]) -> Shown:
    """The exact rule and Medusa's."""
    rows = [
        [
            f"T = {row['temperature']:g}, {'best tokens' if row['draft_sampling'] == 'greedy' else 'drawn'}",
            interval(row["exact"]),
            interval(row["typical"]),
            f"{row['distortion']:.2f}",
        ]
        for row in typical["rows"]
    ]
    return Shown(
        ["drafts", "E, exact rule", "E, typical acceptance", "its law's distance from the target's"], rows
    )
