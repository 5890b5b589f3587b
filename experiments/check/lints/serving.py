"""How the engine schedules, and what it may do to the output."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.check.lint import Hit, is_on
from experiments.check.lints import lint
from experiments.check.subject import Subject

SCHEDULED_TOKENS = 8192


@lint(
    "ngram-synchronous",
    "warning",
    "n-grams on the host switch asynchronous scheduling off",
    engine="vllm",
    since=(0, 14),
    source="vLLM config/vllm.py 0.17 to 0.33; docs/engines.md",
)
def ngram_synchronous(subject: Subject) -> Iterator[Hit]:
    named = subject.config.get("method")
    if named in ("ngram", "[ngram]"):
        text = "every step then waits for the host, for requests without a draft too"
        yield Hit("method", text, '"method": "ngram_gpu"')


@lint(
    "scheduled-tokens",
    "info",
    "A small token budget with speculation",
    engine="vllm",
    source="vLLM config/vllm.py",
)
def scheduled_tokens(subject: Subject) -> Iterator[Hit]:
    budget = subject.data.get("engine", {}).get("max_num_batched_tokens")
    if subject.method and isinstance(budget, int) and budget < SCHEDULED_TOKENS:
        text = (
            f"drafts count against {budget} tokens a step, so prompts take more steps: vLLM warns below 8192"
        )
        yield Hit(
            subject.place("--max-num-batched-tokens", "engine.max_num_batched_tokens"), text, "8192 or more"
        )


@lint(
    "chunked-prefill-draft-tp",
    "error",
    "Chunked prefill with a draft model over several GPUs",
    engine="vllm",
    before=(0, 8),
    source="vllm-project/vllm#9291",
)
def chunked_prefill_draft_tp(subject: Subject) -> Iterator[Hit]:
    chunked = is_on(subject.settings, "--enable-chunked-prefill")
    ranks = subject.entry.get("draft_tensor_parallel") or subject.tensor_parallel
    if chunked and subject.method == "draft_model" and ranks > 1:
        text = "vLLM of this time runs chunked prefill with speculation only if the drafter has one GPU"
        yield Hit("--enable-chunked-prefill", text, "--speculative-draft-tensor-parallel-size 1")


@lint(
    "mixed-chunk",
    "warning",
    "Mixed chunks that speculation switches off",
    engine="sglang",
    before=(0, 5, 17),
    source="sgl-project/sglang#32549, #35300",
)
def mixed_chunk(subject: Subject) -> Iterator[Hit]:
    mixed = is_on(subject.settings, "--enable-mixed-chunk")
    if subject.method and mixed:
        text = "speculation switches mixed chunks off: while prompts are computed, no request gets a token"
        yield Hit("--enable-mixed-chunk", text, "a smaller --chunked-prefill-size, or a version with #35300")


@lint(
    "lossy-acceptance",
    "warning",
    "Acceptance that changes the output",
    source="formats of SGLang and TensorRT-LLM; vLLM `fly`",
)
def lossy_acceptance(subject: Subject) -> Iterator[Hit]:
    fix = "leave it out, or judge the answers"
    config = subject.config
    for key in ("accept_threshold_single", "accept_threshold_acc"):
        try:
            lossy = float(str(config.get(key, 1))) < 1
        except ValueError:
            lossy = False
        if subject.engine == "sglang" and lossy:
            name = f"--speculative-{key.replace('_', '-')}"
            yield Hit(name, "a threshold below 1 accepts tokens that the target would not choose", fix)
    if subject.engine == "trtllm" and config.get("use_relaxed_acceptance_for_thinking"):
        text = "relaxed acceptance takes tokens that the target would not choose"
        yield Hit("use_relaxed_acceptance_for_thinking", text, fix)
    if subject.engine == "vllm" and config.get("rejection_sample_method") == "fly":
        yield Hit("rejection_sample_method", "fly takes tokens that the target would not choose", fix)


@lint(
    "synthetic-acceptance",
    "error",
    "Acceptance that is made up",
    engine="vllm",
    applies="vLLM from 0.27",
    source="vLLM config/speculative.py",
)
def synthetic(subject: Subject) -> Iterator[Hit]:
    if subject.config.get("rejection_sample_method") == "synthetic":
        text = "drafts are accepted at random: the answers are wrong"
        yield Hit("rejection_sample_method", text, "standard; synthetic is for load tests")


@lint(
    "permanent-switch-off",
    "info",
    "Speculation that stays off until a restart",
    engine="trtllm",
    source="TensorRT-LLM llmapi/llm_args.py",
)
def switch_off(subject: Subject) -> Iterator[Hit]:
    if subject.config.get("acceptance_rate_threshold") is not None:
        text = "one window of hard prompts switches speculation off for good"
        yield Hit("acceptance_rate_threshold", text, "watch the acceptance, and use draft_len_schedule")
