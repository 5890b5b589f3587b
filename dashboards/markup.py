"""HTML by functions: every text is escaped unless it is markup already."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def text(content: object) -> Html:
    """Anything as markup: escaped, unless it is markup."""
    return content if isinstance(content, Html) else Html(escape(str(content)))


def tag(name: str, *children: object, **attributes: str | None) -> Html:
    """An element; `cls` is its class, `_` in names of attributes becomes `-`, what is None is left out."""
    named = {("class" if key == "cls" else key.replace("_", "-")): value for key, value in attributes.items()}
    opened = "".join(f' {key}="{escape(value)}"' for key, value in named.items() if value is not None)
    return Html(f"<{name}{opened}>{''.join(map(text, children))}</{name}>")


def joined(*parts: object) -> Html:
    """Markup after markup."""
    return Html("\n".join(map(text, parts)))


def table(
    columns: Sequence[object], rows: Sequence[Sequence[object]], *, cls: str = "", words: int = 1
) -> Html:
    """A table that scrolls sideways where it is too wide; after the first `words` columns come figures."""

    def cells(name: str, row: Sequence[object]) -> list[Html]:
        return [tag(name, cell, cls=None if at < words else "figure") for at, cell in enumerate(row)]

    head = tag("thead", tag("tr", *cells("th", columns)))
    body = tag("tbody", *(tag("tr", *cells("td", row)) for row in rows))
    return tag("div", tag("table", head, body), cls=f"wide {cls}".strip())


def linked(content: str) -> Html:
    """Text with its addresses as links."""
    parts = []
    for word in content.split(" "):
        bare = word.strip("(),;")
        if bare.startswith(("https://", "http://")):
            before, _, after = word.partition(bare)
            shown = bare.removeprefix("https://").removeprefix("http://")
            parts.append(text(before) + tag("a", shown, href=bare, rel="noreferrer") + text(after))
        else:
            parts.append(text(word))
    return Html(" ".join(parts))


def sentence(content: str) -> str:
    """The same with a capital at its beginning and a stop at its end."""
    content = content.strip()
    content = content[:1].upper() + content[1:]
    return content if content.endswith((".", "!", "?")) else f"{content}."
