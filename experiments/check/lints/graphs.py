"""CUDA graphs: ranges that end below the batch, and settings that switch them off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from calibration.launch.options import SCHEDULE_KEY
from experiments.check.lint import Hit, is_on
from experiments.check.lints import lint
from experiments.check.subject import Subject
from simulator.document import parse_yaml
from simulator.errors import InputError

_CAPTURE_FLAGS = ("--max-cudagraph-capture-size", "--cuda-graph-sizes", "--cudagraph-capture-sizes")
_COMPILATION = ("--compilation-config", "-O", "-cc")


def _compilation(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """vLLM's compilation configuration, empty where it is none that can be read."""
    for name in _COMPILATION:
        text = settings.get(name)
        if isinstance(text, str) and text.lstrip().startswith("{"):
            try:
                data = parse_yaml(text).data
            except InputError:
                return {}
            return data if isinstance(data, dict) else {}
    return {}


def _vllm_tokens(subject: Subject) -> int | None:
    """The largest capture size that is given, in tokens."""
    config = _compilation(subject.settings)
    sizes_stated = [subject.settings.get(name) for name in _CAPTURE_FLAGS]
    sizes_stated += [config.get("max_cudagraph_capture_size")]
    sizes = config.get("cudagraph_capture_sizes")
    sizes_stated += (
        [max(sizes)] if isinstance(sizes, list) and sizes and all(type(n) is int for n in sizes) else []
    )
    return next((int(str(value)) for value in sizes_stated if str(value).isdecimal()), None)


@lint(
    "graph-range",
    "warning",
    "CUDA graphs end below the batches that will run",
    source="SafeAILab/EAGLE#298, sgl-project/sglang#5274; vLLM config/vllm.py",
)
def graph_range(subject: Subject) -> Iterator[Hit]:
    tokens = subject.verified_tokens
    if tokens is None:
        return
    if subject.engine == "vllm":
        yield from _vllm_range(subject, tokens)
    elif subject.engine == "sglang":
        most = subject.settings.get("--cuda-graph-max-bs")
        yield from _requests(subject, "--cuda-graph-max-bs", most)
    else:
        graphs = subject.settings.get("cuda_graph_config")
        most = graphs.get("max_batch_size") if isinstance(graphs, dict) else None
        yield from _requests(subject, "cuda_graph_config.max_batch_size", most)


def _vllm_range(subject: Subject, tokens: int) -> Iterator[Hit]:
    sizes_stated = _vllm_tokens(subject)
    if sizes_stated is not None:
        batch, most = subject.running or subject.max_num_seqs, sizes_stated
    elif subject.running is not None:
        batch, most = subject.running, subject.preset.graph_grid(tokens, subject.max_num_seqs)[-1]
    else:
        return
    if batch * tokens > most:
        text = (
            f"graphs end at {most} tokens, and {batch} requests × {tokens} tokens are {batch * tokens}: "
            f"above {most // tokens} requests a step runs without graphs"
        )
        fix = f"--max-cudagraph-capture-size {batch * tokens}, or K 0 above {most // tokens} requests"
        yield Hit(subject.place("--max-cudagraph-capture-size", "workload.arrivals.concurrency"), text, fix)


def _requests(subject: Subject, name: str, value: Any) -> Iterator[Hit]:
    """Of engines whose graphs count requests."""
    batch = subject.running or subject.stated_max_num_seqs
    if not str(value).isdecimal():
        sizes = subject.preset.draft_graph_sizes or subject.preset.graph_sizes
        most = sizes[-1] if subject.running is not None and not isinstance(sizes, str) else None
    else:
        most = int(str(value))
    alone = most is not None and str(value).isdecimal() and batch is None
    if most is not None and batch is not None and batch > most:
        text = f"graphs end at {most} requests, and {batch} run"
        yield Hit(subject.place(name, "workload.arrivals.concurrency"), text, f"{name} {batch}")
    elif alone and most is not None and most < 8:
        text = f"graphs end at {most} requests, and nothing limits the running requests"
        yield Hit(name, text, f"{name} as large as the batches that run, or a limit of running requests")


@lint(
    "eager",
    "warning",
    "CUDA graphs are switched off",
    source="vllm-project/vllm#16937; docs/claims.md",
)
def eager(subject: Subject) -> Iterator[Hit]:
    fix = "without it: a step launches thousands of kernels, and every draft pass adds its own"
    if subject.engine == "vllm" and is_on(subject.settings, "--enforce-eager"):
        yield Hit("--enforce-eager", "every step runs without CUDA graphs", fix)
    elif subject.engine == "vllm" and is_on(subject.config, "enforce_eager"):
        yield Hit("enforce_eager", "the drafter runs without CUDA graphs", fix)
    elif subject.engine == "sglang" and is_on(subject.settings, "--disable-cuda-graph"):
        yield Hit("--disable-cuda-graph", "every step runs without CUDA graphs", fix)
    elif subject.engine == "trtllm" and subject.settings.get("cuda_graph_config", "default") is None:
        yield Hit("cuda_graph_config", "null switches CUDA graphs off", fix)


@lint(
    "piecewise-schedule",
    "info",
    "A K schedule turns full CUDA graphs into piecewise ones",
    engine="vllm",
    applies="vLLM from 0.22, old model runner",
    source="vLLM config/vllm.py; vllm-project/vllm#49548",
)
def piecewise_schedule(subject: Subject) -> Iterator[Hit]:
    runner = str(subject.settings.get("$VLLM_USE_V2_MODEL_RUNNER", "0"))
    if subject.is_launch and SCHEDULE_KEY in subject.config and runner != "1":
        text = "with the old model runner it costs the full graphs of decode steps: 14 % in one report"
        yield Hit(SCHEDULE_KEY, text, "VLLM_USE_V2_MODEL_RUNNER=1 in the environment, and measure both")


@lint(
    "flashinfer-graphs",
    "warning",
    "FlashInfer verifies without full CUDA graphs",
    engine="vllm",
    before=(0, 28),
    source="vllm-project/vllm#49547, #50439",
)
def flashinfer_graphs(subject: Subject) -> Iterator[Hit]:
    names = ("--attention-backend", "$VLLM_ATTENTION_BACKEND")
    for name in names:
        chosen = str(subject.settings.get(name, "")).upper()
        if subject.config and chosen == "FLASHINFER":
            text = "with speculation, FlashInfer falls back to piecewise graphs: -16 % in the report"
            yield Hit(name, text, "FLASH_ATTN, or vLLM 0.28 or newer")
