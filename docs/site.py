"""Builds the documentation site, and fails on a link that leads nowhere: `make site`.

python docs/site.py FOLDER

Pages link to files outside this folder: the README, ACCURACY.md, scenarios in examples/. The site holds every
file that is linked to, under `project/`, and links are rewritten to where the site has it. Sphinx does the
rest. The kinds of pages, and their order, are in KINDS.
"""

from __future__ import annotations

import posixpath
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = "README.md"
"""The project's front page is the site's too."""
OUTSIDE = "project"
"""The folder of the site for files from outside docs/."""
KINDS = {
    "Start": ("questions", "glossary", "project/examples/README"),
    "How to": (
        *(
            "app",
            "advise",
            "capacity",
            "tune",
            "rollout",
            "what-if",
            "replay",
            "read",
            "compare",
            "check",
            "gate",
        ),
        *("launch", "experiments", "stores", "calibrate", "closure", "distillation", "library"),
        *("playbooks/speculative-tuning", "playbooks/eagle3-rollout"),
    ),
    "Reference": (
        *(
            "scenario",
            "results",
            "acceptance",
            "methods",
            "policies",
            "models",
            "engines",
            "step",
            "statistics",
        ),
        "sampling",
    ),
    "Why": (
        *("claims", "break-even-map", "measured-acceptance", "acceptance-gallery", "engine-loop"),
        *("validation", "limits", "project/ACCURACY", "project/ARCHITECTURE", "project/CONTRIBUTING"),
        "project/CHANGELOG",
    ),
}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SETTINGS = {
    "project": "decodesim",
    "html_title": "decodesim",
    "html_theme": "furo",
    "extensions": "myst_parser",
    "myst_heading_anchors": "3",
    "html_copy_source": "0",
    "suppress_warnings": "myst.header,misc.highlighting_failure",
}


def main() -> None:
    from sphinx.cmd.build import main as build

    with tempfile.TemporaryDirectory(prefix="decodesim-site-") as folder:
        write_source(Path(folder))
        settings = [f"-D{name}={value}" for name, value in SETTINGS.items()]
        status = build(["-q", "-W", "--keep-going", "-C", *settings, folder, sys.argv[1]])
    sys.exit(status)


def write_source(folder: Path) -> None:
    """Write every page of the site, and what pages link to, into a folder."""
    pages = [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")]
    waiting, reached = [HOME, *pages], set[str]()
    while waiting:
        source = waiting.pop()
        if source in reached:
            continue
        reached.add(source)
        path = folder / site_path(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            waiting += targets(source)
            path.write_text(page_text(source), encoding="utf-8")
        else:
            path.write_bytes((ROOT / source).read_bytes())


def page_text(source: str) -> str:
    """A page with its links pointing into the site; the front page lists all others."""
    text = (ROOT / source).read_text(encoding="utf-8")
    place = posixpath.dirname(site_path(source)) or "."

    def rewritten(match: re.Match[str]) -> str:
        target = resolved(source, match[2])
        return (
            match[0]
            if target is None
            else f"{match[1]}{posixpath.relpath(site_path(target), place)}{match[3]}"
        )

    position, parts = 0, []
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(rewritten, text[position : fence.start()]), fence[0]]
        position = fence.end()
    parts.append(LINK.sub(rewritten, text[position:]))
    if source == HOME:
        parts += [contents(kind, pages) for kind, pages in KINDS.items()]
    return "".join(parts)


def contents(kind: str, pages: tuple[str, ...]) -> str:
    """The list of pages of one kind, for the side of every page."""
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {kind}", "", *pages, "```\n"])


def targets(source: str) -> list[str]:
    """The files of the project that a page links to, as paths from the project's root."""
    text = FENCE.sub("", (ROOT / source).read_text(encoding="utf-8"))
    links = (resolved(source, match[2]) for match in LINK.finditer(text))
    return [link for link in links if link is not None]


def resolved(source: str, link: str) -> str | None:
    """The file that a link of a page leads to; None for addresses, and for what is no file."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    return path if "://" not in link and (ROOT / path).is_file() else None


def site_path(source: str) -> str:
    """Where the site has a file of the project."""
    if source == HOME:
        return "index.md"
    return source.removeprefix("docs/") if source.startswith("docs/") else f"{OUTSIDE}/{source}"


if __name__ == "__main__":
    main()
