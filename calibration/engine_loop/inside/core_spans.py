"""One vLLM engine core in this process, with a span around each part of its step.

    ENGINE_PYTHON core_spans.py < request.json > passes.json

The request names a model, its points, and optionally a speculative configuration. A point is a batch of
requests. Each reads `queries` tokens a step: one token is plain decoding, several are a chunk of a prompt,
which has the shape of a verify pass. The answer has the median seconds of the steps by part.

With `stub`, the networks return at once, so that only host time is left. Seconds are then CPU time of the
thread, and the minimum over the steps is reported, because other load on the machine only adds to it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from statistics import median
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from vllm import EngineArgs, SamplingParams
from vllm.v1.engine.llm_engine import LLMEngine

Point = dict[str, Any]
WARM_UPS = 1
"""First steps of a point at each number of tokens, which do not count."""
UNIT_REPEATS = 7
FLUSH_BYTES = 256 << 20
"""Read before a head is timed by itself, so that its weights are not in a cache."""

SCHEDULER = {"schedule": "schedule", "update_from_output": "update", "update_draft_token_ids": "take_drafts"}
RUNNER = {
    "_update_states": "states",
    "_prepare_inputs": "inputs",
    "_build_attention_metadata": "metadata",
    "_preprocess": "inputs",
    "_model_forward": "forward",
    "_sample": "sampler",
    "_bookkeeping_sync": "bookkeeping",
    "propose_draft_token_ids": "propose",
    "execute_model": "runner",
    "sample_tokens": "runner",
}
"""Method → part; parts of the runner lie within `runner`, those of the draft within `propose`."""


class Spans:
    """Seconds by part of the step that runs; a part that is entered twice in a step adds up."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, method: str, part: str) -> None:
        """Replace a method by one that is timed."""
        function = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start_s = self.clock()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] += self.clock() - start_s

        setattr(owner, method, timed)

    @contextmanager
    def step(self) -> Iterator[dict[str, float]]:
        """The seconds of the parts within the block, and of the `step` as a whole."""
        self.seconds.clear()
        result: dict[str, float] = {}
        start_s = self.clock()
        yield result
        result["step"] = self.clock() - start_s
        result |= self.seconds


