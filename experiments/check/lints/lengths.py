"""Draft lengths, trees and schedules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from calibration.launch.options import SCHEDULE_KEY
from experiments.check.lint import Hit, is_on
from experiments.check.lints import lint
from experiments.check.subject import Subject

SEQUENTIAL = ("eagle", "eagle3", "mtp", "draft_model")
"""Methods whose drafts are made one pass after another."""
LONGEST_SEQUENTIAL = 7
RARELY_ACCEPTED = 0.05
MOST_TREE_TOKENS = 256
"""Tokens of all trees of a step, about where an H100 begins to compute rather than read."""
LARGE_TREE = 16
_NEAR = 0.25
"""A boundary within this fraction of the load is crossed all the time."""


@lint(
    "k-too-large",
    "warning",
    "K is longer than its last drafts are worth",
    source="vllm-project/vllm#32628, #17984; sgl-project/sglang#22246",
)
def k_too_large(subject: Subject) -> Iterator[Hit]:
    length = subject.draft_length
    if length is None or subject.method not in SEQUENTIAL or subject.tree is not None:
        return
    place = subject.place("num_speculative_tokens", "speculation.ARM.draft_length")
    survival = _survival(subject, length)
    if survival is not None and survival[-1] < RARELY_ACCEPTED:
        worth = sum(rate >= RARELY_ACCEPTED for rate in survival)
        text = (
            f"draft {length} is accepted in {survival[-1]:.1%} of the rounds, and every round pays its pass"
        )
        yield Hit(place, text, f"K {max(worth, 1)} or less")
    elif survival is None and length > LONGEST_SEQUENTIAL:
        text = f"{length} drafts are as many passes in a row; published runs gain nothing beyond 6"
        yield Hit(place, text, "K 3, or parallel drafting")


def _survival(subject: Subject, length: int) -> list[float] | None:
    """The share of rounds that accept each position, where the scenario states the acceptance."""
    variant = subject.variant
    if subject.scenario is None or variant is None or "acceptance" not in variant.model_fields_set:
        return None
    if variant.acceptance.model not in ("geometric", "positional", "decay", "fixed"):
        return None
    from simulator.acceptance import acceptance_model

    model = acceptance_model(variant.acceptance, length, subject.scenario.base_dir)
    rates = model.survival(length)
    return [float(rate) for rate in rates]


@lint(
    "tree-with-batch",
    "warning",
    "A tree of drafts and many requests",
    source="SafeAILab/EAGLE#298, sgl-project/sglang#5274",
)
def tree_with_batch(subject: Subject) -> Iterator[Hit]:
    nodes = subject.verified_tokens
    if subject.tree is None or nodes is None:
        return
    place = subject.place("--speculative-num-draft-tokens", "speculation.ARM.tree")
    batch = subject.running or subject.stated_max_num_seqs
    if batch is not None and batch * nodes > MOST_TREE_TOKENS:
        text = f"{batch} requests × {nodes} nodes are {batch * nodes} tokens to verify, which takes time"
        yield Hit(place, text, f"a chain, or at most {max(MOST_TREE_TOKENS // batch, 1)} nodes")
    elif batch is None and nodes >= LARGE_TREE:
        text = f"{nodes} nodes for each request, and nothing limits the running requests"
        yield Hit(place, text, f"a chain, or at most {MOST_TREE_TOKENS // nodes} running requests")


@lint(
    "tree-unsupported",
    "error",
    "A tree in an engine that drafts chains only",
    engine="vllm",
    source="vLLM config/speculative.py",
)
def tree_unsupported(subject: Subject) -> Iterator[Hit]:
    if subject.tree is not None:
        yield Hit(subject.place("tree", "speculation.ARM.tree"), "vLLM drafts chains only", "tree: null")


@lint(
    "tree-bounds",
    "error",
    "Tree sizes that contradict one another",
    applies="SGLang, TensorRT-LLM",
    source="TensorRT-LLM llmapi/llm_args.py; SGLang server_args.py",
)
def tree_bounds(subject: Subject) -> Iterator[Hit]:
    config = subject.config
    if subject.engine == "trtllm" and config.get("use_dynamic_tree"):
        depth, total, width = (
            config.get(key) for key in ("max_draft_len", "max_total_draft_tokens", "dynamic_tree_max_topK")
        )
        if not (isinstance(depth, int) and isinstance(total, int) and isinstance(width, int)):
            return
        if not depth <= total <= width * depth:
            text = f"{total} draft tokens in a tree of depth {depth} and width {width}"
            yield Hit("max_total_draft_tokens", text, f"{depth} to {width * depth}")
    if subject.engine == "sglang":
        steps, width, tokens = (
            int(str(config.get(key))) if str(config.get(key)).isdecimal() else None
            for key in ("num_steps", "eagle_topk", "num_draft_tokens")
        )
        if width == 1 and steps is not None and tokens is not None and tokens != steps + 1:
            text = f"a chain of {steps} steps has {steps + 1} tokens with the root, not {tokens}"
            yield Hit("--speculative-num-draft-tokens", text, str(steps + 1))


@lint(
    "schedule-invalid",
    "error",
    "A K schedule that the engine refuses",
    engine="vllm",
    applies="vLLM from 0.22",
    source="vLLM v1/spec_decode/dynamic/utils.py",
)
def schedule_invalid(subject: Subject) -> Iterator[Hit]:
    schedule = subject.config.get(SCHEDULE_KEY)
    if schedule is None:
        return
    fix = "[[1, 8, 4], [9, 32, 2], [33, 256, 0]]: first batch, last batch, K"
    is_list = isinstance(schedule, list) and schedule
    if not is_list or not all(
        isinstance(row, list) and len(row) == 3 and all(type(part) is int for part in row) for row in schedule
    ):
        yield Hit(SCHEDULE_KEY, "it is no list of three whole numbers each", fix)
        return
    rows = sorted(schedule)
    if rows[0][0] != 1 or any(low > high or k < 0 for low, high, k in rows):
        yield Hit(SCHEDULE_KEY, "ranges must start at batch 1, and each end at its start or above", fix)
    elif any(following[0] <= row[1] for row, following in pairwise(rows)):
        yield Hit(SCHEDULE_KEY, "ranges overlap", fix)


@lint(
    "schedule-boundary",
    "warning",
    "K changes within the batches that run",
    source="vllm-project/vllm#49548",
)
def schedule_boundary(subject: Subject) -> Iterator[Hit]:
    rows, running = subject.rows, subject.running
    if rows is None or running is None:
        return
    for row in rows[1:]:
        if isinstance(row[0], int) and abs(row[0] - 0.5 - running) <= _NEAR * running:
            text = f"K changes to {row[2]} at {row[0]} requests, and about {running} run: it keeps changing"
            fix = f"a boundary below {(1 - _NEAR) * running:.0f} or above {(1 + _NEAR) * running:.0f}"
            yield Hit(subject.place(SCHEDULE_KEY, "speculation.ARM.draft_length"), text, fix)


@lint(
    "schedule-data-parallel",
    "error",
    "A K schedule that data parallelism switches off",
    engine="vllm",
    applies="vLLM from 0.22",
    source="vLLM config/vllm.py",
)
def schedule_data_parallel(subject: Subject) -> Iterator[Hit]:
    groups = subject.data.get("hardware", {}).get("attention_dp", 1)
    if subject.rows is not None and isinstance(groups, int) and groups > 1:
        text = (
            f"vLLM ignores the schedule with {groups} data-parallel groups and drafts num_speculative_tokens"
        )
        fix = "one K for all batches, or replicas in place of data parallelism"
        yield Hit(subject.place(SCHEDULE_KEY, "speculation.ARM.draft_length"), text, fix)


@lint(
    "adaptive-unsupported",
    "error",
    "Adaptive drafts with a method or tree that has none",
    engine="sglang",
    source="SGLang server_args.py 0.5.23",
)
def adaptive_unsupported(subject: Subject) -> Iterator[Hit]:
    if not is_on(subject.settings, "--speculative-adaptive"):
        return
    algorithm = str(subject.config.get("algorithm", "")).upper()
    if algorithm not in ("EAGLE", "EAGLE3") or subject.tree is not None:
        fix = "--speculative-algorithm EAGLE3 with --speculative-eagle-topk 1"
        yield Hit("--speculative-adaptive", "it works with chains of EAGLE and EAGLE3 only", fix)


@lint(
    "own-tree",
    "info",
    "SGLang chooses a tree without looking at the batch",
    engine="sglang",
    source="SGLang server_args.py 0.5.23",
)
def own_tree(subject: Subject) -> Iterator[Hit]:
    three = ("num_steps", "eagle_topk", "num_draft_tokens")
    if subject.method not in SEQUENTIAL or not subject.is_launch:
        return
    if not any(key in subject.config for key in three):
        text = f"SGLang chooses to verify {subject.verified_tokens} tokens for each request"
        fix = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
        yield Hit("--speculative-num-steps", text, fix)
