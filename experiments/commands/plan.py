"""`decodesim plan`: replicas and cost of a traffic within its SLO, with and without speculation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.capacity.demand import shown_gpus, shown_load, words
from experiments.commands.options import (
    flags_of,
    json_option,
    lines_of,
    read_scenario,
    scenario_options,
)
from experiments.commands.output import (
    NOTHING,
    in_unit,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
    say_when_compiling,
)
from simulator.results.catalogue import label_of, metric_of, paths_shown
from simulator.results.metric import Detail
from simulator.units import format_number, format_seconds

if TYPE_CHECKING:
    from simulator.scenario import Scenario

_MOST_ALTERNATIVES = 8


@click.command()
@scenario_options
@click.option(
    "--slo", metavar="LIMIT,…", help="Limits, e.g. ttft_p99=1s,tpot_p99=25ms; default the scenario's."
)
@click.option(
    "--rate", type=float, metavar="R", help="Requests per second of all replicas (Poisson), at the peak."
)
@click.option(
    "--gpu-hour-cost", type=float, metavar="C", help="Price of a GPU hour; without it costs are GPU-hours."
)
@json_option
def command(
    scenario: Path | None,
    overrides: tuple[str, ...],
    slo: str | None,
    rate: float | None,
    gpu_hour_cost: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Replicas, GPUs and cost for the traffic of SCENARIO within its SLO, and whether to enable speculation.

    The load is that of all replicas together, however many SCENARIO has.
    """
    from experiments.capacity.plan import plan

    read = read_scenario(scenario, overrides, flags_of(given))
    say_when_compiling()
    with lines_of(read), progress_bar("planning") as progress:
        answer = plan(read, slo, rate, gpu_hour_cost, progress)
    document = answer.to_json()
    if as_json:
        print_json(document)
    else:
        print_plan(document, read)


def print_plan(document: Mapping[str, Any], scenario: Scenario) -> None:
    """The page for people: verdict, reason, both ways side by side, schedule, what would change it."""
    asked = f"{_load(document, document['traffic']['peak'])} within {_slo(document)}"
    print_text(f"{scenario.name or scenario.target.model}: {asked}")
    print_text(f"→ {document['verdict']}: {document['reason']}")
    _print_ways(document)
    for line in (*_best(document), *_changes(document)):
        print_text(line)
    _print_alternatives(document)
    print_list("Notes", document["notes"])


def _load(document: Mapping[str, Any], amount: float) -> str:
    return words(amount, document["load_unit"])


def _slo(document: Mapping[str, Any]) -> str:
    limits = [f"{limit['label']} ≤ {_limit(limit, limit['most'])}" for limit in document["slo"]]
    each = [
        f"{metric.upper()} ≤ {format_seconds(most)}" for metric, most in document["slo_of_requests"].items()
    ]
    return " and ".join([*limits, *([f"each one's {' and '.join(each)}"] if each else [])])


def _limit(limit: Mapping[str, Any], value: float) -> str:
    return f"{value:.1%}" if limit["limit"].endswith("slo_attainment") else format_seconds(value)


def _print_ways(document: Mapping[str, Any]) -> None:
    """Plain and speculative side by side; a way that does not keep the SLO has no figures."""
    best, ways = document["best"], ("plain", "speculative")
    heading = (
        f"{best['arm']}, K {best['draft_length']}" if isinstance(best["draft_length"], int) else best["arm"]
    )
    unit = document["load_unit"]

    def row(text: str, key: str, show: Any) -> list[str]:
        return [text, *(NOTHING if document[key][way] is None else show(document[key][way]) for way in ways)]

    rows = [
        row("replicas", "replicas", str),
        row(
            "  within the model's error",
            "replicas_band",
            lambda pair: " to ".join(str(n) for n in dict.fromkeys(pair)),
        ),
        row("GPUs of a replica", "tensor_parallel", str),
        row("GPUs", "gpus", str),
        row(f"{_cost(document)} per million output tokens", "cost_per_million_tokens", format_number),
        row("  with replicas that follow the load", "cost_per_million_tokens_when_scaled", format_number),
        row(f"one replica within the SLO, {unit}", "capacity", in_unit),
        row("  limited by", "limited_by", str),
        row(f"one replica saturated, {unit}", "saturation", in_unit),
        row("headroom at the peak", "headroom", lambda share: f"{share:.0%}"),
        row(f"at the peak each gets, {unit}", "at_peak", lambda one: shown_load(one["load"])),
    ]
    limited = (limit["limit"] for limit in document["slo"])
    rows += [
        row(
            f"  {label_of(path)}",
            "at_peak",
            lambda one, p=path: in_unit(one["figures"][p], metric_of(p).scale),
        )
        for path in dict.fromkeys((*paths_shown(Detail.SUMMARY), *limited))
    ]
    rows.append(row("TPOT mean at the mean load, ms", "tpot_at_mean_s", lambda s: format_number(s * 1e3)))
    shown = [cells for cells in rows if cells[1:] != [NOTHING, NOTHING]]
    print_table(["± 95 % of sampling", "plain", heading], shown)


