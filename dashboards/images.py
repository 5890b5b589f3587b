"""Pictures of a report as PNG: the top of the page as a browser shows it, and every figure."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboards.chromium import FLAGS, MISSING, find_chromium
from simulator.errors import InputError, reason

PAGE_FILE = "report.png"
PAGE_SIZE_PX = (1080, 1690)
"""Width and height of the picture of the page."""

FIGURE_WIDTH_PX = 960
_PATIENCE_S = 60


def write_images(page: Path, figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write `report.png` (the top of the page) and one PNG per figure; returns their paths.

    Raises InputError when Chromium or kaleido (extra `images`) is missing, or fails.
    """
    chromium = find_chromium()
    if chromium is None:
        raise InputError(f"--png: {MISSING}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {reason(error)}") from error
    paths = [folder / PAGE_FILE, *(folder / f"{name}.png" for name in figures)]
    picture_of_page(chromium, page, paths[0])
    _pictures_of_figures(chromium, list(figures.values()), paths[1:])
    return paths


def picture_of_page(
    chromium: str,
    page: Path,
    picture: Path,
    size_px: tuple[int, int] = PAGE_SIZE_PX,
    scale: float = 1.0,
) -> None:
    """The top of an HTML file, so wide and high, times `scale`. Raises InputError when the browser fails."""
    with tempfile.TemporaryDirectory(prefix="decodesim-") as profile:
        command = [
            chromium,
            "--headless=new",
            *FLAGS,
            f"--user-data-dir={profile}",
            "--hide-scrollbars",
            f"--window-size={size_px[0]},{size_px[1]}",
            f"--force-device-scale-factor={scale}",
            "--virtual-time-budget=10000",
            f"--screenshot={picture.resolve()}",
            page.resolve().as_uri(),
        ]
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=_PATIENCE_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise InputError(f"{picture}: {chromium} made no picture: {error}") from error
    if not picture.exists():
        raise InputError(f"{picture}: {chromium} made no picture")


def _pictures_of_figures(chromium: str, figures: list[Any], paths: list[Path]) -> None:
    """All figures through one browser."""
    import plotly.io

    os.environ.setdefault("BROWSER_PATH", chromium)
    try:
        import kaleido  # noqa: F401
    except ImportError:
        raise InputError("--png needs kaleido: pip install 'decodesim[images]'") from None
    heights = [figure.layout.height for figure in figures]
    try:
        plotly.io.write_images(figures, paths, format="png", width=FIGURE_WIDTH_PX, height=heights, scale=2)
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"--png: the figures could not be drawn: {error}") from error
