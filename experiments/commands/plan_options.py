"""The options of a capacity plan, which `plan` and `rollout` share."""

from __future__ import annotations

import click

from experiments.commands.options import Function, price_option


def plan_options(function: Function) -> Function:
    """Adds `--slo`, `--rate` and `--gpu-hour-cost`."""
    function = price_option("Price of a GPU hour; without it costs are GPU-hours.")(function)
    rate = "Peak requests per second of all replicas (Poisson)."
    function = click.option("--rate", type=float, metavar="R", help=rate)(function)
    slo = "Limits, e.g. ttft_p99=1s,tpot_p99=25ms; default the scenario's."
    return click.option("--slo", metavar="LIMIT,…", help=slo)(function)
