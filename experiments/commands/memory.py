"""`decodesim memory`: what every arm takes of a GPU's memory and what it leaves for KV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import flags_of, json_option, lines_of, read_scenario, scenario_options
from experiments.commands.output import NOTHING, print_json, print_list, print_table, print_text
from simulator.units import format_bytes

if TYPE_CHECKING:
    from simulator.memory import MemoryReport


@click.command()
@scenario_options
@json_option
def command(scenario: Path | None, overrides: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """What fits on the GPUs of SCENARIO: weights, drafter, KV, and what the drafter costs."""
    from simulator.memory import memory

    read = read_scenario(scenario, overrides, flags_of(given))
    with lines_of(read):
        report = memory(read)
    if as_json:
        print_json(report.to_json())
        return
    gpus = f"{read.hardware.tensor_parallel} × {read.hardware.gpu}"
    print_text(f"{read.target.model} ({read.target.weights or 'weights as published'}) on {gpus}, per GPU:")
    _print_arms(report)
    print_text(_summary(report))
    print_list("Notes", report.notes)


def _print_arms(report: MemoryReport) -> None:
    arms = report.arms
    plain = arms[0]
    rows = [
        ["weights", *(format_bytes(arm.weights_bytes) for arm in arms)],
        ["drafter", *(format_bytes(arm.drafter_bytes) for arm in arms)],
        ["kept by the engine", *(format_bytes(arm.reserve_bytes) for arm in arms)],
        ["KV cache", *(format_bytes(arm.kv_bytes) for arm in arms)],
        ["usable", *(format_bytes(arm.usable_bytes) for arm in arms)],
        ["device", *(format_bytes(arm.device_bytes) for arm in arms)],
        ["KV per token", *(format_bytes(arm.kv_bytes_per_token) for arm in arms)],
        ["KV tokens held", *(f"{arm.kv_tokens:,}" for arm in arms)],
        ["requests at once", *(f"{arm.max_concurrency:,}" for arm in arms)],
    ]
    if any(arm.state_pool_bytes is not None for arm in arms):
        rows.insert(3, ["set aside for states", *(format_bytes(arm.state_pool_bytes or 0) for arm in arms)])
    if any(arm.state_bytes for arm in arms):
        rows.insert(-2, ["  states of a request", *(format_bytes(arm.state_bytes) for arm in arms)])
    if len(arms) > 1:
        against = ["  against plain", "", *(_against(arm.kv_tokens, plain.kv_tokens) for arm in arms[1:])]
        rows.insert(-1, against)
    print_table(["", *(arm.arm for arm in arms)], rows)


def _against(tokens: int, plain: int) -> str:
    return f"{tokens / plain - 1:+.1%}" if plain else NOTHING


def _summary(report: MemoryReport) -> str:
    mean = f"requests at once: of {report.arms[0].request_tokens:,.0f} tokens, the workload's mean"
    smallest = report.smallest_tensor_parallel
    fewest = (
        "no tensor parallelism up to 8 fits"
        if smallest is None
        else f"smallest tensor parallelism: {smallest}"
    )
    return f"{'It fits' if report.fits else 'It does NOT fit'}; {fewest}; {mean}."
