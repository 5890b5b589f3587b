"""The page of `decodesim profile check`: the four numbers of a device, and the parts of its profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards.figures import device_response, device_verify
from dashboards.markup import Html, sentence, table, tag
from dashboards.page import Drawings, legend_of, write_page

FIGURES = (device_response.FIGURE, device_verify.FIGURE)

_PARTS = (
    "The median and the 95th percentile of the error on points that were left out of the fit, what the "
    "benches vary by themselves, and the limit beyond which a fit is refused."
)
_CHECKS = "Timed whole, and summed from the parts; no part of the fit."
_INTERVALS = "95 % of what the points determine; a parameter that ends at its bound has none."


def write_profile_page(
    answer: Mapping[str, Any],
    parts: Sequence[Sequence[str]],
    numbers: Mapping[str, Any] | None,
    model: str,
    path: Path,
) -> Path:
    """Write the page of a profile's quality (`parts`: heading and rows), and of its four numbers if any.

    It opens offline. Raises InputError where it cannot be written.
    """
    drawings = Drawings()
    device = answer["device"]
    header = tag(
        "header",
        tag("p", "decodesim profile", cls="brand"),
        tag("h1", f"{answer['name']}: {device['title']}"),
        tag("p", _device_text(device), cls="traffic"),
    )
    body = tag(
        "main",
        header,
        *([] if numbers is None else _numbers(numbers, model, drawings)),
        _section("The parts", _PARTS, parts),
        _section("Whole passes against the sum of their parts", _CHECKS, _checks(answer)),
        _section("Parameters", _INTERVALS, _intervals(answer)),
        _notes(answer["notes"]),
    )
    return write_page(path, f"{answer['name']} – decodesim", body, drawings)


def _device_text(device: Mapping[str, Any]) -> str:
    peaks = [f"{name} {rate / 1e12:,.4g} TFLOP/s" for name, rate in device["peak_flops_per_s"].items()]
    facts = [f"{device['bandwidth_bytes_per_s'] / 1e9:,.4g} GB/s", *peaks]
    facts += [f"{device['threads']} threads"] if device.get("threads") else []
    facts += [f"torch {device['torch']}"] if device.get("torch") else []
    facts += [str(device[name]) for name in ("driver", "date") if device.get(name)]
    return " · ".join(facts)


def _numbers(numbers: Mapping[str, Any], model: str, drawings: Drawings) -> list[Html]:
    from calibration.fit.numbers import number_tables

    bandwidth, response, overhead = number_tables(numbers)
    sections = [_section(bandwidth[0], "", [bandwidth[1], *bandwidth[2]])]
    for figure, text_table in zip(FIGURES, (response, overhead), strict=True):
        prepared = figure.prepare(numbers)
        drawn_figure = figure.draw(prepared)
        sections.append(
            tag(
                "section",
                tag("h2", f"{figure.title}: {model}"),
                *(tag("p", line, cls="finding") for line in figure.finding(prepared)),
                legend_of(drawn_figure),
                drawings.place(figure.name, drawn_figure, figure.title),
                tag("p", figure.caption(prepared), cls="caption"),
                tag("details", tag("summary", text_table[0]), table(text_table[1], text_table[2])),
            )
        )
    return sections


def _section(title: str, text: str, rows: Sequence[Sequence[str]]) -> Html:
    if len(rows) < 2:
        return Html("")
    caption = tag("p", text, cls="caption") if text else ""
    return tag("section", tag("h2", title), caption, table(rows[0], rows[1:]))


def _checks(answer: Mapping[str, Any]) -> list[list[str]]:
    rows = [
        [
            check["name"],
            str(check["points"]),
            f"{check['median_error_percent']:.1f} %",
            f"{check['bias_percent']:+.1f} %",
        ]
        for check in answer["checks"]
    ]
    return [["pass", "points", "median error", "bias"], *rows]


def _intervals(answer: Mapping[str, Any]) -> list[list[str]]:
    rows = [
        [part["name"], name, f"{low:,.4g} to {high:,.4g}"]
        for part in answer["parts"]
        if part["status"] == "measured"
        for name, (low, high) in part["intervals"].items()
    ]
    return [["part", "parameter", "95 %"], *rows]


def _notes(notes: Sequence[str]) -> Html:
    if not notes:
        return Html("")
    return tag("section", tag("h2", "Notes"), tag("ul", *(tag("li", sentence(line)) for line in notes)))
