"""What is wrong with a profile's file so far, each with its place."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.document import DataPath
from simulator.errors import InputError, Problem


@dataclass
class Faults:
    """What is wrong so far, each with its path in the file."""

    noted: list[tuple[DataPath, Problem]] = field(default_factory=list)

    def add(self, path: DataPath, value: object, message: str, allowed: str | None = None) -> None:
        """Note a problem at `path`."""
        name = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
        shown = value if value is None or isinstance(value, str | int | float) else type(value).__name__
        self.noted.append((path, Problem(field=name or None, value=shown, message=message, allowed=allowed)))

    def finish(self, text: str, file: str) -> None:
        """Raise InputError with all that was found, if anything was."""
        from simulator.models.config import locator

        if self.noted:
            locate = locator(text, file)
            raise InputError(
                [problem.at(file, *locate(path), field=problem.field) for path, problem in self.noted]
            )
