"""`decodesim compare`: two measured runs, without and with speculation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from experiments.commands.options import json_option, lines_of, read_scenario
from experiments.commands.output import (
    NOTHING,
    note_compilation,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from simulator.units import format_number

_LABELS = {
    "throughput": "throughput, tokens/s",
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL by chunk",
    "itl_token": "ITL by token",
    "e2e": "end to end",
}


@click.command()
@click.argument("base", metavar="BASE")
@click.argument("spec", metavar="SPEC")
@click.option(
    "--scenario",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The scenario of the deployment: what the simulator expects, next to what was measured.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change one field of the scenario."
)
@click.option("--arm", metavar="NAME", help="The variant that was measured; default the first.")
@json_option
def command(
    base: str, spec: str, scenario: Path | None, overrides: tuple[str, ...], arm: str | None, as_json: bool
) -> None:
    """Compare the run BASE without speculation and the run SPEC with it: speedups, causes, what to change.

    Each is a file that `decodesim read` takes, or several of one run with commas: before.txt,after.txt.
    """
    from calibration.telemetry.answer import read
    from experiments.compare.compare import compare
    from simulator.scenario import chosen_variant

    before, after = (read(_files(name)).to_json() for name in (base, spec))
    if scenario is None:
        answer = compare(before, after)
    else:
        loaded = read_scenario(scenario, overrides, {})
        note_compilation()
        with lines_of(loaded), progress_bar("comparing") as progress:
            variant = chosen_variant(loaded, arm, "compare")
            answer = compare(before, after, loaded, variant, progress)
    document = answer.to_json()
    if as_json:
        print_json(document)
    else:
        print_comparison(document)


def _files(text: str) -> tuple[str, ...]:
    """The files of one run."""
    return (text,) if Path(text).exists() else tuple(part for part in text.split(",") if part)


def print_comparison(document: Mapping[str, Any]) -> None:
    """Print speedups, causes in order, and the tail."""
    if document["speedup"]:
        print_speedups(document["speedup"])
    else:
        print_text("the two runs have no figure in common")
    print_causes("Causes, the largest first", document["causes"])
    if document["trap"]:
        names = ", ".join(_LABELS[name[:-2]] for name in document["trap"])
        print_text()
        print_text(f"The mean falls and the P99 of {names} rises:")
        print_list("What the tail is made of", [_tail(cause) for cause in document["tail"]])
    expected = document["expected"].get("throughput_speedup")
    if expected:
        tpot = document["expected"].get("tpot_mean_speedup")
        text = f"The simulator expects throughput × {expected['value']:.2f}"
        if tpot:
            text += f" and mean TPOT × {tpot['value']:.2f}"
        print_text()
        print_text(f"{text} for this configuration: {document['expected'].get('verdict') or NOTHING}")
    print_list("Notes", document["notes"])


def print_speedups(speedups: Mapping[str, Mapping[str, float]]) -> None:
    """Print figures of both runs, and their ratios."""
    rows = [
        [_label(name), _figure(name, entry["base"]), _figure(name, entry["spec"]), f"{entry['value']:.2f} ×"]
        for name, entry in speedups.items()
    ]
    print_table(["ms, unless stated", "without", "with", "speedup"], rows)


def print_causes(title: str, causes: Sequence[Mapping[str, Any]]) -> None:
    """Print causes with their effect, where one is known, their evidence, and what to change."""
    lines = [
        f"{_effect(cause['effect'])}[{cause['code']}] {cause['evidence']}. To change: {cause['fix']}"
        for cause in causes
    ]
    print_list(title, lines)


def _label(name: str) -> str:
    metric, _, statistic = name.rpartition("_")
    return f"{_LABELS[metric]} {statistic}" if metric else _LABELS[name]


def _figure(name: str, value: float) -> str:
    return format_number(value if name == "throughput" else value * 1e3)


def _effect(effect: float | None) -> str:
    return "" if effect is None else f"× {effect:.2f} "


def _tail(cause: Mapping[str, Any]) -> str:
    text = f"[{cause['code']}] {cause['evidence']}. To change: {cause['mitigation']}"
    figures = [
        f"{path.replace('_s.', ' ')} × {ratio:.2f}"
        for path, ratio in cause["predicted"].items()
        if ratio is not None
    ]
    if figures:
        text += f"; simulated with {', '.join(cause['settings'])}: {', '.join(figures)}"
    return text
