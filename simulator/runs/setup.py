"""What a variant runs on: models, GPU profile, serving-engine preset, and the prices that follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from simulator.costs.cost import CostModel
from simulator.costs.prices import DENSE_QUERY_TOKENS, Prices, compile_prices
from simulator.costs.profiles import Profile, load_profile
from simulator.engines.preset import Preset
from simulator.models.drafter import DrafterModel
from simulator.models.model import Model
from simulator.runs.drafts import drafting_of
from simulator.scenario import Scenario, Variant, engine_preset
from simulator.scenario.models import models_of, own_options

LONGEST_DRAFT = DENSE_QUERY_TOKENS - 1
"""Draft lengths up to this share one set of price tables."""


@dataclass(frozen=True)
class Setup:
    """The fixed parts of a variant. `drafter` is None for plain decoding and for prompt lookup."""

    target: Model
    drafter: DrafterModel | None
    profile: Profile
    preset: Preset
    preset_note: str | None
    """Which preset is used where the one asked for is not known exactly."""
    cost: CostModel
    prices: Prices

    @property
    def max_context_tokens(self) -> int:
        """Most tokens that a request may hold."""
        return self.target.max_context_tokens

    @property
    def drafter_max_context_tokens(self) -> int | None:
        """Context in tokens up to which the drafter was trained; None: as far as the target."""
        return self.drafter.max_context_tokens if self.drafter is not None else None


def setup_of(scenario: Scenario, variant: Variant | None) -> Setup:
    """Return what a variant runs on; `variant` is None for plain decoding.

    Raises InputError for names and files that cannot be used.
    """
    return _setup(_SetupKey.of(scenario, variant))


def sampling_of(scenario: Scenario, variant: Variant | None = None) -> str:
    """Return how the target chooses tokens: greedy or sampled, with `plain-` in front for plain decoding; ""
    where the scenario does not state it.
    """
    temperature = scenario.workload.temperature
    if temperature is None:
        return ""
    return ("plain-" if variant is None else "") + ("greedy" if temperature == 0 else "sampled")


def draft_sampling_of(scenario: Scenario, variant: Variant | None) -> str:
    """Return how the drafts of a variant are chosen: at temperature 0 always greedily."""
    if variant is None:
        return ""
    return "greedy" if scenario.workload.temperature == 0 else variant.draft_sampling


@dataclass(frozen=True)
class _SetupKey:
    """What a setup depends on: scenarios with the same key share one.

    `scenario` and `variant` only carry the fields to the readers.
    """

    key: tuple[object, ...]
    scenario: Scenario
    variant: Variant | None

    @staticmethod
    def of(scenario: Scenario, variant: Variant | None) -> _SetupKey:
        hardware = scenario.hardware
        drafting: tuple[object, ...] = ()
        if variant is not None:
            drafting = (variant.method, variant.draft, scenario.draft_tensor_parallel(variant))
            drafting += (draft_sampling_of(scenario, variant), own_options(variant))
            drafting += _rows_of(variant, scenario.base_dir)
        key = (
            scenario.target.model_dump_json(),
            engine_preset(scenario),
            hardware.gpu,
            hardware.tensor_parallel,
            hardware.expert_parallel,
            hardware.attention_dp,
            int(scenario.run.mechanisms.expert_union),
            sampling_of(scenario, variant),
            str(Path(scenario.base_dir).resolve()),
            *drafting,
        )
        return _SetupKey(key, scenario, variant)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SetupKey) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _rows_of(variant: Variant, base_dir: Path) -> tuple[int, int, int]:
    """Return the most rows that a request of the variant brings to a step, to the first drafter pass besides
    those, and to any other pass.
    """
    shape = drafting_of(variant, base_dir).shape
    nodes = shape.nodes(variant.max_draft_length)
    first, *later = shape.pass_rows(nodes)
    return nodes + 1, first, max(later, default=0)


@lru_cache(maxsize=32)
def _setup(setup_key: _SetupKey) -> Setup:
    scenario, variant = setup_key.scenario, setup_key.variant
    target, drafter = models_of(scenario, variant)
    preset, note = engine_preset(scenario)
    profile = load_profile(scenario.hardware.gpu, scenario.base_dir)
    ranks, groups = scenario.hardware.tensor_parallel, scenario.hardware.attention_dp
    cost = CostModel(
        target=target,
        drafter=drafter,
        profile=profile,
        tensor_parallel=ranks,
        expert_parallel=scenario.hardware.expert_parallel,
        draft_tensor_parallel=ranks if variant is None else scenario.draft_tensor_parallel(variant),
        kv_cache=scenario.target.kv_cache,
        preset=preset,
        sampling=sampling_of(scenario, variant),
        draft_sampling=draft_sampling_of(scenario, variant),
        attention_dp=groups,
    )
    query_tokens, first_rows, widest = (1, 0, 0) if variant is None else _rows_of(variant, scenario.base_dir)
    query_tokens = max(query_tokens, LONGEST_DRAFT + 1)
    max_num_seqs = preset.max_num_seqs * groups
    of_drafting = max_num_seqs * max(query_tokens, widest)
    prices = compile_prices(
        cost,
        max_tokens=max(
            preset.max_num_batched_tokens * groups + max_num_seqs * max(first_rows, 1), of_drafting
        ),
        max_sequences=max_num_seqs,
        max_context_tokens=target.max_context_tokens,
        max_query_tokens=max(query_tokens, widest),
        expert_union=scenario.run.mechanisms.expert_union,
    )
    return Setup(target, drafter, profile, preset, note, cost, prices)
