"""`policy` of a variant: what chooses the draft length by the results of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from simulator.policies.adaptive import CANDIDATES, Adaptive
from simulator.scenario.base import DraftLength, Fault, PositiveInt, Raw, Section

CandidateLengths = tuple[PositiveInt, Annotated[tuple[DraftLength, ...], Field(min_length=1, max_length=129)]]
"""[smallest batch of the row, its draft lengths]."""


class AdaptivePolicy(Section):
    """SGLang's adaptive draft length (`--speculative-adaptive`)."""

    kind: Literal["adaptive"] = Field(description="adaptive: by the drafts that rounds accepted")
    candidates: Annotated[tuple[CandidateLengths, ...], Field(min_length=1, max_length=1000)] = Field(
        default=tuple(CANDIDATES.items()),
        description="rows [smallest batch, draft lengths] by decoding requests; default: SGLang's",
    )

    @property
    def longest(self) -> int:
        """The longest draft it may choose."""
        return max(max(lengths) for _, lengths in self.candidates)

    def policy(self, first_length: int) -> Adaptive:
        """Return the policy, which starts at `first_length` in rows that have it."""
        return Adaptive(self.candidates, first_length)

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        rows = raw.get("candidates")
        if not isinstance(rows, list | tuple):
            return
        before = 0
        for index, row in enumerate(rows):
            if not (isinstance(row, list | tuple) and len(row) == 2):
                return  # its type is reported
            batch, lengths = row
            if isinstance(batch, int) and batch <= before:
                yield Fault(
                    ("candidates", index, 0),
                    batch,
                    "is not above the row before",
                    f"{before + 1} or more" if before else "1 or more",
                )
            before = batch if isinstance(batch, int) else before
            if _is_unordered(lengths):
                allowed = "each length once, the shortest first"
                yield Fault(("candidates", index, 1), lengths, "is not ascending", allowed)
        if rows and all(_drafts_nothing(row) for row in rows):
            yield Fault(("candidates",), list(rows), "drafts nothing", "a row with a length above 0")


def _is_unordered(lengths: object) -> bool:
    if not isinstance(lengths, list | tuple) or not all(isinstance(length, int) for length in lengths):
        return False  # its type is reported
    return list(lengths) != sorted(set(lengths))


def _drafts_nothing(row: object) -> bool:
    lengths = row[1] if isinstance(row, list | tuple) and len(row) == 2 else None
    return isinstance(lengths, list | tuple) and all(length == 0 for length in lengths)


def policy_faults(raw: Mapping[str, object]) -> Iterator[Fault]:
    """What a variant with a policy must not have in addition (SGLang `adaptive_unsupported_reason`)."""
    if raw.get("policy") is None:
        return
    if raw.get("method") not in ("eagle", "eagle3"):
        yield Fault(("policy",), raw["policy"], f"does not go with {raw.get('method')}", "eagle or eagle3")
    if raw.get("tree") is not None:
        yield Fault(("policy",), raw["policy"], "chooses among chains, but the variant drafts a tree", "null")
    if raw.get("draft_length") is not None and not isinstance(raw["draft_length"], int):
        allowed = "the number of drafts at the start"
        yield Fault(("draft_length",), raw["draft_length"], "is given together with a policy", allowed)
