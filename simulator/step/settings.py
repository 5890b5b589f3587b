"""The settings of one engine, each declared once: its name, type, unit and meaning (docs/step.md §1).

The compiled step reads them from the engine's record. That part of the record is derived from this class: a
setting which is one number becomes a field of the same name, everything else becomes arrays (`build.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_type_hints

from simulator.speculation.shape import CHAIN, DraftShape
from simulator.step.stages import SERIAL, Stage
from simulator.step.state import NEVER


@dataclass(frozen=True)
class EngineSettings:
    """What a step reads of its engine. A setting without a default has no neutral value."""

    # What fits into a step and into memory
    max_num_seqs: int
    """Running requests at most."""
    max_num_batched_tokens: int
    """Query tokens of a step at most."""
    block_tokens: int
    """Tokens of one KV block."""
    total_blocks: int
    """KV blocks that the memory holds."""
    max_context_tokens: int = NEVER
    """Context of the model: a request whose prompt and output exceed it is rejected."""
    prefix_caching: bool = False
    """Full blocks keep their contents while no request needs the memory, and equal ones are computed once."""
    keys_after_results: bool = False
    """Other requests find blocks once the results of the step that computes them are there, and blocks of an
    output once their request ends; otherwise as soon as they are scheduled."""
    reserved_output: float = 0.0
    """Share of a request's output for which admission reserves blocks; 0: none."""

    # How a step is filled and when its tokens leave
    asynchronous: bool = False
    """The next step is scheduled while the current one runs."""
    emits_before_drafting: bool = False
    """Tokens leave after the accept stage; otherwise after all drafter passes."""
    mixes_prefill: bool = True
    """Decodes and prefill chunks share a step; otherwise prefill goes first and alone."""
    chunked_prefill: bool = True
    """The token budget may cut a prompt; otherwise a prompt is scheduled whole."""
    stop_is_foreseen: bool = False
    """The scheduler knows the output length, as it does where requests end by `max_tokens`."""

    # What a step occupies
    stages: tuple[Stage, ...] = SERIAL
    """In the order in which a step queues for its resources."""
    next_step_after: str = "draft"
    """The stage at whose end the next step may start."""

    # Clients
    think_time_ns: int = 0
    """From the end of a request to the next request of the same client of a closed loop."""
    timeout_ns: int = NEVER
    """After so long in the system a request is aborted."""

    # What is drafted and verified
    draft_length_by_batch: tuple[int, ...] = (0,)
    """Drafts that a request gets after a step with so many requests; the last entry holds beyond its end."""
    policy_lengths: tuple[int, ...] = ()
    """Draft lengths that a policy may set in that table as the run goes; (): the table stands."""
    shape: DraftShape = CHAIN
    """How the drafts of a round hang together: their depth, and the drafter passes that make them."""
    lookahead_tokens: int = 0
    """KV slots kept free ahead of each running request."""
    slots_per_request: int = 0
    """What each scheduled request is charged against the token budget in addition to its tokens."""
    padded_drafts: int = 0
    """Rows that fill up the last missing token of an admitted request to those of a decode; 0: none."""
    ragged: bool = False
    """A request has drafts only after a match; otherwise always the K of its step."""
    loses_last_match: bool = False
    """A prefix-cache hit is one block shorter: the drafter needs the target's features of that block."""
    has_drafter: bool = False
    """A network drafts, so that drafter passes take time."""
    drafter_has_kv: bool = False
    """The first drafter pass also runs in steps that draft nothing, to keep the drafter's KV current."""
    first_pass_reads_tokens: bool = True
    """The first drafter pass runs on all query tokens of the step, and on what `shape` adds per request."""
    drafter_max_context: int = NEVER
    """Tokens of context beyond which a request does not draft."""

    # Host time
    host_step_ns: float = 0.0
    """Host time that every step shows."""
    host_per_sequence_ns: float = 0.0
    """The same, for each request of the step."""
    hidden_step_ns: float = 0.0
    """Host time of a step that an asynchronous engine spends while the GPU runs the step before."""
    hidden_per_sequence_ns: float = 0.0
    """The same, for each request of the step."""
    draft_step_ns: float = 0.0
    """Host time of a step with drafter passes."""
    draft_pass_ns: float = 0.0
    """Host time of each drafter pass."""
    lookup_step_ns: float = 0.0
    """Host time of a step that drafts by prompt lookup."""
    lookup_per_sequence_ns: float = 0.0
    """The same, for each request that is looked up."""

    # The front end: from the client to the engine's queue
    request_latency_ns: int = 0
    """From the client to the front end."""
    request_ns: int = 0
    """Work of the front end's event loop for each request."""
    prompt_token_ns: float = 0.0
    """Work of the tokenizer for each token of a prompt."""

    # CUDA graphs
    graph_sizes: tuple[int, ...] = ()
    """Sizes in tokens, ascending; the last one is the cap."""
    full_graphs: bool = True
    """Uniform decode steps replay one graph."""
    graphs_of_every_length: bool = False
    """Uniform steps of any K of `draft_length_by_batch` or `policy_lengths` do so; otherwise those of the
    largest alone."""
    piecewise_graphs: bool = True
    """Other steps within the cap replay graphs between attention kernels; otherwise they run eagerly."""
    graph_padding: bool = True
    """Mechanism: a pass is padded to a graph size. Off: every pass has a graph of just its size."""

    # The band of the cost model
    gpu_scale: float = 1.0
    """Factor on every GPU stage."""
    scales_decodes_only: bool = False
    """Of a step that also prefills, the factor holds for the decodes' share of the tokens only."""

    # Mechanisms that an attribution turns off one at a time
    prefill: bool = True
    """Prefill takes GPU time."""
    stop_trim: bool = True
    """A stop cuts the surplus of the last round; otherwise the surplus counts as output."""
    ghost_rows: bool = True
    """Requests that have just ended still occupy rows of a step that was scheduled before."""
    context_growth: bool = True
    """Attention reads the context as it grows; otherwise as it is halfway through the output."""
    host_overlap: bool = True
    """Hidden host time is hidden."""

    @property
    def results_after(self) -> str:
        """The stage at whose end the tokens leave."""
        return "accept" if self.emits_before_drafting else "draft"

    @property
    def draft_lengths(self) -> set[int]:
        """Every K that a step may have; the K of a step without requests does not count."""
        return {*self.draft_length_by_batch[1:], *self.policy_lengths}

    @property
    def max_nodes(self) -> int:
        """Drafts verified for one request in one round, at most."""
        return max(*self.draft_length_by_batch, *self.policy_lengths, 0)

    @property
    def max_depth(self) -> int:
        """Positions at which a draft can be accepted, at most."""
        return self.shape.depth(self.max_nodes)


_KINDS = {int: "i8", bool: "i8", float: "f8"}

SETTING_FIELDS = tuple(
    (name, _KINDS[hint]) for name, hint in get_type_hints(EngineSettings).items() if hint in _KINDS
)
"""The settings that are one number, as fields of a record: (name, dtype); booleans are 0 and 1."""
