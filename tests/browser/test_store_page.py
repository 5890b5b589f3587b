"""The page of a store in a real browser, offline: every map is drawn, nothing is cut off or too wide."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dashboards.figures import STUDY_FIGURES
from dashboards.report import write_report
from tests.browser.visit import Visit
from tests.stored_studies import break_even_study, speedup_study

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_of_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a study of break-evens and one of speedups."""
    path = tmp_path_factory.mktemp("stores") / "stores.html"
    return write_report([break_even_study(), speedup_study()], path)


@pytest.fixture(scope="module", params=[1280, 390], ids=["desktop", "phone"])
def seen(request: pytest.FixtureRequest, browser: Any, page_of_stores: Path) -> Iterator[Visit]:
    """The page on screens of two widths."""
    visit = Visit(browser, request.param).open(page_of_stores)
    yield visit
    visit.context.close()


def test_every_map_is_drawn_and_nothing_is_fetched(seen: Visit) -> None:
    pictures = sum(
        len(figure.pictures(table))
        for study in (break_even_study(), speedup_study())
        for figure in STUDY_FIGURES.values()
        if (table := figure.prepare(study)).rows
    )
    assert seen.page.locator(".plot:has(.main-svg)").count() == pictures == 6 + 3 + 6 + 1
    assert seen.outside == []
    assert seen.complaints == []


def test_maps_fit_the_screen_with_all_their_names(seen: Visit) -> None:
    width_px = seen.page.viewport_size["width"]
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width_px
    cut = seen.page.evaluate(
        """[...document.querySelectorAll('.plot')].flatMap(plot => {
            const frame = plot.getBoundingClientRect();
            return [...plot.querySelectorAll('text')].filter(text => {
                const box = text.getBoundingClientRect();
                return box.width > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1
                    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1);
            }).map(text => plot.id + ': ' + text.textContent);
        })"""
    )
    assert cut == []


def test_figures_in_cells_stay_inside_their_cells(seen: Visit) -> None:
    """The texts of one row of the first map do not run into each other."""
    boxes = seen.page.evaluate(
        """[...document.querySelector('.plot').querySelectorAll('.heatmap-label text')]
            .map(text => text.getBoundingClientRect()).map(box => [box.left, box.right, box.top])"""
    )
    assert boxes
    rows: dict[int, list[list[float]]] = {}
    for box in boxes:
        rows.setdefault(round(box[2]), []).append(box)
    for row in rows.values():
        row.sort()
        assert all(left[1] <= right[0] + 1 for left, right in pairwise(row))
