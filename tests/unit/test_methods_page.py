"""docs/methods.md: its tables are what the methods' records and the serving-engine presets say."""

from __future__ import annotations

from simulator.engines.preset import Preset
from simulator.engines.presets import presets
from simulator.scheduling import scheduler_rule
from simulator.speculation import Method, method, methods
from simulator.speculation.table import method_row
from tests.pages import read

PAGE = read("docs/methods.md")
EXAMPLE_DRAFTS = 3


def row(*cells: str) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def described(method: Method) -> str:
    """What the table must say of a method."""
    r = method_row(method)
    return row(
        f"`{r.name}`",
        r.needs,
        r.serial_passes,
        r.rows,
        r.drafts,
        r.verified_rows,
        f"yes, {r.kv_slots}" if r.draft_kv else "no",
        r.budget_slots,
        "yes" if r.loses_last_match else "no",
    )


def engine_rows(known: list[Preset]) -> list[str]:
    """What the second table must say of the presets."""
    ngram = method("ngram")

    def lookup(preset: Preset) -> str:
        if not ngram.looks_up_on_host(preset.drafts_asynchronously):
            return "on the GPU, always K drafts"
        host = preset.host
        costs = ((host.lookup_step_s, "a step"), (host.lookup_per_sequence_s, "a request"))
        charged = [f"{seconds * 1e6:.0f} µs {what}" for seconds, what in costs if seconds]
        drafts = "always K drafts" if preset.pads_lookups else "drafts on a match only"
        return ", ".join(["on the host", drafts, *charged])

    def graph(preset: Preset) -> str:
        largest = preset.graph_grid(EXAMPLE_DRAFTS + 1)[-1]
        if preset.full_graphs:
            return f"up to {largest // (EXAMPLE_DRAFTS + 1)} requests"
        return f"none: piecewise graphs, up to {largest} rows"

    def mixed(preset: Preset) -> str:
        largest = preset.graph_grid(EXAMPLE_DRAFTS + 1)[-1]
        return f"piecewise graphs, up to {largest} rows" if preset.piecewise_graphs else "no graph"

    rows = {
        "": [f"`{preset.name}`" for preset in known],
        "next step composed": [
            (
                "while this one runs"
                if preset.drafts_asynchronously
                else "while this one runs, unless it drafts"
            )
            if preset.asynchronous
            else "after this one"
            for preset in known
        ],
        "rows of requests that have just ended": [
            "K + 1 once more" if preset.drafts_asynchronously else "none" for preset in known
        ],
        "tokens leave": [
            f"{'before' if preset.emits_before_drafting else 'after'} the draft passes" for preset in known
        ],
        "prompts": [
            "beside decodes" if scheduler_rule(preset.scheduler).mixes_prefill else "first and alone"
            for preset in known
        ],
        "host time of drafting": [
            f"{preset.host.draft_step_s * 1e6:.0f} µs a step, {preset.host.draft_pass_s * 1e6:.0f} a pass"
            for preset in known
        ],
        "beyond the drafter's limit": [
            "no drafts" if preset.stops_at_drafter_limit else "drafts as before" for preset in known
        ],
        "KV set aside at admission": [
            f"prompt and {preset.reserved_output:.0%} of the output" if preset.reserved_output else "prompt"
            for preset in known
        ],
        "n-gram lookup": [lookup(preset) for preset in known],
        f"decodes in one CUDA graph, K = {EXAMPLE_DRAFTS}": [graph(preset) for preset in known],
        "mixed steps": [mixed(preset) for preset in known],
    }
    return [row(name, *cells) if name else f"| | {' | '.join(cells)} |" for name, cells in rows.items()]


def test_every_method_has_its_row_and_no_other_stands_there() -> None:
    rows = [described(method) for method in methods().values()]
    assert [line for line in PAGE.splitlines() if line.startswith("| `")] == rows


def test_the_serving_engines_are_told_as_their_presets_say() -> None:
    known = [preset for preset in presets().values() if preset.engine != "torch"]  # a loop of one's own
    lines = PAGE.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("| | `"))
    heading, _, *body = lines[start : start + 2 + 10]
    assert [heading, *body] == engine_rows(known)
    assert not lines[start + 12].startswith("|")
