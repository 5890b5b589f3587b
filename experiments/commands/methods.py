"""`decodesim methods`: the speculation methods, what each needs and costs, and the engines that have it."""

from __future__ import annotations

import click

from experiments.commands.options import json_option
from experiments.commands.output import print_json, print_list, print_table


@click.command()
@json_option
def command(as_json: bool) -> None:
    """List the speculation methods: what they need, run and cost, and which engines have them."""
    from simulator.engines.presets import ENGINE_TITLES
    from simulator.speculation import methods
    from simulator.speculation.table import method_row

    rows = [method_row(method) for method in methods().values()]
    if as_json:
        print_json({"methods": [row.to_json() for row in rows]})
        return
    print_table(
        [
            "method",
            "passes",
            "rows of pass 1 / later",
            "rows verified",
            "KV",
            "host sync",
            *ENGINE_TITLES.values(),
        ],
        [
            [
                row.name,
                row.serial_passes,
                row.rows,
                row.verified_rows,
                "yes" if row.draft_kv else "no",
                "yes" if row.host_sync else "no",
                *(row.engines.get(engine, "-") for engine in ENGINE_TITLES),
            ]
            for row in rows
        ],
    )
    print_list(
        "Letters",
        [
            "N query tokens of a step, R its requests, K the draft length",
            "M nodes of a tree with its root, L its levels, W the window of lookahead decoding",
        ],
    )
