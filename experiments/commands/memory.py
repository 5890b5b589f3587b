"""`decodesim memory`: what every variant uses of a GPU's memory and what it leaves for KV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import flags_of, json_option, lines_of, read_scenario, scenario_options
from experiments.commands.output import NOTHING, print_json, print_list, print_table, print_text
from simulator.units import format_bytes

if TYPE_CHECKING:
    from simulator.memory.report import MemoryReport


@click.command()
@scenario_options
@json_option
def command(scenario: Path | None, overrides: tuple[str, ...], as_json: bool, **flags_given: Any) -> None:
    """Show how SCENARIO uses the memory of its GPUs: weights, drafter and KV cache, per variant."""
    from simulator.memory.report import memory

    loaded = read_scenario(scenario, overrides, flags_of(flags_given))
    with lines_of(loaded):
        report = memory(loaded)
    if as_json:
        print_json(report.to_json())
        return
    gpus = f"{loaded.hardware.tensor_parallel} × {loaded.hardware.gpu}"
    print_text(
        f"{loaded.target.model} ({loaded.target.weights or 'weights as published'}) on {gpus}, per GPU:"
    )
    _print_variants(report)
    print_text(_summary(report))
    print_list("Notes", report.notes)


def _print_variants(report: MemoryReport) -> None:
    variants = report.variants
    plain = variants[0]
    rows = [
        ["weights", *(format_bytes(variant.weights_bytes) for variant in variants)],
        ["drafter", *(format_bytes(variant.drafter_bytes) for variant in variants)],
        ["kept by the engine", *(format_bytes(variant.reserve_bytes) for variant in variants)],
        ["KV cache", *(format_bytes(variant.kv_bytes) for variant in variants)],
        ["usable", *(format_bytes(variant.usable_bytes) for variant in variants)],
        ["device", *(format_bytes(variant.device_bytes) for variant in variants)],
        ["KV per token", *(format_bytes(variant.kv_bytes_per_token) for variant in variants)],
        ["KV tokens held", *(f"{variant.kv_tokens:,}" for variant in variants)],
        ["requests at once", *(f"{variant.max_concurrency:,}" for variant in variants)],
    ]
    if any(variant.state_pool_bytes is not None for variant in variants):
        rows.insert(
            3,
            ["reserved for states", *(format_bytes(variant.state_pool_bytes or 0) for variant in variants)],
        )
    if any(variant.state_bytes for variant in variants):
        rows.insert(
            -2, ["  states of a request", *(format_bytes(variant.state_bytes) for variant in variants)]
        )
    if len(variants) > 1:
        changes = [
            "  against plain",
            "",
            *(_change_from_plain(variant.kv_tokens, plain.kv_tokens) for variant in variants[1:]),
        ]
        rows.insert(-1, changes)
    print_table(["", *(variant.variant for variant in variants)], rows)


def _change_from_plain(tokens: int, plain: int) -> str:
    return f"{tokens / plain - 1:+.1%}" if plain else NOTHING


def _summary(report: MemoryReport) -> str:
    mean = f"requests at once have {report.variants[0].request_tokens:,.0f} tokens, the workload's mean"
    smallest = report.smallest_tensor_parallel
    smallest_text = (
        "no tensor parallelism up to 8 fits"
        if smallest is None
        else f"smallest tensor parallelism: {smallest}"
    )
    return f"{'It fits' if report.fits else 'It does NOT fit'}; {smallest_text}; {mean}."
