"""`decodesim check`: lints for scenarios, launch lines and configuration files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.launch_options import launch_options, read_launch
from experiments.commands.options import flags_of, json_option, read_scenario, scenario_options
from experiments.commands.output import print_json, print_text
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from experiments.check.lint import Diagnostic

ERRORS_FOUND = 1
_SCHEMA = "decodesim/check-1"


@click.command()
@scenario_options
@launch_options
@json_option
def command(scenario: Path | None, overrides: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Check SCENARIO, a launch line or a configuration file of an engine for known mistakes.

    SCENARIO may be a scenario, vLLM's speculative configuration as JSON, an adaptive configuration of SGLang,
    the YAML of TensorRT-LLM, or a text file with a launch line. --preset states the engine's version,
    --concurrency the load. Exit code 1: errors were found.
    """
    findings = _findings(scenario, overrides, options)
    if as_json:
        print_json({"schema": _SCHEMA, "findings": [finding.to_json() for finding in findings]})
    else:
        _print(findings)
    if any(finding.lint.severity == "error" for finding in findings):
        click.get_current_context().exit(ERRORS_FOUND)


def _findings(file: Path | None, overrides: Sequence[str], options: dict[str, Any]) -> list[Diagnostic]:
    from experiments.check.check import check_launch, check_scenario
    from experiments.check.files import launch_in

    flags = flags_of(options)
    _check_concurrency(flags)
    launch_given = read_launch(options)
    if launch_given is not None:
        if file is not None:
            message, allowed = "cannot be combined with a launch line", "one of them"
            raise InputError(Problem(str(file), message=message, allowed=allowed))
        launch, origin, folder = launch_given
        return check_launch(launch, _text(options), flags, origin, folder)
    if file is not None:
        file_launch = launch_in(file)
        if file_launch is not None:
            return check_launch(file_launch.launch, file_launch.text, flags, str(file), file.parent)
    return check_scenario(read_scenario(file, overrides, flags))


def _check_concurrency(flags: dict[str, Any]) -> None:
    value = flags.get("concurrency")
    if value is not None and not str(value).isdecimal():
        raise InputError(
            Problem(field="--concurrency", value=value, message="is not a number", allowed="a whole number")
        )


def _text(options: dict[str, Any]) -> str:
    from simulator.scenario.load import read_text

    if options.get("from_trtllm") is not None:
        return read_text(options["from_trtllm"])
    return str(options.get("from_vllm") or options.get("from_sglang"))


def _print(findings: Sequence[Diagnostic]) -> None:
    if not findings:
        print_text("nothing found")
    for finding in findings:
        field = f"{finding.hit.field}: " if finding.hit.field else ""
        print_text(f"{finding.lint.severity} [{finding.lint.name}] {field}{finding.hit.text}")
        print_text(f"  → {finding.hit.fix}")
