"""A command that starts a serving engine, taken apart as a shell and the engine's parser would.

Nothing is executed. What precedes the launcher (environment, `docker run` with its own flags) is looked at
only for variables and the tag of an image.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.errors import InputError, Problem

_LONGEST_LINE = 100_000
"""Characters of a launch line that are read."""
_LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm serve", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"),
    "sglang": ("sglang.launch_server", "sglang serve"),
    "trtllm": ("trtllm-serve serve", "trtllm-serve"),
}
_IMAGES: Mapping[str, str] = {
    "vllm": r"\bvllm[\w/.-]*:",
    "sglang": r"\bsglang[\w/.-]*:",
    "trtllm": r"tensorrt",
}
_TAG = re.compile(r":v?(\d+\.\d+(?:\.\w+)*)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_NAMED = re.compile(r"--?[A-Za-z]")


class Flag(NamedTuple):
    """One option as it is written; `name` has dashes in place of underscores. A switch has no value."""

    name: str
    value: str | None
    written: str


@dataclass(frozen=True)
class LaunchLine:
    """The options and arguments of one launch. `engine`: the one whose launcher is named, None without one.

    `version` is the tag of a container's image.
    """

    engine: str | None
    version: str | None
    variables: Mapping[str, str]
    arguments: tuple[str, ...]
    flags: tuple[Flag, ...]

    def value(self, *names: str) -> str | None:
        """The value of the option with one of these names; the last one counts, as in argparse."""
        return next((flag.value for flag in reversed(self.flags) if flag.name in names), None)

    def has(self, *names: str) -> bool:
        """Whether an option with one of these names is given."""
        return any(flag.name in names for flag in self.flags)


def parse_line(text: str, origin: str, switches: Collection[str] = ()) -> LaunchLine:
    """Take a launch line apart. `switches` are options that never have a value.

    Raises InputError, which names `origin`, for a text that is no command line.
    """
    if len(text) > _LONGEST_LINE:
        raise InputError(Problem(origin, message="is too long for a launch line"))
    try:
        words = shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " "), comments=False)
    except ValueError as error:
        message = f"is not a command line: {str(error).lower()}"
        raise InputError(Problem(origin, message=message, allowed="quotes in pairs")) from None
    if not words:
        raise InputError(Problem(origin, message="is empty", allowed="the command that starts the engine"))
    engine, start = _launcher(words)
    image = next((word for word in words[:start] if _TAG.search(word) and "=" not in word), None)
    variables = [word.partition("=") for word in words[:start] if _VARIABLE.match(word)]
    arguments, flags = _options(words[start:], switches)
    return LaunchLine(
        engine=engine,
        version=_TAG.search(image)[1] if image is not None else None,  # type: ignore[index]
        variables={name: value for name, _, value in variables},
        arguments=tuple(arguments),
        flags=tuple(flags),
    )


def _launcher(words: Sequence[str]) -> tuple[str | None, int]:
    """The engine that the words start, and where its own options begin."""
    for engine, launchers in _LAUNCHERS.items():
        for launcher in launchers:
            parts = launcher.split()
            for at in range(len(words) - len(parts) + 1):
                if [word.rsplit("/", 1)[-1] for word in words[at : at + len(parts)]] == parts:
                    return engine, at + len(parts)
    for at, word in enumerate(words):  # `docker run … IMAGE …`, whose entry point is the launcher
        for engine, pattern in _IMAGES.items():
            if not word.startswith("-") and re.search(pattern, word):
                return engine, at + 1
    return None, 0


def _options(words: Sequence[str], switches: Collection[str]) -> tuple[list[str], list[Flag]]:
    arguments: list[str] = []
    flags: list[Flag] = []
    rest: Iterator[str] = iter(words)
    waiting: str | None = None  # an option that may take the next word as its value
    for word in rest:
        if _NAMED.match(word):
            if waiting is not None:
                flags.append(_flag(waiting, None))
            waiting = None
            name, equals, value = word.partition("=")
            if equals:
                flags.append(_flag(name, value))
            elif _normal(name) in switches:
                flags.append(_flag(name, None))
            else:
                waiting = name
        elif waiting is not None:
            flags.append(_flag(waiting, word))
            waiting = None
        else:
            arguments.append(word)
    if waiting is not None:
        flags.append(_flag(waiting, None))
    return arguments, flags


def _flag(written: str, value: str | None) -> Flag:
    return Flag(_normal(written), value, written)


def _normal(name: str) -> str:
    """An option with dashes; what follows a dot is a key, and keeps its underscores."""
    option, dot, key = name.partition(".")
    return option.replace("_", "-") + dot + key
