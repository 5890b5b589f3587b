"""`decodesim calibrate`: the user's own device, or public kernel tables, made into a profile."""

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
"""For whom the figures of public tables are printed when --model names nobody."""


@click.command()
@click.option(
    "--device", type=click.Choice(_DEVICES), help="What to measure: a GPU of this machine, its CPU."
)
@click.option("--model", metavar="CONFIG", help="Target: catalogue name, or path of its config.json.")
@click.option("--draft", metavar="CONFIG", help="Drafter: catalogue name, or path of its config.json.")
@click.option("--tp", default="1", show_default=True, metavar="1,2", help="Shards of these parallelisms.")
@click.option("--dtype", default="bf16", show_default=True, metavar="bf16,fp8", help="Weight formats.")
@click.option("--quick", is_flag=True, help="Fewer shapes and rounds: about a minute.")
@click.option("--from-tables", type=click.Path(path_type=Path), help="Public kernel tables in a folder.")
@click.option("--system", metavar="GPU", help="Whose tables: a GPU, e.g. h100-sxm.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The profile to write.")
@json_option
@writes_file
def command(device: str | None, output: Path, as_json: bool, **given: Any) -> None:
    """Microbenchmarks of this device, or public tables of one, into a profile that --gpu takes.

    Measurements lie beside the profile, in STEM.measurements.csv. Ctrl-C keeps them; the same command goes
    on from there.
    """
    check_output(output)
    if given["from_tables"] is not None:
        if device is not None:
            raise _wrong("--device", device, "cannot stand beside --from-tables", "one of them")
        for name in ("tp", "dtype", "quick"):
            if click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT:
                allowed = "they are as they are, and whole"
                raise _wrong(f"--{name}", None, "says nothing of public tables", allowed)
        _from_tables(given, output, as_json)
    elif given["system"] is not None:
        raise _wrong("--system", given["system"], "names the GPU of public tables", "--from-tables FOLDER")
    elif device is None:
        raise _wrong("--device", None, "is missing", "cuda or cpu; or --from-tables FOLDER --system GPU")
    else:
        _from_device(device, given, output, as_json)


def _from_device(device: str, given: Mapping[str, Any], output: Path, as_json: bool) -> None:
    from calibration.optional import need

    model, drafter = networks(given["model"], given["draft"])
    ranks, formats = _ranks(given["tp"], model), _formats(given["dtype"])
    need("torch", "calibration")
    from calibration.microbench.calibrate import CalibrationRequest, calibrate

    request = CalibrationRequest(device, model, drafter, ranks, formats, given["quick"])
    try:
        with progress_bar("calibrate") as progress:
            made = calibrate(request, output, progress, note)
    except KeyboardInterrupt:
        note(f"what was measured is kept beside {output}; the same command goes on from there")
        raise
    lacking = [*made.uncovered, *made.left_out]
    notes = [*made.fitted.notes, *(f"not in the profile: {line}" for line in lacking)]
    _print(made.fitted.profile, output, model, drafter, notes, as_json)
    if made.left_out:
        raise InputError([Problem(message=f"not in the profile: {line}") for line in made.left_out])


def _from_tables(given: Mapping[str, Any], output: Path, as_json: bool) -> None:
    from calibration.profile_json import dumps
    from calibration.silicon import build_profile
    from simulator.files import whole_file

    folder, system = given["from_tables"], given["system"]
    if system is None:
        raise _wrong("--system", None, "is missing", "the GPU whose tables to take, e.g. h100-sxm")
    if not folder.is_dir():
        raise _wrong("--from-tables", str(folder), "is no folder", "a folder of public kernel tables")
    model, drafter = networks(given["model"] or _TABLES_MODEL, given["draft"])
    profile = build_profile(folder, system)
    with whole_file(output) as part:
        part.write_text(dumps(profile), encoding="utf-8")
    _print(profile, output, model, drafter, [], as_json)


def _ranks(text: str, model: Model) -> tuple[int, ...]:
    found = numbers("--tp", text, whole=True)
    for ranks in found:
        if ranks < 1 or not model.divides_over(ranks):
            raise _wrong(
                "--tp", ranks, f"does not cut the heads of {model.name}", "whole heads on every rank"
            )
    return tuple(found)


def _formats(text: str) -> tuple[str, ...]:
    found = words(text)
    for name in found:
        if name not in _FORMATS:
            raise InputError(unknown_name("weight format", name, _FORMATS, field="--dtype"))
    if not found:
        raise _wrong("--dtype", text, "names no weight format", " or ".join(_FORMATS))
    return tuple(dict.fromkeys(found))


def _wrong(field: str, value: object, message: str, allowed: str) -> InputError:
    return InputError(Problem(field=field, value=value, message=message, allowed=allowed))


def _print(
    profile: Mapping[str, Any],
    output: Path,
    model: Model,
    drafter: DrafterModel | None,
    notes: Sequence[str],
    as_json: bool,
) -> None:
    """The answer: what the profile is made of, and the four numbers of the target on it."""
    from calibration.fit.numbers import four_numbers, number_tables
    from simulator.costs.profiles import load_profile

    figures = four_numbers(profile, model, drafter)
    if as_json:
        whole = load_profile(str(output)).parts.values()  # with what is inherited
        parts = [
            {"name": part.name, "status": part.status, "residual": dict(part.residual)} for part in whole
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
