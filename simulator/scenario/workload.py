"""The `workload` section: who asks, how often, for how much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from simulator.scenario.acceptance import Acceptance
from simulator.scenario.arrivals import Arrivals
from simulator.scenario.base import (
    Fault,
    NonNegativeFloat,
    Probability,
    Raw,
    Section,
    as_number,
    name_faults,
    repeated,
)
from simulator.scenario.lengths import Lengths, LengthsLognormal

OTHER_CLASS = "other"
"""Class of the requests that no entry of `classes` takes."""
_SHARE_TOLERANCE = 1e-9


class Sessions(Section):
    """Conversations: the prompt of each turn holds the turns before it."""

    turns: Annotated[int, Field(ge=1, le=1000)] = Field(description="requests per session")
    gap_s: NonNegativeFloat = Field(
        default=0.0, le=1e6, description="time between an answer and the next turn, s"
    )
    shared_prefix_tokens: Annotated[int, Field(ge=0, le=10**7)] = Field(
        default=0, description="leading prompt tokens that all sessions have in common"
    )


class TrafficClass(Section):
    """A share of the requests with its own lengths and its own acceptance."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="name in tables and in --set"
    )
    share: Probability = Field(description="share of the requests; what is left over is the class 'other'")
    prompt_tokens: Lengths | None = Field(default=None, description="null: as the workload")
    output_tokens: Lengths | None = Field(default=None, description="null: as the workload")
    drafts: bool = Field(default=True, description="false: never drafts")
    acceptance: dict[str, Acceptance] = Field(
        default_factory=dict, description="by variant; left out: as the variant"
    )

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        yield from name_faults(raw, OTHER_CLASS, "requests of no class")


class Workload(Section):
    """The traffic that every variant meets."""

    arrivals: Arrivals = Field(description="when requests come")
    requests: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=4000, description="requests to simulate"
    )
    prompt_tokens: Lengths = Field(
        default=LengthsLognormal(median=900, p95=3500, max=8000), description="prompt lengths, tokens"
    )
    output_tokens: Lengths = Field(
        default=LengthsLognormal(median=220, p95=700, max=2000), description="output lengths, tokens"
    )
    ends: Literal["eos", "max_tokens"] = Field(
        default="eos", description="eos: the stop is not foreseen (ghost rows); max_tokens: it is"
    )
    temperature: Annotated[float, Field(ge=0, le=10)] | None = Field(
        default=None,
        description="how tokens are chosen, where a profile has prices for it: 0 the best one, above drawn; "
        "null: not stated, the profile's one price",
    )
    timeout_s: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="a client times out after this long and its KV is freed; null: never"
    )
    cancel_fraction: Probability = Field(
        default=0.0, description="share of requests cancelled by their clients midway"
    )
    sessions: Sessions | None = Field(
        default=None, description="conversations of several turns; null: single requests"
    )
    classes: Annotated[tuple[TrafficClass, ...], Field(max_length=100)] = Field(
        default=(), description="shares of the traffic with their own lengths and acceptance"
    )

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        classes = raw.get("classes")
        if not isinstance(classes, list | tuple):
            return
        entries = [entry if isinstance(entry, dict) else {} for entry in classes]
        for fault in repeated([entry.get("name") for entry in entries], "class"):
            yield fault._replace(path=("classes", *fault.path))
        shares = [as_number(entry.get("share")) for entry in entries]
        total = sum(share for share in shares if share is not None)
        if total > 1 + _SHARE_TOLERANCE and all(share is None or 0 <= share <= 1 for share in shares):
            yield Fault(("classes",), None, f"the shares sum to {total:g}", "a sum of at most 1")

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # classes hold mappings, which have no hash

    @property
    def traffic_classes(self) -> tuple[TrafficClass, ...]:
        """`classes`, and the class `other` for the share they leave; at least one."""
        left = 1 - sum(entry.share for entry in self.classes)
        if self.classes and left <= _SHARE_TOLERANCE:
            return self.classes
        return (*self.classes, TrafficClass.model_construct(name=OTHER_CLASS, share=left))
