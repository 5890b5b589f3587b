"""What fits into the memory of one GPU under every variant of a scenario, and what would make all of it fit.

The budget follows vLLM (`v1/core/kv_cache_planning.py`): utilisation × what the driver reports, less weights,
drafter and what the engine keeps for itself (`Preset`); KV blocks hold target and drafter layers together.
Whatever a drafter takes is missing there, which lowers the batch that can be reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

from simulator.memory.gpu_memory import GpuMemory
from simulator.models.catalogue import taken_as
from simulator.models.drafter import DrafterModel
from simulator.models.model import Model
from simulator.scenario import PLAIN, Scenario, Variant, engine_preset, memory_bytes
from simulator.scenario.models import models_of
from simulator.traffic.request_tokens import request_tokens
from simulator.units import format_bytes

if TYPE_CHECKING:
    from simulator.engines.preset import Preset

LARGEST_TENSOR_PARALLEL = 8


@dataclass(frozen=True)
class MemoryReport:
    """All variants of a scenario, plain first."""

    variants: tuple[GpuMemory, ...]
    tensor_parallel: int
    smallest_tensor_parallel: int | None
    """The fewest GPUs (1 to 8) with which every variant fits; None when 8 are too few."""
    model_note: str | None = None
    """Which model a name is taken for."""
    preset_note: str | None = None
    """Which preset is used for the one asked for."""
    reserve_source: str = ""
    """The source of the preset's reserve."""
    headroom_source: str | None = None
    """The rule by which the engine leaves a part of a GPU, where it has one."""
    pool_source: str = ""
    """The rule by which it sets memory aside for the states of recurrent layers, where it has one."""

    @property
    def fits(self) -> bool:
        """Whether every variant fits."""
        return all(variant.fits for variant in self.variants)

    @property
    def shortages(self) -> tuple[str, ...]:
        """The shortage of each variant that does not fit."""
        return tuple(variant.shortage for variant in self.variants if variant.shortage)

    @property
    def fix(self) -> str:
        """What would make all variants fit."""
        return fix_of(self.smallest_tensor_parallel)

    @property
    def notes(self) -> tuple[str, ...]:
        """What does not fit, what would, and what the report assumes."""
        by_size: dict[str, list[str]] = {}
        for variant in self.variants:
            by_size.setdefault(format_bytes(variant.reserve_bytes), []).append(variant.variant)
        reserves = ", ".join(
            size if len(by_size) == 1 else f"{size} ({', '.join(variants)})"
            for size, variants in by_size.items()
        )
        assumptions = [note for note in (self.model_note, self.preset_note) if note is not None]
        assumptions.append(
            f"kept by the engine, of the usable memory of a GPU: {reserves}; {self.reserve_source}"
        )
        if self.headroom_source is not None:
            unusable_bytes = self.variants[0].device_bytes - self.variants[0].usable_bytes
            assumptions.append(f"not usable: {format_bytes(unusable_bytes)}; {self.headroom_source}")
        if any(variant.state_pool_bytes is not None for variant in self.variants):
            limits = ", ".join(
                f"{variant.state_request_limit:,} ({variant.variant})" for variant in self.variants
            )
            assumptions.append(
                f"requests that the states of recurrent layers leave room for: {limits}; {self.pool_source}"
            )
        elif any(variant.state_bytes for variant in self.variants):
            assumptions.append(
                "KV per token has the states of recurrent layers in it, spread over a request; an engine "
                "that keeps them apart from the KV cache, as SGLang does, may serve fewer requests at once"
            )
        return (*self.shortages, *(() if self.fits else (self.fix,)), *assumptions)

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim memory`: `per_gpu` holds the first speculative variant, `arms` every
        variant.
        """
        shown = self.variants[min(1, len(self.variants) - 1)]
        return {
            "per_gpu": shown.to_json(),
            "arms": {variant.variant: variant.to_json() for variant in self.variants},
            "kv_tokens": {variant.variant: variant.kv_tokens for variant in self.variants},
            "max_concurrency": {variant.variant: variant.max_concurrency for variant in self.variants},
            "fits": self.fits,
            "tensor_parallel": self.tensor_parallel,
            "smallest_tensor_parallel": self.smallest_tensor_parallel,
            "notes": list(self.notes),
        }


def memory(scenario: Scenario) -> MemoryReport:
    """Return what every variant of a scenario takes and leaves. Raises InputError for models that cannot be
    loaded.
    """
    variants: list[Variant | None] = [None, *scenario.speculation]
    preset, note = engine_preset(scenario)
    left_bytes = (1 - preset.gpu_memory_utilization) * memory_bytes(scenario)
    by_headroom = preset.headroom_bytes > 0 and abs(left_bytes - preset.headroom_bytes) < 1
    return MemoryReport(
        tuple(gpu_memory(scenario, variant) for variant in variants),
        scenario.hardware.tensor_parallel,
        smallest_tensor_parallel(scenario),
        taken_as(scenario.target.model, scenario.base_dir),
        note,
        _sources(preset, "reserve_bytes", "sampler_bytes"),
        _sources(preset, "headroom_bytes") if by_headroom else None,
        _sources(preset, "state_pool_share", "state_slots"),
    )


def _sources(preset: Preset, *names: str) -> str:
    """The sources of these figures of a preset."""
    sources = [preset.sources[name] for name in names if name in preset.sources]
    return "; ".join(sources) or f"from the preset {preset.name}"


def gpu_memory(scenario: Scenario, variant: Variant | None, tensor_parallel: int | None = None) -> GpuMemory:
    """Return the memory of one variant, on `tensor_parallel` GPUs instead of the scenario's where given.

    `variant` is None for plain decoding.
    """
    ranks = tensor_parallel or scenario.hardware.tensor_parallel
    experts = gcd(scenario.hardware.expert_parallel, ranks)
    groups = gcd(scenario.hardware.attention_dp, ranks)
    target, drafter = models_of(scenario, variant)
    preset, _ = engine_preset(scenario)
    draft_ranks = ranks
    if variant is not None and variant.draft_tensor_parallel not in (None, scenario.hardware.tensor_parallel):
        draft_ranks = groups  # one GPU of each group
    requests = request_tokens(scenario)
    states = _states(preset, variant)
    return GpuMemory(
        variant=PLAIN if variant is None else variant.name,
        device_bytes=memory_bytes(scenario),
        usable_bytes=int(preset.gpu_memory_utilization * memory_bytes(scenario)),
        weights_bytes=round(target.weight_bytes(ranks, experts, groups)),
        drafter_bytes=round(drafter.weight_bytes(draft_ranks, copies=groups)) if drafter is not None else 0,
        reserve_bytes=_reserve_bytes(preset, target, variant, ranks),
        kv_bytes_per_token=_kv_bytes_per_token(
            scenario,
            states if preset.state_pool_share == 0 else 0,
            target,
            drafter,
            ranks // groups,
            draft_ranks // groups,
            requests.mean,
        ),
        state_bytes=target.kv_bytes(0, scenario.target.kv_cache, ranks // groups, states),
        state_pool_share=preset.state_pool_share,
        block_tokens=preset.block_tokens,
        request_tokens=min(requests.mean, target.max_context_tokens),
        longest_request_tokens=min(requests.longest, target.max_context_tokens),
        groups=groups,
    )


def smallest_tensor_parallel(scenario: Scenario) -> int | None:
    """Return the fewest GPUs, 1 to 8, that the model can be cut over and on which every variant fits; None
    where 8 are too few.
    """
    target, _ = models_of(scenario, None)
    variants: list[Variant | None] = [None, *scenario.speculation]
    for ranks in range(1, LARGEST_TENSOR_PARALLEL + 1):
        group_ranks = ranks // gcd(scenario.hardware.attention_dp, ranks)
        if target.divides_over(group_ranks) and all(
            gpu_memory(scenario, variant, ranks).fits for variant in variants
        ):
            return ranks
    return None


def fix_of(smallest: int | None) -> str:
    """What would make a variant fit, as a sentence."""
    if smallest is None:
        return f"no tensor parallelism up to {LARGEST_TENSOR_PARALLEL} is enough"
    return f"the smallest tensor parallelism that fits is {smallest}"


def _reserve_bytes(preset: Preset, target: Model, variant: Variant | None, ranks: int) -> int:
    """What the engine keeps of a GPU besides weights and KV; each rank samples from the whole vocabulary."""
    row_bytes = preset.sampler_bytes
    if variant is not None and variant.max_draft_length > 0:
        row_bytes += preset.draft_sampler_bytes
    rows = min(preset.max_num_seqs, preset.max_num_batched_tokens)
    return (
        preset.reserve_bytes
        + (preset.rank_reserve_bytes * ranks if ranks > 1 else 0)
        + row_bytes * rows * target.vocab_size
    )


def _states(preset: Preset, variant: Variant | None) -> int:
    """States that a recurrent layer keeps of a request: the preset's slots, or the one that it goes on from.

    The layer cannot forget a rejected draft, so a variant that drafts keeps the state after every row that it
    verifies (vLLM `MambaSpec.num_speculative_blocks`, SGLang `intermediate_ssm_state_cache`).
    """
    drafts = 0 if variant is None else variant.max_draft_length
    verified = 1 + drafts if drafts else 0
    slots = preset.state_slots if preset.state_pool_share > 0 else 0
    return max(1, slots + verified)


def _kv_bytes_per_token(
    scenario: Scenario,
    states: int,
    target: Model,
    drafter: DrafterModel | None,
    ranks: int,
    draft_ranks: int,
    context_tokens: float,
) -> float:
    """Bytes on one GPU per token of a context this long: exact for full attention, the mean for windows."""
    context, kv_cache = max(1, round(context_tokens)), scenario.target.kv_cache
    total = target.kv_bytes(context, kv_cache, ranks, states)
    if drafter is not None:
        total += drafter.kv_bytes(context, kv_cache, draft_ranks)
    return total / context
