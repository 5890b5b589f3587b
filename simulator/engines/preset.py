"""One serving-engine preset: what an engine version does by default and what its host work costs.

Host costs are the free parameters of a preset: GPU kernels are priced by the profile, and what
is left over is here, with its sources.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

SCHEMA = "decodesim/engine-1"
"""Of a preset's file, which `preset_file.py` reads."""


LONGEST_HOST_S = 1.0
"""Host times are shorter: a second of them is a mistake of the unit."""
LONGEST_PROMPT_TOKEN_S = 1e-3


def longest_host_s(name: str) -> float:
    """What the host time of this name stays below."""
    return LONGEST_PROMPT_TOKEN_S if name == "prompt_token_s" else LONGEST_HOST_S


@dataclass(frozen=True)
class HostCost:
    """Host (CPU) seconds of one step, and of a request before it. The step lasts max(GPU, hidden) + exposed.

    `step_s`, `per_sequence_s`, `draft_step_s` (once in a step that drafts) and `draft_pass_s` (each pass of
    the drafter) are exposed: the GPU waits for them. `lookup_step_s` and `lookup_per_sequence_s` (each
    sequence that drafts) take their place where drafts are looked up on the host. `hidden_step_s` and
    `hidden_per_sequence_s` is what an asynchronous engine does for the next step while the GPU runs this one;
    it shows only when the GPU is faster. Synchronous engines hide nothing. `eager_call_s` is what the host
    takes for one operation of a pass of the target that no graph holds: such a pass lasts at least as long as
    all of its calls.

    Before a request reaches the scheduler it passes the front end: `request_latency_s` on the way there, then
    `request_s` of an event loop that works on all requests at once, in turns, and `prompt_token_s` of a
    tokenizer that takes one prompt after another.
    """

    step_s: float
    per_sequence_s: float
    draft_pass_s: float
    draft_step_s: float = 0.0
    lookup_step_s: float = 0.0
    lookup_per_sequence_s: float = 0.0
    hidden_step_s: float = 0.0
    hidden_per_sequence_s: float = 0.0
    eager_call_s: float = 0.0
    request_latency_s: float = 0.0
    request_s: float = 0.0
    prompt_token_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            longest_s = longest_host_s(name)
            if not 0 <= value < longest_s:
                raise ValueError(f"host.{name} must lie in 0..{longest_s:g} s, not {value}")

    def exposed_s(self, sequences: float, draft_passes: float = 0) -> float:
        """Host seconds that always lengthen the step."""
        drafting = self.draft_step_s + self.draft_pass_s * draft_passes if draft_passes > 0 else 0.0
        return self.step_s + self.per_sequence_s * sequences + drafting


