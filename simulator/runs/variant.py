"""A compiled variant: one scenario and one way of decoding, with everything that a run needs except requests
and random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from simulator.acceptance import AcceptanceModel, compile_acceptance
from simulator.costs.prices import Prices
from simulator.drivers.cluster import Drive, drive
from simulator.errors import InputError, Problem
from simulator.memory.gpu_memory import GpuMemory
from simulator.memory.report import gpu_memory
from simulator.policies import Policy
from simulator.results.record import STATUS_REJECTED, RunRecord
from simulator.results.variant_summary import MeasurementScope
from simulator.results.warm_up import measured_requests
from simulator.runs.drafts import drafting_of, variant_acceptance
from simulator.runs.engine_settings import engine_settings
from simulator.runs.setup import Setup, setup_of
from simulator.runs.uniform_step import UniformStep
from simulator.scenario import PLAIN, GoodputPolicy, Scenario, Variant
from simulator.scheduling import Rule, scheduler_rule
from simulator.speculation import Method
from simulator.step.settings import EngineSettings
from simulator.traffic.request_tokens import request_tokens
from simulator.traffic.workload import Requests
from simulator.units import NS_PER_S

if TYPE_CHECKING:
    from simulator.drivers.pipeline import TimelineStage


@dataclass(frozen=True)
class CompiledVariant:
    """One variant, ready to run any number of times. `variant` and `method` are None for plain decoding."""

    scenario: Scenario
    variant: Variant | None
    method: Method | None
    setup: Setup
    memory: GpuMemory
    settings: EngineSettings
    acceptance: tuple[AcceptanceModel | None, ...]
    """One model per traffic class; None where the class does not draft."""
    rule: Rule

    @property
    def name(self) -> str:
        """The variant's name in tables."""
        return self.variant.name if self.variant is not None else PLAIN

    @property
    def limited_by_states(self) -> bool:
        """Whether the memory for recurrent states holds fewer requests than the engine would run."""
        of_the_engine = self.setup.preset.max_num_seqs * self.scenario.hardware.attention_dp
        return self.settings.max_num_seqs < of_the_engine

    @property
    def request_limits(self) -> str:
        """What a request must not be longer than, in words: it is rejected otherwise."""
        settings = self.settings
        limits = [f"the model's context ({settings.max_context_tokens:,} tokens)"]
        if self.scenario.run.mechanisms.kv_limit:
            limits.append(f"the KV memory ({settings.total_blocks * settings.block_tokens:,})")
        if not settings.chunked_prefill:
            limits.append(f"a step that holds a whole prompt ({settings.max_num_batched_tokens:,})")
        return " or ".join(limits)

    @property
    def fits(self) -> bool:
        """Whether the memory holds the longest request to its end, or sets no limit."""
        return self.memory.fits or not self.scenario.run.mechanisms.kv_limit

    @property
    def policy(self) -> Policy | None:
        """What chooses the draft length by the results of the run; None where nothing does."""
        if self.variant is None or self.variant.policy is None:
            return None
        first_length = self.variant.draft_length
        assert isinstance(first_length, int)
        return self.variant.policy.policy(first_length)

    @property
    def measurement_scope(self) -> MeasurementScope:
        """What of the scenario the figures of this variant depend on."""
        workload, slo = self.scenario.workload, self.scenario.slo
        replicas = self.scenario.hardware.replicas
        return MeasurementScope(
            open_loop=workload.arrivals.kind not in ("closed", "burst"),
            class_names=tuple(entry.name for entry in workload.traffic_classes),
            limits=slo.model_dump(exclude_none=True) if slo else {},
            replicas=replicas,
            running_limit=self.settings.max_num_seqs * replicas,
            clients=workload.arrivals.concurrency if workload.arrivals.kind == "closed" else None,
        )

    @property
    def prices(self) -> Prices:
        """What every part of a step costs."""
        return self.setup.prices

    @staticmethod
    def compile(
        scenario: Scenario, variant: Variant | None, draft_length: int | None = None
    ) -> CompiledVariant:
        """Return the variant, with `draft_length` in place of its own where one is given. Raises
        InputError.
        """
        if variant is not None and draft_length is not None:
            variant = variant.at_length(draft_length)
        speculation = drafting_of(variant, scenario.base_dir) if variant is not None else None
        setup = setup_of(scenario, variant)
        memory = gpu_memory(scenario, variant)
        models = _acceptance_models(scenario, variant)
        rule = scheduler_rule(setup.preset.scheduler)
        settings = engine_settings(scenario, variant, speculation, setup, memory, rule)
        _check_token_budget(settings)
        compiled = CompiledVariant(scenario, variant, speculation, setup, memory, settings, models, rule)
        if variant is not None and isinstance(variant.draft_length, GoodputPolicy):
            table = _goodput_table(compiled, variant.draft_length.max)
            compiled = replace(compiled, settings=replace(settings, draft_length_by_batch=table))
        return compiled

    def run(
        self,
        requests: Requests,
        seed: int,
        *,
        acceptance: Sequence[AcceptanceModel | None] | None = None,
        step_scale: float = 1.0,
        scales_decodes_only: bool = False,
        timeline: list[TimelineStage] | None = None,
        warm_up: int = 0,
    ) -> RunRecord:
        """Run all requests and return what happened.

        `acceptance` replaces the scenario's models, one per traffic class. `step_scale` multiplies every GPU
        stage; with `scales_decodes_only`, of a step that also prefills only the decodes' share of its tokens.
        `timeline` collects the stages of the steps. `warm_up`: at least so many requests are not measured.
        Raises InputError where not one of the requests can be served.
        """
        mechanisms = self.scenario.run.mechanisms
        requests = self._within_context(requests)
        if not self.scenario.engine.prefix_caching or requests.prefix_block_tokens == 0:
            requests = _without_prefixes(requests)
        settings = replace(self.settings, gpu_scale=step_scale, scales_decodes_only=scales_decodes_only)
        if requests.prefix_block_tokens:
            block_tokens = gcd(settings.block_tokens, requests.prefix_block_tokens)
            blocks = settings.total_blocks * (settings.block_tokens // block_tokens)
            settings = replace(settings, block_tokens=block_tokens, total_blocks=blocks)
        models = self.acceptance if acceptance is None else tuple(acceptance)
        classes = self.scenario.workload.traffic_classes
        drafts = [entry.drafts and self.variant is not None for entry in classes]
        tables = compile_acceptance(
            models, requests, seed, settings.max_depth, mechanisms.heterogeneity, drafts
        )
        how = Drive(
            policy=self.policy,
            replicas=self.scenario.hardware.replicas,
            router=self.scenario.hardware.router,
            rule=self.rule,
            pipeline=self.scenario.run.backend == "pipeline",
            timeline=timeline,
        )
        measured = measured_requests(self.scenario, len(requests.arrival_ns), warm_up)
        record = drive(how, settings, self.prices, tables, requests, seed, measured)
        if (record.status == STATUS_REJECTED).all():
            message = f"{self.name} can serve none of the requests: each is longer than {self.request_limits}"
            raise InputError(Problem(field="workload.lengths", message=message, allowed="shorter requests"))
        return record

    def step_times(
        self, sequences: int, context_tokens: float, draft_length: int | None = None
    ) -> Mapping[str, float]:
        """Return the stages of a step of `sequences` decodes at a mean context, in s: host, verify, accept,
        draft, total.

        `draft_length` drafts per request are verified and made; default: the variant's K at this batch.
        """
        table = self.settings.draft_length_by_batch
        if draft_length is None:
            draft_length = table[min(sequences, len(table) - 1)]
        step = UniformStep(self.settings, self.prices, sequences, context_tokens, draft_length)
        return {name: ns / NS_PER_S for name, ns in step.stages_ns().items()}

    def beyond_drafter(self, requests: Requests) -> str | None:
        """Return a note on the requests that outgrow the drafter's context; None where no request does."""
        limit = self.settings.drafter_max_context
        drafts = np.array([entry.drafts for entry in self.scenario.workload.traffic_classes])
        longer = requests.prompt_tokens + requests.output_tokens > limit
        share = float((longer & drafts[requests.traffic_class]).mean())
        if share == 0:
            return None
        return f"{share:.1%} of the requests outgrow the drafter's {limit:,} tokens, and go on without drafts"

    def _within_context(self, requests: Requests) -> Requests:
        """Return the requests with outputs that end at the model's context at the latest."""
        room = self.setup.max_context_tokens - requests.prompt_tokens
        if (room >= requests.output_tokens).all():
            return requests
        return requests._replace(output_tokens=np.clip(requests.output_tokens, 1, np.maximum(room, 1)))


def _acceptance_models(scenario: Scenario, variant: Variant | None) -> tuple[AcceptanceModel | None, ...]:
    classes = scenario.workload.traffic_classes
    if variant is None:
        return (None,) * len(classes)
    return tuple(
        variant_acceptance(variant, scenario.base_dir, entry.acceptance.get(variant.name))
        if entry.drafts
        else None
        for entry in classes
    )


def _check_token_budget(settings: EngineSettings) -> None:
    """Raise InputError where a request could wait for ever: a step never has the tokens for its next rows.

    A first decode is filled up to all of its rows or waits, in vLLM too (`v1/core/sched/scheduler.py`,
    `pad_spec_decode`). vLLM refuses fewer tokens than the slots that a drafter takes (`config/vllm.py`,
    `_set_max_num_scheduled_tokens`).
    """
    rows, slots = 1 + settings.padded_drafts, settings.slots_per_request
    if settings.max_num_batched_tokens < rows + slots:
        message = f"is too small for the {rows} rows of one request that decodes"
        if slots:
            message += f" and the {slots} slots of its drafter"
        raise InputError(
            Problem(
                field="engine.max_num_batched_tokens",
                value=settings.max_num_batched_tokens,
                message=message,
                allowed=f"at least {rows + slots}",
            )
        )


def _without_prefixes(requests: Requests) -> Requests:
    return requests._replace(
        prefix_block_tokens=0,
        prefix_ids=np.zeros(0, np.int64),
        prefix_start=np.zeros(len(requests.arrival_ns) + 1, np.int64),
    )


def _goodput_table(compiled: CompiledVariant, longest: int) -> tuple[int, ...]:
    """Return the K by batch with the most expected tokens per second at the workload's mean context (arXiv
    2406.14066).
    """
    context = request_tokens(compiled.scenario).mean_halfway
    model = next(of_class for of_class in compiled.acceptance if of_class is not None)
    expected = [model.mean_acceptance_length(k) for k in range(longest + 1)]
    max_num_seqs = compiled.settings.max_num_seqs
    batches = np.unique(np.geomspace(1, max_num_seqs, 40).astype(int))

    def rate(sequences: int, k: int) -> float:
        return expected[k] / compiled.step_times(sequences, context, k)["total"]

    best = [int(np.argmax([rate(int(n), k) for k in range(longest + 1)])) for n in batches]
    return tuple(
        best[int(np.searchsorted(batches, max(n, 1), side="right")) - 1] for n in range(max_num_seqs + 1)
    )
