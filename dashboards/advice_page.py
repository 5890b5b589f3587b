"""The page of `decodesim advise --html`: the verdict, what was measured, causes, options, next steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashboards.markup import Html, table, tag
from dashboards.page import Drawings, write_page
from simulator.units import format_number, format_seconds

if TYPE_CHECKING:
    from experiments.advice.advise import Advice

_WORDS = {"ENABLE": "pays", "DO NOT": "loses"}
"""Verdict → the colour of its word."""


def write_advice(advice: Advice, path: str | Path) -> Path:
    """Write the page and return its path. Raises InputError where it cannot be written."""
    return write_page(path, "Advice – decodesim", advice_body(advice), Drawings())


def advice_body(advice: Advice) -> Html:
    """The page's content."""
    word = _WORDS.get(advice.verdict.partition(" BELOW")[0], "undecided")
    title = "Advice" if advice.scenario is None else advice.scenario.title
    verdict = tag(
        "section",
        tag("p", tag("span", advice.verdict, cls=f"word {word}"), cls="label"),
        tag("p", advice.reason, cls="claim"),
        cls="verdict",
    )
    parts = [tag("header", tag("p", "decodesim advise", cls="brand"), tag("h1", title)), verdict]
    if advice.comparison is not None:
        parts.append(_measured(advice.comparison.pair.speedup()))
    if advice.causes:
        rows = [
            [_effect(cause["effect"]), cause["code"], cause["evidence"], cause["fix"]]
            for cause in advice.causes
        ]
        parts.append(
            tag(
                "section",
                tag("h2", "Causes and findings"),
                table(["Effect", "", "Evidence", "To change"], rows, words=4),
            )
        )
    artefact = advice.engine.get(advice.own_engine or "")
    if artefact is not None and artefact.text:
        parts.append(tag("section", tag("h2", "Start the engine with"), tag("pre", artefact.text)))
    parts.append(tag("section", tag("h2", "Next"), *(tag("pre", command) for command in advice.next)))
    if advice.notes:
        parts.append(
            tag("section", tag("h2", "Notes"), tag("ul", *(tag("li", note) for note in advice.notes)))
        )
    return tag("main", tag("article", *parts))


def _measured(speedups: Mapping[str, Mapping[str, float]]) -> Html:
    rows = [
        [
            name.replace("_", " "),
            _value(name, row["base"]),
            _value(name, row["spec"]),
            f"{row['value']:.2f} ×",
        ]
        for name, row in speedups.items()
    ]
    headings = ["Measured", "without", "with speculation", "speedup"]
    return tag("section", tag("h2", "What was measured"), table(headings, rows))


def _value(name: str, value: float) -> str:
    return f"{format_number(value)} tokens/s" if name == "throughput" else format_seconds(value)


def _effect(effect: Any) -> str:
    return "" if effect is None else f"×\u00a0{effect:.2f}"
