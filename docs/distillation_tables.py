"""Writes the results of distillation.md from calibration/data/distillation.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.results.estimate import Estimate, mean_estimate

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "distillation.md"
DATA = ROOT / "calibration" / "data" / "distillation.json"
BEGIN, END = "<!-- results: python docs/distillation_tables.py -->", "<!-- end -->"
LADDER = {
    "eagle": "EAGLE: last feature, has to hit the next one",
    "eagle-without-regression": "… KL alone",
    "top-feature": "EAGLE-3's layer, last feature",
    "fused-features": "… three features fused",
    "eagle3": "… training-time test: EAGLE-3",
}
HEADS = {**LADDER, "medusa": "Medusa", "mtp": "MTP"}
ONE_DOMAIN = {
    "eagle": "both, and the target's own text",
    "eagle-code-only": "code",
    "eagle-prose-only": "prose",
}
DOMAINS = ("code", "prose", "conversation")
Run = Mapping[str, Any]


def shown(estimate: Run, digits: int = 3) -> str:
    """`0.412 ± 0.010` of an estimate's JSON."""
    low, high = estimate["ci95"] or (estimate["value"],) * 2
    return f"{estimate['value']:.{digits}f} ± {(high - low) / 2:.{digits}f}"


def difference(left: Run, right: Run, domain: str | None = None) -> Estimate:
    """α of one less that of another over the same held-out sequences, of one domain or all."""
    assert left["held_out"] == right["held_out"], "figures on different text cannot be paired"
    domains = left["held_out"]["domains"]
    pairs = zip(left["final"]["samples"], right["final"]["samples"], domains, strict=True)
    estimate = mean_estimate([alpha - other for alpha, other, of in pairs if domain in (None, of)])
    assert estimate is not None
    return estimate


def against_random(run: Run) -> Estimate:
    """α less that of the same network with random weights."""
    return difference(run, {"held_out": run["held_out"], "final": run["random_initialisation"]})


def beats(estimate: Estimate) -> bool:
    """Whether a difference is positive beyond its interval."""
    return estimate.ci95 is not None and estimate.ci95[0] > 0


def signed(estimate: Estimate) -> str:
    """`+0.120 ± 0.010`."""
    return f"{estimate.value:+.3f} ± {estimate.half_width:.3f}"


def complete(runs: Mapping[str, Run], names: Mapping[str, str], tokens: int) -> dict[str, Run]:
    """What is to be shown of each run of a budget that is done, by its text."""
    by_text = {text: runs.get(f"{key}-{tokens}") for key, text in names.items()}
    return {text: run for text, run in by_text.items() if run is not None and run["complete"]}


