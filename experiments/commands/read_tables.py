"""What `decodesim read` shows: a sentence, acceptance by position, latencies, each source, health."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from experiments.commands.output import NOTHING, print_list, print_table, print_text, terminal_width
from simulator.results.catalogue import label_of, metric_of, names_of
from simulator.units import format_number

AnswerDocument = Mapping[str, Any]

_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_LOAD = (
    ("clients", "concurrency"),
    ("mean batch", "mean_batch"),
    ("running requests", "running_requests"),
    ("most at once", "running_requests_max"),
    ("waiting requests", "waiting_requests"),
    ("requests", "requests"),
    ("requests/s", "request_rate_per_s"),
    ("prompt tokens", "prompt_tokens_mean"),
    ("output tokens", "output_tokens_mean"),
)
_NEARLY_ALL = 0.98
"""Share of steps with a draft above which the others are not worth a word."""
_COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def print_reading(document: AnswerDocument) -> None:
    """The whole answer for people."""
    readings = document["readings"]
    for number, reading in enumerate(readings, 1):
        print_text(f"{f'{number}  ' if len(readings) > 1 else ''}{_heading(reading)}")
    print_text(f"→ {_sentence(document)}")
    _print_positions(document)
    if len(readings) == 1:
        _print_latencies(document)
        _print_load(document)
    else:
        _print_sources(readings)
    _print_alpha(document)
    _print_health(document["health"])
    print_list("Notes", document["notes"])


def _heading(reading: AnswerDocument) -> str:
    versions = [source["version"] for source in reading["sources"] if source["version"]]
    parts = (reading["label"], reading["traits"].get("model"), f"version {versions[0]}" if versions else None)
    return ", ".join(part for part in parts if part)


def _sentence(document: AnswerDocument) -> str:
    """The answer in one sentence."""
    length = document["mean_acceptance_length"]
    if length is None:
        return "no acceptance" if len(document["readings"]) == 1 else "no acceptance in common"
    words = [f"mean acceptance length {length['value']:.2f}"]
    if length["ci95"] is not None:
        words.append(f"(95 %: {length['ci95'][0]:.2f} to {length['ci95'][1]:.2f})")
    rounds, longest = document["draft_rounds"], document["draft_length"]
    if rounds is not None:
        words.append(f"over {rounds:,.0f} draft rounds")
    sentence = " ".join(words)
    if longest is not None:
        sentence += f", drafts of up to {longest} token{'s' if longest > 1 else ''}"
    coverage, per_step = document["draft_coverage"], document["tokens_per_step"]
    if coverage is None or coverage > _NEARLY_ALL:
        return sentence
    share = f"{coverage:.0%} of the decode steps had a draft"
    return f"{sentence}; {share}" + ("" if per_step is None else f", so a step emits {per_step:.2f} tokens")


def _print_positions(document: AnswerDocument) -> None:
    rates = document["acceptance_rate_at"]
    if not rates:
        return
    rows = [
        ["accepted", *map(_percent, rates)],
        ["  95 %", *map(_percent_range, document["acceptance_rate_at_ci95"])],
        ["accepted, given those before", *map(_percent, document["conditional_acceptance"])],
        ["  95 %", *map(_percent_range, document["conditional_acceptance_ci95"])],
    ]
    columns = ["draft position", *(str(place + 1) for place in range(len(rates)))]
    print_table(columns, [row for row in rows if len(row) == len(columns)])


def _print_latencies(document: AnswerDocument) -> None:
    rows = [
        [
            label_of(name),
            *(_statistic(document[name], statistic, metric_of(name).scale) for statistic in _STATISTICS),
        ]
        for name in names_of(lambda metric: metric.is_latency and bool(document.get(metric.name)))
    ]
    if rows:
        print_table(
            ["", *(statistic.upper() if statistic != "mean" else "mean" for statistic in _STATISTICS)], rows
        )


def _print_load(document: AnswerDocument) -> None:
    parts = [f"{label} {_number(load)}" for label, load in _shown_load(document)]
    usage = document["load"].get("kv_cache_usage_max", document["load"].get("kv_cache_usage"))
    if usage:
        parts.append(f"KV cache up to {usage:.1%}")
    throughput = document["throughput_tokens_per_s"]
    if throughput is not None:
        parts.append(f"{format_number(throughput)} output tokens/s")
    if parts:
        print_text(f"Load: {', '.join(parts)}")


def _shown_load(document: AnswerDocument) -> list[tuple[str, float]]:
    """Load without gauges of an idle server, which only say that the run is over."""
    load = document["load"]
    idle = "mean_batch" in load and not load.get("running_requests")
    hidden = ("running_requests", "waiting_requests") if idle else ()
    return [(label, load[key]) for label, key in _LOAD if key in load and key not in hidden]


def _print_sources(readings: Sequence[AnswerDocument]) -> None:
    """Every reading as a column: what agrees, and what differs."""
    rows = [
        ["mean acceptance length", *(_length(reading) for reading in readings)],
        ["draft rounds", *(_number(reading["draft_rounds"]) for reading in readings)],
        [
            "accepted by position",
            *(" ".join(map(_percent, reading["acceptance_rate_at"])) for reading in readings),
        ],
        ["accepted ÷ drafted", *(_percent(reading["draft_acceptance_rate"]) for reading in readings)],
        ["steps with a draft", *(_percent(reading["draft_coverage"]) for reading in readings)],
        ["tokens per step", *(_number(reading["tokens_per_step"]) for reading in readings)],
    ]
    for name in names_of(lambda metric: metric.is_latency and metric.name in readings[0]):
        for statistic in ("mean", "p99"):
            cells = [_statistic(reading[name], statistic, metric_of(name).scale) for reading in readings]
            rows.append([label_of(f"{name}.{statistic}"), *cells])
    rows.append(["output tokens/s", *(_number(reading["throughput_tokens_per_s"]) for reading in readings)])
    for label, _ in _LOAD:
        rows.append([label, *(_number(dict(_shown_load(reading)).get(label)) for reading in readings)])
    known = [row for row in rows if any(cell not in ("", NOTHING) for cell in row[1:])]
    print_table(["", *(str(number) for number in range(1, len(readings) + 1))], known)


def _print_alpha(document: AnswerDocument) -> None:
    alpha, fits = document["geometric_alpha"], document["fits"]
    if alpha is None:
        return
    text = f"α = {alpha:.3f} as a geometric model"
    if fits and fits[0]["model"] == "geometric":
        text += ", which describes the positions best"
    elif fits:
        behind = next(fit["goodness"]["bic_above_best"] for fit in fits if fit["model"] == "geometric")
        parameters = ", ".join(f"{name} {_parameter(value)}" for name, value in fits[0]["parameters"].items())
        text += f"; {fits[0]['model']} describes the positions better (BIC {behind:.0f} lower): {parameters}"
    print_text(text)


def _parameter(value: Any) -> str:
    return " ".join(f"{number:.3f}" for number in value) if isinstance(value, list) else f"{value:.3f}"


def _print_health(findings: Sequence[AnswerDocument]) -> None:
    """Findings with their severity in colour and their code, or a word that there are none."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not findings:
        print_text("Health: nothing unusual")
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for finding in findings:
        text = Text(finding["text"]).append(f"  {finding['code']}", style="dim")
        table.add_row(Text(finding["severity"], style=_COLOURS[finding["severity"]]), text)
    click.echo("\nHealth")
    Console(file=sys.stdout, width=terminal_width(), highlight=False).print(table)


def _length(reading: AnswerDocument) -> str:
    length = reading["mean_acceptance_length"]
    if length is None:
        return NOTHING
    if length["ci95"] is None:
        return f"{length['value']:.2f}"
    return f"{length['value']:.2f} ± {(length['ci95'][1] - length['ci95'][0]) / 2:.2f}"


def _statistic(latency: AnswerDocument, statistic: str, scale: float) -> str:
    """A statistic, or the bucket that it lies in."""
    if statistic not in latency:
        return NOTHING
    bounds = latency.get("within", {}).get(statistic)
    if bounds is not None:
        return f"{bounds[0] * scale:g}–{bounds[1] * scale:g}"
    return format_number(latency[statistic] * scale)


def _percent(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate:.1%}"


def _percent_range(interval: Sequence[float] | None) -> str:
    return NOTHING if interval is None else f"{interval[0] * 100:.0f}–{interval[1] * 100:.0f}%"


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value == int(value) else format_number(value)
