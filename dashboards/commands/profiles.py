"""`decodesim profile`: the quality of a profile, and two profiles operator by operator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import json_option, writes_file
from experiments.commands.output import NOTHING, note, print_json, print_list, print_table, print_text
from simulator.units import format_bytes, format_number

if TYPE_CHECKING:
    from simulator.costs.profiles import Profile


@click.group()
def command() -> None:
    """Check the quality of a profile part by part, or compare two profiles."""


@command.command()
@click.argument("profile")
@click.option(
    "--model",
    metavar="CONFIG",
    help="Model for the four numbers: catalogue name, or path of its config.json.",
)
@click.option(
    "--draft", metavar="CONFIG", help="Its drafter; default: one layer of the target with its head."
)
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write an HTML page."
)
@json_option
@writes_file
def check(profile: str, model: str | None, draft: str | None, html: Path | None, as_json: bool) -> None:
    """Check the quality of PROFILE, a file or the name of a GPU: what was measured, how well, and what is
    inherited.

    --model adds the four numbers: bandwidth, batch response, cost of a draft pass, verify overhead.
    """
    from calibration.fit.numbers import four_numbers, number_tables
    from calibration.fit.quality import quality
    from experiments.commands.networks import networks

    read = _load(profile)
    answer = quality(read)
    numbers = None
    if model is not None or draft is not None:
        numbers = four_numbers(read, *networks(model, draft))
    parts = _parts(answer)
    if html is not None:
        from dashboards.profile_page import write_profile_page

        write_profile_page(answer, parts, numbers, str(model), html)
        note(f"wrote {html}; opens offline")
    if as_json:
        print_json({"profile": profile, **answer, **(numbers or {})})
        return
    print_text(_device(answer))
    print_table(parts[0], parts[1:])
    if answer["checks"]:
        title = "Whole passes against the sum of their parts (no part of the fit)"
        print_table(["pass", "points", "median error", "bias"], _checks(answer), title=title)
    for title, columns, rows in number_tables(numbers) if numbers is not None else []:
        print_table(columns, rows, title=title)
    print_list("Notes", answer["notes"])


def _device(answer: Mapping[str, Any]) -> str:
    device = answer["device"]
    peaks = [f"{name} {rate / 1e12:,.4g} TFLOP/s" for name, rate in device["peak_flops_per_s"].items()]
    facts = [str(device["title"]), format_bytes(device["memory_bytes"])]
    facts += [f"{device['bandwidth_bytes_per_s'] / 1e9:,.4g} GB/s", *peaks]
    facts += [f"{device['threads']} threads"] if device.get("threads") else []
    facts += [f"torch {device['torch']}"] if device.get("torch") else []
    facts += [str(device[name]) for name in ("driver", "date") if device.get(name)]
    return f"{answer['name']}: {answer['quality']}. {', '.join(facts)}"


def _parts(answer: Mapping[str, Any]) -> list[list[str]]:
    """Heading and rows: what was measured, or everything where nothing was; the notes name the others."""
    measured = [part for part in answer["parts"] if part["status"] == "measured"]
    rows = [
        [
            *(part["name"], part["status"], part["quality"]),
            *(_percent(part[key]) for key in _ERROR_COLUMNS),
            NOTHING if part["points"] is None else f"{part['points']:,}",
        ]
        for part in measured or answer["parts"]
    ]
    return [["part", "status", "quality", "median error", "95 %", "noise", "limit", "points"], *rows]


def _checks(answer: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            check["name"],
            f"{check['points']:,}",
            _percent(check["median_error_percent"]),
            f"{check['bias_percent']:+.1f} %",
        ]
        for check in answer["checks"]
    ]


_ERROR_COLUMNS = ("median_error_percent", "p95_error_percent", "noise_percent", "limit_percent")


@command.command()
@click.argument("base")
@click.argument("other")
@json_option
def compare(base: str, other: str, as_json: bool) -> None:
    """Compare OTHER ÷ BASE by operator, at the shapes that both have. Each is a file or the name of a GPU."""
    from calibration.fit.compare import compare as compare_profiles

    answer = compare_profiles(_load(base), _load(other))
    if as_json:
        print_json({**answer, "base": base, "other": other})
        return
    rows = [
        [
            *(f"{row['op']}, {row['at']}", f"{row['n']:,}"),
            *(format_number(row["base_us"]), format_number(row["other_us"]), _ratio(row["ratio"])),
            f"{_ratio(row['p10'])} to {_ratio(row['p90'])}",
            f"{row['base_status']}, {row['other_status']}",
        ]
        for row in answer["rows"]
    ]
    names = [Path(name).stem for name in (base, other)]
    columns = ["operator", "shapes", *(f"{name}, µs" for name in names), "ratio", "P10 to P90", "status"]
    print_table(columns, rows, title=f"{names[1]} ÷ {names[0]}, medians over shapes")
    print_list("Notes", answer["notes"])


def _load(name: str) -> Profile:
    from simulator.costs.profiles import load_profile

    return load_profile(name, Path.cwd())


def _percent(value: Any) -> str:
    return NOTHING if value is None else f"{value:.1f} %"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 100 else format_number(value)
