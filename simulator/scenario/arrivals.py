"""The forms of `workload.arrivals`: when requests come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from simulator.scenario.base import (
    Fault,
    FileName,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Raw,
    Section,
    as_number,
)


class ArrivalsClosed(Section):
    """A fixed number of clients, each sending its next request `think_time_s` after the last one ended."""

    kind: Literal["closed"] = "closed"
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="clients at work at once")
    think_time_s: NonNegativeFloat = Field(
        default=0.0, le=1e6, description="pause of a client between two requests, s"
    )
    ramp_s: NonNegativeFloat = Field(
        default=0.0, le=1e6, description="the clients begin one after another over this long, s"
    )


class ArrivalsBurst(Section):
    """All requests at time 0."""

    kind: Literal["burst"] = "burst"


class ArrivalsPoisson(Section):
    """Independent arrivals at a constant mean rate."""

    kind: Literal["poisson"] = "poisson"
    rate_per_s: PositiveFloat = Field(le=1e6, description="mean requests per second")


class ArrivalsGamma(Section):
    """Gamma inter-arrival times: burstier than Poisson with cv > 1, smoother below."""

    kind: Literal["gamma"] = "gamma"
    rate_per_s: PositiveFloat = Field(le=1e6, description="mean requests per second")
    cv: PositiveFloat = Field(le=100, description="coefficient of variation of the inter-arrival times")


class ArrivalsProfile(Section):
    """Poisson with a rate that changes at given times; the last one stays."""

    kind: Literal["profile"] = "profile"
    rates_per_s: Annotated[
        tuple[tuple[NonNegativeFloat, Annotated[float, Field(ge=0, le=1e6)]], ...], Field(min_length=1)
    ] = Field(description="[start in s, requests per second], in order of time from 0 on")

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        rows = raw.get("rates_per_s")
        if not isinstance(rows, list | tuple) or not all(
            isinstance(row, list | tuple) and len(row) == 2 for row in rows
        ):
            return
        starts = [as_number(row[0]) for row in rows]
        if starts and starts[0] is not None and starts[0] > 0:
            yield Fault(("rates_per_s", 0, 0), rows[0][0], "leaves the time before it without a rate", "0")
        for index in range(1, len(rows)):
            before, here = starts[index - 1], starts[index]
            if before is not None and here is not None and here <= before:
                yield Fault(
                    ("rates_per_s", index, 0),
                    here,
                    "does not come after the start before it",
                    f"more than {before:g}",
                )
        last = as_number(rows[-1][1]) if rows else None
        if last == 0:
            yield Fault(
                ("rates_per_s", len(rows) - 1, 1),
                rows[-1][1],
                "stays for ever, so that the last requests never come",
                "more than 0",
            )


class ArrivalsTrace(Section):
    """Times and lengths of a recorded trace."""

    kind: Literal["trace"] = "trace"
    file: FileName = Field(description="the trace")
    format: str = Field(default="auto", description="auto: recognised by its content")
    rate_scale: PositiveFloat = Field(default=1.0, le=1e6, description="times the rate of the trace")
    max_requests: PositiveInt | None = Field(
        default=None, description="only the first requests of the file; null: all"
    )
    start_s: NonNegativeFloat = Field(
        default=0.0, le=1e9, description="only what arrives from here on, s after the trace's first arrival"
    )
    end_s: PositiveFloat | None = Field(
        default=None, description="and before here, s in the trace's own time; null: to its end"
    )
    max_prompt_tokens: PositiveInt | None = Field(
        default=None, description="only requests with prompts up to this; null: all"
    )
    max_output_tokens: PositiveInt | None = Field(
        default=None, description="only requests with outputs up to this; null: all"
    )

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        start, end = as_number(raw.get("start_s", 0)), as_number(raw.get("end_s"))
        if start is not None and end is not None and end <= start:
            yield Fault(("end_s",), raw["end_s"], "leaves no time", f"more than start_s, {start:g}")


Arrivals = Annotated[
    ArrivalsClosed | ArrivalsBurst | ArrivalsPoisson | ArrivalsGamma | ArrivalsProfile | ArrivalsTrace,
    Field(discriminator="kind"),
]
"""Any arrival process."""
