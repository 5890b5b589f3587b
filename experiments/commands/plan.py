"""`decodesim plan`: replicas and cost of a traffic within its SLO, with and without speculation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.capacity.demand import amount_text, gpus_text, load_text
from experiments.commands.options import (
    flags_of,
    json_option,
    lines_of,
    read_scenario,
    scenario_options,
)
from experiments.commands.output import (
    NOTHING,
    estimate_text,
    note_compilation,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from experiments.commands.plan_options import plan_options
from simulator.results.catalogue import COMPARED, label_of, metric_of, paths_shown, title_of
from simulator.results.metric import Detail
from simulator.units import format_number, format_seconds

if TYPE_CHECKING:
    from simulator.scenario import Scenario

_MAX_ALTERNATIVES = 8


@click.command()
@scenario_options
@plan_options
@json_option
def command(
    scenario: Path | None,
    overrides: tuple[str, ...],
    slo: str | None,
    rate: float | None,
    gpu_hour_cost: float | None,
    as_json: bool,
    **flags_given: Any,
) -> None:
    """Plan replicas, GPUs and cost for the traffic of SCENARIO within its SLO, with and without speculation.

    The load is that of all replicas together. The number of replicas in SCENARIO is ignored.
    """
    from experiments.capacity.plan import plan

    loaded = read_scenario(scenario, overrides, flags_of(flags_given))
    note_compilation()
    with lines_of(loaded), progress_bar("planning") as progress:
        answer = plan(loaded, slo, rate, gpu_hour_cost, progress)
    document = answer.to_json()
    if as_json:
        print_json(document)
    else:
        print_plan(document, loaded)


def print_plan(document: Mapping[str, Any], scenario: Scenario) -> None:
    """Print verdict and reason, both variants side by side, the schedule, and what would change them."""
    demand = f"{_load(document, document['traffic']['peak'])} within {_slo(document)}"
    print_text(f"{scenario.name or scenario.target.model}: {demand}")
    print_text(f"→ {document['verdict']}: {document['reason']}")
    _print_variants(document)
    for line in (*_gains(document), *_best(document), *_changes(document)):
        print_text(line)
    _print_engine(document, scenario)
    _print_alternatives(document)
    print_list("Notes", document["notes"])


def _load(document: Mapping[str, Any], amount: float) -> str:
    return load_text(amount, document["load_unit"])


def _slo(document: Mapping[str, Any]) -> str:
    limits = [f"{limit['label']} ≤ {_limit(limit, limit['most'])}" for limit in document["slo"]]
    each = [
        f"{metric.upper()} ≤ {format_seconds(most)}" for metric, most in document["slo_of_requests"].items()
    ]
    return " and ".join([*limits, *([f"per request {' and '.join(each)}"] if each else [])])


def _limit(limit: Mapping[str, Any], value: float) -> str:
    return f"{value:.1%}" if limit["limit"].endswith("slo_attainment") else format_seconds(value)


def _print_variants(document: Mapping[str, Any]) -> None:
    """Print both variants side by side. A variant that misses the SLO has no figures."""
    best, ways = document["best"], ("plain", "speculative")
    heading = (
        f"{best['arm']}, K {best['draft_length']}" if isinstance(best["draft_length"], int) else best["arm"]
    )
    unit = document["load_unit"]

    def row(text: str, key: str, text_of: Any) -> list[str]:
        return [
            text,
            *(NOTHING if document[key][way] is None else text_of(document[key][way]) for way in ways),
        ]

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
        row(f"one replica within the SLO, {unit}", "capacity", estimate_text),
        row("  limited by", "limited_by", str),
        row(f"one replica saturated, {unit}", "saturation", estimate_text),
        row("headroom at the peak", "headroom", lambda share: f"{share:.0%}"),
        row(
            f"load of a replica at the peak, {unit}", "at_peak", lambda at_peak: amount_text(at_peak["load"])
        ),
    ]
    limited = (limit["limit"] for limit in document["slo"])
    rows += [
        row(
            f"  {label_of(path)}",
            "at_peak",
            lambda deployment, p=path: estimate_text(deployment["figures"][p], metric_of(p).scale),
        )
        for path in dict.fromkeys((*paths_shown(Detail.SUMMARY), *limited))
    ]
    rows.append(row("TPOT mean at the mean load, ms", "tpot_at_mean_s", lambda s: format_number(s * 1e3)))
    rows_with_values = [cells for cells in rows if cells[1:] != [NOTHING, NOTHING]]
    print_table(["± 95 % of sampling", "plain", heading], rows_with_values)


def _print_engine(document: Mapping[str, Any], scenario: Scenario) -> None:
    """Print what starts the engine of the scenario, as it is to be copied."""
    from calibration.launch.registry import engine_key

    engine = engine_key(scenario)
    text = document["engine"][engine]
    if text is not None:
        click.echo(f"\nStart it with (other engines: --json):\n\n{text}\n")
    for name in document["engine_files"] if text is not None else ():
        if name in text:
            click.echo(f"{name}:\n{document['engine_files'][name]}")
    print_list("Not in these options", document["engine_notes"][engine])


_GAINED = {
    **{title_of(ratio.path): name for name, ratio in COMPARED.items() if ratio.part in ("mean", "p99")},
    "tokens of a GPU within the SLO": "tokens_within_slo_ratio",
}
"""What a plan says of its gains → its name in `gains`; a speedup is turned round, to speculative ÷ plain."""


def _gains(document: Mapping[str, Any]) -> list[str]:
    """What speculation changes at the peak: `same GPUs, TPOT mean -36%, …`."""
    gains, gpus = document["gains"], document["gpus"]
    if not gains:
        return []
    difference = gpus["speculative"] - gpus["plain"]
    parts = ["the same GPUs" if difference == 0 else f"{difference:+,} GPUs"]
    for label, name in _GAINED.items():
        if gains[name] is not None:
            value = gains[name]["value"]
            parts.append(f"{label} {(1 / value if name.endswith('_speedup') else value) - 1:+.0%}")
    return [f"With speculation, at the peak: {', '.join(parts)}"]


def _best(document: Mapping[str, Any]) -> list[str]:
    """What to set: variant, draft length, schedule."""
    schedule = document["schedule"]
    if schedule is None or len(schedule) == 1:
        return []
    rows = ", ".join(f"[{low}, {'null' if high is None else high}, {k}]" for low, high, k in schedule)
    gain = document["schedule_speedup"]
    text = f"K schedule by requests in the step: draft_length: [{rows}]"
    if gain is not None:
        speedup = gain["value"] - 1
        comparison = (
            f"{abs(speedup):.0%} {'shorter' if speedup > 0 else 'longer'} than"
            if abs(speedup) >= 0.01
            else "as"
        )
        text += f"; mean TPOT at the peak {comparison} with K {document['best']['draft_length']}"
    return [text]


def _changes(document: Mapping[str, Any]) -> list[str]:
    """What would change the answer."""
    lines = []
    crossover, break_even, better = (
        document[key] for key in ("crossover", "break_even", "value_of_better_drafter")
    )
    if crossover is not None:
        lines.append(f"Crossover: {_crossing(document, crossover)}")
    if break_even is not None and break_even["alpha"] is not None:
        band = break_even["alpha"]["band"] or (break_even["alpha"]["value"],) * 2
        scenario_alpha = break_even["scenario_alpha"]
        scenario_text = "" if scenario_alpha is None else f"; yours is {scenario_alpha:.2f}"
        interval = f"{break_even['alpha']['value']:.2f} ({band[0]:.2f} to {band[1]:.2f})"
        lines.append(f"Break-even α at this load: {interval}{scenario_text}")
    if better is not None and better["gpus"] is not None:
        lines.append(_better(document, better))
    mixed = document["mixed_fleet"]
    if mixed is not None:
        parts = "; ".join(
            f"{fleet['class']} on {fleet['replicas']} × TP {fleet['tensor_parallel']} {fleet['arm']}"
            for fleet in mixed["classes"]
        )
        shared = mixed["gpus_of_the_best_shared_fleet"]
        total = f"{gpus_text(mixed['gpus'])} (shared: {shared or NOTHING})"
        lines.append(f"Separate replicas for each class: {parts}: {total}")
    return lines


def _better(document: Mapping[str, Any], better: Mapping[str, Any]) -> str:
    drafter = f"A drafter with α {better['better_alpha']:.2f}"
    text = f"{drafter}: K {better['draft_length']}, {gpus_text(better['gpus'])}"
    before, saved = document["cost_per_million_tokens"]["speculative"], better["cost_saved"]
    if before is not None and saved is not None:
        text += f", {saved / before:.0%} cheaper per token" if saved > 0 else ", not cheaper"
    return f"{text}, TPOT mean {format_seconds(better['tpot_mean_s'])}"


def _crossing(document: Mapping[str, Any], crossover: Mapping[str, Any]) -> str:
    from experiments.capacity.crossover import ALL_LOADS, NO_LOAD

    highest = (
        f"{_load(document, crossover['highest_looked_at'])} per replica, where one of the variants saturates"
    )
    outcome = crossover["outcome"]
    if crossover["per_replica"] is not None:
        load = crossover["per_replica"]
        band = load["band"] or (load["value"],) * 2
        text = f"speculation pays up to {_load(document, load['value'])} per replica"
        within = f"({format_number(band[0])} to {format_number(band[1])})"
        return f"{text} {within} on TP {crossover['tensor_parallel']}"
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
    within_slo = [alternative for alternative in document["alternatives"] if alternative["gpus"] is not None]
    rows = [
        [
            _place(alternative),
            str(alternative["replicas"]),
            str(alternative["gpus"]),
            format_number(alternative["cost_per_million_tokens"]),
            format_number(alternative["tpot_mean_s"] * 1e3),
        ]
        for alternative in within_slo[:_MAX_ALTERNATIVES]
    ]
    if rows:
        cost = f"{_cost(document)} per million"
        print_table(["alternatives", "replicas", "GPUs", cost, "TPOT mean, ms"], rows)
    outside_slo = [alternative for alternative in document["alternatives"] if alternative["gpus"] is None]
    print_list(
        "Not within the SLO",
        [
            f"{_place(alternative)}: {alternative['why_not']}"
            for alternative in outside_slo[:_MAX_ALTERNATIVES]
        ],
    )


def _place(alternative: Mapping[str, Any]) -> str:
    length = alternative["draft_length"]
    name = (
        alternative["arm"]
        if length == 0
        else f"{alternative['arm']}, K {length if isinstance(length, int) else 'by batch'}"
    )
    return f"{name} on TP {alternative['tensor_parallel']} of {alternative['gpu']}"
