"""`decodesim simulate`: plain decoding and every speculative variant of the same traffic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import (
    flags_of,
    json_option,
    lines_of,
    precision_option,
    precision_override,
    price_option,
    read_scenario,
    scenario_options,
    writes_file,
)
from experiments.commands.output import (
    NOTHING,
    estimate_text,
    interval_text,
    note,
    note_compilation,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from simulator.errors import InputError, Problem
from simulator.results.catalogue import COMPARED, label_of, metric_of, paths_shown
from simulator.results.metric import Detail
from simulator.results.verdict import NO_VERDICT
from simulator.units import format_number

if TYPE_CHECKING:
    from simulator.scenario import Scenario

_DEFAULTS_THAT_MATTER = ("target.kv_cache", "workload.prompt_tokens", "workload.output_tokens")
"""Defaults that move the answer and that nothing else in the output names."""
_NOT_IN_THE_TABLE = tuple(
    f"{what} for {name}"
    for what in ("too few samples", "no interval")
    for name in ("p50", "p90", "p95", "p999")
)
_LEFT_OUT = ("no drafts, so no acceptance", "the scenario sets no SLO", *_NOT_IN_THE_TABLE)
"""Notes on what the table says itself, or does not show."""


@click.command()
@scenario_options
@precision_option
@price_option("Price of a GPU hour: adds the cost per million output tokens.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the result files.")
@click.option(
    "--trace-out", type=click.Path(path_type=Path, dir_okay=False), help="Chrome/Perfetto trace of the steps."
)
@json_option
@writes_file
def command(
    scenario: Path | None,
    overrides: tuple[str, ...],
    precision: str | None,
    gpu_hour_cost: float | None,
    out: Path | None,
    trace_out: Path | None,
    as_json: bool,
    **flags_given: Any,
) -> None:
    """Simulate plain decoding and every speculative variant of SCENARIO.

    All variants meet the same traffic and the same random numbers.
    """
    from experiments.token_cost import price_problem, with_costs
    from simulator.simulation import simulate

    if (problem := price_problem(gpu_hour_cost)) is not None:
        raise InputError(problem)
    loaded = read_scenario(scenario, (*overrides, *precision_override(precision)), flags_of(flags_given))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)  # fails before the long run
    if trace_out is not None and not trace_out.parent.is_dir():
        raise InputError(Problem(file=str(trace_out), message="cannot be written: its folder does not exist"))
    note_compilation()
    with lines_of(loaded), progress_bar("simulating") as progress:
        result = simulate(loaded, progress, trace_out, keep_requests=out is not None)
    if out is not None:
        note(f"wrote {result.write(out)}")
    if trace_out is not None:
        note(f"wrote {trace_out}; open it in ui.perfetto.dev")
    document = result.to_json()
    if gpu_hour_cost is not None:
        document = with_costs(document, loaded, gpu_hour_cost)
    if as_json:
        print_json(document)
    else:
        print_result(document, loaded)


def print_result(document: Mapping[str, Any], scenario: Scenario) -> None:
    """The answer for people: verdict, table of the variants, ratios, what it rests on."""
    from simulator.scenario import given_acceptance
    from simulator.scenario.basis import GIVEN

    variants = document["arms"]
    print_text(f"{scenario.title}: {_traffic(scenario)}")
    reasons = []
    for name, comparison in document["comparison"].items():
        condition = ""
        if comparison.get("acceptance_basis") == GIVEN and comparison["verdict"] is not NO_VERDICT:
            condition = f"If {given_acceptance(scenario, name)}: "
        reasons.append(f"{condition}{comparison['reason']}")
    if len(variants) > _SIDE_BY_SIDE:
        _print_ranking(document)
        print_list("Verdicts", reasons)
    else:
        for reason in reasons:
            print_text(f"→ {reason}")
        _print_side_by_side(variants)
        _print_comparison(document["comparison"])
    print_list("Notes", notes_for_people(document))
    print_list("Rests on", _basis(document["provenance"], scenario))


_NO_BREAK = "\u00a0"
_SIDE_BY_SIDE = 6
"""Variants that are printed next to each other; more are rows of one table."""


def _print_ranking(document: Mapping[str, Any]) -> None:
    """One row for each variant, the fastest first."""

    def speedup(name: str) -> float:
        ratio = document["comparison"].get(name, {}).get("throughput_speedup")
        return 1.0 if ratio is None else float(ratio["value"])

    def row(name: str) -> list[str]:
        comparison = document["comparison"].get(name, {})
        ratio = comparison.get("throughput_speedup")
        figures = [_metric(document["arms"][name], path) for path in paths]
        scales = [metric_of(path).scale for path in paths]
        cells = [
            NOTHING if figure is None else format_number(figure["value"] * scale)
            for figure, scale in zip(figures, scales, strict=True)
        ]
        factor = NOTHING if ratio is None else f"{ratio['value']:.2f}"
        band = NOTHING if ratio is None else interval_text(ratio["band"]).replace(" ", _NO_BREAK)
        verdict = comparison.get("verdict") or NOTHING
        return [_heading(name, document["arms"][name]), verdict, factor, band, *cells]

    arms = document["arms"].values()
    paths = [path for path in paths_shown(Detail.SUMMARY) if any(_metric(arm, path) for arm in arms)]
    names = sorted(document["arms"], key=speedup, reverse=True)
    headings = ["", "verdict", "throughput ×", "band", *map(label_of, paths)]
    print_table(headings, [row(name) for name in names])


def _print_side_by_side(variants: Mapping[str, Any]) -> None:
    rows = [
        [
            label_of(path),
            *(estimate_text(_metric(variant, path), metric_of(path).scale) for variant in variants.values()),
        ]
        for path in paths_shown(Detail.TABLE)
        if any(_metric(variant, path) is not None for variant in variants.values())
    ]
    costs = [variant.get("cost_per_million_tokens") for variant in variants.values()]
    if any(costs):
        rows.append(["cost per million output tokens", *map(estimate_text, costs)])
    print_table(
        ["± 95 % of sampling", *(_heading(name, variant) for name, variant in variants.items())], rows
    )


def _metric(variant: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """The estimate at a dotted path, None where the run has none."""
    node: Any = variant
    for key in path.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else None


def _heading(name: str, variant: Mapping[str, Any]) -> str:
    return f"{name} (saturated)" if variant["saturated"] else name


def _print_comparison(comparison: Mapping[str, Any]) -> None:
    rows = []
    for name, variant_comparison in comparison.items():
        for key, figure in COMPARED.items():
            label, ratio = figure.title, variant_comparison.get(key)
            if ratio is not None:
                cells = (f"{ratio['value']:.2f}", interval_text(ratio["ci95"]), interval_text(ratio["band"]))
                rows.append([f"{name}: {label}", *cells])
    if rows:
        headings = ["against plain decoding", "value", "95 % of sampling", "band with the cost model's error"]
        print_table(headings, rows)


def _traffic(scenario: Scenario) -> str:
    arrivals, workload = scenario.workload.arrivals, scenario.workload
    match arrivals.kind:
        case "closed":
            load = f"{arrivals.concurrency:,} client{'' if arrivals.concurrency == 1 else 's'}"
        case "burst":
            load = "all requests at once"
        case "poisson" | "gamma":
            load = f"{arrivals.rate_per_s:g} requests/s"
        case "profile":
            load = "a rate that changes"
        case "trace":
            return f"the requests of {arrivals.file}"
    return f"{load}, {workload.requests:,} requests"


def _basis(provenance: Mapping[str, Any], scenario: Scenario) -> list[str]:
    """What the answer rests on: profile, preset, driver, acceptance, and the defaults."""
    from simulator.scenario import assumed_acceptance

    driver = provenance["backend"]
    reason = provenance.get("backend_reason")
    assumed = assumed_acceptance(scenario)
    lines = [
        f"kernel times: profile {provenance['profile']}; serving engine: preset {provenance['preset']}",
        f"driver: {driver}{f' ({reason})' if reason else ''}; seed {provenance['seed']}, "
        f"scenario {provenance['scenario_sha256'][:12]}, version {provenance['version']}",
    ]
    if assumed is not None:
        lines.append(assumed)
    defaults = provenance["defaults_used"]
    important_defaults = [
        f"{path} {_short(value)}" for path, value in defaults.items() if path in _DEFAULTS_THAT_MATTER
    ]
    if important_defaults:
        lines.append(f"defaults: {', '.join(important_defaults)}; all {len(defaults)} in --json")
    elif defaults:
        lines.append(f"{len(defaults)} defaults, listed in --json")
    return lines


def notes_for_people(document: Mapping[str, Any]) -> list[str]:
    """The notes, those that several variants share once, without those the table makes needless."""
    variants = list(document["arms"])
    shared: dict[str, list[str]] = {}
    for text in document["notes"]:
        variant = next((name for name in variants if text.startswith(f"{name}: ")), "")
        note_text = text.removeprefix(f"{variant}: ")
        if not note_text.startswith(_LEFT_OUT):
            shared.setdefault(note_text, []).append(variant)
    return [text if "" in names else f"{', '.join(names)}: {text}" for text, names in shared.items()]


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(
            f"{inner}" if key in ("kind", "model") else f"{key} {inner:g}" for key, inner in value.items()
        )
    return f"{value:g}" if isinstance(value, float) else str(value)
