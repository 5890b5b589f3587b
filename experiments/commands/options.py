"""Options that commands share: a scenario from a file or from flags, `--set`, `--json`, lists of numbers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from simulator.errors import InputError, Problem, reason

if TYPE_CHECKING:
    from simulator.scenario import Scenario

Function = TypeVar("Function", bound=Callable[..., Any])

FLAGS: Mapping[str, tuple[str, type | None, str]] = {
    "model": ("--model", None, "Catalogue name of the model, or path of its config.json."),
    "weights": ("--weights", None, "bf16, fp8, fp8_block, int4 (awq, gptq) or mxfp4."),
    "kv_cache": ("--kv-cache", None, "bf16 (auto) or fp8 (fp8_e4m3)."),
    "gpu": ("--gpu", None, "Catalogue name of the GPU, or path of a profile."),
    "tensor_parallel": ("--tp", int, "GPUs that share the model."),
    "preset": ("--preset", None, "Serving engine and version, e.g. vllm-0.33."),
    "method": ("--method", None, "Speculation method, e.g. eagle3."),
    "draft": ("--draft", None, "Catalogue name of the drafter, or path of its config.json."),
    "draft_length": ("--draft-length", None, "Draft tokens per round (K)."),
    "alpha": ("--alpha", float, "Acceptance of each draft token (geometric)."),
    "concurrency": ("--concurrency", None, "Concurrent clients (closed loop)."),
}
"""Key of `scenario_from_flags` → (flag, its type if not text, help)."""


def scenario_options(function: Function) -> Function:
    """Adds the argument SCENARIO, the flags that replace it or change it, and `--set`."""
    decorated: Function = scenario_flags(
        click.option(
            "--set", "overrides", multiple=True, metavar="PATH=VALUE",
            help="Change one field, e.g. --set workload.arrivals.concurrency=128. Lists go by name.",
        )(function)
    )  # fmt: skip
    return click.argument("scenario", required=False, type=click.Path(path_type=Path))(decorated)


def scenario_flags(function: Function) -> Function:
    """Adds the flags that describe a scenario."""
    for name, (flag, kind, text) in reversed(list(FLAGS.items())):
        function = click.option(flag, name, type=kind, help=text)(function)
    return function


def json_option(function: Function) -> Function:
    """Adds `--json`."""
    text = "One JSON document on stdout; notes and progress on stderr."
    decorated: Function = click.option("--json", "as_json", is_flag=True, help=text)(function)
    return decorated


def price_option(text: str) -> Callable[[Function], Function]:
    """Adds `--gpu-hour-cost` with this help."""
    return click.option("--gpu-hour-cost", type=float, metavar="C", help=text)


def precision_option(function: Function) -> Function:
    """Adds `--precision`; `precision_override` makes the scenario's field of it."""
    text = "Replicate until the 95 % interval of run.precision_metric (throughput) is within ± 1 %."
    decorated: Function = click.option("--precision", metavar="1%", help=text)(function)
    return decorated


def precision_override(precision: str | None) -> tuple[str, ...]:
    """The `--set` overrides for `--precision 1%` (or 0.01). Raises InputError."""
    if precision is None:
        return ()
    from simulator.scenario.base import from_percent

    try:
        fraction = float(str(from_percent(precision)))
    except ValueError:
        fraction = 0.0
    if not 0 < fraction < 1:
        allowed = "a percentage as 1%, or a fraction between 0 and 1"
        message = "is not a precision"
        raise InputError(Problem(field="--precision", value=precision, message=message, allowed=allowed))
    return (f"run.precision={fraction!r}",)


def flags_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario flags among a command's parameters."""
    return {name: options.get(name) for name in FLAGS}


def read_scenario(
    scenario: Path | None, overrides: Sequence[str], flags: Mapping[str, Any], *, lists: bool = False
) -> Scenario:
    """The scenario of the file changed by flags, or of the flags alone. Raises InputError.

    `lists`: the command takes several loads and draft lengths itself, and the scenario has the first of them.
    """
    from simulator.scenario import load_scenario, scenario_from_flags

    values = {name: value for name, value in flags.items() if value is not None}
    values |= _first_numbers(values, lists)
    if scenario is None:
        return scenario_from_flags(values, overrides)
    return load_scenario(scenario, overrides, values)


@contextmanager
def lines_of(scenario: Scenario) -> Iterator[None]:
    """Reports problems with fields of the scenario at their lines in its file."""
    try:
        yield
    except InputError as error:
        raise scenario.located(error) from error


def _first_numbers(values: Mapping[str, Any], lists: bool) -> dict[str, Any]:
    """The first numbers of flags that are one number in a scenario and may be lists on a command."""
    first_numbers: dict[str, Any] = {}
    for name in ("concurrency", "draft_length"):
        text = values.get(name)
        if not isinstance(text, str) or (name == "draft_length" and is_yaml(text)):
            continue
        flag = FLAGS[name][0]
        first_numbers[name], *other_numbers = numbers(flag, text, integers=True)
        if other_numbers and not lists:
            message, allowed = "is a list", "one whole number; `breakeven` and `sweep` take several"
            raise InputError(Problem(field=flag, value=text, message=message, allowed=allowed))
    return first_numbers


def numbers(flag: str, text: str | None, *, integers: bool = False) -> list[Any]:
    """The numbers of `1,2.5,8`, each once; none when the option was not given. Raises InputError."""
    values: list[Any] = []
    for part in (text or "").split(",") if text is not None else ():
        try:
            values.append(int(part) if integers else float(part))
        except ValueError:
            kind = "whole numbers" if integers else "numbers"
            raise InputError(
                Problem(
                    field=flag,
                    value=text,
                    message=f"{part.strip()!r} is not a number",
                    allowed=f"{kind} with commas",
                )
            ) from None
    return list(dict.fromkeys(values))


def is_yaml(text: str) -> bool:
    """Whether a flag holds a table or a policy, as a scenario file would, in place of a number."""
    return text.lstrip().startswith(("[", "{"))


def words(text: str | None) -> list[str]:
    """The words of `throughput,tpot_p99`."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def writes_file(function: Function) -> Function:
    """Turns a file that cannot be written into bad input."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except BrokenPipeError:  # the reader of our output has closed it
            raise
        except OSError as error:
            name = str(error.filename) if error.filename else None
            raise InputError(Problem(file=name, message=f"cannot be written: {reason(error)}")) from error

    return wrapped  # type: ignore[return-value]


def check_output(output: Path) -> None:
    """Raises InputError for a file that cannot be written, before anything is measured."""
    if output.is_dir():
        raise InputError(Problem(str(output), message="is a folder", allowed="the file to write"))
    if not output.parent.is_dir():
        raise InputError(Problem(str(output), message=f"the folder {output.parent} is not there"))
    if not os.access(output.parent, os.W_OK):
        raise InputError(Problem(str(output), message="cannot be written: permission denied"))


def output_option(text: str) -> Callable[[Function], Function]:
    """Adds `-o` for a new file, described by `text`, and `--force`, which lets it replace an old one."""

    def decorate(function: Function) -> Function:
        force = click.option("--force", is_flag=True, help="Replace the output file if it is there.")
        kind = click.Path(path_type=Path, dir_okay=False)
        decorated: Function = click.option("-o", "--output", type=kind, help=text)(force(function))
        return decorated

    return decorate


def check_new_file(output: Path, force: bool) -> None:
    """Raises InputError for a file that cannot be written, or is there and may not be replaced."""
    check_output(output)
    if output.exists() and not force:
        raise InputError(Problem(str(output), message="exists already", allowed="--force replaces it"))
