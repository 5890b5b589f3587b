"""One entry of `speculation`: a variant, that is a method with its drafter, draft length and acceptance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from simulator.scenario.acceptance import Acceptance, AcceptanceGeometric
from simulator.scenario.base import DraftLength, Fault, PositiveInt, Raw, Section, as_number, name_faults
from simulator.scenario.policy import AdaptivePolicy, policy_faults
from simulator.speculation import methods
from simulator.trees import DraftTree, GrowthRule, OptimalTree

PLAIN = "plain"
"""The variant without speculation; it always runs first."""


class GoodputPolicy(Section):
    """The draft length with the most expected tokens per second, chosen each step (arXiv 2406.14066)."""

    policy: Literal["goodput"] = Field(description="goodput: accepted tokens per second")
    max: Annotated[int, Field(ge=1, le=128)] = Field(description="longest draft it may choose")


DraftLengthTable = Annotated[
    tuple[tuple[PositiveInt, PositiveInt | None, DraftLength], ...], Field(min_length=1, max_length=1000)
]
"""Rows [low, high, K] by the number of requests in a step, both ends included; high null: without end.

Beyond a last row that ends, its K holds on.
"""


def _draft_length_form(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "table"
    return "policy" if isinstance(value, Mapping | GoodputPolicy) else "tokens"


class Tree(Section):
    """A tree of drafts: grown (`depth`, `top_k`, `nodes`) or given (`parents`).

    A tree that grows and is not dynamic is the best one for the acceptance of the variant, the same in every
    round.
    """

    depth: Annotated[int, Field(ge=1, le=64)] | None = Field(default=None, description="levels of drafts")
    top_k: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="children looked at per node"
    )
    nodes: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="nodes verified, root included"
    )
    dynamic: bool = Field(
        default=False, description="true: the best nodes by path probability, chosen each round"
    )
    parents: (
        Annotated[tuple[Annotated[int, Field(ge=-1)], ...], Field(min_length=1, max_length=1024)] | None
    ) = Field(default=None, description="parent of each node; -1 is the root, and comes first")

    @property
    def plan(self) -> DraftTree | GrowthRule | OptimalTree:
        """How it comes about."""
        if self.parents is not None:
            return DraftTree(self.parents)
        assert self.depth is not None
        assert self.top_k is not None
        assert self.nodes is not None
        if self.dynamic:
            return GrowthRule(self.depth, self.top_k, self.nodes, expanded=self.top_k)
        return OptimalTree(self.depth, self.top_k, self.nodes)

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        grown = [key for key in ("depth", "top_k", "nodes") if raw.get(key) is not None]
        parents = raw.get("parents")
        if parents is not None and grown:
            yield Fault(
                ("parents",),
                parents,
                f"is given together with {', '.join(grown)}",
                "a tree is either grown (depth, top_k, nodes) or given (parents)",
            )
        elif parents is None:
            for key in ("depth", "top_k", "nodes"):
                if key not in grown:
                    yield Fault((key,), None, "is missing", "depth, top_k and nodes, or parents alone")
        if isinstance(parents, list | tuple):
            for index, parent in enumerate(parents):
                wrong = (
                    parent != -1
                    if index == 0
                    else not (as_number(parent) is not None and 0 <= parent < index)
                )
                if wrong and as_number(parent) is not None:
                    yield Fault(
                        ("parents", index),
                        parent,
                        "is no earlier node",
                        "-1 for the root" if index == 0 else f"0 to {index - 1}",
                    )


class Variant(Section):
    """A speculative variant. It meets the same requests and random numbers as plain decoding and all other
    variants.
    """

    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="name in tables and in --set"
    )
    method: Annotated[str, Field(min_length=1)] = Field(description="speculation method")
    draft: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="drafter: catalogue name or path of its config.json; null: the target's own",
    )
    draft_length: Annotated[
        Annotated[DraftLength, Tag("tokens")]
        | Annotated[DraftLengthTable, Tag("table")]
        | Annotated[GoodputPolicy, Tag("policy")],
        Discriminator(_draft_length_form),
    ] = Field(
        default=3,
        description="drafts per round (K), or rows [low, high, K] by requests in the step, or a policy",
    )
    draft_sampling: Literal["greedy", "sampled"] = Field(
        default="greedy",
        description="how the drafter picks its tokens; chooses the rows of an acceptance file",
    )
    draft_tensor_parallel: PositiveInt | None = Field(
        default=None, description="GPUs of the drafter: 1 or as the target; null: as it"
    )
    policy: AdaptivePolicy | None = Field(
        default=None,
        description="what chooses K by the results of the run, from draft_length on; null: nothing",
    )
    tree: Tree | None = Field(
        default=None,
        description="a tree of drafts in place of draft_length, of which only zeros are read; null: a chain, "
        "or the tree of the method",
    )
    window: Annotated[int, Field(ge=1, le=64)] = Field(
        default=15, description="lookahead decoding: positions of its window, and n-grams it verifies"
    )
    draft_layers: PositiveInt | None = Field(
        default=None, description="layer-skipping: layers of the target that draft; null: half of them"
    )
    draft_window_tokens: PositiveInt = Field(
        default=512, description="sparse KV: tokens of the context that a drafting pass of the target reads"
    )
    max_context_tokens: PositiveInt | None = Field(
        default=None,
        description="the drafter's limit: longer requests do not draft; null: what it was trained for under "
        "vLLM from 0.14 on, none under the other presets",
    )
    acceptance: Acceptance = Field(
        default=AcceptanceGeometric(alpha=0.7), description="how many drafts are accepted"
    )

    @property
    def tree_plan(self) -> DraftTree | GrowthRule | OptimalTree | None:
        """The tree that it drafts; None: a chain."""
        if self.tree is not None:
            return self.tree.plan
        known = methods().get(self.method)
        return known.default_tree if known is not None else None

    @property
    def has_fixed_length(self) -> bool:
        """Whether all rounds draft one K: neither a table nor a policy chooses it."""
        return isinstance(self.draft_length, int) and self.policy is None

    def at_length(self, draft_length: int) -> Variant:
        """Return the variant with one K for all rounds, whatever its own table or policy."""
        return self.model_copy(update={"draft_length": draft_length, "policy": None})

    @property
    def max_draft_length(self) -> int:
        """The longest draft a round can have; of a tree its drafts."""
        plan, longest = self.tree_plan, self.chain_length
        return longest if plan is None or longest == 0 else plan.nodes - 1

    @property
    def chain_length(self) -> int:
        """The largest K that `draft_length` or `policy` states: the longest draft without the tree."""
        if self.policy is not None:
            return self.policy.longest
        if isinstance(self.draft_length, GoodputPolicy):
            return self.draft_length.max
        if isinstance(self.draft_length, tuple):
            return max(row[2] for row in self.draft_length)
        return self.draft_length

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        yield from name_faults(raw, PLAIN, "the variant without speculation")
        yield from policy_faults(raw)
        if isinstance(raw.get("draft_length"), list | tuple):
            for fault in table_faults(raw["draft_length"]):
                yield fault._replace(path=("draft_length", *fault.path))


def table_faults(rows: Sequence[object]) -> Iterator[Fault]:
    """Gaps, overlaps and reversed ranges of a table [low, high, K]; only its last row may be open."""
    expected: float | None = 1
    for index, row in enumerate(rows):
        if not isinstance(row, list | tuple) or len(row) != 3:
            return  # its type is reported
        low, high = as_number(row[0]), as_number(row[1])
        if low is not None and expected is not None and low != expected:
            what = "overlaps the row before" if low < expected else "leaves a gap after the row before"
            if index == 0:
                what = "is not where the table must start"
            yield Fault((index, 0), row[0], what, f"{expected:g}")
        if low is not None and high is not None and high < low:
            yield Fault((index, 1), row[1], f"is below the start of the row, {low:g}", f"{low:g} or more")
        if row[1] is None and index < len(rows) - 1:
            yield Fault((index, 1), None, "null ends the table, but rows follow", "a number of requests")
        expected = high + 1 if high is not None else None
