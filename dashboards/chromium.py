"""The Chromium that draws pictures and runs the browser tests: found, never installed."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Runs in containers, and asks the network for nothing of its own."""

MISSING = "no Chromium: set CHROMIUM_PATH, or install one (Debian and Ubuntu: apt-get install chromium)"


def find_chromium() -> str | None:
    """Path of the browser: `CHROMIUM_PATH`, else the first of `NAMES` that is installed; None without one."""
    path = os.environ.get("CHROMIUM_PATH")
    return path if path else next(filter(None, map(shutil.which, NAMES)), None)
