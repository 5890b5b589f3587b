"""The report in a real browser, offline: all is drawn, nothing fetched, no complaint, on phone and paper."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.figures import FIGURES
from dashboards.images import FIGURE_WIDTH_PX, PAGE_SIZE_PX, picture_of_page, write_images
from dashboards.report import write_report
from simulator.errors import InputError
from tests.browser.visit import Visit
from tests.subjects import VARIANT, small_subject

pytestmark = pytest.mark.browser

WIDTHS_PX = {"desktop": 1280, "tablet": 768, "phone": 390}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the small example."""
    return write_report([small_subject()], tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module", params=WIDTHS_PX.values(), ids=WIDTHS_PX)
def seen(request: pytest.FixtureRequest, browser: Any, report: Path) -> Iterator[Visit]:
    """The page, opened on screens of three widths; tests that share it leave it as it is."""
    visit = Visit(browser, request.param).open(report)
    yield visit
    visit.context.close()


@pytest.fixture
def desktop(visit: Any, report: Path) -> Any:
    """The page on a wide screen, for tests that touch it."""
    return visit(report)


def test_the_page_opens_offline_without_a_request_or_a_complaint(seen: Visit) -> None:
    assert seen.outside == []
    assert seen.complaints == []
    figures = FIGURES.values()
    pictures = [picture for figure in figures for picture in figure.pictures(figure.prepare(small_subject()))]
    assert seen.page.locator(".plot:has(.main-svg)").count() == len(pictures) == 9


def test_nothing_is_wider_than_the_screen(seen: Visit) -> None:
    width_px = seen.page.viewport_size["width"]
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width_px
    boxes = [svg.bounding_box() for svg in seen.page.locator(".plot .main-svg").all()]
    assert boxes
    for box in boxes:
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width_px


def test_no_text_of_a_figure_is_cut_off(seen: Visit) -> None:
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


def test_the_verdict_is_what_one_sees_first(seen: Visit) -> None:
    claim = seen.page.locator(".claim")
    assert claim.bounding_box()["y"] < 300
    assert "EAGLE-3 with 3 drafts a round" in claim.inner_text()
    assert seen.page.title() == "Llama-3.3-70B FP8 with EAGLE-3 on 4 × H100 – decodesim"


def test_figures_follow_the_width_of_the_window_and_numbers_unfold(desktop: Visit) -> None:
    from playwright.sync_api import expect

    page = desktop.page
    figure = page.locator("#r1-break-even .main-svg").first
    assert figure.bounding_box()["width"] > 900
    page.set_viewport_size({"width": 500, "height": 900})
    expect(figure).to_have_css("width", re.compile(r"^4\d\d(\.\d+)?px$"))
    details = page.locator("#r1-break-even-section details")
    assert not details.locator("table").is_visible()
    details.locator("summary").click()
    assert details.locator("table").is_visible()
    assert VARIANT in details.inner_text()


def test_the_page_prints(desktop: Visit, tmp_path: Path) -> None:
    printed = desktop.page.pdf(path=str(tmp_path / "report.pdf"), prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 4 <= pages <= 9
    desktop.page.emulate_media(media="print")
    assert not desktop.page.locator("#r1-break-even-section summary").is_visible()
    assert desktop.complaints == []


BROKEN = """
<script>fetch('https://example.com/data')</script>
<script>nothing.here()</script>
<img src="https://example.com/pixel.png">
"""


def test_what_these_tests_look_for_is_found_in_a_page_that_has_it(
    visit: Any, report: Path, tmp_path: Path
) -> None:
    text = report.read_text("utf-8").replace("<main>", f"<main>{BROKEN}")
    (tmp_path / "broken.html").write_text(text, encoding="utf-8")
    broken = visit(tmp_path / "broken.html")
    complaints = " ".join(broken.complaints)
    assert "nothing is not defined" in complaints
    assert complaints.count("Content Security Policy") >= 2
    unguarded = text.replace('http-equiv="Content-Security-Policy"', 'name="was-policy"')
    (tmp_path / "unguarded.html").write_text(unguarded, encoding="utf-8")
    outside = visit(tmp_path / "unguarded.html").outside
    assert sorted(outside) == ["https://example.com/data", "https://example.com/pixel.png"]


def size_of(png: Path) -> tuple[int, int]:
    """Width and height of a PNG, px."""
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_pictures_are_made_of_the_page_and_of_every_figure(
    chromium: str, report: Path, tmp_path: Path
) -> None:
    table = FIGURES["memory"].prepare(small_subject())
    drawn = {"memory": FIGURES["memory"].draw(table), "again": FIGURES["memory"].draw(table)}
    written = write_images(report, drawn, tmp_path / "png")
    assert [path.name for path in written] == ["report.png", "memory.png", "again.png"]
    assert size_of(written[0]) == PAGE_SIZE_PX
    assert size_of(written[1]) == (2 * FIGURE_WIDTH_PX, 2 * drawn["memory"].layout.height)
    assert len(written[0].read_bytes()) > 50_000


def test_a_browser_that_makes_no_picture_is_bad_input(report: Path, tmp_path: Path) -> None:
    for useless in ("/bin/true", "/bin/false", "/nowhere/chromium"):
        with pytest.raises(InputError, match="made no picture"):
            picture_of_page(useless, report, tmp_path / "report.png")
