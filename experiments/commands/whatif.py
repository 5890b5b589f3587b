"""`decodesim whatif`: compares a scenario with variations of it on the same traffic and random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from experiments.commands.options import (
    flags_of,
    json_option,
    lines_of,
    precision_option,
    precision_override,
    read_scenario,
    scenario_flags,
)
from experiments.commands.output import (
    NOTHING,
    estimate_text,
    interval_text,
    note_compilation,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from simulator.errors import InputError, Problem
from simulator.results.catalogue import label_of, metric_of, paths_shown
from simulator.results.metric import Detail

_VERDICT_WORDS = {"pays": "better", "loses": "worse"}
_UNCHANGED = 5e-4
"""Ratios this near to 1, their intervals included, are called the same."""
_LEGEND = (
    "×: ratio to the original scenario, ± 95 % of sampling, paired by replication (omitted below 0.005). The "
    "sentences state the band with the cost model's error."
)


@click.command()
@click.argument("scenario", required=False, type=click.Path(path_type=Path))
@scenario_flags
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE",
    help="Change one field. All --set together make one alternative.",
)  # fmt: skip
@click.option(
    "--versus", multiple=True, metavar="PATH=VALUE;…",
    help="Another alternative; separate its settings with semicolons.",
)  # fmt: skip
@click.option(
    "--base",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change one field in SCENARIO and in all alternatives.",
)
@precision_option
@json_option
def command(
    scenario: Path | None,
    settings: tuple[str, ...],
    versus: tuple[str, ...],
    base: tuple[str, ...],
    precision: str | None,
    as_json: bool,
    **flags_given: Any,
) -> None:
    """Compare SCENARIO with alternatives that change some of its fields, on the same random numbers.

    decodesim whatif my.yaml --set hardware.gpu=h200-sxm --versus 'hardware.tensor_parallel=8' --versus
    'speculation.eagle3-k3.acceptance.alpha=0.8; speculation.eagle3-k3.draft_length=5'
    """
    from experiments.alternatives import alternatives_of
    from experiments.whatif import what_if

    settings_of_alternatives = [*([settings] if settings else []), *(text.split(";") for text in versus)]
    if not settings_of_alternatives:
        allowed = "--set hardware.gpu=h200-sxm, for example"
        raise InputError(
            Problem(field="--set", message="is missing, so there is no alternative", allowed=allowed)
        )
    alternatives = alternatives_of(settings_of_alternatives)
    loaded = read_scenario(scenario, (*base, *precision_override(precision)), flags_of(flags_given))
    note_compilation()
    with lines_of(loaded), progress_bar("comparing") as progress:
        document = what_if(loaded, alternatives, progress).to_json()
    if as_json:
        print_json(document)
    else:
        print_what_if(document)


def print_what_if(document: Mapping[str, Any]) -> None:
    """The answer for people: a sentence for each alternative and variant, and one table of all."""
    alternatives = document["alternatives"]
    print_text(f"{document['baseline']}: what if …")
    for alternative in alternatives:
        for sentence in _sentences(alternative, document["metric"]):
            print_text(f"→ {alternative['name']}: {sentence}")
    fitting = [alternative for alternative in alternatives if not alternative["why_not"]]
    if fitting:
        headings = ["", "as it is", *(alternative["name"] for alternative in fitting)]
        print_table(headings, [list(row) for row in _rows(fitting)])
        print_text(_LEGEND)
    print_list("Notes", document["notes"])


def _sentences(alternative: Mapping[str, Any], metric: str) -> Iterator[str]:
    if alternative["why_not"]:
        yield f"does not fit: {alternative['why_not']}"
        return
    metric_name = "throughput" if metric.startswith("throughput") else "mean TPOT"
    for name, variant in alternative["arms"].items():
        ratio = variant["figures"].get(metric, {}).get("ratio")
        if _is_unchanged(ratio):
            yield f"{name}: as before"
            continue
        change_text = (
            "has no figure on both sides"
            if ratio is None
            else f"× {ratio['value']:.2f} ({interval_text(ratio['band'])})"
        )
        verdict = _VERDICT_WORDS.get(variant["verdict"], variant["verdict"])
        text = f"{name}: {verdict}: {metric_name} {change_text}"
        speedup = variant["speedup"]
        if speedup is not None and speedup["baseline"] and speedup["alternative"]:
            before, after = speedup["baseline"]["value"], speedup["alternative"]["value"]
            text += f"; its gain over plain goes from × {before:.2f} to × {after:.2f}"
        yield text


def _is_unchanged(ratio: Mapping[str, Any] | None) -> bool:
    """Whether nothing changed, the interval included."""
    ends = () if ratio is None else (ratio["value"], *(ratio["band"] or ratio["ci95"] or ()))
    return bool(ends) and all(abs(end - 1) < _UNCHANGED for end in ends)


def _rows(alternatives: list[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for name in dict.fromkeys(variant for alternative in alternatives for variant in alternative["arms"]):
        variants = [alternative["arms"].get(name) for alternative in alternatives]
        for path in paths_shown(Detail.SUMMARY):
            label, scale = label_of(path), metric_of(path).scale
            changes = [variant and variant["figures"].get(path) for variant in variants]
            changes_present = [change for change in changes if change]
            if changes_present:
                before = estimate_text(changes_present[0]["baseline"], scale)
                yield f"{name}: {label}", before, *(_cell(change, scale) for change in changes)
        speedups = [variant and variant["speedup"] for variant in variants]
        if any(speedups):
            before = next(estimate_text(speedup["baseline"]) for speedup in speedups if speedup)
            yield f"{name}: gain over plain", before, *(_cell(speedup, 1.0) for speedup in speedups)


def _cell(change: Mapping[str, Any] | None, scale: float) -> str:
    """`1,234 (× 1.12 ± 0.01)`."""
    if not change or change["alternative"] is None:
        return NOTHING
    ratio = change["ratio"]
    if _is_unchanged(ratio):
        return "same"
    value = estimate_text({"value": change["alternative"]["value"]}, scale)
    if ratio is None:
        return value
    half = (ratio["ci95"][1] - ratio["ci95"][0]) / 2 if ratio["ci95"] else 0.0
    return f"{value} (× {ratio['value']:.2f}" + (f" ± {half:.2f})" if half >= 0.005 else ")")