def student(runs: Mapping[str, Run]) -> list[str]:
    """α against tokens seen."""
    run = next((run for name, run in runs.items() if name.startswith("student-")), None)
    if run is None:
        return []
    curve = run["curve"]
    points = [point for place, point in enumerate(curve) if place < 4 or place % 4 == 0 or point is curve[-1]]
    state = "" if run["complete"] else f"; it has seen {run['tokens']:,} so far, and goes on"
    lines = [
        f"**Student**, a run over {run['plan']['tokens']:,} tokens{state}. On a third of the held-out "
        "text. Distilled drafters of the literature reach an α of 0.6–0.7, after a thousand times as many.",
        "",
        "| tokens seen | α | code | prose | conversation | same best token | KL, nats |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for point in points:
        domains = " | ".join(f"{point['alpha_in'][name]['value']:.3f}" for name in DOMAINS)
        same, kl = point["same"]["value"], point["kl"]["value"]
        lines.append(f"| {point['tokens']:,} | {shown(point['alpha'])} | {domains} | {same:.2f} | {kl:.2f} |")
    return [*lines, ""]


def heads(runs: Mapping[str, Run]) -> list[str]:
    """The ablation and the other heads, at each budget."""
    lines: list[str] = []
    for tokens in budgets(runs):
        done = complete(runs, HEADS, tokens)
        lines += [
            f"**Heads**, each on the same {tokens:,} tokens: acceptance at draft 1 to 5, given those before. "
            "Rows: predictions learned from per token of text.",
            "",
            "| head | rows | 1 | 2 | 3 | 4 | 5 | same best token |",
            "|---|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for text, run in done.items():
            places = [shown(estimate, 2) for estimate in run["final"]["conditional"]]
            places += ["–"] * (5 - len(places))
            same = f"{run['final']['same']['value']:.2f}"
            lines.append(f"| {text} | {run['rows_per_token']} | {' | '.join(places)} | {same} |")
        lines.append("")
    return lines


def budgets(runs: Mapping[str, Run]) -> list[int]:
    """Budgets at which a head of the ablation is done."""
    return sorted(
        {
            run["plan"]["tokens"]
            for run in runs.values()
            if run["complete"] and run["plan"]["kind"] != "student"
        }
    )


def comparisons(runs: Mapping[str, Run], skip: Run) -> list[str]:
    """Every drafter that is done against random weights and layer-skip, over the same sequences."""
    done = {name: run for name, run in runs.items() if run["complete"]}
    if not done:
        return []
    lines = [
        "**Against random weights and layer-skip**, over the same held-out sequences:",
        "",
        "| drafter | α | − random weights | − layer-skip |",
        "|---|--:|--:|--:|",
    ]
    for name, run in done.items():
        random, skipped = against_random(run), difference(run, skip)
        lines.append(f"| {name} | {shown(run['final']['alpha'])} | {signed(random)} | {signed(skipped)} |")
    return [*lines, "", verdict(done, skip), ""]


def verdict(done: Mapping[str, Run], skip: Run) -> str:
    """Which drafters do not beat random weights, and which not layer-skip."""
    behind_random = [name for name, run in done.items() if not beats(against_random(run))]
    behind_skip = [name for name, run in done.items() if not beats(difference(run, skip))]
    first = (
        f"No better than random weights: {', '.join(behind_random)}."
        if behind_random
        else ("Every one beats random weights by more than the interval.")
    )
    if not behind_skip:
        return f"{first} Every one beats layer-skip by more than the interval."
    return (
        f"{first} Not better than layer-skip beyond the interval: {', '.join(behind_skip)}. Layer-skip "
        f"leaves out a fifth of the layers (α {shown(skip['final']['alpha'])}), four fifths of the target's "
        "price; a head costs a thirtieth of its layers. What that is worth is the simulator's question."
    )


def shift(runs: Mapping[str, Run], tokens: int) -> list[str]:
    """EAGLE trained on one domain, judged on each."""
    done = complete(runs, ONE_DOMAIN, tokens)
    if len(done) < len(ONE_DOMAIN):
        return []
    lines = [
        f"**Domain shift**: EAGLE on {tokens:,} tokens of one domain, α on each.",
        "",
        f"| learned from | {' | '.join(DOMAINS)} |",
        "|---|--:|--:|--:|",
    ]
    for text, run in done.items():
        lines.append(f"| {text} | {' | '.join(shown(run['final']['alpha_in'][name]) for name in DOMAINS)} |")
    code, prose = done["code"], done["prose"]
    gains = [signed(difference(code, prose, "code")), signed(difference(prose, code, "prose"))]
    lines += ["", f"The right domain is worth {gains[0]} on code and {gains[1]} on prose.", ""]
    return lines


def results(document: Run | None) -> str:
    """What stands between the marks."""
    if document is None:
        return "No run has been committed yet."
    runs, skip = document["runs"], document["layer_skip"]
    tokens = budgets(runs)
    parts = [
        *student(runs),
        *heads(runs),
        *comparisons(runs, skip),
        *(shift(runs, tokens[0]) if tokens else []),
    ]
    return "\n".join(parts).rstrip("\n")


def committed() -> Run | None:
    """The committed results; None before there are any."""
    document: Run | None = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else None
    return document


def written(page: str, document: Run | None) -> str:
    """Return the page with the results in place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{results(document)}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), committed()), encoding="utf-8")
