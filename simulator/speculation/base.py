"""What a speculation method is to the simulator:
a record of what is drafted and scored, never of how long or how well.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.step.state import ROWS_TOKENS


@dataclass(frozen=True)
class Method:
    """One way to draft. How long its passes take is the cost model's part,
    what survives the acceptance model's.

    The fields are those of the table in docs/methods.md. A method whose drafts come from a host-side lookup
    has no `drafter`; on an asynchronous engine such a lookup runs on the GPU when `gpu_lookup` is set, and
    then proposes in every round.
    """

    name: str
    title: str
    source: str
    """Paper or code that defines it."""
    drafter: str | None
    """Kind of drafter config that `draft` names: eagle, eagle3, mtp, draft_model; None: no network drafts."""
    serial_passes: bool = True
    """One drafter pass per draft token; otherwise one pass makes all drafts."""
    first_pass_rows: int = ROWS_TOKENS
    """Rows of the first pass, see `step.state.ROWS_*`."""
    drafter_has_kv: bool = True
    """The drafter keeps KV of its own, so it reads every token of the target and needs slots ahead."""
    slots_per_request: int = 0
    """Extra charge per scheduled request against the token budget (vLLM V1 `max_num_new_slots_for_drafting`).
    """
    loses_last_match: bool = False
    """It needs the target's hidden states of the last matched prefix block, which must be computed again."""
    draft_from_target: bool = False
    """Without `draft`, the drafter is a module of the target's own checkpoint."""
    host_lookup: bool = False
    """Drafts are looked up on the host once the tokens are there:
    only on a match (engines may fill up to K), and the engine cannot run ahead.
    """
    gpu_lookup: bool = False
    """Asynchronous engines look up on the GPU instead: always K drafts, junk on a miss."""

    def looks_up_on_host(self, asynchronous: bool) -> bool:
        """Whether the next step cannot be composed before this one's tokens are on the host."""
        return self.host_lookup and not (asynchronous and self.gpu_lookup)

    def lookahead_tokens(self, draft_length: int) -> int:
        """KV slots reserved ahead of a request."""
        return draft_length if self.drafter_has_kv else 0
