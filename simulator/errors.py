"""Bad input, in a form that a person can act on: where, which field, what is wrong, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_LONGEST_VALUE = 80
"""Characters of an offending value that are printed; a longer one is cut."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the input.

    `line` and `column` count from 1. `value` is what was found; None means that nothing was there or that
    showing it would not help. `message` states what is wrong, `allowed` what would be right.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    field: str | None = None
    value: object = None
    message: str = ""
    allowed: str | None = None

    def __str__(self) -> str:
        """`file:line:column: field: what is wrong (got VALUE), what is allowed`, less the parts unknown."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        what = self.message if self.value is None else f"{self.message} (got {show_value(self.value)})"
        if self.allowed:
            what = f"{what}, {self.allowed}"
        return ": ".join(part for part in (place, self.field, what) if part)

    def at(
        self,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        field: str | None = None,
    ) -> Problem:
        """The same problem with the places filled in that it does not know yet."""
        return replace(
            self,
            file=self.file or file,
            line=self.line or line,
            column=self.column or column,
            field=self.field or field,
        )


class InputError(ValueError):
    """What the user gave cannot be used; `problems` lists everything that was found, not the first only.

    Made from a plain text, one `Problem`, or several. The command line prints one problem a line and exits 2.
    """

    problems: tuple[Problem, ...]

    def __init__(self, problems: Sequence[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = (Problem(message=problems),)
        elif isinstance(problems, Problem):
            problems = (problems,)
        self.problems = tuple(problems)
        super().__init__(self.problems)  # args = what __init__ takes, so that the error can be pickled

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def at(
        self,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        field: str | None = None,
    ) -> InputError:
        """The same error with the places filled in that its problems do not know yet."""
        return InputError([problem.at(file, line, column, field) for problem in self.problems])


def show_value(value: object) -> str:
    """The offending value as it may stand in a one-line message: quoted, no line breaks, not too long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


_MOST_NAMES, _CLOSE_NAMES = 60, 10
"""A list of more names than that is no help; the closest are."""


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, of those that it begins if any; None when none is close."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    begun = _begun(name, by_lower)
    close = difflib.get_close_matches(
        name.lower(), begun or list(by_lower), n=1, cutoff=0.0 if begun else 0.6
    )
    return by_lower[close[0]] if close else None


def _begun(name: str, lower: Iterable[str]) -> list[str]:
    return [known for known in lower if len(name) > 2 and known.startswith(name.lower())]


def _known_names(name: str, names: Sequence[str]) -> str:
    """All names there are, or of many those that are closest to a wrong one."""
    if not names:
        return "none is known here"
    if len(names) <= _MOST_NAMES:
        return f"known: {', '.join(names)}"
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=_CLOSE_NAMES, cutoff=0.3)
    close = list(dict.fromkeys((*_begun(name, by_lower), *near)))[:_CLOSE_NAMES]
    among = f", among them {', '.join(by_lower[known] for known in close)}" if close else ""
    return f"{len(names)} are known{among}"


def reason(error: OSError | ValueError) -> str:
    """Why a file could not be read or written, in a few words."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return (getattr(error, "strerror", None) or str(error)).lower()


def unknown_name(
    kind: str, name: str, known: Iterable[str], *, field: str | None = None, also: str | None = None
) -> Problem:
    """The problem of an unknown name: it lists the known names and suggests the closest.

    `kind` is the word for what is named ("GPU", "model"); `also` names another thing that would be allowed
    ("path of a config.json").
    """
    names = sorted(known)
    allowed = _known_names(name, names)
    if also:
        allowed = f"{allowed}; or {also}"
    guess = did_you_mean(name, names)
    message = f"unknown {kind}" if guess is None else f"unknown {kind}, did you mean {guess!r}?"
    return Problem(field=field, value=name, message=message, allowed=allowed)
