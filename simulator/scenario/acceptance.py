"""The `acceptance` forms of the scenario file: how many drafts are accepted (docs/acceptance.md).

`alpha` is the conditional acceptance at position 1 with zero random effects. A mean acceptance length at a
known draft length states the same in the terms of an engine's log; it is inverted exactly when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from simulator.scenario.base import (
    Fault,
    FileName,
    NonNegativeFloat,
    Probability,
    Raw,
    Section,
    as_number,
)

MeanLength = Annotated[float, Field(ge=1)]


class _WithAlpha(Section):
    """Models whose level is `alpha`, or a mean acceptance length and the draft length it holds at."""

    alpha: Probability | None = Field(default=None, description="conditional acceptance at position 1")
    mean_acceptance_length: MeanLength | None = Field(
        default=None, description="in place of alpha: tokens per verify, 1 + accepted, as logs print it"
    )
    at_draft_length: Annotated[int, Field(ge=1, le=128)] | None = Field(
        default=None, description="draft length at which mean_acceptance_length holds"
    )

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        levels = [key for key in ("alpha", "mean_acceptance_length") if raw.get(key) is not None]
        if len(levels) == 2:
            yield Fault(
                ("mean_acceptance_length",),
                raw["mean_acceptance_length"],
                "is given together with alpha, which it determines",
                "one of the two",
            )
        elif not levels:
            yield Fault(
                ("alpha",),
                None,
                "is missing",
                "alpha (0 to 1), or mean_acceptance_length with at_draft_length",
            )
        length, at = raw.get("mean_acceptance_length"), raw.get("at_draft_length")
        if length is not None and at is None:
            yield Fault(
                ("at_draft_length",),
                None,
                "is missing",
                "the draft length at which mean_acceptance_length was seen",
            )
        if at is not None and length is None:
            yield Fault(
                ("at_draft_length",), at, "is given without mean_acceptance_length", "both or neither"
            )
        mean, draft_length = as_number(length), as_number(at)
        if mean is not None and draft_length is not None and mean > draft_length + 1:
            yield Fault(
                ("mean_acceptance_length",),
                length,
                "is more than a step can emit",
                f"1 to {draft_length + 1:g} at draft length {draft_length:g}",
            )


class AcceptanceFixed(Section):
    """The same share of drafts is accepted in every step, at the draft length in use."""

    model: Literal["fixed"] = "fixed"
    rate: Probability = Field(description="accepted ÷ drafted")


class AcceptanceGeometric(_WithAlpha):
    """Every position is accepted with the same probability, independently."""

    model: Literal["geometric"] = "geometric"


class AcceptancePositional(Section):
    """One probability per position: conditional, or survival (the share of rounds that get so far)."""

    model: Literal["positional"] = "positional"
    conditional: Annotated[tuple[Probability, ...], Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="P(accept j | all earlier accepted), from position 1 on"
    )
    survival: Annotated[tuple[Probability, ...], Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="P(first j all accepted), from position 1 on; never rising"
    )

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        levels = [key for key in ("conditional", "survival") if raw.get(key) is not None]
        if len(levels) == 2:
            yield Fault(
                ("survival",),
                raw["survival"],
                "is given together with conditional, which it determines",
                "one of the two",
            )
        elif not levels:
            yield Fault(
                ("conditional",), None, "is missing", "conditional or survival: a list of probabilities"
            )
        survival = raw.get("survival")
        if isinstance(survival, list | tuple):
            for index in range(1, len(survival)):
                before, here = as_number(survival[index - 1]), as_number(survival[index])
                if before is not None and here is not None and here > before:
                    yield Fault(
                        ("survival", index),
                        here,
                        f"is more than position {index} has, {before:g}",
                        "survival never rises: whoever passes a position has passed all before it",
                    )


class AcceptanceDecay(_WithAlpha):
    """logit of the conditional acceptance falls by `delta` per position."""

    model: Literal["decay"] = "decay"
    delta: float = Field(
        default=0.0, ge=-10, le=10, description="fall of the logit per position; below 0 it rises"
    )


class AcceptanceHierarchical(_WithAlpha):
    """Decay, with requests that differ and a level that drifts along the output of each."""

    model: Literal["hierarchical"] = "hierarchical"
    delta: float = Field(
        default=0.0, ge=-10, le=10, description="fall of the logit per position; below 0 it rises"
    )
    request_sd: NonNegativeFloat = Field(default=0.0, le=10, description="sd between requests, in logits")
    drift_sd: NonNegativeFloat = Field(
        default=0.0, le=10, description="sd of the drift along an output, in logits"
    )
    drift_correlation: float = Field(
        default=0.0, ge=0, lt=1, description="correlation of the drift from one output token to the next"
    )


class AcceptanceRanked(Section):
    """One probability per rank of a draft among the drafter's choices, as trees need it."""

    model: Literal["ranked"] = "ranked"
    chances: Annotated[
        tuple[Annotated[tuple[Probability, ...], Field(min_length=1, max_length=64)] | Probability, ...],
        Field(min_length=1, max_length=64),
    ] = Field(
        description="P(the choice of rank r is the continuation): a number per rank, or such a list per depth"
    )

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        chances = raw.get("chances")
        rows = list(chances) if isinstance(chances, list | tuple) else []
        nested = [isinstance(row, list | tuple) for row in rows]
        if any(nested) and not all(nested):
            message = "mixes numbers and lists"
            yield Fault(("chances",), chances, message, "one number per rank, or such a list per depth")
            return
        for depth, row in enumerate(rows if any(nested) else [rows]):
            values = [value for value in map(as_number, row) if value is not None]
            if sum(values) > 1.0 + 1e-9:
                path = ("chances", depth) if any(nested) else ("chances",)
                yield Fault(path, row, "adds to more than 1", "at most 1 over all ranks")


class AcceptanceGated(Section):
    """n-gram and suffix: a round has a match or none, and after a match many drafts are accepted."""

    model: Literal["gated"] = "gated"
    match: Probability = Field(description="share of rounds with a match")
    stickiness: Probability = Field(
        default=0.0, description="how much a success makes the next match surer; 0: not"
    )
    first: Probability = Field(description="conditional acceptance at position 1 of a match")
    run: Probability = Field(description="conditional acceptance after the first")
    request_sd: NonNegativeFloat = Field(
        default=0.0, le=10, description="sd of the match between requests, in logits"
    )
    match_tokens: Annotated[float, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="mean tokens of a match (geometric), which brings as many drafts at most; null: always K",
    )


class AcceptanceTrace(Section):
    """Replay of accepted lengths by output position, measured earlier."""

    model: Literal["trace"] = "trace"
    file: FileName = Field(description="accepted lengths by output position")


Acceptance = Annotated[
    AcceptanceFixed
    | AcceptanceGeometric
    | AcceptancePositional
    | AcceptanceDecay
    | AcceptanceHierarchical
    | AcceptanceRanked
    | AcceptanceGated
    | AcceptanceTrace,
    Field(discriminator="model"),
]
"""Any acceptance model. `{file: acceptance.json}` has been replaced by the model that the file describes."""
