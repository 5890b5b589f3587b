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

FLAGS: Mapping[str, tuple[str, str, type | None, str]] = {
    "model": ("--model", "target.model", None, "Catalogue name of the model, or path of its config.json."),
    "weights": ("--weights", "target.weights", None, "bf16, fp8, fp8_block, int4 or mxfp4."),
    "kv_cache": ("--kv-cache", "target.kv_cache", None, "bf16 or fp8."),
    "gpu": ("--gpu", "hardware.gpu", None, "Catalogue name of the GPU, or path of a profile."),
    "tensor_parallel": ("--tp", "hardware.tensor_parallel", int, "GPUs that share the model."),
    "preset": ("--preset", "engine.preset", None, "Serving engine and version, e.g. vllm-0.33."),
    "method": ("--method", "speculation.ARM.method", None, "Speculation method, e.g. eagle3."),
    "draft": (
        "--draft",
        "speculation.ARM.draft",
        None,
        "Catalogue name of the drafter, or path of its config.json.",
    ),
    "draft_length": ("--draft-length", "speculation.ARM.draft_length", None, "Draft tokens per round (K)."),
    "alpha": (
        "--alpha",
        "speculation.ARM.acceptance.alpha",
        float,
        "Acceptance of each draft token (geometric).",
    ),
    "concurrency": (
        "--concurrency",
        "workload.arrivals.concurrency",
        None,
        "Clients at work at once (closed loop).",
    ),
}
"""Key of `scenario_from_flags` → (flag, the field it sets, its type if not text, help)."""


def scenario_options(function: Function) -> Function:
    """Adds the argument SCENARIO, the flags that stand in its place, and `--set`."""
    made: Function = scenario_flags(
        click.option(
            "--set", "overrides", multiple=True, metavar="PATH=VALUE",
            help="Change one field, e.g. --set workload.arrivals.concurrency=128. Name variants and classes.",
        )(function)
    )  # fmt: skip
    return click.argument("scenario", required=False, type=click.Path(path_type=Path))(made)


def scenario_flags(function: Function) -> Function:
    """Adds the flags that describe a scenario."""
    for name, (flag, _, kind, text) in reversed(list(FLAGS.items())):
        function = click.option(flag, name, type=kind, help=text)(function)
    return function


def json_option(function: Function) -> Function:
    """Adds `--json`."""
    text = "One JSON document on stdout; notes and progress on stderr."
    made: Function = click.option("--json", "as_json", is_flag=True, help=text)(function)
    return made


def precision_option(function: Function) -> Function:
    """Adds `--precision`; `precision_override` makes the scenario's field of it."""
    text = "Run so much that the 95 % interval of run.precision_metric (throughput) is within ± 1 % of it."
    made: Function = click.option("--precision", metavar="1%", help=text)(function)
    return made


def precision_override(precision: str | None) -> tuple[str, ...]:
    """What `--precision 1%` (or 0.01) sets of a scenario, as `--set` takes it. Raises InputError."""
    if precision is None:
        return ()
    from simulator.scenario.base import from_percent

    try:
        fraction = float(str(from_percent(precision)))
    except ValueError:
        fraction = 0.0
    if not 0 < fraction < 1:
        allowed = "a percentage as 1%, or a fraction between 0 and 1"
        message = "is no precision"
        raise InputError(Problem(field="--precision", value=precision, message=message, allowed=allowed))
    return (f"run.precision={fraction!r}",)


def flags_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario flags among a command's parameters."""
    return {name: given.get(name) for name in FLAGS}


def read_scenario(
    scenario: Path | None, overrides: Sequence[str], flags: Mapping[str, Any], *, lists: bool = False
) -> Scenario:
    """The scenario of the file, or of the flags in its place. Raises InputError.

    `lists`: the command takes several loads and draft lengths itself, and the scenario has the first of them.
    """
    from simulator.scenario import load_scenario, scenario_from_flags

    given = {name: value for name, value in flags.items() if value is not None}
    if scenario is None:
        return scenario_from_flags(given | _numbers_of(given, lists), overrides)
    if given:
        raise InputError([_no_flag_beside_a_file(name, value) for name, value in given.items()])
    return load_scenario(scenario, overrides)


@contextmanager
def lines_of(scenario: Scenario) -> Iterator[None]:
    """What is found wrong later with fields of the scenario is reported at their line."""
    try:
        yield
    except InputError as error:
        raise scenario.located(error) from error


def _numbers_of(given: Mapping[str, Any], lists: bool) -> dict[str, Any]:
    """Flags that stand for one number in a scenario and may be lists on a command: the first of them."""
    first: dict[str, Any] = {}
    for name in ("concurrency", "draft_length"):
        text = given.get(name)
        if not isinstance(text, str) or (name == "draft_length" and is_yaml(text)):
            continue
        flag = FLAGS[name][0]
        first[name], *more = numbers(flag, text, whole=True)
        if more and not lists:
            message, allowed = "is a list", "one whole number; `breakeven` and `sweep` take several"
            raise InputError(Problem(field=flag, value=text, message=message, allowed=allowed))
    return first


def _no_flag_beside_a_file(name: str, value: Any) -> Problem:
    flag, path, _, _ = FLAGS[name]
    return Problem(
        field=flag,
        value=value,
        message="cannot be combined with a scenario file",
        allowed=f"--set {path}={value}",
    )


def numbers(flag: str, text: str | None, *, whole: bool = False) -> list[Any]:
    """The numbers of `1,2.5,8`, each once; none when the option was not given. Raises InputError."""
    found: list[Any] = []
    for part in (text or "").split(",") if text is not None else ():
        try:
            found.append(int(part) if whole else float(part))
        except ValueError:
            what = "whole numbers" if whole else "numbers"
            raise InputError(
                Problem(
                    field=flag,
                    value=text,
                    message=f"{part.strip()!r} is no number",
                    allowed=f"{what} with commas",
                )
            ) from None
    return list(dict.fromkeys(found))


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
        except BrokenPipeError:  # whoever read our output has seen enough
            raise
        except OSError as error:
            name = str(error.filename) if error.filename else None
            raise InputError(Problem(file=name, message=f"cannot be written: {reason(error)}")) from error

    return wrapped  # type: ignore[return-value]


def check_output(output: Path) -> None:
    """Raises InputError at once for a place that cannot be written, before anything is measured."""
    if output.is_dir():
        raise InputError(Problem(str(output), message="is a folder", allowed="the file to write"))
    if not output.parent.is_dir():
        raise InputError(Problem(str(output), message=f"the folder {output.parent} is not there"))
    if not os.access(output.parent, os.W_OK):
        raise InputError(Problem(str(output), message="cannot be written: permission denied"))
