"""For each lint an input that has its cause and one that lacks it, the same otherwise."""

from __future__ import annotations

from typing import NamedTuple

EAGLE3 = "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"
VLLM = "vllm serve meta-llama/Llama-3.3-70B-Instruct --quantization fp8 --tensor-parallel-size 4"
SGLANG = (
    "python -m sglang.launch_server --model-path meta-llama/Llama-3.3-70B-Instruct --quantization fp8 "
    "--tp-size 4 "
    f"--speculative-algorithm EAGLE3 --speculative-draft-model-path {EAGLE3}"
)
CHAIN = " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
TREE = " --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32"
SCENARIO = """\
target: {{model: {model}, weights: {weights}}}
hardware: {{gpu: h100-sxm, tensor_parallel: {ranks}}}
engine: {{preset: {preset}}}
speculation:
  - {{name: a, method: {method}, draft: {draft}, draft_length: {length}, {more}}}
workload:
  arrivals: {arrivals}
  prompt_tokens: {{kind: fixed, tokens: {prompt}}}
  temperature: {temperature}
"""
DEFAULTS = {
    "model": "llama-3.3-70b-instruct",
    "weights": "fp8",
    "ranks": 4,
    "preset": "vllm-0.33",
    "method": "eagle3",
    "draft": "eagle3-llama-3.3-70b",
    "length": 3,
    "more": "acceptance: {model: geometric, alpha: 0.7}",
    "arrivals": "{kind: closed, concurrency: 16}",
    "prompt": 900,
    "temperature": "null",
}


class Case(NamedTuple):
    """`form`: vllm, sglang (a line), trtllm, config, scenario (a file); `options`: of the command."""

    code: str
    form: str
    bad: str
    good: str
    options: tuple[str, ...] = ()
    bad_options: tuple[str, ...] | None = None


def spec(config: str, line: str = VLLM) -> str:
    """A vLLM line with this speculative configuration."""
    return f"{line} --speculative-config '{{{config}}}'"


def eagle3(more: str = "", length: int = 3, line: str = VLLM) -> str:
    """A vLLM line with an EAGLE-3 head."""
    head = f'"method": "eagle3", "model": "{EAGLE3}", "num_speculative_tokens": {length}'
    return spec(f"{head}{', ' if more else ''}{more}", line)


def scenario(**changes: object) -> str:
    """A scenario with these changes."""
    return SCENARIO.format(**{**DEFAULTS, **changes})


def mtp(length: int) -> str:
    """A scenario of a model with three prediction modules."""
    return scenario(model="minimax-m2", weights="null", ranks=8, method="mtp", draft="null", length=length)


def trtllm(speculation: str, rest: str = "") -> str:
    """A TensorRT-LLM file of an unknown model."""
    return f"tensor_parallel_size: 4\nspeculative_config: {{{speculation}}}\n{rest}"


TRT_EAGLE = f"decoding_type: Eagle3, max_draft_len: 3, speculative_model: {EAGLE3}"
SCHEDULE = '"num_speculative_tokens_per_batch_size": '
V2 = "VLLM_USE_V2_MODEL_RUNNER=1 "
NGRAM = '"method": "ngram_gpu", "num_speculative_tokens": 3, "prompt_lookup_max": 5, "prompt_lookup_min": 2'
SMALL = '"method": "draft_model", "model": "meta-llama/Llama-3.2-1B-Instruct", "num_speculative_tokens": 3'
STANDALONE = (
    "python -m sglang.launch_server --model-path meta-llama/Llama-3.3-70B-Instruct --quantization fp8 "
    "--tp-size 4 --speculative-algorithm STANDALONE "
    f"--speculative-draft-model-path meta-llama/Llama-3.1-8B-Instruct{CHAIN}"
)
GIVEN = "acceptance: {model: fixed, rate: 0.7}"
OLD_LINE = f"{VLLM} --enable-chunked-prefill --speculative-config"
OLD_DRAFT = (
    '"method": "draft_model", "model": "meta-llama/Llama-3.1-8B-Instruct", "num_speculative_tokens": 3'
)

