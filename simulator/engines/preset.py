"""One serving-engine preset: what an engine version does by default and what its host work costs.

Host costs are the free parameters of a preset: GPU kernels are priced by the profile, and what
is left over is here, with its sources. Every field declares its unit, meaning and source
(`preset_field.py`); docs/engines.md shows them as a table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from simulator.engines.host_cost import HostCost
from simulator.engines.preset_field import (
    ENGINE,
    PresetField,
    count,
    declared,
    memory,
    seconds,
    share,
    switch,
    word,
)

SCHEMA = "decodesim/engine-1"
"""Of a preset's file, which `preset_file.py` reads."""


@dataclass(frozen=True)
class Preset:
    """Defaults and costs of one serving-engine version. A field without a default must be in a preset's file
    that inherits nothing.
    """

    name: Annotated[str, word("what `engine.preset` calls it", "given")]
    engine: Annotated[str, word("the serving engine", "given")]
    version: Annotated[str, word("its version", "given")]
    asynchronous: Annotated[bool, switch("the next step is scheduled while one runs on the GPU", ENGINE)]
    overlaps_speculation: Annotated[
        bool, switch("an asynchronous engine stays so when it speculates", ENGINE)
    ]
    emits_before_drafting: Annotated[
        bool, switch("tokens leave before the drafter's passes of the step, not after them", ENGINE)
    ]
    scheduler: Annotated[str, word("the rule that fills a step (`simulator/scheduling/`)", ENGINE)]
    reserved_output: Annotated[
        float,
        share(
            "share of its output tokens that the admission of a request reserves KV for; 0: its prompt has "
            "to fit, and growth may preempt",
            ENGINE,
        ),
    ]
    max_num_seqs: Annotated[int, count("requests", "limit of running requests", ENGINE)]
    max_num_batched_tokens: Annotated[int, count("tokens", "limit of the tokens of a step", ENGINE)]
    gpu_memory_utilization: Annotated[
        float, share("share of a GPU's memory that the engine uses for weights, KV and its reserve", ENGINE)
    ]
    reserve_bytes: Annotated[
        int,
        memory(
            "what a GPU keeps besides weights and KV: activations, context, CUDA graphs",
            "start-up logs of vLLM 0.10 to 0.16 (below); assumed elsewhere",
        ),
    ]
    block_tokens: Annotated[int, count("tokens", "size of a KV block", ENGINE)]
    graph_sizes: Annotated[
        str | tuple[int, ...],
        PresetField(
            "graph_unit",
            "batch sizes with a CUDA graph, ascending: numbers, `[first, last, step]` ranges, or `vllm` for "
            "vLLM's rule",
            ENGINE,
        ),
    ]
    draft_graph_sizes: Annotated[
        tuple[int, ...],
        PresetField("graph_unit", "the same while the engine speculates; empty: the same sizes", ENGINE),
    ]
    graph_unit: Annotated[
        str,
        word(
            "what graph sizes count: tokens of a step, or requests of a uniform decode step",
            ENGINE,
            "tokens",
            "requests",
        ),
    ]
    graph_cap_tokens: Annotated[
        int,
        count("tokens", "largest size with a CUDA graph; 0: the sizes alone bound it", ENGINE, low=0),
    ]
    full_graphs: Annotated[
        bool,
        switch(
            "a uniform decode replays as one graph; without, attention is launched between piecewise graphs",
            ENGINE,
        ),
    ]
    piecewise_graphs: Annotated[
        bool,
        switch("steps with prefill use piecewise graphs; without, they run eagerly", ENGINE),
    ]
    host: HostCost
    stops_at_drafter_limit: Annotated[
        bool,
        switch(
            "a request that outgrows the context its drafter was trained for goes on without drafts; "
            "otherwise it drafts on",
            f"{ENGINE}, and published runs",
        ),
    ]
    kernels: Annotated[
        str,
        word("the framework whose own kernels are priced where the profile has them", "kernel tables"),
    ]
    small_kernel_s_per_layer: Annotated[
        float,
        PresetField(
            "s",
            "norms, rope, KV write and activation of a layer as nodes of a graph, which no table prices",
            "fitted with `host.step_s` to end-to-end step times",
        ),
    ]
    launch_kernel_s: Annotated[
        float,
        seconds("what the GPU waits for one kernel launch that no graph holds", "assumed"),
    ]
    sources: Mapping[str, str] = field(compare=False)
    small_gpu_max_num_seqs: Annotated[
        int,
        count(
            "requests",
            "`max_num_seqs` on an A100 and on GPUs of less than 70 GiB, unless the scenario gives it; 0: no "
            "such rule",
            "vLLM's source",
            low=0,
        ),
    ] = 0
    small_gpu_max_num_batched_tokens: Annotated[
        int, count("tokens", "`max_num_batched_tokens` there", "vLLM's source", low=0)
    ] = 0
    rank_reserve_bytes: Annotated[
        int,
        memory(
            "what a GPU keeps, besides, for each GPU of a tensor parallelism of more than one",
            "as `reserve_bytes`",
        ),
    ] = 0
    sampler_bytes: Annotated[
        int,
        memory(
            "what it keeps, besides, for each of `max_num_seqs` (no more than `max_num_batched_tokens`) and "
            "entry of the vocabulary: the sampler is tried with all of them before the KV cache is laid out",
            "as `reserve_bytes`",
        ),
    ] = 0
    draft_sampler_bytes: Annotated[
        int, memory("what the same needs more where the engine speculates", "as `reserve_bytes`")
    ] = 0
    headroom_bytes: Annotated[
        int,
        memory(
            "what the engine leaves of a GPU to all else than weights and KV, where that is less than "
            "`gpu_memory_utilization` leaves and nothing else gives that share; 0: no such rule",
            "SGLang's source",
        ),
    ] = 0
    state_pool_share: Annotated[
        float,
        share(
            "the part of what weights and drafter leave that is reserved for the states of recurrent layers; "
            "0: states lie among the KV blocks",
            "SGLang's source",
        ),
    ] = 0.0
    state_slots: Annotated[
        int,
        count(
            "slots",
            "slots of a request among those states, besides one for each row while a step verifies drafts",
            "SGLang's source",
            low=0,
        ),
    ] = 0
    pads_lookups: Annotated[
        bool,
        switch(
            "drafts of prompt lookup on the host are filled up to K, so that every decode step is uniform "
            "and replays a graph",
            ENGINE,
        ),
    ] = False
    graphs_of_every_length: Annotated[
        bool,
        switch("a uniform step of any K of a schedule replays as one graph, not only the largest", ENGINE),
    ] = False
    pads_first_decode: Annotated[
        bool,
        switch(
            "a request that lacks one token when it is admitted gets K + 1 rows, next to requests that run "
            "or behind a prefix in memory, so that the step stays uniform; not where K depends on the batch",
            ENGINE,
        ),
    ] = False
    keys_after_results: Annotated[
        bool,
        switch(
            "a prefix is found once the results of the step that computes it are there, an output once its "
            "request has ended; otherwise as soon as they are scheduled",
            ENGINE,
        ),
    ] = False
    since: Annotated[
        str, word("the first version that works like this, where it is older than `version`", ENGINE)
    ] = ""
    draft_seats: Annotated[
        int,
        count(
            "requests",
            "limit of running requests while the engine speculates, unless a user gives one; 0: as without. "
            "It is not applied: a note names it where a closed loop or a burst has more",
            ENGINE,
            low=0,
        ),
    ] = 0
    draft_graphs: Annotated[
        str,
        word(
            "which drafters replay CUDA graphs: `all`, or `heads`, EAGLE and MTP alone: a separate draft "
            "model then takes at least as long as its calls (`host.draft_call_s`)",
            ENGINE,
            "all",
            "heads",
        ),
    ] = "all"
    draft_row_sets: Annotated[
        int,
        count(
            "sets",
            "sets of KV slots that a request which drafts holds ahead, each for the rows of the drafter or "
            "of the verify pass, whichever are more; 0: one slot per draft",
            ENGINE,
            low=0,
        ),
    ] = 0
    lookup_note: Annotated[str, word("what a run notes about prompt lookup", ENGINE)] = ""

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


def declared_fields() -> Mapping[str, PresetField]:
    """Every field by its path in a preset's file (`host.step_s`), with what it declares."""
    host = {f"host.{name}": entry for name, entry in declared(HostCost).items()}
    return {**host, **declared(Preset)}
