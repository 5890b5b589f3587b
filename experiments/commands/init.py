"""`decodesim init`: a scenario file from a launch configuration or a few flags, with every key explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from experiments.commands.launch_options import launch_options, launched
from experiments.commands.options import (
    check_new_file,
    flags_of,
    json_option,
    output_option,
    read_scenario,
    scenario_flags,
    writes_file,
)
from experiments.commands.output import note, print_json


@click.command()
@launch_options
@scenario_flags
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change one field of the scenario."
)
@output_option("The file to write; default stdout.")
@json_option
@writes_file
def command(
    output: Path | None, force: bool, as_json: bool, overrides: tuple[str, ...], **flags_given: Any
) -> None:
    """Write a scenario file from a launch configuration, from a few flags, or the example without either.

    The file contains every key with its default and its meaning. Flags replace what the launch states. A
    scenario that does not fit the GPUs is not written.
    """
    from simulator.runs.fit import fitting_variants
    from simulator.scenario import relocated, scenario_yaml
    from simulator.scenario.flags import EXAMPLE

    if output is not None:
        check_new_file(output, force)
    flags = flags_of(flags_given)
    from_launch = launched(flags_given, flags, overrides)
    if from_launch is not None:
        scenario, notes = from_launch.scenario, from_launch.notes
    else:
        if all(value is None for value in flags.values()):
            flags = dict(EXAMPLE)
        scenario, notes = read_scenario(None, overrides, flags), ()
    for text in notes:
        note(text)
    if output is not None:
        fitting_variants(scenario)  # a file that `simulate` would refuse helps nobody
        scenario = relocated(scenario, output.parent)
        output.write_text(scenario_yaml(scenario), "utf-8")
        note(f"wrote {output}; next: decodesim simulate {output}")
    if as_json:
        print_json(scenario.model_dump(mode="json"))
    elif output is None:
        click.echo(scenario_yaml(scenario), nl=False)
