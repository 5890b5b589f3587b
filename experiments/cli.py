"""`decodesim`: a table of commands. Each is imported when it is called, which keeps `--help` quick.

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
        "Plain and speculative decoding of the same traffic.",
    ),
    "breakeven": ("experiments.commands.breakeven", "The acceptance at which speculation begins to pay."),
    "sweep": ("experiments.commands.sweep", "Run a study in parallel and store its results."),
    "whatif": ("experiments.commands.whatif", "Compare a scenario with variations of it."),
    "sensitivity": (
        "dashboards.commands.sensitivity",
        "Rank the uncertain inputs by their effect on the answer.",
    ),
    "methods": ("experiments.commands.methods", "Speculation methods: needs, costs, engines."),
    "memory": ("experiments.commands.memory", "Memory of the GPUs: weights, drafter, KV cache."),
    "validate": (
        "dashboards.commands.validate",
        "Simulate published measurements and report the errors.",
    ),
    "results": ("experiments.commands.results", "List, filter and export the results of a study."),
    "plan": (
        "experiments.commands.plan",
        "Replicas and cost within an SLO, and whether to enable speculation.",
    ),
    "rollout": (
        "experiments.commands.rollout",
        "Stages, gates and alerts for turning speculation on.",
    ),
    "tune": (
        "experiments.commands.tune",
        "A tuning guide: drafter, draft length by load, trees, temperature, fallback.",
    ),
    "profile": ("dashboards.commands.profiles", "Check the quality of a profile, or compare two profiles."),
    "calibrate": (
        "experiments.commands.calibrate",
        "Measure the operators of a device and fit a profile.",
    ),
    "read": (
        "experiments.commands.read",
        "Telemetry of a server or benchmark: acceptance, latency, load and health.",
    ),
    "advise": (
        "dashboards.commands.advise",
        "From a launch line and measured files to a verdict, causes and flags.",
    ),
    "replay": (
        "experiments.commands.replay",
        "Fit the simulator to your own baseline run, and report the residual.",
    ),
    "check": (
        "experiments.commands.check",
        "Check a scenario, a launch line or a configuration for known mistakes.",
    ),
    "compare": (
        "experiments.commands.compare",
        "Two measured runs, without and with speculation: speedups, causes, what to change.",
    ),
    "gate": (
        "experiments.commands.gate",
        "Pass or fail measured acceptance against the break-even of a scenario.",
    ),
    "accept": (
        "experiments.commands.accept",
        "Measure the acceptance of a drafter on a real model.",
    ),
    "closure": (
        "dashboards.commands.closure",
        "Compare real decoding on this device with its simulation.",
    ),
    "distill": (
        "experiments.commands.distill",
        "Train a drafter on the target's distribution.",
    ),
    "report": ("dashboards.commands.report", "Write a self-contained HTML page of results."),
    "app": ("dashboards.commands.app", "Serve a live what-if page on this machine."),
}
"""Command → (module with a click command named `command`, summary). A new command is a line here."""

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
            click.echo("not enough memory: reduce the number of requests or tokens", err=True)
            ctx.exit(BAD_INPUT)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="decodesim", prog_name="decodesim")
def decodesim() -> None:
    """Simulate LLM decoding on H100-class GPUs with and without speculation, and decide whether it pays."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The installed script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± shows a question mark
    try:
        try:
            decodesim.main(args=None if arguments is None else list(arguments), prog_name="decodesim")
        finally:
            if sys.stdout is not None:  # the parent process may have closed it
                sys.stdout.flush()  # a failure at exit would print Python's own message
    except OSError as error:  # an unexpected file error, or stdout on a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)  # drops the output that could not be written
        if isinstance(error, BrokenPipeError):  # the reader of our output has closed it
            sys.exit(READER_GONE)
        name = f"{error.filename}: " if error.filename else ""
        click.echo(f"{name}{reason(error)}", err=True)
        sys.exit(BAD_INPUT)
