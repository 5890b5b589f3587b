"""Makes docs/acceptance-gallery.md and its picture from the measurements in calibration/data/.

.venv/bin/python docs/acceptance_gallery.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from page_picture import write_picture

from calibration.acceptance import gallery
from calibration.acceptance.gallery import AlphaCurve, LengthCurve
from calibration.drafters.training.committed import HEADS
from dashboards.figures.look import PLAIN_COLOUR, VARIANT_COLOURS, faded, new_figure
from dashboards.markup import tag
from dashboards.page import Drawings, legend_of

FOLDER = Path(__file__).resolve().parent
PAGE, PICTURE = (FOLDER / f"acceptance-gallery.{end}" for end in ("md", "png"))
PICTURE_PX, SCALE = (1000, 1610), 1.0
SCANNED = "layer-skip"
"""The drafter whose draft lengths were scanned."""
PENDING = "Not measured yet."


def main() -> None:
    rows = (gallery.read(gallery.ACCEPTANCE) or {}).get("rows", [])
    trees, typical = gallery.read(gallery.TREES), gallery.read(gallery.TYPICAL)
    PAGE.write_text(page(rows, trees, typical), encoding="utf-8")
    draw(gallery.alpha_curves(rows), gallery.length_curves(rows, SCANNED), trees)


def page(rows: gallery.Rows, trees: Mapping[str, Any] | None, typical: Mapping[str, Any] | None) -> str:
    """The text of the gallery."""
    curves, lengths = gallery.alpha_curves(rows), gallery.length_curves(rows, SCANNED)
    too_long, quantised = gallery.too_long_table(rows, SCANNED), gallery.quantised_table(rows)
    sections = {
        "α by method, domain and temperature": (
            "The probability that a draft is accepted, given that all before it were (1 − TV of the two "
            f"distributions, or p(x*) of a best token), at K = {gallery.BY_TEMPERATURE_AT}. Best tokens lose "
            "acceptance as the target's distribution flattens; drafts drawn at the same temperature do not, "
            "for the drafter's distribution flattens with it.",
            gallery.alpha_table(curves).markdown() if curves else PENDING,
        ),
        "Tokens per verify against K": (
            f"{SCANNED}. Geometric: every draft is accepted as the first. By position: the acceptance of "
            "each position, as the longest drafts met it.",
            gallery.length_table(lengths).markdown() if lengths else PENDING,
        ),
        "The best K": (
            "K with the most tokens per second, and the speedup, where one more draft takes the given "
            "share of a plain step: its own pass and its row to verify. 0: better not to draft.",
            gallery.best_length_table(lengths).markdown() if lengths else PENDING,
        ),
        "Drafts that are too long": (
            f"{SCANNED}, T = 0: E stands still as few rounds get so far, and every draft costs. Speeds "
            "by the closed form E ÷ (1 + cost ratio × K).",
            too_long.markdown() if too_long else PENDING,
        ),
        "Quantised drafters": (
            "The target with its matrices rounded, as its own drafter: α by bits at K = "
            f"{gallery.BY_TEMPERATURE_AT}.",
            quantised.markdown() if quantised else PENDING,
        ),
        "Trees and chains": _trees(trees),
        "Typical acceptance": _typical(typical),
    }
    parts = [
        "# Acceptance, measured: a gallery",
        "SmolLM2-135M-Instruct on pieces of Python's standard library and its documentation that no "
        "drafter was trained on. Written by `docs/acceptance_gallery.py` from `calibration/data/`; not "
        "edited by hand. ± is half of the 95 % interval over requests.",
        *(["![The figures of this page](acceptance-gallery.png)"] if curves or lengths or trees else []),
    ]
    parts += [f"## {title}\n\n{text}\n\n{table}" for title, (text, table) in sections.items()]
    return "\n\n".join(parts) + "\n"


def _trees(trees: Mapping[str, Any] | None) -> tuple[str, str]:
    if trees is None:
        return "Plans of drafts with as many nodes, on the same prompts.", PENDING
    gains = "; ".join(
        f"{difference['of']} − {difference['to']}: {gallery.interval(difference)}"
        for difference in trees["differences"]
    )
    text = (
        f"One {trees['draft']} head, {trees['requests']} requests, greedy decoding: the texts are the "
        f"same, the rounds are not. Differences of E, request by request: {gains}."
    )
    return text, gallery.tree_table(trees).markdown()


def _typical(typical: Mapping[str, Any] | None) -> tuple[str, str]:
    text = (
        "Medusa's rule takes what is likely enough. For best tokens at a temperature it takes far more "
        "than the exact rule, because the text is no longer drawn from the target's distribution; for drawn "
        "drafts it gains little. The last column is the mean total variation per draft tried."
    )
    if typical is None:
        return text, PENDING
    about = f" {typical['draft']}, K = {typical['draft_length']}, {typical['requests']} requests."
    return text + about, gallery.typical_table(typical).markdown()


def draw(
    curves: Sequence[AlphaCurve], lengths: Sequence[LengthCurve], trees: Mapping[str, Any] | None
) -> None:
    """The picture: α(T), E(K) with theory, trees."""
    figures = {}
    heads = [curve for curve in curves if curve.draft.split("-")[0] in HEADS]
    others = [curve for curve in curves if curve not in heads]
    for of, which in ((others, "models and look-ups"), (heads, "heads on the target's features")):
        if of:
            title = f"α by temperature, {which}: best tokens solid, drawn dotted (mean over domains)"
            figures[title] = alpha_figure(of)
    if lengths:
        figures["Tokens per verify against K; lines: by position, dotted: geometric"] = length_figure(lengths)
    if trees is not None:
        figures["Trees of as many nodes, and a chain"] = tree_figure(trees)
    if not figures:
        return
    drawings = Drawings()
    places = [
        tag("figure", tag("h3", title), legend_of(figure), drawings.place(f"figure-{number}", figure, title))
        for number, (title, figure) in enumerate(figures.items())
    ]
    write_picture("gallery", tag("main", *places), drawings, PICTURE, PICTURE_PX, SCALE)


def alpha_figure(curves: Sequence[AlphaCurve]) -> Any:
    """α over temperature, a colour a drafter."""
    import plotly.graph_objects as go

    figure = new_figure(320, "temperature", "α")
    curves = [curve for curve in curves if len(curve.temperatures) > 2]
    drafts = list(dict.fromkeys(curve.draft for curve in curves))
    colours = (*VARIANT_COLOURS, PLAIN_COLOUR)
    assert len(drafts) <= len(colours), "more drafters than colours: another figure is needed"
    for draft, colour in zip(drafts, colours, strict=False):
        for how, dash in (("greedy", "solid"), ("sampled", "dot")):
            of = [curve for curve in curves if (curve.draft, curve.draft_sampling) == (draft, how)]
            if not of:
                continue
            mean = gallery.mean_over_domains(of)
            name = draft if how == "greedy" else f"{draft}, drawn"
            figure.add_scatter(
                x=list(mean),
                y=list(mean.values()),
                name=name,
                mode="lines+markers",
                line={"color": colour, "dash": dash},
            )
    figure.update_yaxes(range=[0, 1])
    assert isinstance(figure, go.Figure)
    return figure


def length_figure(lengths: Sequence[LengthCurve]) -> Any:
    """Tokens per verify over K, a colour a setting."""
    figure = new_figure(340, "draft length K", "tokens per verify")
    for curve, colour in zip(lengths, VARIANT_COLOURS, strict=False):
        values = [estimate["value"] for estimate in curve.measured]
        ends = [estimate["ci95"] or (estimate["value"], estimate["value"]) for estimate in curve.measured]
        figure.add_scatter(
            x=curve.draft_lengths,
            y=values,
            name=curve.label,
            mode="markers",
            marker={"color": colour, "size": 8},
            line={"color": colour},
            error_y={"array": [(high - low) / 2 for low, high in ends], "color": faded(colour, 0.6)},
        )
        for theory, dash in ((curve.positional, "solid"), (curve.geometric, "dot")):
            line = {"color": colour, "dash": dash, "width": 1.4}
            figure.add_scatter(x=curve.draft_lengths, y=theory, mode="lines", line=line, showlegend=False)
    return figure


def tree_figure(trees: Mapping[str, Any]) -> Any:
    """Mean acceptance length of each plan."""
    figure = new_figure(300, "tokens per verify, mean over requests", "")
    rows = list(reversed(trees["plans"]))
    lengths = [row["mean_acceptance_length"] for row in rows]
    figure.add_bar(
        x=[length["value"] for length in lengths],
        y=[f"{row['plan']} ({row['nodes']} nodes)" for row in rows],
        orientation="h",
        marker={
            "color": [PLAIN_COLOUR if row["plan"].startswith("chain") else VARIANT_COLOURS[0] for row in rows]
        },
        error_x={"array": [(length["ci95"][1] - length["ci95"][0]) / 2 for length in lengths]},
        showlegend=False,
    )
    return figure


if __name__ == "__main__":
    main()
