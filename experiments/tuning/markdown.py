"""The tuning guide as a Markdown document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibration.text_table import TextTable
from experiments.tuning.temperature import BEST, DRAWN, SOURCE, temperature_rows

if TYPE_CHECKING:
    from calibration.launch.launch import Artefact
    from experiments.tuning.guide import TunedVariant, TuningGuide


def guide_markdown(guide: TuningGuide, artefact: Artefact) -> str:
    """Verdict, drafters, draft lengths, trees, temperature, fallback, engine."""
    parts = [
        f"# Tuning: {guide.scenario.name or guide.scenario.target.model}, {guide.clients} clients",
        f"**{guide.verdict}**: {guide.reason}.",
        *_drafters(guide),
        *_lengths(guide),
        *_trees(guide),
        *_temperature(guide),
        *_fallback(guide),
    ]
    if artefact.text:
        parts += ["## Engine", f"```bash\n{artefact.text}\n```"]
        parts += [f"`{file}`:\n\n```\n{text.rstrip()}\n```" for file, text in artefact.files.items()]
    return "\n\n".join(parts) + "\n"


def _drafters(guide: TuningGuide) -> list[str]:
    rows = [
        [
            tuned.variant.name,
            tuned.basis,
            _text(tuned.at(guide.clients).row.scenario_alpha),
            _alpha(tuned, guide.clients),
            _text(tuned.at(guide.clients).speedup_at_best),
        ]
        for tuned in guide.variants
    ]
    headings = ["variant", "acceptance", "α", "break-even α", "speedup at the best K, step times alone"]
    text = f"Take **{guide.best.variant.name}**." if len(rows) > 1 else "One variant was compared."
    return ["## Drafter", text, _markdown_table(headings, rows)]


def _lengths(guide: TuningGuide) -> list[str]:
    schedule = guide.best.schedule()
    if schedule is None:
        return []
    rows = [
        [f"{row.clients}", f"{row.best_length}", row.row.verdict, _alpha(guide.best, row.clients)]
        for row in guide.best.rows
    ]
    ranges = ", ".join(
        f"[{first}, {'null' if last is None else last}, {length}]" for first, last, length in schedule
    )
    return [
        "## Draft length",
        _markdown_table(["clients", "best K", "verdict", "break-even α"], rows),
        f"As a schedule by requests in the step: `draft_length: [{ranges}]`. K = 0 is plain decoding.",
    ]


def _trees(guide: TuningGuide) -> list[str]:
    rows = [
        [f"{row.clients}", f"{row.branch_needs:.0%}"]
        for row in guide.best.rows
        if row.branch_needs is not None
    ]
    if not rows:
        return []
    return [
        "## Tree width",
        "A branch adds a row to verify. It is worth that row if its draft is accepted in at least this share "
        "of all rounds. `decodesim accept --tree` measures how often second choices are accepted.",
        _markdown_table(["clients", "a branch must be accepted in"], rows),
    ]


def _temperature(guide: TuningGuide) -> list[str]:
    measured = temperature_rows()
    if not measured:
        return []
    rows = [[f"{r.temperature:g}", f"{r.best_tokens:.2f}", f"{r.drawn:.2f}"] for r in measured]
    limits = guide.temperature_limits()
    parts = ["## Temperature", f"α relative to temperature 0 ({SOURCE}):"]
    parts.append(
        _markdown_table(["temperature", "drafts are the drafter's best tokens", "drafts are drawn"], rows)
    )
    if limits:
        words = {BEST: "best tokens", DRAWN: "drawn drafts"}
        texts = [
            f"{words[way]} {'at no temperature' if limit is None else f'up to {limit:g}'}"
            for way, limit in limits.items()
        ]
        limits_text = "; ".join(texts)
        parts.append(f"An α measured at temperature 0 stays above the break-even with {limits_text}.")
    return parts


def _fallback(guide: TuningGuide) -> list[str]:
    limit = guide.best.pays_up_to
    losing = [row.clients for row in guide.best.rows if row.row.verdict != "pays"]
    if not losing:
        most = guide.best.rows[-1].clients
        text = f"{guide.best.variant.name} pays at every load looked at, up to {most} clients."
    elif limit is None:
        text = "It does not pay at the smallest load: decode plainly."
    else:
        text = (
            f"It pays up to {limit} clients. From {losing[0]} on decode plainly: a gain is not certain there."
        )
    return ["## When to decode plainly", text]


def _alpha(tuned: TunedVariant, clients: int) -> str:
    alpha = tuned.at(clients).row.simulated_alpha
    if alpha is None:
        return "none is enough"
    band = f" ({alpha.band[0]:.2f} to {alpha.band[1]:.2f})" if alpha.band else ""
    return f"{alpha.value:.2f}{band}"


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _markdown_table(headings: list[str], rows: list[list[str]]) -> str:
    return TextTable(tuple(headings), tuple(map(tuple, rows))).markdown()
