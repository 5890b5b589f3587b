"""`decodesim calibrate`: makes a profile from measurements of a device or from public kernel tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from experiments.commands.networks import networks
from experiments.commands.options import check_output, json_option, numbers, words, writes_file
from experiments.commands.output import (
    NOTHING,
    note,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from simulator.errors import InputError, Problem, unknown_name

if TYPE_CHECKING:
    from simulator.models.drafter import DrafterModel
    from simulator.models.model import Model

_DEVICES = ("cuda", "cpu")
_FORMATS = ("bf16", "fp8")
_TABLES_MODEL = "llama-3.1-8b-instruct"
"""The model whose figures are printed for public tables without --model."""


@click.command()
@click.option(
    "--device", type=click.Choice(_DEVICES), help="The device to measure: a GPU of this machine, or its CPU."
)
@click.option("--model", metavar="CONFIG", help="Target: catalogue name, or path of its config.json.")
@click.option("--draft", metavar="CONFIG", help="Drafter: catalogue name, or path of its config.json.")
@click.option(
    "--tp",
    default="1",
    show_default=True,
    metavar="1,2",
    help="Degrees of tensor parallelism whose shards are measured.",
)
@click.option("--dtype", default="bf16", show_default=True, metavar="bf16,fp8", help="Weight formats.")
@click.option("--quick", is_flag=True, help="Fewer shapes and rounds: about a minute.")
@click.option("--from-tables", type=click.Path(path_type=Path), help="Use public kernel tables in a folder.")
@click.option("--system", metavar="GPU", help="The GPU of the tables, e.g. h100-sxm.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The profile to write.")
@json_option
@writes_file
def command(device: str | None, output: Path, as_json: bool, **options: Any) -> None:
    """Make a profile for --gpu from microbenchmarks of this device, or from public kernel tables.

    Measurements are stored next to the profile, in STEM.measurements.csv. After Ctrl-C, the same command
    continues with them.
    """
    check_output(output)
    if options["from_tables"] is not None:
        if device is not None:
            raise _input_error("--device", device, "cannot be combined with --from-tables", "one of them")
        for name in ("tp", "dtype", "quick"):
            if click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT:
                raise _input_error(f"--{name}", None, "does not apply to public tables", "leave it out")
        _from_tables(options, output, as_json)
    elif options["system"] is not None:
        raise _input_error(
            "--system", options["system"], "names the GPU of public tables", "--from-tables FOLDER"
        )
    elif device is None:
        raise _input_error(
            "--device", None, "is missing", "cuda or cpu; or --from-tables FOLDER --system GPU"
        )
    else:
        _from_device(device, options, output, as_json)


def _from_device(device: str, options: Mapping[str, Any], output: Path, as_json: bool) -> None:
    from calibration.optional import need

    model, drafter = networks(options["model"], options["draft"])
    ranks, formats = _ranks(options["tp"], model), _formats(options["dtype"])
    need("torch", "calibration")
    from calibration.microbench.calibrate import CalibrationRequest, calibrate

    request = CalibrationRequest(device, model, drafter, ranks, formats, options["quick"])
    try:
        with progress_bar("calibrate") as progress:
            calibration = calibrate(request, output, progress, note)
    except KeyboardInterrupt:
        note(f"the measurements are kept next to {output}; the same command continues with them")
        raise
    missing_parts = [*calibration.uncovered, *calibration.left_out]
    notes = [*calibration.fitted.notes, *(f"not in the profile: {line}" for line in missing_parts)]
    _print(calibration.fitted.profile, output, model, drafter, notes, as_json)
    if calibration.left_out:
        raise InputError([Problem(message=f"not in the profile: {line}") for line in calibration.left_out])


def _from_tables(options: Mapping[str, Any], output: Path, as_json: bool) -> None:
    from calibration.profile_json import dumps
    from calibration.silicon import build_profile
    from simulator.files import whole_file

    folder, system = options["from_tables"], options["system"]
    if system is None:
        raise _input_error("--system", None, "is missing", "the GPU whose tables to take, e.g. h100-sxm")
    if not folder.is_dir():
        raise _input_error(
            "--from-tables", str(folder), "is not a folder", "a folder of public kernel tables"
        )
    model, drafter = networks(options["model"] or _TABLES_MODEL, options["draft"])
    profile = build_profile(folder, system)
    with whole_file(output) as part:
        part.write_text(dumps(profile), encoding="utf-8")
    _print(profile, output, model, drafter, [], as_json)


def _ranks(text: str, model: Model) -> tuple[int, ...]:
    ranks_given = numbers("--tp", text, integers=True)
    for ranks in ranks_given:
        if ranks < 1 or not model.divides_over(ranks):
            raise _input_error(
                "--tp", ranks, f"does not divide the heads of {model.name}", "whole heads on every rank"
            )
    return tuple(ranks_given)


def _formats(text: str) -> tuple[str, ...]:
    formats = words(text)
    for name in formats:
        if name not in _FORMATS:
            raise InputError(unknown_name("weight format", name, _FORMATS, field="--dtype"))
    if not formats:
        raise _input_error("--dtype", text, "names no weight format", " or ".join(_FORMATS))
    return tuple(dict.fromkeys(formats))


def _input_error(field: str, value: object, message: str, allowed: str) -> InputError:
    return InputError(Problem(field=field, value=value, message=message, allowed=allowed))


def _print(
    profile: Mapping[str, Any],
    output: Path,
    model: Model,
    drafter: DrafterModel | None,
    notes: Sequence[str],
    as_json: bool,
) -> None:
    """Print the parts of the profile and the four numbers of the target on it."""
    from calibration.fit.numbers import four_numbers, number_tables
    from simulator.costs.profiles import load_profile

    figures = four_numbers(profile, model, drafter)
    if as_json:
        parts_of_profile = load_profile(str(output)).parts.values()  # with what is inherited
        parts = [
            {"name": part.name, "status": part.status, "residual": dict(part.residual)}
            for part in parts_of_profile
        ]
        print_json({"profile": str(output), **figures, "parts": parts, "notes": [*notes]})
        return
    rows = [[part["name"], part["status"], _residual(part["residual"])] for part in profile["parts"]]
    print_table(["part", "status", "off the fit"], rows, title=f"{output}")
    print_text(f"{model.name}{'' if drafter is None else f' with {drafter.name}'} on one device:")
    for title, columns, cells in number_tables(figures):
        print_table(columns, cells, title=title)
    print_list("Notes", notes)


def _residual(residual: Mapping[str, Any]) -> str:
    return f"{residual['mape_percent']} %" if "mape_percent" in residual else NOTHING
