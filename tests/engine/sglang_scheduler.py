"""SGLang's own scheduler, driven without a model: what it does with a scenario, step by step.

    PYTHON_WITH_SGLANG tests/engine/sglang_scheduler.py < scenarios.jsonl > traces.jsonl

Runs in an environment of its own (package `sglang` without its dependencies for GPUs, torch for CPUs), so it
imports nothing of this project. `Scheduler.get_next_batch_to_run` decides, with SGLang's own batches,
`PrefillAdder`, policy, radix cache and allocator. What a model would sample is scripted, every step lasts one
tick, and each one is updated before the next is scheduled, as in `event_loop_normal`. Speculation is not
driven: its workers allocate KV as they run the drafter.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from array import array
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import absent  # noqa: F401
import torch
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.schedule_policy import PrefillAdder, SchedulePolicy
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache
from sglang.srt.runtime_context import get_context, get_parallel
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

TICK_NS = 1000
MOST_STEPS = 20_000
STOP_TOKEN = 7
"""Ends a request whose end the scheduler does not foresee."""
VOCABULARY = 2**31 - 1

Scenario = dict[str, Any]


class ScriptedScheduler(Scheduler):
    """SGLang's scheduler without processes, devices and features that a scenario has not."""

    def __init__(self, engine: Scenario) -> None:
        requests = engine["max_num_seqs"]
        pool = ReqToTokenPool(requests, engine["max_model_len"], "cpu", False)
        allocator = TokenToKVPoolAllocator(engine["num_blocks"], torch.float16, "cpu", MagicMock(), False)
        tree = RadixCache(
            CacheInitParams(
                disable=not engine["prefix_caching"],
                req_to_token_pool=pool,
                token_to_kv_pool_allocator=allocator,
                page_size=1,
            )
        )
        budget = engine["max_num_batched_tokens"]
        get_parallel().override_permanently(pp_max_micro_batch_size=requests)
        self.req_to_token_pool, self.token_to_kv_pool_allocator, self.tree_cache = pool, allocator, tree
        self.policy = SchedulePolicy("fcfs", tree, False, False, False)
        self.new_token_ratio_tracker = NewTokenRatioTracker.from_config()
        self.max_prefill_tokens, self.max_running_requests, self.page_size = budget, requests, 1
        self.chunked_prefill_size = budget if engine["chunked_prefill"] else None
        self.waiting_queue: list[Req] = []
        self.running_batch, self.last_batch = ScheduleBatch(reqs=[]), None
        self.spec_algorithm, self.disaggregation_mode = SpeculativeAlgorithm.NONE, DisaggregationMode.NULL
        self.model_config = SimpleNamespace(is_encoder_decoder=False, is_multimodal=False, vocab_size=512)
        self.processed_tokens_counter = self.priority_scheduling_preemption_threshold = 0
        self.max_prefill_bs, self.device, self.result_queue = 0, "cpu", []
        for name in _ABSENT:
            setattr(self, name, None)
        for name in _OFF:
            setattr(self, name, False)
        self.grammar_manager = SimpleNamespace(has_waiting_grammars=lambda: False)
        self.tp_worker = SimpleNamespace(
            model_runner=SimpleNamespace(attn_backend=None, prefill_aware_swa=False)
        )
        self.load_inquirer = SimpleNamespace(_get_num_pending_tokens=lambda **_: 0)
        self.dp_attn_adapter = SimpleNamespace(
            maybe_prepare_mlp_sync_batch=lambda batch, **_: batch,
            maybe_convert_decode_to_extend=lambda batch: batch,
        )
        self.ngram_embedding_manager = SimpleNamespace(prepare_for_forward=lambda batch, **_: batch)
        self.metrics_reporter = SimpleNamespace(enable_metrics=False)
        self.beam_coordinator = SimpleNamespace(pending_member_rows=lambda _: 0)

    def process_pending_chunked_abort(self) -> None:
        """No request is aborted."""

    def _process_hicache_events(self) -> None:
        """There is no cache on the host."""

    def _should_defer_prefill(self, running_batch: ScheduleBatch) -> bool:
        return False

    def _arm_prefill_decode_interval(self, batch: ScheduleBatch | None) -> None:
        """Prefill is never held back."""

    def get_prefill_adder_class(self) -> type[PrefillAdder]:
        """SGLang's own."""
        return PrefillAdder

    def _add_request_to_queue(self, req: Req, is_retracted: bool = False) -> None:
        self.waiting_queue.append(req)


_ABSENT = (
    "chunked_req dllm_config prefill_delayer min_free_slots_delayer dynamic_chunk_sizer hisparse_coordinator "
    "truncation_align_size decode_offload_manager scheduler_stage_metrics _pending_chunked_abort_req"
).split()
_OFF = (
    "enable_hisparse enable_priority_preemption is_hybrid_swa is_mixed_chunk enable_lora enable_lmcache "
    "enable_hicache_storage enable_overlap enable_hierarchical_cache enable_unified_cache_external_linker "
    "enable_priority_scheduling require_mlp_sync enable_skip_finishing_decode forward_ct"
).split()


