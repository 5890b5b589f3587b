"""`decodesim advise`: the whole path from files and a launch line to a verdict, in one command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.compare import print_causes, print_speedups
from experiments.commands.launch_options import launch_options, launched, read_launch
from experiments.commands.options import (
    check_output,
    flags_of,
    json_option,
    read_scenario,
    scenario_flags,
    writes_file,
)
from experiments.commands.output import (
    note,
    note_compilation,
    print_json,
    print_list,
    print_text,
    progress_bar,
)
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from experiments.advice.runs import MeasuredRuns
    from experiments.check.lint import Diagnostic
    from simulator.scenario import Scenario


@click.command()
@click.argument("files", nargs=-1, metavar="FILE…")
@launch_options
@click.option(
    "--scenario",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The scenario, in place of a launch line.",
)
@scenario_flags
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change one field of the scenario."
)
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the answer as a page too."
)
@json_option
@writes_file
def command(
    files: tuple[str, ...],
    scenario: Path | None,
    overrides: tuple[str, ...],
    html: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Answer from what you have: FILE… are metrics, logs and benchmark results with and without speculation.

    Files whose names differ by `.before` and `.after` or by their endings are one run. With a launch line, a
    scenario or flags, the deployment is simulated with the measured acceptance and load.
    """
    from experiments.advice.advise import advise
    from experiments.advice.runs import MeasuredRuns, measured_runs

    if html is not None:
        check_output(html)
    flags = flags_of(options)
    runs = measured_runs(files) if files else MeasuredRuns(None, None, ())
    loaded, diagnostics, notes = _deployment(scenario, overrides, flags, options, runs)
    if loaded is None and not files:
        allowed = "files, --from-vllm 'vllm serve …', --scenario FILE, or --model and other flags"
        raise InputError(Problem(message="there is nothing to advise on", allowed=allowed))
    note_compilation()
    with progress_bar("simulating") as progress:
        source = str(scenario or "scenario.yaml")
        advice = advise(runs, loaded, diagnostics, notes, source, _first_steps(options, flags), progress)
    document = advice.to_json()
    if html is not None:
        from dashboards.advice_page import write_advice

        write_advice(advice, html)
        note(f"wrote {html}")
    if as_json:
        print_json(document)
    else:
        print_advice(document, advice.own_engine)


def _deployment(
    scenario: Path | None,
    overrides: tuple[str, ...],
    flags: dict[str, Any],
    options: Mapping[str, Any],
    runs: MeasuredRuns,
) -> tuple[Scenario | None, list[Diagnostic], tuple[str, ...]]:
    """The scenario, the findings of `check`, and notes on what was assumed or taken from files."""
    from experiments.advice.traffic import measured_clients, traffic_notes, traffic_overrides
    from experiments.check.check import check_launch, check_scenario

    launch = read_launch(options)
    if scenario is not None:
        if launch is not None:
            raise InputError(Problem(field="--scenario", message="cannot be combined with a launch line"))
        loaded = read_scenario(scenario, overrides, flags)
        return loaded, check_scenario(loaded), ()
    if launch is None and flags.get("model") is None:
        return None, [], ()
    notes: tuple[str, ...] = ()
    if runs.any is not None:  # a launch states no traffic
        clients = measured_clients(runs.any) if flags.get("concurrency") is None else None
        if clients is not None:
            flags = {**flags, "concurrency": str(clients) if launch is None else clients}
        overrides, notes = (*traffic_overrides(runs.any), *overrides), traffic_notes(runs.any, clients)
    if launch is None:
        loaded = read_scenario(None, overrides, flags)
        return loaded, check_scenario(loaded), notes
    from_launch = launched(options, flags, overrides)
    assert from_launch is not None
    line, origin, folder = launch
    text = "" if isinstance(options.get("from_trtllm"), Path) else str(next(iter(_lines(options)), ""))
    diagnostics = check_launch(line, text, flags, origin, folder)
    return from_launch.scenario, diagnostics, (*notes, *from_launch.notes)


def _first_steps(options: Mapping[str, Any], flags: Mapping[str, Any]) -> tuple[str, ...]:
    """The command that writes the scenario that next steps name; none where it is a file."""
    from simulator.scenario.flag_overrides import flag_of

    stated = {
        name: value for name, value in options.items() if name.startswith("from_") and value is not None
    }
    stated |= {name: value for name, value in flags.items() if value is not None}
    if not stated:
        return ()
    words = [f"{flag_of(name)} {shlex.quote(str(value))}" for name, value in stated.items()]
    return (f"decodesim init {' '.join(words)} -o scenario.yaml",)


def _lines(options: Mapping[str, Any]) -> list[Any]:
    return [value for name, value in options.items() if name.startswith("from_") and value is not None]


def print_advice(document: Mapping[str, Any], own_engine: str | None) -> None:
    """Print verdict, measured speedups, causes, the engine's options, next steps."""
    print_text(f"→ {document['verdict']}: {document['reason']}")
    if document["measured"]:
        print_speedups(document["measured"])
    print_causes("Causes and findings", document["causes"])
    text = document["engine"].get(own_engine) if own_engine else None
    if text:
        click.echo(f"\nStart the engine with:\n\n{text}\n")
    print_list("Next", document["next"])
    print_list("Notes", document["notes"])
