"""Reference data that may lie beside the repository: too large to commit, and skipped where absent."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
"""The root of the repository."""

SHARED = ROOT.parent / "shared"
"""The folder of reference data; it need not exist."""

needs_shared = pytest.mark.skipif(
    not (SHARED / "data").is_dir(), reason=f"no reference data: {SHARED / 'data'} is not a folder"
)
"""Marks a test that reads `SHARED`."""