CASES = (
    Case("name-never-existed", "vllm", f"{VLLM} --spec_decoding_algorithm EAGLE3", VLLM),
    Case("name-never-existed", "sglang", f"{SGLANG}{CHAIN} --speculative_model x", f"{SGLANG}{CHAIN}"),
    Case(
        "flag-removed",
        "vllm",
        f"{VLLM} --speculative-model {EAGLE3} --spec-method eagle3 --spec-tokens 3",
        f"{VLLM} --spec-model {EAGLE3} --spec-method eagle3 --spec-tokens 3",
    ),
    Case(
        "option-without-effect",
        "vllm",
        eagle3('"disable_by_batch_size": 32'),
        eagle3(),
        ("--preset", "vllm-0.12"),
    ),
    Case("option-removed", "vllm", eagle3('"disable_by_batch_size": 32'), eagle3()),
    Case("option-removed", "vllm", eagle3('"speculative_token_tree": "[(0,)]"'), eagle3()),
    Case(
        "option-too-new",
        "vllm",
        eagle3('"draft_sample_method": "greedy"'),
        eagle3(),
        ("--preset", "vllm-0.20"),
    ),
    Case("option-unknown", "vllm", eagle3('"max_draft_len": 3'), eagle3()),
    Case("option-unknown", "sglang", f"{SGLANG}{CHAIN} --speculative-depth 3", f"{SGLANG}{CHAIN}"),
    Case("option-unknown", "trtllm", trtllm(f"{TRT_EAGLE}, num_steps: 3"), trtllm(TRT_EAGLE)),
    Case(
        "draft-tp-key", "vllm", eagle3('"tensor_parallel_size": 1'), eagle3('"draft_tensor_parallel_size": 1')
    ),
    Case(
        "config-not-json",
        "vllm",
        f"{VLLM} -sc \"{{'method': 'ngram_gpu', 'num_speculative_tokens': 3, 'prompt_lookup_max': 5}}\"",
        f'{VLLM} -sc \'{{"method": "ngram_gpu", "num_speculative_tokens": 3, "prompt_lookup_max": 5}}\'',
    ),
    Case(
        "mtp-name",
        "config",
        '{"method": "deepseek_mtp", "num_speculative_tokens": 1}',
        '{"method": "mtp", "num_speculative_tokens": 1}',
    ),
    Case(
        "method-removed",
        "config",
        '{"method": "medusa", "model": "x", "num_speculative_tokens": 3}',
        '{"method": "medusa", "model": "x", "num_speculative_tokens": 3}',
        ("--preset", "vllm-0.32"),
        (),
    ),
    Case("method-unsupported", "vllm", spec(OLD_DRAFT), spec(OLD_DRAFT), (), ("--preset", "vllm-0.9")),
    Case("ngram-window", "vllm", spec('"method": "ngram_gpu", "num_speculative_tokens": 3'), spec(NGRAM)),
    Case(
        "graph-range",
        "vllm",
        f"{eagle3()} --max-cudagraph-capture-size 128",
        eagle3(),
        ("--concurrency", "64"),
    ),
    Case("graph-range", "vllm", eagle3(), eagle3(), ("--concurrency", "128"), ("--concurrency", "256")),
    Case(
        "graph-range",
        "sglang",
        f"{SGLANG}{CHAIN} --cuda-graph-max-bs 2",
        f"{SGLANG}{CHAIN} --cuda-graph-max-bs 64",
    ),
    Case(
        "graph-range",
        "trtllm",
        trtllm(TRT_EAGLE, "max_batch_size: 64\ncuda_graph_config: {max_batch_size: 8}"),
        trtllm(TRT_EAGLE, "max_batch_size: 64\ncuda_graph_config: {max_batch_size: 64}"),
    ),
    Case(
        "graph-range",
        "scenario",
        scenario(arrivals="{kind: closed, concurrency: 256}"),
        scenario(arrivals="{kind: closed, concurrency: 96}"),
    ),
    Case("eager", "vllm", f"{eagle3()} --enforce-eager", eagle3()),
    Case("eager", "vllm", eagle3('"enforce_eager": true'), eagle3()),
    Case("eager", "sglang", f"{SGLANG}{CHAIN} --disable-cuda-graph", f"{SGLANG}{CHAIN}"),
    Case("eager", "trtllm", trtllm(TRT_EAGLE, "cuda_graph_config: null"), trtllm(TRT_EAGLE)),
    Case("piecewise-schedule", "vllm", eagle3(f"{SCHEDULE}[[1, 64, 3], [65, 256, 0]]"), eagle3()),
    Case(
        "flashinfer-graphs",
        "vllm",
        f"VLLM_ATTENTION_BACKEND=FLASHINFER {eagle3()}",
        eagle3(),
        ("--preset", "vllm-0.23"),
    ),
    Case("k-too-large", "vllm", eagle3(length=10), eagle3(length=5)),
    Case(
        "k-too-large",
        "scenario",
        scenario(length=5, more="acceptance: {model: geometric, alpha: 0.5}"),
        scenario(length=5),
    ),
    Case("tree-with-batch", "sglang", f"{SGLANG}{TREE}", f"{SGLANG}{TREE} --max-running-requests 4"),
    Case(
        "tree-with-batch",
        "scenario",
        scenario(
            preset="sglang-0.5",
            more="tree: {depth: 5, top_k: 8, nodes: 32, dynamic: true}, " + GIVEN,
        ),
        scenario(preset="sglang-0.5", more=GIVEN),
    ),
    Case("tree-bounds", "sglang", f"{SGLANG}{CHAIN.replace('tokens 4', 'tokens 3')}", f"{SGLANG}{CHAIN}"),
    Case(
        "tree-bounds",
        "trtllm",
        trtllm(f"{TRT_EAGLE}, use_dynamic_tree: true, dynamic_tree_max_topK: 2, max_total_draft_tokens: 9"),
        trtllm(f"{TRT_EAGLE}, use_dynamic_tree: true, dynamic_tree_max_topK: 2, max_total_draft_tokens: 6"),
    ),
    Case(
        "schedule-invalid",
        "vllm",
        V2 + eagle3(f"{SCHEDULE}[[1, 64, 3], [60, 256, 0]]"),
        V2 + eagle3(f"{SCHEDULE}[[1, 64, 3], [65, 256, 0]]"),
    ),
    Case("schedule-invalid", "vllm", V2 + eagle3(f'{SCHEDULE}{{"1-16": 3}}'), V2 + eagle3()),
    Case(
        "schedule-boundary",
        "vllm",
        V2 + eagle3(f"{SCHEDULE}[[1, 64, 3], [65, 256, 0]]"),
        V2 + eagle3(f"{SCHEDULE}[[1, 16, 3], [17, 256, 0]]"),
        ("--concurrency", "60"),
    ),
    Case(
        "schedule-data-parallel",
        "vllm",
        V2 + eagle3(f"{SCHEDULE}[[1, 64, 3], [65, 256, 0]]", line=f"{VLLM} --data-parallel-size 2"),
        V2 + eagle3(f"{SCHEDULE}[[1, 64, 3], [65, 256, 0]]"),
    ),
    Case(
        "adaptive-unsupported",
        "sglang",
        f"{STANDALONE} --speculative-adaptive",
        STANDALONE,
    ),
    Case("own-tree", "sglang", SGLANG, f"{SGLANG}{CHAIN}"),
    Case("head-type", "vllm", eagle3().replace('"eagle3"', '"eagle"'), eagle3()),
    Case("head-type", "sglang", f"{SGLANG}{CHAIN}".replace("EAGLE3 ", "EAGLE ", 1), f"{SGLANG}{CHAIN}"),
    Case(
        "drafter-of-other-model",
        "vllm",
        eagle3(line="vllm serve Qwen/Qwen3-32B"),
        eagle3(line="vllm serve Qwen/Qwen3-32B").replace(EAGLE3, "AngelSlim/Qwen3-32B_eagle3"),
    ),
    Case(
        "drafter-context",
        "scenario",
        scenario(more="max_context_tokens: 2048, " + GIVEN, prompt=4000),
        scenario(more="max_context_tokens: 2048, " + GIVEN, prompt=1000),
    ),
    Case("draft-tp", "vllm", spec(SMALL), spec(f'{SMALL}, "draft_tensor_parallel_size": 1')),
    Case("does-not-fit", "scenario", scenario(ranks=1, weights="bf16"), scenario(ranks=4, weights="bf16")),
    Case("ngram-synchronous", "vllm", spec(NGRAM.replace("ngram_gpu", "ngram")), spec(NGRAM)),
    Case(
        "scheduled-tokens",
        "vllm",
        f"{eagle3()} --max-num-batched-tokens 4096",
        f"{eagle3()} --max-num-batched-tokens 8192",
    ),
    Case(
        "chunked-prefill-draft-tp",
        "vllm",
        f"{OLD_LINE} '{{{OLD_DRAFT}}}'",
        f"{OLD_LINE} '{{{OLD_DRAFT}, \"draft_tensor_parallel_size\": 1}}'",
        ("--preset", "vllm-0.7"),
    ),
    Case(
        "mixed-chunk",
        "sglang",
        f"{SGLANG}{CHAIN} --enable-mixed-chunk",
        f"{SGLANG}{CHAIN}",
        ("--preset", "sglang-0.5.10"),
    ),
    Case(
        "lossy-acceptance",
        "sglang",
        f"{SGLANG}{CHAIN} --speculative-accept-threshold-acc 0.8",
        f"{SGLANG}{CHAIN}",
    ),
    Case(
        "lossy-acceptance",
        "trtllm",
        trtllm(f"{TRT_EAGLE}, use_relaxed_acceptance_for_thinking: true"),
        trtllm(TRT_EAGLE),
    ),
    Case(
        "synthetic-acceptance",
        "vllm",
        eagle3('"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.7, 0.5, 0.3]'),
        eagle3(),
    ),
    Case(
        "permanent-switch-off",
        "trtllm",
        trtllm(f"{TRT_EAGLE}, acceptance_rate_threshold: 0.4"),
        trtllm(TRT_EAGLE),
    ),
    Case("acceptance-assumed", "scenario", scenario(more="draft_sampling: greedy"), scenario()),
    Case(
        "greedy-drafts",
        "scenario",
        scenario(temperature=1.0),
        scenario(temperature=1.0, more="draft_sampling: sampled, acceptance: {model: geometric, alpha: 0.7}"),
    ),
    Case("quantised-target", "scenario", scenario(weights="int4"), scenario(weights="fp8")),
    Case(
        "infinite-rate",
        "scenario",
        scenario(arrivals="{kind: burst}"),
        scenario(arrivals="{kind: poisson, rate_per_s: 5}"),
    ),
    Case("version-unknown", "vllm", eagle3(), eagle3(), (), ("--preset", "vllm-0.99")),
    Case("no-scenario", "vllm", f"vllm serve example-org/Example-8B -sc '{{{NGRAM}}}'", spec(NGRAM)),
    Case(
        "tree-unsupported",
        "scenario",
        scenario(more="tree: {depth: 3, top_k: 2, nodes: 6}, " + GIVEN),
        scenario(more=GIVEN),
    ),
    Case("mtp-multiple", "scenario", mtp(length=4), mtp(length=3)),
)
