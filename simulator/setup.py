"""What an arm runs on, looked up once: models, GPU profile,
serving-engine preset, and the prices that follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from simulator.costs.cost import CostModel
from simulator.costs.prices import Prices, compile_prices
from simulator.costs.profiles import Profile, load_profile
from simulator.memory import models_of
from simulator.models.drafter import Drafter
from simulator.models.model import Model
from simulator.preset import Preset
from simulator.scenario import Arm, Scenario, engine_preset

LONGEST_DRAFT = 16
"""Draft lengths up to this share one set of price tables."""


@dataclass(frozen=True)
class Setup:
    """The fixed parts of an arm. `drafter` is None for plain decoding and for lookups."""

    target: Model
    drafter: Drafter | None
    profile: Profile
    preset: Preset
    preset_note: str | None
    """Which preset was taken when the one asked for is not known exactly."""
    cost: CostModel
    prices: Prices

    @property
    def max_context_tokens(self) -> int:
        """Tokens a request may hold."""
        return self.target.max_context_tokens

    @property
    def drafter_max_context_tokens(self) -> int | None:
        """Context beyond which the drafter was not trained; None: as far as the target."""
        return self.drafter.max_context_tokens if self.drafter is not None else None


def setup_of(scenario: Scenario, arm: Arm | None) -> Setup:
    """Return what an arm (None: plain decoding) runs on.
    Raises InputError for names and files that cannot be used.
    """
    return _setup(_Question.of(scenario, arm))


def sampling_of(scenario: Scenario, arm: Arm | None = None) -> str:
    """How the target chooses tokens: greedy or sampled, `plain-` without an arm, "" where nobody said."""
    temperature = scenario.workload.temperature
    if temperature is None:
        return ""
    return ("plain-" if arm is None else "") + ("greedy" if temperature == 0 else "sampled")


def draft_sampling_of(scenario: Scenario, arm: Arm | None) -> str:
    """How an arm's drafts are chosen: at temperature 0 they are the best ones in any case."""
    if arm is None:
        return ""
    return "greedy" if scenario.workload.temperature == 0 else arm.draft_sampling


@dataclass(frozen=True)
class _Question:
    """What a setup depends on; scenarios that agree here share it.
    `scenario` and `arm` only carry the fields to the readers.
    """

    key: tuple[object, ...]
    scenario: Scenario
    arm: Arm | None

    @staticmethod
    def of(scenario: Scenario, arm: Arm | None) -> _Question:
        hardware = scenario.hardware
        drafting: tuple[object, ...] = ()
        if arm is not None:
            longest = max(arm.max_draft_length, LONGEST_DRAFT)
            drafting = (arm.method, arm.draft, scenario.draft_tensor_parallel(arm), longest)
            drafting += (draft_sampling_of(scenario, arm),)
        key = (
            scenario.target.model_dump_json(),
            engine_preset(scenario),
            hardware.gpu,
            hardware.tensor_parallel,
            hardware.expert_parallel,
            hardware.attention_dp,
            int(scenario.run.mechanisms.expert_union),
            sampling_of(scenario, arm),
            str(Path(scenario.base_dir).resolve()),
            *drafting,
        )
        return _Question(key, scenario, arm)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=32)
def _setup(question: _Question) -> Setup:
    scenario, arm = question.scenario, question.arm
    target, drafter = models_of(scenario, arm)
    preset, note = engine_preset(scenario)
    profile = load_profile(scenario.hardware.gpu, scenario.base_dir)
    ranks, groups = scenario.hardware.tensor_parallel, scenario.hardware.attention_dp
    cost = CostModel(
        target=target,
        drafter=drafter,
        profile=profile,
        tensor_parallel=ranks,
        expert_parallel=scenario.hardware.expert_parallel,
        draft_tensor_parallel=ranks if arm is None else scenario.draft_tensor_parallel(arm),
        kv_cache=scenario.target.kv_cache,
        preset=preset,
        sampling=sampling_of(scenario, arm),
        draft_sampling=draft_sampling_of(scenario, arm),
        attention_dp=groups,
    )
    query_tokens = max(arm.max_draft_length if arm is not None else 0, LONGEST_DRAFT) + 1
    seats = preset.max_num_seqs * groups
    prices = compile_prices(
        cost,
        max_tokens=max(preset.max_num_batched_tokens * groups + seats, seats * query_tokens),
        max_sequences=seats,
        max_context_tokens=target.max_context_tokens,
        max_query_tokens=query_tokens,
        expert_union=scenario.run.mechanisms.expert_union,
    )
    return Setup(target, drafter, profile, preset, note, cost, prices)
