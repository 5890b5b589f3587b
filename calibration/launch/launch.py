"""What a launch configuration says, and what is written for one: the same for all engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Launch:
    """A launch configuration of a serving engine as it was read.

    `scenario` is the plain data of a scenario without workload. `settings` holds the engine's own options,
    `speculation` its speculative configuration, both under the engine's names. `notes` say what was left out.
    """

    engine: str
    version: str | None
    scenario: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    speculation: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unstated:
    """A field of the scenario that the engine's options cannot express, with the reason."""

    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


@dataclass(frozen=True)
class Artefact:
    """What starts an engine as a scenario states it: a command line or a configuration file.

    `files` are those that `text` names: file name → content. `unstated` lists the settings for which the
    engine has no option.
    """

    engine: str
    version: str
    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    unstated: tuple[Unstated, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "engine": self.engine,
            "version": self.version,
            "text": self.text,
            "files": dict(self.files),
            "unstated": [{"field": option.field, "text": option.text} for option in self.unstated],
        }