@dataclass(frozen=True)
class Preset:
    """Defaults and costs of one serving-engine version.

    `scheduler` names the rule that fills its steps (`simulator/scheduling/`).
    `graph_sizes` and `draft_graph_sizes` (the latter when speculation is on; empty: the same) are the batch
    sizes with a CUDA graph, ascending, counted in `graph_unit`: "tokens" of the step, or "requests" of a
    uniform decode step. The entry "vllm" stands for the rule of `graph_grid`. `graph_cap_tokens` bounds the
    grid (0: the sizes alone bound it).

    `full_graphs`: a uniform decode replays as one graph; without it attention is launched between piecewise
    graphs. `piecewise_graphs`: other steps (prefill in them) use piecewise graphs, else they run eagerly.
    `overlaps_speculation`: an asynchronous engine stays so when it speculates. `pads_lookups`: drafts that
    are looked up on the host are filled up to K with junk, so that every decode step is uniform.
    `stops_at_drafter_limit`: a request that outgrows what its drafter was trained for goes on without
    drafts; otherwise it drafts on.
    `reserved_output`: share of its output tokens that a request's admission sets KV aside for (0: only its
    prompt has to fit, and growth may preempt). `small_kernel_s_per_layer`: norms, rope, KV write and
    activation as nodes of a graph. `kernels`: the framework whose own kernels are priced where the profile
    has them.
    `launch_kernel_s`: what the GPU waits for one kernel launch that no graph holds. `since`: the first
    version that works like this, where that is before `version`.

    `small_gpu_max_num_seqs` and `small_gpu_max_num_batched_tokens` take their places on GPUs that the engine
    counts as small (0: it has no such rule).

    What a GPU keeps besides weights and KV: `reserve_bytes` (activations, context, CUDA graphs), as many
    `rank_reserve_bytes` as there are GPUs in its tensor parallelism where that is more than one, and
    `sampler_bytes` for each seat and entry of the vocabulary, for the sampler that is tried with all seats
    before the KV cache is laid out; `draft_sampler_bytes` more where the engine speculates.
    `headroom_bytes`: the engine leaves so much of any GPU to all else than weights and KV where that is less
    than `gpu_memory_utilization` leaves, and nothing told it a share (0: it has no such rule).
    `state_pool_share`: the part of what weights and drafter leave that is set aside for the states of
    recurrent layers (0: they lie among the KV). A request takes `state_slots` there, and one for each row
    while a step verifies drafts.

    `draft_seats`: the requests that the engine seats while it speculates, unless it is told otherwise (0: as
    without); said of a run with more, not applied. `lookup_note`: what to know of its look-ups.
    """

    name: str
    engine: str
    version: str
    asynchronous: bool
    overlaps_speculation: bool
    emits_before_drafting: bool
    scheduler: str
    reserved_output: float
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    reserve_bytes: int
    block_tokens: int
    graph_sizes: str | tuple[int, ...]
    draft_graph_sizes: tuple[int, ...]
    graph_unit: str
    graph_cap_tokens: int
    full_graphs: bool
    piecewise_graphs: bool
    host: HostCost
    stops_at_drafter_limit: bool
    kernels: str
    small_kernel_s_per_layer: float
    launch_kernel_s: float
    sources: Mapping[str, str] = field(compare=False)
    small_gpu_max_num_seqs: int = 0
    small_gpu_max_num_batched_tokens: int = 0
    rank_reserve_bytes: int = 0
    sampler_bytes: int = 0
    draft_sampler_bytes: int = 0
    headroom_bytes: int = 0
    state_pool_share: float = 0.0
    state_slots: int = 0
    pads_lookups: bool = False
    since: str = ""
    draft_seats: int = 0
    lookup_note: str = ""

    @property
    def drafts_asynchronously(self) -> bool:
        """Whether the next step is composed while one that drafts runs, where the method allows it."""
        return self.asynchronous and self.overlaps_speculation

    def graph_grid(self, query_tokens: int = 1, max_num_seqs: int | None = None) -> tuple[int, ...]:
        """Token counts with a CUDA graph, ascending, when a decode has `query_tokens` (K + 1) tokens.

        vLLM's rule (`config/vllm.py` `_set_cudagraph_sizes`): 1, 2, 4, 8..248 by 8, 256.. by 16, and each of
        them times K + 1, up to min(2 * max_num_seqs * (K + 1), 512).
        """
        seqs = self.max_num_seqs if max_num_seqs is None else max_num_seqs
        q = max(1, query_tokens)
        if self.graph_sizes == "vllm":
            cap = min(2 * seqs * q, self.graph_cap_tokens)
            base = [n for n in (1, 2, 4, *range(8, 256, 8), *range(256, cap + 1, 16)) if n <= cap]
            return tuple(sorted({*base, *(n * q for n in base if n * q <= cap)}))
        assert not isinstance(self.graph_sizes, str)
        sizes = self.draft_graph_sizes if q > 1 and self.draft_graph_sizes else self.graph_sizes
        if self.graph_unit == "requests":
            return tuple(n * q for n in sizes)
        cap = min(2 * seqs, self.graph_cap_tokens) if self.graph_cap_tokens else sizes[-1]
        return tuple(n for n in sizes if n <= cap)

    def padded_tokens(
        self, tokens: int, query_tokens: int = 1, max_num_seqs: int | None = None
    ) -> int | None:
        """Tokens a step of `tokens` is padded to; None when no graph is large enough (it runs eagerly)."""
        grid = self.graph_grid(query_tokens, max_num_seqs)
        at = bisect_left(grid, tokens)
        return grid[at] if at < len(grid) else None
