"""The report: one self-contained HTML page about one or more results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.change import percent
from dashboards.markup import Html, joined, table, tag
from dashboards.page import Drawings, write_page
from dashboards.sections import figure_section, rows_of
from dashboards.stored import StoredStudy, is_store, stored_study
from dashboards.study_article import findings, study_article
from dashboards.subject import ReportedResult, reported_result, reported_results_at
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from dashboards.headline import Headline
    from simulator.results.result import Result
    from simulator.runs.replications import Progress


def reported_at(path: Path, progress: Progress | None = None) -> list[ReportedResult | StoredStudy]:
    """What a path holds: the study of a store, else results, as `reported_results_at` finds them.

    Raises InputError for a scenario, with the commands that lead from it to a page.
    """
    if path.suffix in (".yaml", ".yml") and path.is_file():
        fix = f"first `decodesim simulate {path} --out DIR`, then `decodesim report DIR`"
        raise InputError(Problem(str(path), message="is a scenario and has no results yet", allowed=fix))
    from experiments.store.file import undamaged

    if is_store(path):
        with undamaged(path):
            return [stored_study(path)]
    return list(reported_results_at(path, progress))


def write_report(
    results: Sequence[Result | ReportedResult | StoredStudy],
    path: str | Path,
    png_dir: str | Path | None = None,
) -> Path:
    """Write the page of these results and studies and return its path; it opens offline and loads nothing.

    A plain `Result` is studied over the load first, which takes seconds; `reported_results_at` keeps studies
    in files. `png_dir`: a picture of the page and one of every figure are written there as well. Raises
    InputError where there is no result, a file cannot be written, or pictures cannot be made.
    """
    subjects = [
        result if isinstance(result, ReportedResult | StoredStudy) else reported_result(result)
        for result in results
    ]
    if not subjects:
        raise InputError("there is no result to report on")
    drawings = Drawings()
    body = _body(subjects, drawings)
    title = subjects[0].title if len(subjects) == 1 else _several(subjects)
    path = write_page(path, f"{title} – decodesim", body, drawings)
    if png_dir is not None:
        from dashboards.images import write_images

        write_images(path, drawings.figures, Path(png_dir))
    return path


def _several(subjects: Sequence[ReportedResult | StoredStudy]) -> str:
    """`2 scenarios`, `3 scenarios and studies`."""
    studies = sum(isinstance(subject, StoredStudy) for subject in subjects)
    kinds = "studies" if studies == len(subjects) else "scenarios and studies" if studies else "scenarios"
    return f"{len(subjects)} {kinds}"


def _body(subjects: Sequence[ReportedResult | StoredStudy], drawings: Drawings) -> Html:
    articles = [
        _study_article(subject, number, drawings)
        if isinstance(subject, StoredStudy)
        else _article(subject, number, drawings)
        for number, subject in enumerate(subjects, start=1)
    ]
    contents = [_contents(subjects)] if len(subjects) > 1 else []
    return tag("main", *contents, *articles)


def _study_article(subject: StoredStudy, number: int, drawings: Drawings) -> Html:
    from experiments.store.file import undamaged

    with undamaged(subject.path):
        return study_article(subject, number, drawings)


def _contents(subjects: Sequence[ReportedResult | StoredStudy]) -> Html:
    """What a page of several holds, each with its answers."""
    rows = [
        [tag("a", subject.title, href=f"#result-{number}"), _answers(subject)]
        for number, subject in enumerate(subjects, start=1)
    ]
    return tag("nav", tag("h1", _several(subjects)), table(["", "Answer"], rows, words=2))


def _answers(subject: ReportedResult | StoredStudy) -> Html:
    from dashboards.headline import headlines

    if isinstance(subject, StoredStudy):
        return joined(*(tag("div", line) for line in findings(subject)))
    return joined(*(tag("div", headline.claim) for headline in headlines(subject))) or Html(_ALONE)


def _article(subject: ReportedResult, number: int, drawings: Drawings) -> Html:
    from dashboards.assumptions import assumptions, traffic
    from dashboards.figures import FIGURES
    from dashboards.headline import headlines
    from dashboards.measures import best_draft_lengths, classes_table, measures_table

    header = tag(
        "header",
        tag("p", "decodesim report", cls="brand"),
        tag("h1", subject.title),
        tag("p", traffic(subject), cls="traffic"),
    )
    verdicts = [_verdict(headline) for headline in headlines(subject)]
    if not verdicts:
        verdicts = [tag("p", _ALONE, cls="claim")]
    figures = [
        tag(
            "div",
            *(
                figure_section(figure.prepare(subject), figure, f"r{number}-{figure.name}", drawings)
                for figure in group
            ),
            cls=cls,
        )
        for cls, group in rows_of(list(FIGURES.values()))
    ]
    best, classes = best_draft_lengths(subject), classes_table(subject)
    numbers = tag(
        "section",
        tag("h2", "All figures"),
        measures_table(subject),
        tag(
            "p",
            _MEASURES,
            cls="caption",
        ),
        *([tag("h3", "By traffic class"), classes] if classes else []),
        *([best, tag("p", _BEST, cls="caption")] if best else []),
    )
    basis = tag("section", tag("h2", "What this rests on"), assumptions(subject), cls="basis")
    return tag("article", header, *verdicts, *figures, numbers, basis, id=f"result-{number}")


_ALONE = "Plain decoding alone: no speculative variant to judge."
_MEASURES = (
    "± is the 95 % interval of sampling over replications. The last columns say by how much a figure grew "
    "against plain decoding, with the band of the cost model's error."
)
_BEST = (
    "From the price of uniform steps at the mean batch and context, with independent drafts; 0: do not "
    "draft. The last column is what one more draft token costs (a draft pass and a wider verify), as a share "
    "of a plain step."
)


def _verdict(headline: Headline) -> Html:
    tiles = [
        tag(
            "div",
            tag("span", change.label, cls="label"),
            tag("span", percent(change.ratio.value), cls=f"ratio {change.direction}"),
            tag("span", f"{change.before} → {change.after}", cls="pair"),
            cls="tile",
        )
        for change in headline.changes
    ]
    outcome = tag("span", headline.outcome or "no verdict", cls=f"word {headline.outcome or 'none'}")
    return tag(
        "section",
        tag("p", outcome, headline.variant, cls="label"),
        tag("p", headline.claim, cls="claim"),
        *(tag("p", line, cls="support") for line in headline.support),
        tag("div", *tiles, cls="tiles"),
        cls="verdict",
    )
