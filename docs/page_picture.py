"""A picture of drawings, as the pages of this folder show them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dashboards.chromium import MISSING, find_chromium
from dashboards.images import picture_of_page
from dashboards.page import Drawings, whole_page


def write_picture(
    name: str, content: str, drawings: Drawings, picture: Path, size_px: tuple[int, int], scale: float
) -> None:
    """Write the picture of a page with this content. Ends the script where there is no Chromium."""
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit(MISSING)
    with tempfile.TemporaryDirectory(prefix="decodesim-") as folder:
        page = Path(folder) / "page.html"
        page.write_text(whole_page(name, content, drawings), encoding="utf-8")
        picture_of_page(chromium, page, picture, size_px, scale)
