"""The options that take a launch configuration: `--from-vllm`, `--from-sglang`, `--from-trtllm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from experiments.commands.options import Function
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from calibration.launch.launch import Launch
    from simulator.scenario import Scenario


class Launched(NamedTuple):
    """A launch configuration, its scenario, and notes on what was assumed."""

    launch: Launch
    scenario: Scenario
    notes: tuple[str, ...]


def launch_options(function: Function) -> Function:
    """Adds the three options; at most one of them may be given."""
    lines = (("vllm", "vLLM", "vllm serve …"), ("sglang", "SGLang", "python -m sglang.launch_server …"))
    trtllm = click.option(
        "--from-trtllm",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The configuration file of TensorRT-LLM (trtllm-serve --config).",
    )
    function = trtllm(function)
    for engine, title, example in reversed(lines):
        text = f"The command that starts {title}, in quotes."
        function = click.option(f"--from-{engine}", metavar=f"'{example}'", help=text)(function)
    return function


def read_launch(options: Mapping[str, Any]) -> tuple[Launch, str, Path] | None:
    """The launch that the options give, with its origin and the folder of its files; None without one.

    Raises InputError.
    """
    from calibration.launch.registry import ENGINES
    from simulator.scenario.load import read_text

    files_by_engine = {engine: options.get(f"from_{engine}") for engine in ENGINES}
    named = [engine for engine, value in files_by_engine.items() if value is not None]
    if not named:
        return None
    if len(named) > 1:
        message = f"cannot be combined with --from-{named[0]}"
        raise InputError(Problem(field=f"--from-{named[1]}", message=message, allowed="one launch"))
    engine = ENGINES[named[0]]
    value = files_by_engine[named[0]]
    if isinstance(value, Path):
        return engine.read(read_text(value), str(value)), str(value), value.parent
    return engine.read(str(value), engine.origin), engine.origin, Path(".")


def launched(
    options: Mapping[str, Any], flags: Mapping[str, Any], overrides: Sequence[str] = ()
) -> Launched | None:
    """The scenario of the launch that the options give, changed by flags; None without a launch."""
    from calibration.launch.scenario import scenario_from_launch

    read = read_launch(options)
    if read is None:
        return None
    launch, origin, folder = read
    scenario, notes = scenario_from_launch(launch, flags, overrides, folder, origin)
    return Launched(launch, scenario, notes)
