"""What a speculation method is to the simulator: a record of what is drafted and verified, never of how long
that takes or how much is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from simulator.speculation.shape import CHAIN, Chain, DraftShape

if TYPE_CHECKING:
    from simulator.trees import DraftTree, GrowthRule, OptimalTree


@dataclass(frozen=True)
class Method:
    """One way to draft. The cost model prices its passes, the acceptance model says how many drafts survive.

    The fields are those of the table in docs/methods.md. A method that drafts by prompt lookup has no
    `drafter`. Where `gpu_lookup` is set, an asynchronous engine looks up on the GPU, and then every round has
    drafts.
    """

    name: str
    title: str
    source: str
    """Paper or code that defines it."""
    drafter: str | None
    """Kind of drafter that `draft` names (`models.drafter.METHODS`), or is made of the target
    (`models.own_drafter.KINDS`); None: no network drafts."""
    shape: DraftShape = CHAIN
    """How the drafts of a round hang together, and the drafter passes that make them."""
    drafts_trees: bool = False
    """`tree` of a scenario replaces the chain. The drafter extends it level by level if `shape` is serial."""
    default_tree: DraftTree | GrowthRule | OptimalTree | None = None
    """What it drafts where the scenario gives no tree; None: a chain."""
    first_pass_reads_tokens: bool = True
    """The first pass runs on all query tokens of the step, prompts included; otherwise only on the rows that
    `shape` gives each request."""
    drafter_has_kv: bool = True
    """The drafter keeps KV of its own, so it reads every token of the target and needs KV slots ahead."""
    slots_per_request: int = 0
    """Charged for each scheduled request against the token budget in addition to its tokens (vLLM V1
    `max_num_new_slots_for_drafting`)."""
    slots_per_draft: int = 0
    """The same, for each of its drafts."""
    loses_last_match: bool = False
    """It needs the target's hidden states of the last matched prefix block, which must be computed again."""
    draft_from_target: bool = False
    """Without `draft`, the drafter is the target itself or a part of it, which the scenario need not name."""
    host_lookup: bool = False
    """Prompt lookup on the host, once the tokens are there: only a match brings drafts (some engines pad to
    K), and the engine cannot schedule ahead.
    """
    gpu_lookup: bool = False
    """Asynchronous engines look up on the GPU instead: always K drafts, which are junk on a miss."""
    engines: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Serving engine → the versions that have it; a version alone is the one in whose source it was seen."""

    def with_tree(self, tree: DraftTree | GrowthRule) -> Method:
        """Return the method as it drafts this tree."""
        from simulator.speculation.tree_shape import TreeShape

        chain = self.shape
        assert isinstance(chain, Chain)
        return replace(self, shape=TreeShape(chain.serial, chain.first_pass_rows, tree))

    def looks_up_on_host(self, asynchronous: bool) -> bool:
        """Return whether the next step cannot be scheduled before this step's tokens are on the host."""
        return self.host_lookup and not (asynchronous and self.gpu_lookup)

    def lookahead_tokens(self, nodes: int, row_sets: int) -> int:
        """Return the KV slots that are kept free ahead of a request which brings up to `nodes` drafts.

        `row_sets`: sets of a round's rows that the engine keeps (`Preset.draft_row_sets`), or 0.
        """
        if not self.drafter_has_kv:
            return 0
        return row_sets * self.shape.kv_rows(nodes) if row_sets else self.shape.kv_slots(nodes)

    def budget_slots(self, nodes: int) -> int:
        """Return what each request is charged against the token budget in addition to its tokens."""
        return max(0, self.slots_per_request + self.slots_per_draft * nodes)