class Run:
    """One scenario under SGLang's scheduler."""

    def __init__(self, scenario: Scenario) -> None:
        self.engine, self.asked = scenario["engine"], scenario["requests"]
        self.scheduler = ScriptedScheduler(self.engine)
        self.requests = [self._request(index, asked) for index, asked in enumerate(self.asked)]
        order = sorted(range(len(self.asked)), key=lambda index: (self.asked[index]["arrival"], index))
        self.not_arrived = order
        self.steps: list[list[Any]] = []
        self.emissions: list[list[list[int]]] = [[] for _ in self.asked]

    def to_the_end(self) -> str:
        """Run until no request is left; return "done", or "endless"."""
        scheduler, now_ns = self.scheduler, 0
        while len(self.steps) < MOST_STEPS:
            while self.not_arrived and self.asked[self.not_arrived[0]]["arrival"] <= now_ns:
                scheduler.waiting_queue.append(self.requests[self.not_arrived.pop(0)])
            before = [request.retraction_count for request in self.requests]
            plan = scheduler.get_next_batch_to_run(scheduler.running_batch, scheduler.last_batch)
            scheduler.last_batch, scheduler.running_batch = plan.batch_to_run, plan.running_batch
            if plan.batch_to_run is not None:
                self._note(plan.batch_to_run, before, now_ns)
                now_ns += TICK_NS
                self._update(plan.batch_to_run, now_ns)
            elif not self.not_arrived:
                return "done" if all(request.finished() for request in self.requests) else "endless"
            else:
                now_ns = max(now_ns, self.asked[self.not_arrived[0]]["arrival"])
        return "endless"

    def _request(self, index: int, asked: Scenario) -> Req:
        prompt, output = asked["prompt"], asked["output"]
        block = self.engine["block_size"] * self.engine.get("blocks_per_name", 1)
        named = [1_000_000 + name * block + at for name in asked["prefix"] for at in range(block)][:prompt]
        own = [10_000_000 * (index + 1) + at for at in range(prompt - len(named))]
        room = output if self.engine["foreseen"] else self.engine["max_model_len"] - prompt
        parameters = SamplingParams(max_new_tokens=room, temperature=0, stop_token_ids=[STOP_TOKEN])
        parameters.normalize(None)
        return Req(str(index), "", array("q", [*named, *own]), parameters, vocab_size=VOCABULARY)

    def _note(self, batch: ScheduleBatch, before: list[int], now_ns: int) -> None:
        extends = batch.forward_mode.is_extend()
        entries = [[int(request.rid), request.extend_len if extends else 1, 0] for request in batch.reqs]
        retracted = [
            index for index, count in enumerate(before) if self.requests[index].retraction_count > count
        ]
        free = self.scheduler.token_to_kv_pool_allocator.available_size()
        self.steps.append([now_ns, entries, retracted, free + self.scheduler.tree_cache.evictable_size()])

    def _update(self, batch: ScheduleBatch, now_ns: int) -> None:
        """As `process_batch_result_prefill` and `process_batch_result_decode` do."""
        tree, allocator = self.scheduler.tree_cache, self.scheduler.token_to_kv_pool_allocator
        extends = batch.forward_mode.is_extend()
        allocator.free_group_begin()
        for request in batch.reqs:
            if extends and request.inflight_middle_chunks > 0:
                request.inflight_middle_chunks -= 1
                continue
            index = int(request.rid)
            request.output_ids.append(self._token(index, len(request.output_ids) + 1))
            request.update_finish_state()
            self.emissions[index].append([now_ns, 1])
            if request.finished():
                release_kv_cache(request, tree, checkpoint=True)
            elif extends:
                checkpoint_kv_cache(request, tree)
        allocator.free_group_end()

    def _token(self, index: int, position: int) -> int:
        stops = not self.engine["foreseen"] and position == self.asked[index]["output"]
        return STOP_TOKEN if stops else 500_000_000 + index * 100_000 + position


def main() -> None:
    """Run the scenarios of standard input; print a trace document a line."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    backend = {f"{name}attention_backend": "torch_native" for name in ("", "prefill_", "decode_")}
    get_context().override_server_args(device="cpu", **backend).install()
    for line in sys.stdin:
        scenario = json.loads(line)
        run = Run(scenario)
        answer = {"how": run.to_the_end(), "steps": run.steps, "emissions": run.emissions}
        print(json.dumps({"family": scenario["family"], "scenario": scenario, "sglang": answer}), flush=True)


if __name__ == "__main__":
    main()
