"""The study file as it is written: its keys, checked like those of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from simulator.scenario.base import Fault, Raw, Section

MAX_SAMPLES = 100_000

Measure = Literal["simulate", "breakeven"]
"""`cell.SIMULATE` and `cell.BREAK_EVEN`."""


def _measure_tag(value: object) -> str:
    return "several" if isinstance(value, list | tuple) else "one"


class SampleSection(Section):
    """Points spread over the axes in place of their product."""

    kind: Literal["sobol"] = Field(default="sobol", description="how points are spread")
    n: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = Field(description="how many points")


class RefineSection(Section):
    """The contour along which cells are run; the rest of the grid is left out."""

    metric: str = Field(description="what decides: ARM.METRIC, one of those that are kept")
    level: float | None = Field(
        default=None,
        description="the contour runs where the metric crosses it; none for words like a verdict",
    )
    every: Annotated[int, Field(ge=2, le=100)] = Field(
        default=4, description="the first, coarse grid takes every so many-th value of each axis"
    )


class StudyFile(Section):
    """A study: one scenario, and what varies in it."""

    name: Annotated[str, Field(max_length=500)] | None = Field(
        default=None, description="what tables and pages call it"
    )
    scenario: str | dict[str, Any] = Field(description="a scenario file, or the scenario itself")
    axes: dict[str, Any] = Field(
        default_factory=dict, description="field → its values, a list or {from, to, steps, scale}"
    )
    zip: tuple[Annotated[tuple[str, ...], Field(min_length=2)], ...] = Field(
        default=(), description="axes that go together, value by value"
    )
    sample: SampleSection | None = Field(default=None, description="samples in place of the whole grid")
    seeds: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="how often the grid is run, each time with the next seed"
    )
    where: str | tuple[str, ...] = Field(default=(), description="conditions on the axes that all cells hold")
    measure: Annotated[
        Annotated[Measure, Tag("one")] | Annotated[tuple[Measure, ...], Field(min_length=1), Tag("several")],
        Discriminator(_measure_tag),
    ] = Field(
        default="simulate", description="simulate: all variants as they are; breakeven: the acceptance needed"
    )
    keep: tuple[str, ...] = Field(default=(), description="metrics that are stored; left out: the usual ones")
    refine: RefineSection | None = Field(default=None, description="only the cells along a contour, not all")

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        axes, groups = raw.get("axes"), raw.get("zip")
        if raw.get("sample") is not None and not axes:
            yield Fault(("sample",), None, "has no axes to spread points over", "one axis or more")
        zipped: set[str] = set()
        for index, group in enumerate(groups if isinstance(groups, list | tuple) else ()):
            for place, path in enumerate(group if isinstance(group, list | tuple) else ()):
                if isinstance(path, str) and path in zipped:
                    yield Fault(("zip", index, place), path, "goes with two others", "each axis once")
                zipped.add(str(path))
