"""Makes docs/report.png, the picture in the README: the top of the example's page.

make report
.venv/bin/python docs/picture.py
"""

from pathlib import Path

from dashboards.chromium import MISSING, find_chromium
from dashboards.images import picture_of_page

ROOT = Path(__file__).resolve().parents[1]
SIZE_PX = (1080, 1690)
SCALE = 0.86
"""Keeps the file under 200 KB; wider than the README shows it."""


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit(MISSING)
    picture_of_page(chromium, ROOT / "report.html", ROOT / "docs" / "report.png", SIZE_PX, SCALE)


if __name__ == "__main__":
    main()
