"""What one part of a page is about: a result, the scenario it came from, and the study next to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.study import LoadStudy, Progress, study_of
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.results.result import Result
    from simulator.scenario import Scenario

PLAIN = "plain"


@dataclass(frozen=True)
class Subject:
    """A result with what the pictures need next to it.

    `scenario` is None where it cannot be read again (it names files that are not here, or comes from another
    version); `why` then says so, and the pictures that need it say it too.
    """

    result: Result
    scenario: Scenario | None = None
    study: LoadStudy = field(default_factory=LoadStudy)
    why: str | None = None

    @property
    def title(self) -> str:
        """What the scenario calls itself."""
        if self.scenario is not None:
            return self.scenario.title
        return str(self.result.scenario.get("name") or "A scenario without a name")

    @property
    def speculative(self) -> list[str]:
        """Names of the variants that speculate."""
        return [name for name in self.result.variants if name != PLAIN]


def varying_variants(subject: Subject) -> tuple[str, ...]:
    """The variants whose draft length varies with the batch."""
    variants = subject.result.scenario.get("speculation", ())
    return tuple(variant["name"] for variant in variants if not isinstance(variant["draft_length"], int))


def subject_of(result: Result, folder: Path | None = None, progress: Progress | None = None) -> Subject:
    """The subject of a result; `folder` is where the result lies, and where its study is kept."""
    scenario, why = _scenario(result, [Path("."), *([folder] if folder is not None else [])])
    if scenario is None:
        return Subject(result, None, LoadStudy(), why)
    return Subject(result, scenario, study_of(result, scenario, folder, progress))


def subjects_at(path: Path, progress: Progress | None = None) -> list[Subject]:
    """The subjects at a path, found as `read_results` finds results. Raises InputError."""
    from simulator.results.result import RESULT_FILE, read_results

    folders = (
        [path]
        if (path / RESULT_FILE).exists()
        else sorted(file.parent for file in path.glob(f"*/{RESULT_FILE}"))
    )
    if not folders:
        at = path.parent if path.name == RESULT_FILE else None
        return [subject_of(result, at, progress) for result in read_results(path)]
    return [subject_of(result, folder, progress) for folder in folders for result in read_results(folder)]


def _scenario(result: Result, base_dirs: Iterable[Path]) -> tuple[Scenario | None, str | None]:
    """The scenario of a result, with the first folder in which the files it names are found; else why not."""
    from simulator.scenario import scenario_from_data

    why = None
    for base_dir in base_dirs:
        try:
            return scenario_from_data(result.scenario, base_dir), None
        except InputError as error:
            why = (
                why
                or f"The scenario cannot be read here ({error.problems[0]}); run this where its files lie."
            )
    return None, why
