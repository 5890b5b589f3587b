"""`decodesim rollout`: a staged plan for turning speculation on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from experiments.commands.options import (
    check_new_file,
    flags_of,
    json_option,
    lines_of,
    output_option,
    read_scenario,
    scenario_options,
    writes_file,
)
from experiments.commands.output import give_markdown, note_compilation, progress_bar
from experiments.commands.plan_options import plan_options


@click.command()
@scenario_options
@plan_options
@output_option("Write the Markdown to this file.")
@json_option
@writes_file
def command(
    scenario: Path | None,
    overrides: tuple[str, ...],
    slo: str | None,
    rate: float | None,
    gpu_hour_cost: float | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    **flags_given: Any,
) -> None:
    """Plan as `decodesim plan` does, and write the stages: baseline, canary, ramp, fleet.

    Each stage has benchmark commands and gates; alerts and rollback follow. Thresholds come from the plan.
    """
    from experiments.rollout.rollout import rollout

    if output is not None:
        check_new_file(output, force)
    loaded = read_scenario(scenario, overrides, flags_of(flags_given))
    note_compilation()
    with lines_of(loaded), progress_bar("planning") as progress:
        answer = rollout(loaded, slo, rate, gpu_hour_cost, progress)
    give_markdown(answer.to_json(), output, as_json)
