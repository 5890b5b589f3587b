"""`decodesim tune`: a tuning guide for one workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from experiments.commands.options import (
    check_new_file,
    flags_of,
    json_option,
    lines_of,
    numbers,
    output_option,
    read_scenario,
    scenario_options,
    writes_file,
)
from experiments.commands.output import give_markdown, note_compilation, progress_bar


@click.command()
@scenario_options
@click.option(
    "--loads",
    metavar="1,8,…",
    help="Concurrent clients to look at; default 1, 8, 32, 128 and the scenario's.",
)
@output_option("Write the Markdown to this file.")
@json_option
@writes_file
def command(
    scenario: Path | None,
    overrides: tuple[str, ...],
    loads: str | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    **flags_given: Any,
) -> None:
    """Write a tuning guide for the workload of SCENARIO, with the numbers that decide.

    Which drafter, how many drafts by load, which tree, up to which temperature, and when to decode plainly.
    """
    from experiments.tuning.guide import tune

    if output is not None:
        check_new_file(output, force)
    clients = numbers("--loads", loads, integers=True) or None
    loaded = read_scenario(scenario, overrides, flags_of(flags_given))
    note_compilation()
    with lines_of(loaded), progress_bar("tuning") as progress:
        guide = tune(loaded, clients, progress)
    give_markdown(guide.to_json(), output, as_json)
