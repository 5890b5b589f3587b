"""`decodesim breakeven`: the acceptance at which speculation pays, by load, draft length and metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import (
    flags_of,
    is_yaml,
    json_option,
    lines_of,
    numbers,
    read_scenario,
    scenario_options,
    words,
)
from experiments.commands.output import (
    NOTHING,
    note_compilation,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from simulator.scenario import Scenario

_LEGEND = (
    "step +: extra time of a step that only decodes. linear: accepted ÷ drafted at this K. geometric: α of "
    "independent drafts, from step times alone. simulated: α with all effects (stops, prefill, KV, batch); "
    "brackets hold the band with the cost model's error. yours: the scenario's α. Compare α with α only."
)


@click.command()
@scenario_options
@click.option(
    "--rate", metavar="1,2,…", help="Requests per second instead of concurrency (Poisson arrivals)."
)
@click.option("--target-speedup", metavar="1,1.5,…", help="Speedups to reach; default 1.")
@click.option(
    "--metric",
    metavar="NAME,…",
    help="Default throughput, with rates also tpot_mean; tpot_p99, itl_p99, goodput, …",
)
@json_option
def command(
    scenario: Path | None,
    overrides: tuple[str, ...],
    rate: str | None,
    target_speedup: str | None,
    metric: str | None,
    as_json: bool,
    **flags_given: Any,
) -> None:
    """Find the acceptance at which speculation begins to pay in SCENARIO: linear, geometric and simulated.

    --concurrency and --draft-length take lists here: 1,8,64 and 1,3,5. They default to the scenario's values.
    """
    from simulator.breakeven.breakeven import breakeven

    concurrency, lengths = flags_given["concurrency"], flags_given["draft_length"]
    loads = loads_of(concurrency, rate)
    draft_lengths = (
        None if lengths is None or is_yaml(lengths) else numbers("--draft-length", lengths, integers=True)
    )
    targets = numbers("--target-speedup", target_speedup) or [1.0]
    flags = flags_of(flags_given)
    if scenario is not None:
        flags |= {"concurrency": None, "draft_length": None}
    loaded = read_scenario(scenario, overrides, flags, lists=True)
    note_compilation()
    lines = lines_of(loaded) if loads is None else nullcontext()  # a load from a flag has no line
    with lines, progress_bar("break-even") as progress:
        answer = breakeven(
            loaded,
            loads=loads,
            draft_lengths=draft_lengths,
            target_speedups=targets,
            metrics=words(metric) or None,
            progress=progress,
        )
    document = answer.to_json()
    if as_json:
        print_json(document)
    else:
        print_break_even(document, loaded)


def loads_of(concurrency: str | None, rate: str | None) -> list[dict[str, float]] | None:
    """The loads of the flags, as rows name them; None: the scenario's load. Raises InputError."""
    if concurrency is not None and rate is not None:
        message = "cannot be combined with --concurrency"
        raise InputError(Problem(field="--rate", value=rate, message=message, allowed="one of the two"))
    loads: list[dict[str, float]] = [
        {"concurrency": n} for n in numbers("--concurrency", concurrency, integers=True)
    ]
    loads += [{"rate_per_s": r} for r in numbers("--rate", rate)]
    problems = [
        Problem(
            field=f"--{'concurrency' if name == 'concurrency' else 'rate'}",
            value=value,
            message="is out of range",
            allowed="1 to 1,000,000" if name == "concurrency" else "above 0, to 1,000,000",
        )
        for load in loads
        for name, value in load.items()
        if not 0 < value <= 1e6
    ]
    if problems:
        raise InputError(problems)
    return loads or None


def print_break_even(document: Mapping[str, Any], scenario: Scenario) -> None:
    """Print the rows as a table, the best draft lengths, and a legend.

    The title replaces columns that are constant.
    """
    rows = [_cells(row) for row in document["rows"]]
    constant_columns = [name for name in ("metric", "target") if len({row[name] for row in rows}) == 1]
    constants = "".join(f", {name} {rows[0][name]}" for name in constant_columns)
    print_text(f"{scenario.title}: acceptance needed to pay{constants}")
    headings = [name for name in rows[0] if name not in constant_columns]
    print_table(headings, [[row[name] for name in headings] for row in rows])
    _print_best(document["best_draft_length"], document["cost_ratio"])
    print_text(_LEGEND)
    print_list("Notes", document.get("notes", []))


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """A row of the answer: heading → cell."""
    clients, rate = row["load"].get("concurrency"), row["load"].get("rate_per_s")
    return {
        "load": f"{rate:g}/s" if clients is None else f"{clients:g} client{'' if clients == 1 else 's'}",
        "K": str(row["draft_length"]),
        "metric": row["metric"],
        "target": f"{row['target_speedup']:g}×",
        "step +": NOTHING if row["overhead"] is None else f"{row['overhead']:+.0%}",
        "linear": _two_decimals(row["linear_acceptance_rate"]),
        "geometric": _two_decimals(row["geometric_alpha"]),
        "simulated": _with_band(row["simulated_alpha"]),
        "tokens/verify": _with_band(row["mean_acceptance_length"]),
        "yours": _two_decimals(row["scenario_alpha"]),
        "verdict": row["verdict"],
    }


def _two_decimals(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _with_band(estimate: Mapping[str, Any] | None) -> str:
    if estimate is None:
        return NOTHING
    band: Sequence[float] | None = estimate.get("band")
    return f"{estimate['value']:.2f}" + (f" [{band[0]:.2f}, {band[1]:.2f}]" if band else "")


def _print_best(best: Mapping[str, Mapping[str, int]], ratios: Mapping[str, float]) -> None:
    if not best:
        return
    alphas = list(next(iter(best.values())))
    rows = [
        [load, *(str(by_alpha[alpha]) for alpha in alphas), f"{ratios[load]:.3f}"]
        for load, by_alpha in best.items()
    ]
    print_table(
        ["best K at load", *(f"α {alpha}" for alpha in alphas), "cost of one more draft ÷ plain step"], rows
    )