class Core:
    """An engine core and its spans."""

    def __init__(self, model: str, speculative: dict[str, Any] | None, stub: bool) -> None:
        arguments = EngineArgs(
            model=model,
            max_model_len=2048,
            max_num_seqs=256 if stub else 32,
            max_num_batched_tokens=8192,
            kv_cache_memory_bytes=2 << 30,
            enable_prefix_caching=False,
            speculative_config=speculative,
            disable_log_stats=True,
            enforce_eager=stub,
        )
        self.engine = LLMEngine.from_engine_args(arguments)
        core = self.engine.engine_core.engine_core
        self.scheduler = core.scheduler
        self.runner = core.model_executor.driver_worker.worker.model_runner
        self.vocabulary = self.runner.model_config.get_vocab_size()
        self.spans = Spans(time.thread_time if stub else time.perf_counter)
        if stub:
            self._stub()
        self._wrap()
        self._requests = 0
        self._budget = self.scheduler.max_num_scheduled_tokens

    def _stub(self) -> None:
        """Networks that return at once: hidden states of zeros, and logits that prefer one token."""
        models = [self.runner.model]
        if hasattr(getattr(self.runner, "drafter", None), "model"):
            models.append(self.runner.drafter.model)
        logits = torch.zeros(2048, self.vocabulary, dtype=torch.bfloat16)
        logits[:, 7] = 1.0
        for model in models:
            hidden = torch.zeros(8192, 1024, dtype=torch.bfloat16)[:, : self._width(model)]
            model.forward = lambda input_ids=None, positions=None, *_, states=hidden, **__: states[
                : len(positions)
            ]
            model.compute_logits = lambda states, *_, **__: logits[: len(states)]
        self.runner._model_forward = lambda input_ids, positions, *_, **__: models[0].forward(
            input_ids, positions
        )

    @staticmethod
    def _width(model: Any) -> int:
        return int(model.config.hidden_size)

    def _wrap(self) -> None:
        for method, part in SCHEDULER.items():
            self.spans.wrap(self.scheduler, method, part)
        for method, part in RUNNER.items():
            self.spans.wrap(self.runner, method, part)
        self.spans.wrap(self.runner.model, "compute_logits", "head")
        self.spans.wrap(self.engine.output_processor, "process_outputs", "outputs")
        for layer in self.runner.compilation_config.static_forward_context.values():
            if hasattr(layer, "impl"):
                self.spans.wrap(layer.impl, "forward", "attention")

    def run(self, point: Point, steps: int) -> Iterator[tuple[Point, list[dict[str, float]]]]:
        """Each number of query tokens of a point in turn, with the steps that count.

        Its requests read their context at once, then `queries` tokens a step. One token a step is decoding.
        A point without a context has a new prompt in every step.
        """
        batch, context = point["batch"], point["context"]
        if not context:
            for tokens in point["queries"]:
                prompt_steps = [self._step_of_prompts(batch, tokens) for _ in range(WARM_UPS + steps)]
                yield {"batch": batch, "context": 0, "queries": tokens}, prompt_steps[WARM_UPS:]
            return
        each = WARM_UPS + steps
        prompt = context + each * sum(tokens for tokens in point["queries"] if tokens > 1)
        for _ in range(batch):
            self._add(prompt, each * point.get("emitted", 1) + 1)
        self._read_tokens_a_step(context, batch)
        self.engine.step()
        for tokens in point["queries"]:
            self._read_tokens_a_step(tokens, batch)
            prompt_steps, contexts = [], []
            for _ in range(each):
                contexts.append(self._mean_computed_tokens() + tokens)
                with self.spans.step() as seconds:
                    self.engine.step()
                prompt_steps.append(seconds)
            middle = sum(contexts[WARM_UPS:]) / steps
            yield {"batch": batch, "context": middle, "queries": tokens}, prompt_steps[WARM_UPS:]
        while self.engine.has_unfinished_requests():
            self.engine.step()
        self._read_tokens_a_step(self._budget, 1)

    def _mean_computed_tokens(self) -> float:
        computed = [request.num_computed_tokens for request in self.scheduler.requests.values()]
        return float(sum(computed)) / len(computed)

    def _step_of_prompts(self, batch: int, tokens: int) -> dict[str, float]:
        for _ in range(batch):
            self._add(tokens, 1)
        with self.spans.step() as seconds:
            self.engine.step()
        return seconds

    def _read_tokens_a_step(self, tokens: int, batch: int) -> None:
        """Limit what a request reads a step; vLLM lifts the limit of a prompt where it is alone."""
        self.scheduler.scheduler_config.long_prefill_token_threshold = tokens if batch > 1 else 0
        self.scheduler.max_num_scheduled_tokens = min(self._budget, tokens * batch)

    def _add(self, prompt: int, output: int) -> None:
        self._requests += 1
        tokens = random.Random(self._requests).choices(range(100, self.vocabulary), k=prompt)
        parameters = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True)
        self.engine.add_request(str(self._requests), {"prompt_token_ids": tokens}, parameters)

    def heads(
        self, rows: list[int], repeats: int, typical: Callable[[list[float]], float]
    ) -> list[dict[str, float]]:
        """Seconds of the head by rows, and of choosing tokens from its logits."""
        width = self._width(self.runner.model)
        other = torch.zeros(FLUSH_BYTES // 4)
        spans = []
        for count in rows:
            hidden = torch.randn(count, width).to(torch.bfloat16)
            times, picks = [], []
            for _ in range(repeats):
                other.sum()
                start_s = self.spans.clock()
                logits = self.runner.model.compute_logits(hidden)
                middle_s = self.spans.clock()
                logits.argmax(dim=-1)
                times.append(middle_s - start_s)
                picks.append(self.spans.clock() - middle_s)
            spans.append({"rows": count, "head_s": typical(times), "argmax_s": typical(picks)})
        return spans


def python_unit_s() -> float:
    """CPU seconds of a loop of a million additions: the unit in which other CPUs can be compared."""
    times = []
    for _ in range(UNIT_REPEATS):
        start_s, total = time.thread_time(), 0
        for number in range(1_000_000):
            total += number
        times.append(time.thread_time() - start_s)
    return min(times)


def main() -> None:
    """Answer one request."""
    asked = json.load(sys.stdin)
    answer, sys.stdout = sys.stdout, sys.stderr
    stub, steps = asked.get("stub", False), asked["steps"]
    core = Core(asked["model"], asked.get("speculative"), stub)
    typical: Callable[[list[float]], float] = min if stub else median
    points = []
    with torch.inference_mode():
        for point in asked["points"]:
            for phase, phase_steps in core.run(point, point.get("steps", steps)):
                names = sorted({name for seconds in phase_steps for name in seconds})
                seconds = {
                    name: typical([phase_spans.get(name, 0.0) for phase_spans in phase_steps])
                    for name in names
                }
                points.append({**phase, "seconds": seconds})
        heads = core.heads(asked.get("head_rows", []), steps, typical)
    document = {"engine": f"vLLM {version('vllm')}", "points": points, "heads": heads}
    json.dump({**document, "python_unit_s": python_unit_s()}, answer)


if __name__ == "__main__":
    main()
