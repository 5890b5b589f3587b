"""What a lint looks at: one variant of a scenario, or one launch configuration, as the same facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from simulator.engines.preset import Preset
from simulator.engines.presets import load_preset, release_of
from simulator.models.drafter import DrafterModel
from simulator.models.model import Model
from simulator.scenario import Scenario, Variant


@dataclass(frozen=True)
class Subject:
    """The facts. `data` is the scenario as plain data; of a launch, only what the launch states.

    `scenario` is None where the model is not known. `settings` and `config` are empty where no launch was
    given. `text` is the input as it was written.
    """

    engine: str
    version: str
    data: Mapping[str, Any]
    scenario: Scenario | None = None
    variant: Variant | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    is_launch: bool = False
    problem: str | None = None
    """Why there is no scenario of a launch."""

    @cached_property
    def release(self) -> tuple[int, ...]:
        """The version as numbers."""
        return release_of(self.version)

    @cached_property
    def preset(self) -> Preset:
        """The preset nearest to the version."""
        name = self.data.get("engine", {}).get("preset") or f"{self.engine}-{self.version}"
        return load_preset(name, self.scenario.base_dir if self.scenario else None)[0]

    @cached_property
    def entry(self) -> Mapping[str, Any]:
        """The variant as plain data; empty for plain decoding."""
        if self.variant is not None:
            return self.variant.model_dump(mode="json")
        return next(iter(self.data.get("speculation", ())), {})

    @property
    def method(self) -> str | None:
        """The method's name in scenarios; the engine's own where scenarios have none."""
        return self.entry.get("method")

    @property
    def rows(self) -> list[list[int | None]] | None:
        """The table of draft lengths by batch, None without a valid one."""
        length = self.entry.get("draft_length")
        if not isinstance(length, list) or not length:
            return None
        valid = all(isinstance(row, list) and len(row) == 3 and type(row[2]) is int for row in length)
        return length if valid else None

    @property
    def draft_length(self) -> int | None:
        """The longest draft, None where unknown."""
        length = self.entry.get("draft_length")
        if self.rows is not None:
            return max(row[2] or 0 for row in self.rows)
        if isinstance(length, dict):
            length = length.get("max")
        return length if isinstance(length, int) else None

    @property
    def tree(self) -> Mapping[str, Any] | None:
        """The tree, None for chains."""
        return self.entry.get("tree")

    @property
    def verified_tokens(self) -> int | None:
        """Tokens that a request brings to a verify step: its drafts and one."""
        if self.tree is not None:
            parents = self.tree.get("parents")
            return len(parents) if parents else self.tree.get("nodes")
        return None if self.draft_length is None else self.draft_length + 1

    @property
    def max_num_seqs(self) -> int:
        """The limit of running requests."""
        return self.stated_max_num_seqs or self.preset.max_num_seqs

    @property
    def stated_max_num_seqs(self) -> int | None:
        """The limit that was given, None where it is the engine's own."""
        stated = self.data.get("engine", {}).get("max_num_seqs")
        return stated if isinstance(stated, int) else None

    @property
    def clients(self) -> int | None:
        """Concurrent clients, where the load is known and a closed loop."""
        arrivals = self.data.get("workload", {}).get("arrivals", {})
        return arrivals.get("concurrency") if arrivals.get("kind") == "closed" else None

    @property
    def running(self) -> int | None:
        """Requests that run together at most, where the load is known."""
        return None if self.clients is None else min(self.clients, self.max_num_seqs)

    @property
    def tensor_parallel(self) -> int:
        """GPUs that share the model."""
        ranks = self.data.get("hardware", {}).get("tensor_parallel", 1)
        return ranks if isinstance(ranks, int) else 1

    @cached_property
    def models(self) -> tuple[Model, DrafterModel | None] | None:
        """The target and the drafter, None where the models are not known."""
        if self.scenario is None:
            return None
        from simulator.scenario.models import models_of

        return models_of(self.scenario, self.variant)

    def place(self, option: str, path: str) -> str:
        """The name of a setting in the input: the engine's option, or the path in a scenario."""
        if self.is_launch:
            return option
        return path.replace("speculation.ARM", f"speculation.{self.entry.get('name', 'ARM')}")
