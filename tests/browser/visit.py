"""A page opened in the browser, and what it did there."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Visit:
    """A page opened offline, and what it did: requests that left the file, and what it complained of."""

    def __init__(self, browser: Any, width_px: int = 1280, height_px: int = 900) -> None:
        viewport = {"width": width_px, "height": height_px}
        self.context = browser.new_context(viewport=viewport, offline=True)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self._complain(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: Path) -> Visit:
        """Go there, and wait until every figure is drawn."""
        from playwright.sync_api import expect

        self.page.goto(path.as_uri())
        self.page.locator(".main-svg").first.wait_for()
        expect(self.page.locator(".plot:not(:has(.main-svg))")).to_have_count(0)
        return self

    @property
    def outside(self) -> list[str]:
        """Requests for anything but the file itself and data inside it."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")
