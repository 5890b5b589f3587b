"""What the calibration asks of engine cores: passes of plain decoding, and the host's work on stubs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibration.engine_loop.checkpoints import TARGET_LAYERS, checkpoint

BATCHES = (1, 2, 4, 8, 16, 32)
CONTEXTS = (40, 128, 256)
QUERIES = (6, 5, 4, 3, 2, 1)
"""Tokens that a request reads a step; more than one is a prompt in chunks, the shape of a verify pass.

No number is left out: kernels change from one to the next, and more tokens may take less time.
"""
PROMPTS = ((1, 16), (1, 64), (1, 128), (1, 256), (4, 64), (8, 64), (16, 64), (32, 64))
"""(prompts of a step, tokens of each), for prefill."""
SMALL_LAYERS = 6
"""A second network of fewer layers: the difference is what a layer costs, the rest what a pass costs."""
SMALL_BATCHES = (1, 4, 16, 32)
HEAD_ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
STEPS, PROMPT_STEPS, STUB_STEPS = 7, 3, 12
STUB_BATCHES = (1, 4, 8, 16, 32)
STUB_CONTEXT = 64
HOST_DRAFT_LENGTHS = (1, 5)
"""Draft lengths of the stubs; what a pass adds is the difference between them."""
LOOKUP = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}


def _point(batch: int, context: int, queries: tuple[int, ...], **more: int) -> dict[str, Any]:
    return {"batch": batch, "context": context, "queries": queries, **more}


def target_passes(folder: Path) -> dict[str, Any]:
    """The request for passes of the target."""
    grid = [_point(batch, context, QUERIES) for context in CONTEXTS for batch in BATCHES]
    prompts = [_point(batch, 0, (tokens,), steps=PROMPT_STEPS) for batch, tokens in PROMPTS]
    return {
        "model": str(checkpoint(folder, TARGET_LAYERS)),
        "steps": STEPS,
        "points": [*grid, *prompts],
        "head_rows": list(HEAD_ROWS),
    }


def small_passes(folder: Path) -> dict[str, Any]:
    """The request for passes of the first layers, decoding plainly by themselves."""
    grid = [_point(batch, CONTEXTS[0], (1,)) for batch in SMALL_BATCHES]
    return {
        "model": str(checkpoint(folder, SMALL_LAYERS)),
        "steps": STEPS,
        "points": grid,
    }


def host_request(
    folder: Path, speculative: dict[str, Any] | None, batches: tuple[int, ...] = STUB_BATCHES
) -> dict[str, Any]:
    """The request for the host's work with networks that return at once; every draft is accepted."""
    emitted = 1 + (speculative["num_speculative_tokens"] if speculative else 0)
    points = [_point(batch, STUB_CONTEXT, (1,), emitted=emitted) for batch in batches]
    return {
        "model": str(checkpoint(folder, TARGET_LAYERS)),
        "stub": True,
        "speculative": speculative,
        "steps": STUB_STEPS,
        "points": points,
        "head_rows": list(batches),
    }


def host_methods(folder: Path, draft_lengths: tuple[int, ...] = HOST_DRAFT_LENGTHS) -> dict[str, Any]:
    """Name → speculative configuration of every stub."""
    small = str(checkpoint(folder, SMALL_LAYERS))
    methods: dict[str, Any] = {"plain": None, "ngram-3": {**LOOKUP, "num_speculative_tokens": 3}}
    for count in draft_lengths:
        methods[f"draft-{count}"] = {"method": "draft_model", "model": small, "num_speculative_tokens": count}
    return methods
