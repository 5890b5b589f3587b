"""`decodesim`: a table of commands as strings, each imported when it is called, so that `--help` stays quick.

Bad input ends with exit code 2 and one line per problem on stderr, never with a traceback.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from simulator.errors import InputError, did_you_mean, reason

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("experiments.commands.init", "Write a scenario file from a few flags."),
    "simulate": (
        "experiments.commands.simulate",
        "Plain and speculative decoding on the same traffic and luck.",
    ),
    "breakeven": ("experiments.commands.breakeven", "The acceptance that speculation needs to pay."),
    "sweep": ("experiments.commands.sweep", "A grid of cells, run side by side into a store."),
    "whatif": ("experiments.commands.whatif", "A scenario against others that differ in a few fields."),
    "sensitivity": ("dashboards.commands.sensitivity", "Which uncertain inputs decide the answer."),
    "memory": ("experiments.commands.memory", "What fits on the GPUs, and what a drafter takes."),
    "validate": (
        "dashboards.commands.validate",
        "Published measurements, simulated and compared.",
    ),
    "results": ("experiments.commands.results", "The cells of a study's store: listed, filtered, exported."),
    "plan": (
        "experiments.commands.plan",
        "Replicas and cost within an SLO, and whether to enable speculation.",
    ),
    "profile": ("dashboards.commands.profiles", "Quality of a profile; two profiles operator by operator."),
    "calibrate": (
        "experiments.commands.calibrate",
        "Your device, measured operator by operator, into a profile.",
    ),
    "read": (
        "experiments.commands.read",
        "Telemetry of a server or benchmark: acceptance, latency, load and health.",
    ),
    "accept": (
        "experiments.commands.accept",
        "Acceptance of a drafter on a real model, measured.",
    ),
    "closure": (
        "dashboards.commands.closure",
        "Real decoding on this device, against what its profile predicts.",
    ),
    "distill": (
        "experiments.commands.distill",
        "Trains a drafter on the target's distribution.",
    ),
    "report": ("dashboards.commands.report", "One self-contained HTML page of results."),
}
"""Command → (module with a click command named `command`, what it does). A new command is a line here."""

BAD_INPUT = 2
INTERRUPTED = 130
READER_GONE = 1
STDOUT = 1
"""Its file descriptor."""


class LazyGroup(click.Group):
    """Commands of a table, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = import_module(entry[0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            guess = did_you_mean(args[0], COMMANDS)
            hint = f"did you mean {guess}?" if guess else f"known: {', '.join(COMMANDS)}"
            ctx.fail(f"no command {args[0]!r}, {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            for problem in error.problems:
                click.echo(str(problem), err=True)
            ctx.exit(BAD_INPUT)
        except MemoryError:
            click.echo("not enough memory: fewer requests or tokens need less", err=True)
            ctx.exit(BAD_INPUT)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="decodesim", prog_name="decodesim")
def decodesim() -> None:
    """Simulates LLM decoding on H100-class GPUs, with and without speculation, and says whether it pays."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The installed script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no ± shows a question mark
    try:
        try:
            decodesim.main(args=None if arguments is None else list(arguments), prog_name="decodesim")
        finally:
            if sys.stdout is not None:  # whoever started us may have closed it
                sys.stdout.flush()  # here it can still be told; Python would end with words of its own
    except OSError as error:  # of a file nobody foresaw, or of stdout on a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)  # what it could not take is dropped
        if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough
            sys.exit(READER_GONE)
        name = f"{error.filename}: " if error.filename else ""
        click.echo(f"{name}{reason(error)}", err=True)
        sys.exit(BAD_INPUT)
