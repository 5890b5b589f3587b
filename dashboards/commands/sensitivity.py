"""`decodesim sensitivity`: which uncertain inputs decide the answer."""

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
    note_compilation,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from experiments.sensitivity.sobol import Sobol
    from experiments.sensitivity.tornado import Bar, Tornado


@click.command()
@scenario_options
@click.option("--arm", "variant", metavar="NAME", help="The speculative variant; default: the first.")
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
    help="Compute Sobol indices from N × (inputs + 2) runs. N is a power of 2; 128 gives good estimates.",
)  # fmt: skip
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write an HTML page."
)
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
    **flags: Any,
) -> None:
    """Rank the uncertain inputs of SCENARIO by how far each moves the answer over its range."""
    from experiments.sensitivity.inputs import inputs_from
    from experiments.sensitivity.sobol import require_samples, sobol
    from experiments.sensitivity.texts import study_json
    from experiments.sensitivity.tornado import tornado

    if samples is not None:
        require_samples(samples)
    if html is not None and not html.parent.is_dir():
        raise InputError(Problem(file=str(html), message="cannot be written: its folder is not there"))
    loaded = read_scenario(scenario, overrides, flags_of(flags))
    inputs = inputs_from(ranges, loaded)
    note_compilation()
    with lines_of(loaded), progress_bar("one at a time") as progress:
        tornado_result = tornado(loaded, variant, of, inputs, progress)
    sobol_result: Sobol | None = None
    if samples is not None:
        with lines_of(loaded), progress_bar("all together") as progress:
            sobol_result = sobol(loaded, variant, of, inputs, samples, progress)
    if html is not None:
        from dashboards.sensitivity_page import write_sensitivity_page

        write_sensitivity_page(loaded.title, tornado_result, sobol_result, html)
    if as_json:
        print_json(study_json(tornado_result, sobol_result))
    else:
        _print(loaded.title, tornado_result, sobol_result)
    if html is not None:
        note(f"wrote {html}: one page, opens offline")


def _print(title: str, tornado: Tornado, sobol_result: Sobol | None) -> None:
    """Print the findings, a table of all inputs, and the sources of their ranges."""
    from experiments.sensitivity.texts import answer_text, range_text

    words = answer_text(tornado.of)
    print_text(f"{title}: what {words} of {tornado.variant} depends on")
    widest = tornado.bars[0]
    print_text(
        f"→ {words} {tornado.base.value:.2f}; the input with the largest effect is {widest.input.name}: "
        f"{_value(widest.at_low)} at its low end, {_value(widest.at_high)} at its high end"
    )
    if sobol_result is not None:
        pays = (
            ""
            if sobol_result.pays_share is None
            else f", and speculation pays in {sobol_result.pays_share:.0%} of them"
        )
        low, high = sobol_result.quantiles["p5"], sobol_result.quantiles["p95"]
        print_text(f"→ all together: {low:.2f} to {high:.2f} in 90 % of the combinations{pays}")
    indices = {} if sobol_result is None else {index.input.parameter: index for index in sobol_result.indices}
    headings = ["input", "low end", "high end", f"{words} at low", "at high"]
    rows = [_row(bar, indices.get(bar.input.parameter)) for bar in tornado.bars]
    if sobol_result is not None:
        headings += ["variance alone", "with the others"]
    print_table(headings, rows)
    print_list("Ranges", [range_text(bar.input) for bar in tornado.bars])
    print_list("Notes", tornado.notes)


def _row(bar: Bar, index: Any) -> list[str]:
    from experiments.sensitivity.texts import value_text

    uncertain_input = bar.input
    row = [
        uncertain_input.name,
        value_text(uncertain_input, uncertain_input.low),
        value_text(uncertain_input, uncertain_input.high),
        _value(bar.at_low),
        _value(bar.at_high),
    ]
    if index is not None:
        row += [f"{index.first_order.value:.2f}", f"{index.total_order.value:.2f}"]
    return row


def _value(estimate: Any) -> str:
    return NOTHING if estimate is None else f"{estimate.value:.3f}"
