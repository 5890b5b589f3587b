"""The page of `decodesim validate` in a real browser: drawn offline, fits the screen, cases on hover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibration.validation.coverage import Coverage
from calibration.validation.predict import Prediction
from calibration.validation.reconstruction.published_run import PublishedFigure
from calibration.validation.row import rows_of
from calibration.validation.validate import Validation
from dashboards.validation_page import write_validation_page
from tests.published_runs import run

pytestmark = pytest.mark.browser


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page of a few rows that nobody simulated."""
    rows = []
    for at, published in enumerate((1.1, 1.4, 1.9, 2.6)):
        figures = {"plain": {"throughput_tokens_per_s": 100.0}, "spec": {"throughput_tokens_per_s": 150.0}}
        sample_run = run(
            [PublishedFigure("speedup", "both", published)], batch=2**at, choices=("lengths assumed",)
        )
        rows += rows_of(sample_run, Prediction(figures))
    validation = Validation(
        tuple(rows), (), Coverage(1, 2, {"tree": 3}, {("a source", "another <case>"): "tree"})
    )
    return write_validation_page(validation, tmp_path / "page.html", "Measured & simulated")


@pytest.mark.parametrize("width_px", [1280, 390])
def test_the_page_is_drawn_offline_and_fits(page: Path, visit: Any, width_px: int) -> None:
    seen = visit(page, width_px)
    assert seen.outside == []
    assert seen.complaints == []
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width_px
    assert seen.page.get_by_text("another <case>").count() == 1


def test_a_point_names_its_case(page: Path, visit: Any) -> None:
    seen = visit(page)
    box = seen.page.locator("#predicted-speedup .scatterlayer .point").first.bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown = seen.page.locator("#predicted-speedup .hoverlayer")
    shown.get_by_text("by-hand").first.wait_for()
    assert "predicted × 1.50" in shown.text_content()