def _best(document: Mapping[str, Any]) -> list[str]:
    """What to set: variant, draft length, schedule."""
    schedule = document["schedule"]
    if schedule is None:
        return []
    rows = ", ".join(f"[{low}, {'null' if high is None else high}, {k}]" for low, high, k in schedule)
    gain = document["schedule_speedup"]
    text = f"K schedule by requests in the step: draft_length: [{rows}]"
    if gain is not None:
        faster = gain["value"] - 1
        how = (
            f"{abs(faster):.0%} {'shorter' if faster > 0 else 'longer'} than" if abs(faster) >= 0.01 else "as"
        )
        text += f"; mean TPOT at the peak {how} with K {document['best']['draft_length']}"
    return [text]


def _changes(document: Mapping[str, Any]) -> list[str]:
    """What would change the answer."""
    lines = []
    crossing, even, better = (document[key] for key in ("crossover", "break_even", "value_of_better_drafter"))
    if crossing is not None:
        lines.append(f"Crossover: {_crossing(document, crossing)}")
    if even is not None and even["alpha"] is not None:
        band = even["alpha"]["band"] or (even["alpha"]["value"],) * 2
        own = even["scenario_alpha"]
        yours = "" if own is None else f"; yours is {own:.2f}"
        text = (
            f"Break-even α at this load: {even['alpha']['value']:.2f} ({band[0]:.2f} to {band[1]:.2f}){yours}"
        )
        lines.append(text)
    if better is not None and better["gpus"] is not None:
        lines.append(_better(document, better))
    mixed = document["mixed_fleet"]
    if mixed is not None:
        parts = "; ".join(
            f"{one['class']} on {one['replicas']} × TP {one['tensor_parallel']} {one['arm']}"
            for one in mixed["classes"]
        )
        shared = mixed["gpus_of_the_best_shared_fleet"]
        total = f"{shown_gpus(mixed['gpus'])} (shared: {shared or NOTHING})"
        lines.append(f"Replicas of their own for each class: {parts}: {total}")
    return lines


def _better(document: Mapping[str, Any], better: Mapping[str, Any]) -> str:
    what = f"A drafter with α {better['better_alpha']:.2f}"
    text = f"{what}: K {better['draft_length']}, {shown_gpus(better['gpus'])}"
    before, saved = document["cost_per_million_tokens"]["speculative"], better["cost_saved"]
    if before is not None and saved is not None:
        text += f", {saved / before:.0%} off the cost of a token" if saved > 0 else ", no cheaper"
    return f"{text}, TPOT mean {format_seconds(better['tpot_mean_s'])}"


def _crossing(document: Mapping[str, Any], crossing: Mapping[str, Any]) -> str:
    from experiments.capacity.crossover import ALL_LOADS, NO_LOAD

    highest = f"{_load(document, crossing['highest_looked_at'])} a replica, where one of the two saturates"
    outcome = crossing["outcome"]
    if crossing["per_replica"] is not None:
        load = crossing["per_replica"]
        band = load["band"] or (load["value"],) * 2
        text = f"speculation pays up to {_load(document, load['value'])} a replica"
        within = f"({format_number(band[0])} to {format_number(band[1])})"
        return f"{text} {within} on TP {crossing['tensor_parallel']}"
    if outcome == ALL_LOADS:
        return f"none: speculation pays at every load up to {highest}"
    return (
        "none: speculation pays at no load"
        if outcome == NO_LOAD
        else "not clear: the variants tie over the load"
    )


def _cost(document: Mapping[str, Any]) -> str:
    return "GPU-hours" if document["cost_unit"] == "GPU-hours" else "cost"


def _print_alternatives(document: Mapping[str, Any]) -> None:
    able = [one for one in document["alternatives"] if one["gpus"] is not None]
    rows = [
        [
            _place(one),
            str(one["replicas"]),
            str(one["gpus"]),
            format_number(one["cost_per_million_tokens"]),
            format_number(one["tpot_mean_s"] * 1e3),
        ]
        for one in able[:_MOST_ALTERNATIVES]
    ]
    if rows:
        cost = f"{_cost(document)} per million"
        print_table(["alternatives", "replicas", "GPUs", cost, "TPOT mean, ms"], rows)
    unable = [one for one in document["alternatives"] if one["gpus"] is None]
    print_list(
        "Not within the SLO", [f"{_place(one)}: {one['why_not']}" for one in unable[:_MOST_ALTERNATIVES]]
    )


def _place(one: Mapping[str, Any]) -> str:
    length = one["draft_length"]
    name = (
        one["arm"] if length == 0 else f"{one['arm']}, K {length if isinstance(length, int) else 'by batch'}"
    )
    return f"{name} on TP {one['tensor_parallel']} of {one['gpu']}"
