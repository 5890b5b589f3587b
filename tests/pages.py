"""Documentation pages whose answers are runs.

On these pages a block of `bash` or `python` is followed by a block of `text` that holds what it prints. Where
readers want what the code prints and not the code, it lies in a comment, and Markdown follows up to
`<!-- end -->`. `python -m tests.pages` (`make docs`) runs every block and writes what it prints; tests run
them and compare.
Prose may only name figures that a block of the same section shows.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from tests.shared_data import ROOT

PAGES = (
    "docs/questions.md",
    "docs/methods.md",
    "docs/models.md",
    "docs/engines.md",
    "docs/results.md",
    "docs/check.md",
)

_ANSWER = re.compile(r"^```(bash|python)\n(.*?)^```\n\n?```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HIDDEN = re.compile(r"^<!-- (python)\n(.*?)^-->\n\n(.*?)\n<!-- end -->$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COLUMNS = 120
_NUMBER = re.compile(r"(?<![\w.,-])(\d[\d,]*(?:\.\d+)?)( ?(?:%|ms\b|GiB\b|×))?")
"""A number of the prose, and the unit that makes a figure of it. One with a decimal point always is one."""
_NO_FIGURE = re.compile(r"arXiv \d+\.\d+|`[^`]*`|\]\([^)]*\)|(?:vLLM|SGLang|TensorRT-LLM|Llama-)\s?[\d.x]+")


class Answer(NamedTuple):
    """One block of a page and what stands below it."""

    section: str
    language: str
    code: str
    shown: str


def read(page: str) -> str:
    """The text of a page, by its path from the project's root."""
    return (ROOT / page).read_text(encoding="utf-8")


def sections(text: str) -> Iterator[tuple[str, str]]:
    """(heading, body) of every `##` section; what stands above the first has an empty heading."""
    for part in re.split(r"^## ", text, flags=re.MULTILINE):
        heading, _, body = part.partition("\n")
        yield (heading, body) if not part.startswith("# ") else ("", body)


def answers(text: str) -> list[Answer]:
    """Every answered block."""
    return [
        Answer(heading, *match.groups())
        for heading, body in sections(text)
        for block in (_ANSWER, _HIDDEN)
        for match in block.finditer(body)
    ]


def printed(language: str, code: str) -> str:
    """What a block prints, run in the project's root; blanks at the ends of lines and around it are cut."""
    with contextlib.chdir(ROOT):
        text = _commands(code) if language == "bash" else _python(code)
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def _commands(code: str) -> str:
    from click.testing import CliRunner

    from experiments.cli import decodesim

    out = ""
    for line in code.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "decodesim", line
        where = {"COLUMNS": str(_COLUMNS)}
        done = CliRunner().invoke(decodesim, arguments, env=where, catch_exceptions=False)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        out += done.stdout
    return out


def _python(code: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "a documentation page", "exec"), {"__name__": "__main__"})
    return out.getvalue()


def refreshed(text: str) -> str:
    """The page with every answer as it comes out now."""

    def renew(match: re.Match[str]) -> str:
        language, code, _ = match.groups()
        return f"```{language}\n{code}```\n\n```text\n{printed(language, code)}```"

    def renew_hidden(match: re.Match[str]) -> str:
        language, code, _ = match.groups()
        return f"<!-- {language}\n{code}-->\n\n{printed(language, code)}\n<!-- end -->"

    return _HIDDEN.sub(renew_hidden, _ANSWER.sub(renew, text))


def unsupported(section: str) -> list[str]:
    """Figures in a section's prose that none of its blocks shows, to the digits that the prose gives."""
    shown = " ".join(body for _, body in _FENCE.findall(section))
    known = [float(number) for number in re.findall(r"\d+\.?\d*|\.\d+", shown.replace(",", ""))]
    prose = _NO_FIGURE.sub("", _FENCE.sub("", section))
    figures = [number for number, unit in _NUMBER.findall(prose) if "." in number or unit]
    return [figure for figure in figures if not _is_known(figure.replace(",", ""), known)]


def _is_known(figure: str, known: list[float]) -> bool:
    digits = len(figure.partition(".")[2])
    return any(f"{number:.{digits}f}" == f"{float(figure):.{digits}f}" for number in known)


def main() -> None:
    """Write every page anew."""
    for page in PAGES:
        text = refreshed(read(page))
        (ROOT / page).write_text(text, encoding="utf-8")
        print(f"{page}: {len(answers(text))} answers")


if __name__ == "__main__":
    main()
