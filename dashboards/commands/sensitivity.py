"""`decodesim sensitivity`: which of the inputs that are not known exactly decide the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import (
    flags_of,
    json_option,
    lines_of,
    read_scenario,
    scenario_options,
    writes_file,
)
from experiments.commands.output import (
    NOTHING,
    note,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
    say_when_compiling,
)
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from experiments.sensitivity.sobol import Sobol
    from experiments.sensitivity.tornado import Bar, Tornado


@click.command()
@scenario_options
@click.option("--arm", "variant", metavar="NAME", help="The speculative variant; default the first.")
@click.option(
    "--of", default="speedup", show_default=True, metavar="ANSWER",
    help="speedup, break_even_alpha, or a ratio of the comparison as itl_p99_ratio.",
)  # fmt: skip
@click.option(
    "--input", "ranges", multiple=True, metavar="PATH=LOW:HIGH",
    help="One more uncertain input: a numeric field of the scenario and its range.",
)  # fmt: skip
@click.option(
    "--sobol", "samples", type=int, metavar="N",
    help="Sobol indices too, from N × (inputs + 2) runs: a power of 2, 128 for a good picture.",
)  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="A page of it.")
@json_option
@writes_file
def command(
    scenario: Path | None,
    overrides: tuple[str, ...],
    variant: str | None,
    of: str,
    ranges: tuple[str, ...],
    samples: int | None,
    html: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """What decides whether speculation pays in SCENARIO: every uncertain input to either end of its range."""
    from experiments.sensitivity.inputs import inputs_from
    from experiments.sensitivity.sobol import require_samples, sobol
    from experiments.sensitivity.tornado import tornado
    from experiments.sensitivity.words import study_json

    if samples is not None:
        require_samples(samples)
    if html is not None and not html.parent.is_dir():
        raise InputError(Problem(file=str(html), message="cannot be written: its folder is not there"))
    read = read_scenario(scenario, overrides, flags_of(given))
    inputs = inputs_from(ranges, read)
    say_when_compiling()
    with lines_of(read), progress_bar("one at a time") as progress:
        bars = tornado(read, variant, of, inputs, progress)
    found: Sobol | None = None
    if samples is not None:
        with lines_of(read), progress_bar("all together") as progress:
            found = sobol(read, variant, of, inputs, samples, progress)
    if html is not None:
        from dashboards.sensitivity_page import write_sensitivity_page

        write_sensitivity_page(read.title, bars, found, html)
    if as_json:
        print_json(study_json(bars, found))
    else:
        _print(read.title, bars, found)
    if html is not None:
        note(f"wrote {html}: one page, opens offline")


def _print(title: str, tornado: Tornado, found: Sobol | None) -> None:
    """Sentences, one table of all inputs, and where their ranges come from."""
    from experiments.sensitivity.words import answer_words, bound

    words = answer_words(tornado.of)
    print_text(f"{title}: what {words} of {tornado.variant} hangs on")
    widest = tornado.bars[0]
    print_text(
        f"→ {words} {tornado.base.value:.2f}; of one input alone, {widest.input.name} moves it most: "
        f"{_value(widest.at_low)} at its low end, {_value(widest.at_high)} at its high end"
    )
    if found is not None:
        pays = "" if found.pays_share is None else f", and speculation pays in {found.pays_share:.0%} of them"
        low, high = found.quantiles["p5"], found.quantiles["p95"]
        print_text(f"→ all together: {low:.2f} to {high:.2f} in 90 % of the combinations{pays}")
    indices = {} if found is None else {index.input.knob: index for index in found.indices}
    headings = ["input", "low end", "high end", f"{words} at low", "at high"]
    rows = [_row(bar, indices.get(bar.input.knob)) for bar in tornado.bars]
    if found is not None:
        headings += ["variance alone", "with the others"]
    print_table(headings, rows)
    ranges = [
        f"{one.name}, {bound(one, one.low)} to {bound(one, one.high)}: {one.source}"
        for one in (bar.input for bar in tornado.bars)
    ]
    print_list("Ranges", ranges)
    print_list("Notes", tornado.notes)


def _row(bar: Bar, index: Any) -> list[str]:
    from experiments.sensitivity.words import bound

    one = bar.input
    row = [one.name, bound(one, one.low), bound(one, one.high), _value(bar.at_low), _value(bar.at_high)]
    if index is not None:
        row += [f"{index.first_order.value:.2f}", f"{index.total_order.value:.2f}"]
    return row


def _value(estimate: Any) -> str:
    return NOTHING if estimate is None else f"{estimate.value:.3f}"
