"""The page of `decodesim profile check` in a real browser: drawn offline, fits the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.fit import fit_profile
from calibration.profile_json import dumps
from experiments.cli import decodesim
from tests.synthetic_device import measured

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width_px", [1280, 390])
def test_the_page_is_drawn_offline_and_fits(tmp_path: Path, visit: Any, width_px: int) -> None:
    profile, page = tmp_path / "mine.json", tmp_path / "mine.html"
    profile.write_text(dumps(fit_profile(measured(), "mine").profile), "utf-8")
    asked = ["profile", "check", str(profile), "--model", "smollm2-135m-instruct", "--html", str(page)]
    assert CliRunner().invoke(decodesim, asked).exit_code == 0
    seen = visit(page, width_px)
    assert seen.outside == []
    assert seen.complaints == []
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width_px
    assert seen.page.locator(".plot").count() == 2
