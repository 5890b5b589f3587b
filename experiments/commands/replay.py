"""`decodesim replay`: the simulator fitted to the user's own baseline run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from experiments.commands.options import (
    check_new_file,
    json_option,
    lines_of,
    output_option,
    read_scenario,
    writes_file,
)
from experiments.commands.output import (
    note,
    note_compilation,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from simulator.units import format_number, format_seconds


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="BASELINE…")
@click.option(
    "--scenario", required=True, type=click.Path(path_type=Path, dir_okay=False),
    help="The scenario of the deployment. Load and lengths are those of the files.",
)  # fmt: skip
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change one field of the scenario."
)
@output_option("Write the fitted scenario to this file.")
@json_option
@writes_file
def command(
    files: tuple[str, ...],
    scenario: Path,
    overrides: tuple[str, ...],
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Fit host times to measured runs of plain decoding, and report how far all other figures are off.

    BASELINE… are files that `decodesim read` takes, of one load or several. What-ifs start from the fitted
    scenario.
    """
    from experiments.replay.baseline import baselines
    from experiments.replay.fit import replay
    from simulator.scenario import relocated, scenario_yaml

    if output is not None:
        check_new_file(output, force)
    loaded, runs = read_scenario(scenario, overrides, {}), baselines(files)
    note_compilation()
    with lines_of(loaded), progress_bar("fitting") as progress:
        answer = replay(loaded, runs, progress)
    if output is not None:
        output.write_text(scenario_yaml(relocated(answer.scenario, output.parent)), encoding="utf-8")
        note(f"wrote {output}; next: decodesim whatif {output} --set …")
    if as_json:
        print_json(answer.to_json())
    else:
        print_replay(answer.to_json())


def print_replay(document: Mapping[str, Any]) -> None:
    """Print the fitted host times, and measured next to simulated figures."""
    times = ", ".join(f"{path} {format_seconds(value)}" for path, value in document["fitted"].items())
    print_text(f"Fitted: {times}")
    for name, metrics in document["runs"].items():
        rows = [
            [
                metric.replace("_", " "),
                _value(metric, row["measured"]),
                _value(metric, row["simulated"]),
                f"{row['error']:+.1%}",
            ]
            for metric, row in metrics.items()
        ]
        print_table([f"{name}, ms unless stated", "measured", "simulated", "error"], rows)
    print_list("Notes", document["notes"])


def _value(metric: str, value: float) -> str:
    return f"{format_number(value)} tokens/s" if metric == "throughput" else format_number(value * 1e3)
