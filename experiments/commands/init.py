"""`decodesim init`: a scenario file from a few flags, with every key explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from experiments.commands.options import flags_of, json_option, read_scenario, scenario_flags, writes_file
from experiments.commands.output import note, print_json


@click.command()
@scenario_flags
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change one field of the scenario."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; default stdout.",
)
@json_option
@writes_file
def command(output: Path | None, as_json: bool, overrides: tuple[str, ...], **flags_given: Any) -> None:
    """Write a scenario file from a few flags; without flags, the example.

    The file contains every key with its default and its meaning.
    """
    from simulator.scenario import relocated, scenario_yaml
    from simulator.scenario.flags import EXAMPLE

    flags = flags_of(flags_given)
    if all(value is None for value in flags.values()):
        flags = dict(EXAMPLE)
    scenario = read_scenario(None, overrides, flags)
    if output is not None:
        scenario = relocated(scenario, output.parent)
        output.write_text(scenario_yaml(scenario), "utf-8")
        note(f"wrote {output}; next: decodesim simulate {output}")
    if as_json:
        print_json(scenario.model_dump(mode="json"))
    elif output is None:
        click.echo(scenario_yaml(scenario), nl=False)
