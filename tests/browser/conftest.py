"""A real headless Chromium. Without one these tests are skipped, and fail where `CI=true`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.chromium import FLAGS, MISSING, find_chromium
from tests.browser.visit import Visit


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser."""
    path = find_chromium()
    if path is None and os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    if path is None:
        pytest.skip(MISSING)
    return path


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """One browser for all tests of a worker."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens pages: `visit(path, width_px)`; their contexts are closed at the end."""
    visits: list[Visit] = []

    def go(path: Path, width_px: int = 1280) -> Visit:
        visits.append(Visit(browser, width_px))
        return visits[-1].open(path)

    yield go
    for visit in visits:
        visit.context.close()
