"""The documentation site builds, and every link and anchor on it leads somewhere."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.shared_data import ROOT


def build(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a project."""
    command = [sys.executable, project / "docs" / "site.py", site]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_site_has_every_page(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.with_suffix(".html").name for page in (ROOT / "docs").glob("*.md")}
    assert pages | {"index.html"} <= {page.name for page in tmp_path.glob("*.html")}


def test_a_link_to_a_missing_heading_fails(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "docs").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "site.py", project / "docs")
    (project / "docs" / "glossary.md").write_text("# Glossary\n", encoding="utf-8")
    (project / "README.md").write_text("# Front\n\n[a](docs/glossary.md#no-such-heading)\n", encoding="utf-8")
    done = build(project, tmp_path / "site")
    assert done.returncode != 0
    assert "no-such-heading" in done.stderr
