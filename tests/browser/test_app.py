"""The live page in a real browser: every kind of control, errors at fields, links, files out and in."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dashboards.app.guard import HOST
from dashboards.app.server import make_app
from dashboards.app.settings import Base
from simulator.scenario import parse_scenario, scenario_from_flags
from simulator.scenario.flags import EXAMPLE
from simulator.simulation import simulate
from tests.browser.visit import Visit
from tests.shared_data import SHARED, needs_shared

WAIT_MS = 60_000
REAL = SHARED / "formats" / "real-vllm-0.32"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The page of the example, served in this process."""
    from werkzeug.serving import make_server

    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    server = make_server(HOST, port, make_app(scenario_from_flags(EXAMPLE), port).server, threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{HOST}:{port}"
    server.shutdown()


class LivePage(Visit):
    """The live page, with what a person does on it."""

    def __init__(self, browser: Any, address: str, width_px: int = 1280) -> None:
        super().__init__(browser, width_px, height_px=800)
        self.context.set_offline(False)
        self.address = address

    def visit(self, query: str = "") -> LivePage:
        """Open the page and wait for its answer."""
        self.page.goto(self.address + query)
        self.page.locator(".claim").first.wait_for(timeout=WAIT_MS)
        self.settle()
        return self

    def settle(self) -> None:
        """Wait for the curves to be simulated, or for none to be asked."""
        self.page.wait_for_function(
            "() => !/being/.test(document.querySelector('#break-even-line').innerText)", timeout=WAIT_MS
        )

    def number(self, name: str) -> Any:
        """The input of a number."""
        return self.page.locator(f"div.field:has(#label-{name}) input[type=number]")

    def change(self, name: str, value: str) -> None:
        """Set a number and wait until the verdict is another."""
        before = self.page.inner_text("#verdict")
        self.number(name).fill(value)
        self.page.wait_for_function(
            "before => document.querySelector('#verdict').innerText !== before", arg=before, timeout=WAIT_MS
        )
        self.settle()

    def error(self, name: str) -> str:
        """The message at a field, once there is one."""
        message = self.page.locator(f"div.field:has(#label-{name}) .error")
        message.filter(has_text="a").wait_for(timeout=WAIT_MS)
        return str(message.inner_text())

    def download(self, button: str) -> Path:
        """The file that a button gives."""
        with self.page.expect_download(timeout=WAIT_MS) as started:
            self.page.click(button)
        return Path(started.value.path())


@pytest.fixture
def live(browser: Any, address: str) -> Iterator[Any]:
    """Opens the live page: `live(query, width_px)`."""
    pages: list[LivePage] = []

    def go(query: str = "", width_px: int = 1280) -> LivePage:
        pages.append(LivePage(browser, address, width_px))
        return pages[-1].visit(query)

    yield go
    for page in pages:
        assert page.complaints == []
        assert [url for url in page.requests if not url.startswith((address, "data:", "blob:"))] == []
        page.context.close()


def test_the_first_view_holds_the_answer(live: Any) -> None:
    page = live().page
    for part in (".claim", "#break-even-line", ".tile:has-text('TPOT P99')", ".tile:has-text('TTFT P99')"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 800
        assert box["x"] + box["width"] <= 1280
    assert "tokens per round" in page.inner_text("#break-even-line")


def test_figures_are_those_of_the_exported_scenario(live: Any) -> None:
    visit = live("?alpha=0.55&concurrency=24&prompt_tokens=300")
    scenario = parse_scenario(visit.download("#get-scenario").read_text("utf-8"))
    ratios = simulate(scenario).comparison["eagle3-k3"].ratios
    shown = visit.page.inner_text(".tile:has-text('Throughput') .ratio")
    assert shown == f"{ratios['throughput_speedup'].value - 1:+.0%}".replace("-", "−")


def test_a_change_moves_the_verdict_the_link_and_the_curves(live: Any) -> None:
    visit = live("?alpha=0.3")
    visit.change("concurrency", "256")
    assert "loses" in visit.page.inner_text("#verdict")
    assert "256 clients" in visit.page.inner_text("#break-even-line")
    assert "concurrency=256" in visit.page.url
    assert "alpha=0.3" in visit.page.url
    again = live(visit.page.url.removeprefix(visit.address))
    assert again.page.inner_text(".claim") == visit.page.inner_text(".claim")
    again.page.click("#reset")
    again.page.wait_for_function("() => location.search === ''", timeout=WAIT_MS)


def test_wrong_values_are_told_at_their_fields_and_the_answer_stays(live: Any) -> None:
    visit = live("?prompt_tokens=200")
    before = visit.page.inner_text(".claim")
    visit.number("concurrency").fill("0")
    assert "out of range" in visit.error("concurrency")
    visit.number("concurrency").fill("")
    visit.page.locator("div.field:has(#label-concurrency) .error:has-text('empty')").wait_for(timeout=WAIT_MS)
    visit.number("concurrency").fill("64")
    visit.number("slo_tpot").fill("-5")
    assert "above 0" in visit.error("slo_tpot")
    assert visit.page.inner_text(".claim") == before


def test_a_link_with_wrong_values_shows_them_as_text(live: Any, browser: Any, address: str) -> None:
    page = LivePage(browser, address)
    page.page.goto(f"{address}/?gpu=%3Cimg%20src=x%20onerror=alert(1)%3E&concurrency=0")
    assert "out of range" in page.error("concurrency")
    assert page.page.locator("img[src=x]").count() == 0
    page.context.close()


def test_answers_are_pinned_side_by_side(live: Any) -> None:
    visit = live("?prompt_tokens=200")
    visit.page.click("#pin")
    visit.page.locator("#pinned tbody tr").first.wait_for(timeout=WAIT_MS)
    visit.change("concurrency", "8")
    visit.page.click("#pin")
    visit.page.locator("#pinned tbody tr").nth(1).wait_for(timeout=WAIT_MS)
    assert "Concurrent clients 8" in visit.page.inner_text("#pinned")


def test_plain_decoding_and_request_rates_have_answers(live: Any) -> None:
    assert "Plain decoding alone" in live("?draft_length=0").page.inner_text("#verdict")
    assert "closed loops" in live("?rate=1.5").page.inner_text("#break-even-line")


def test_flags_and_the_report_are_given(live: Any) -> None:
    visit = live("?concurrency=4&prompt_tokens=100")
    flags = visit.download("#get-flags").read_text("utf-8")
    assert "vllm serve meta-llama/Llama-3.3-70B-Instruct" in flags
    assert "--speculative-config" in flags
    report = visit.download("#get-report").read_text("utf-8")
    assert report.startswith("<!doctype html>")
    assert "decodesim report" in report


def test_every_picture_gives_its_numbers(live: Any) -> None:
    visit = live("?concurrency=4&prompt_tokens=100")
    heat = visit.download("#picture-speedup-map a.data").read_text("utf-8").splitlines()
    assert heat[0].split(",")[-1] == "speedup"
    cells = {float(line.split(",")[-1]) for line in heat[1:]}
    plot = "document.querySelector('#picture-speedup-map .js-plotly-plot')"
    drawn = visit.page.evaluate(f"() => {plot}.data[0].text")
    assert {text for row in drawn for text in row} <= {f"{cell:.2f}" for cell in cells}


@needs_shared
def test_uploaded_telemetry_gives_an_acceptance(live: Any) -> None:
    visit = live("?concurrency=4&prompt_tokens=100")
    files = [str(REAL / f"ngram-c16.{when}.metrics.txt") for when in ("before", "after")]
    visit.page.set_input_files("#upload input[type=file]", files)
    visit.page.locator("#upload-answer:has-text('Mean acceptance length 2.60')").wait_for(timeout=WAIT_MS)
    visit.page.click("#use-alpha")
    visit.page.wait_for_function("() => /alpha=0.71/.test(location.search)", timeout=WAIT_MS)


def test_a_file_of_no_known_kind_is_refused(live: Any, tmp_path: Path) -> None:
    visit = live("?concurrency=4&prompt_tokens=100")
    wrong = tmp_path / "<b>wrong<b>.txt"
    wrong.write_text("hello\n", encoding="utf-8")
    visit.page.set_input_files("#upload input[type=file]", [str(wrong)])
    visit.page.locator("#upload-answer:has-text('<b>wrong<b>.txt')").wait_for(timeout=WAIT_MS)


@pytest.mark.parametrize("width_px", [390, 768])
def test_narrow_screens_need_no_sideways_scrolling(live: Any, width_px: int) -> None:
    page = live("?concurrency=4&prompt_tokens=100", width_px).page
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width_px


def test_every_field_has_a_label(live: Any) -> None:
    page = live("?concurrency=4&prompt_tokens=100").page
    unlabelled = page.evaluate(
        "() => [...document.querySelectorAll('.field input, .field button')]"
        ".filter(e => !e.labels?.length && !e.getAttribute('aria-label')"
        " && e.getAttribute('aria-hidden') !== 'true').map(e => e.outerHTML.slice(0, 120))"
    )
    assert json.dumps(unlabelled) == "[]"


def test_the_base_is_the_example() -> None:
    assert Base(scenario_from_flags(EXAMPLE)).values["model"] == EXAMPLE["model"]
