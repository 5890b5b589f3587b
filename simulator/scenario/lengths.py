"""The forms of `prompt_tokens` and `output_tokens`: how long they are, in tokens, at least 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from simulator.scenario.base import Fault, FileName, PositiveFloat, PositiveInt, Raw, Section, ordered


class LengthsFixed(Section):
    """All the same."""

    kind: Literal["fixed"] = "fixed"
    tokens: PositiveInt = Field(description="tokens of each")


class LengthsUniform(Section):
    """Every whole number from `low` to `high`, both included, equally likely."""

    kind: Literal["uniform"] = "uniform"
    low: PositiveInt = Field(description="shortest, tokens")
    high: PositiveInt = Field(description="longest, tokens")

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        yield from ordered(raw, "low", "high")


class LengthsLognormal(Section):
    """Log-normal through its median and 95th percentile, cut to `min`..`max`."""

    kind: Literal["lognormal"] = "lognormal"
    median: PositiveFloat = Field(le=1e9, description="tokens that half of them stay below")
    p95: PositiveFloat = Field(le=1e9, description="tokens that 95 % of them stay below")
    min: PositiveInt = Field(default=1, description="shortest, tokens")
    max: PositiveInt | None = Field(default=None, description="longest, tokens; null: no limit")

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        yield from ordered(raw, "median", "p95")
        yield from ordered(raw, "min", "max")


class LengthsEmpirical(Section):
    """Drawn with replacement from the lengths in a file, one whole number a line."""

    kind: Literal["empirical"] = "empirical"
    file: FileName = Field(description="file with one length a line")


Lengths = Annotated[
    LengthsFixed | LengthsUniform | LengthsLognormal | LengthsEmpirical, Field(discriminator="kind")
]
"""Any length distribution."""
