"""Hooks of the documentation site (`make site`, mkdocs.yml).

Pages link to files outside this folder: the README, ACCURACY.md, scenarios in examples/. The site holds each
file that is linked to, and links are rewritten to where the site has it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
HOME = "README.md"
"""The project's front page is the site's too."""
OUTSIDE = "project"
"""The folder of the site for files from outside docs/."""
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the front page and, from there on, all files that pages link to."""
    waiting, reached = [HOME, *(f"docs/{file.src_uri}" for file in files.documentation_pages())], set()
    while waiting:
        source = waiting.pop()
        if source in reached:
            continue
        reached.add(source)
        if not source.startswith("docs/"):
            content = (ROOT / source).read_bytes()
            files.append(File.generated(config, site_path(source), content=content))
        if source.endswith(".md"):
            waiting.extend(targets(source))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the pages of the site."""
    source = source_of(page.file.src_uri)

    def rewritten(match: re.Match[str]) -> str:
        target = resolved(source, match[2])
        if target is None:
            return match[0]
        link = posixpath.relpath(site_path(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{link}{match[3]}"

    fences, position, parts = list(FENCE.finditer(markdown)), 0, []
    for fence in fences:
        parts += [LINK.sub(rewritten, markdown[position : fence.start()]), fence[0]]
        position = fence.end()
    return "".join([*parts, LINK.sub(rewritten, markdown[position:])])


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


def source_of(site: str) -> str:
    """The file of the project behind a page of the site."""
    if site == "index.md":
        return HOME
    return site.removeprefix(f"{OUTSIDE}/") if site.startswith(f"{OUTSIDE}/") else f"docs/{site}"
