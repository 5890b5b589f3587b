"""The subject of one part of a page: a result, its scenario, and its break-even and speedup by load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.study import LoadStudy, load_study_of
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.results.result import Result
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

PLAIN = "plain"


@dataclass(frozen=True)
class ReportedResult:
    """A result with everything that the figures need.

    `scenario` is None where it cannot be read again: it names missing files, or comes from another version.
    `scenario_problem` is then the reason, which the figures that need it report.
    """

    result: Result
    scenario: Scenario | None = None
    study: LoadStudy = field(default_factory=LoadStudy)
    scenario_problem: str | None = None

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


def varying_variants(subject: ReportedResult) -> tuple[str, ...]:
    """The variants whose draft length varies with the batch."""
    variants = subject.result.scenario.get("speculation", ())
    return tuple(
        variant["name"]
        for variant in variants
        if not isinstance(variant["draft_length"], int) or variant.get("policy") is not None
    )


def reported_result(
    result: Result, folder: Path | None = None, progress: Progress | None = None
) -> ReportedResult:
    """The subject of a result; `folder` is where the result lies, and where its study is kept."""
    scenario, scenario_problem = _scenario(result, [Path("."), *([folder] if folder is not None else [])])
    if scenario is None:
        return ReportedResult(result, None, LoadStudy(), scenario_problem)
    return ReportedResult(result, scenario, load_study_of(result, scenario, folder, progress))


def reported_results_at(path: Path, progress: Progress | None = None) -> list[ReportedResult]:
    """The subjects at a path, found as `read_results` finds results. Raises InputError."""
    from simulator.results.result import RESULT_FILE, read_results

    folders = (
        [path]
        if (path / RESULT_FILE).exists()
        else sorted(file.parent for file in path.glob(f"*/{RESULT_FILE}"))
    )
    if not folders:
        folder_of_file = path.parent if path.name == RESULT_FILE else None
        return [reported_result(result, folder_of_file, progress) for result in read_results(path)]
    return [
        reported_result(result, folder, progress) for folder in folders for result in read_results(folder)
    ]


def _scenario(result: Result, base_dirs: Iterable[Path]) -> tuple[Scenario | None, str | None]:
    """The scenario of a result, with the first folder in which the files it names are found; else why not."""
    from simulator.scenario import scenario_from_data

    problem = None
    for base_dir in base_dirs:
        try:
            return scenario_from_data(result.scenario, base_dir), None
        except InputError as error:
            problem = (
                problem
                or f"The scenario cannot be read here ({error.problems[0]}); run this where its files lie."
            )
    return None, problem
