"""A serving engine whose times are known functions, as the scripts inside the engine would report them."""

from __future__ import annotations

from typing import Any

from calibration.engine_loop.calibration_points import (
    BATCHES,
    CONTEXTS,
    HEAD_ROWS,
    HOST_DRAFT_LENGTHS,
    PROMPTS,
    QUERIES,
    SMALL_BATCHES,
    SMALL_LAYERS,
    STUB_BATCHES,
)
from calibration.engine_loop.checkpoints import TARGET_LAYERS

PASS_S, LAYER_S, LAYER_TOKEN_S = 1e-3, 0.4e-3, 10e-6
HEAD_S, HEAD_ROW_S, CHOICE_ROW_S, VERIFY_ROW_S = 4e-3, 20e-6, 0.2e-3, 50e-6
PROPOSE_S, PROPOSE_PASS_S = 0.3e-3, 0.25e-3


def attention_s(batch: int, context: float, queries: int) -> float:
    """Seconds of attention of one layer."""
    return 20e-6 + 0.2e-6 * batch * context + 1e-6 * batch * queries


def prefill_s(prompts: int, tokens: int) -> float:
    """The same where prompts are read."""
    return 20e-6 + 4e-9 * prompts * tokens**2 / 2 + 2e-6 * prompts * tokens


def rest_s(tokens: int, layers: int) -> float:
    """Seconds of a forward without attention."""
    return PASS_S + layers * (LAYER_S + LAYER_TOKEN_S * tokens)


def head_s(rows: int) -> float:
    """Seconds of the head."""
    return HEAD_S + HEAD_ROW_S * rows


def _point(batch: int, context: float, queries: int, layers: int) -> dict[str, Any]:
    each_s = attention_s(batch, context, queries) if context else prefill_s(batch, queries)
    attention = layers * each_s
    forward = rest_s(batch * queries, layers) + attention
    seconds = {"forward": forward, "attention": attention, "head": head_s(batch)}
    return {"batch": batch, "context": context, "queries": queries, "seconds": seconds}


def target_answer() -> dict[str, Any]:
    """What passes of the target report."""
    grid = [_point(b, float(c), q, TARGET_LAYERS) for c in CONTEXTS for b in BATCHES for q in QUERIES]
    prompts = [_point(batch, 0, tokens, TARGET_LAYERS) for batch, tokens in PROMPTS]
    heads = [{"rows": rows, "head_s": head_s(rows), "argmax_s": CHOICE_ROW_S * rows} for rows in HEAD_ROWS]
    return {"points": [*grid, *prompts], "heads": heads}


def small_answer() -> dict[str, Any]:
    """What passes of the first layers report."""
    grid = [_point(batch, float(CONTEXTS[0]), 1, SMALL_LAYERS) for batch in SMALL_BATCHES]
    return {"points": grid, "heads": []}


def host_answers() -> dict[str, Any]:
    """What the stubs report: verifying by rows, proposing by passes, prompt lookup by batch."""
    answers = {"plain": _stub(0, 0.0, 0.0), "ngram-3": _stub(4, 0.1e-3, 2e-6)}
    for count in HOST_DRAFT_LENGTHS:
        answers[f"draft-{count}"] = _stub(count + 1, PROPOSE_S + count * PROPOSE_PASS_S, count * CHOICE_ROW_S)
    return answers


def _stub(rows: int, propose_s: float, propose_each_s: float) -> dict[str, Any]:
    points = []
    for batch in STUB_BATCHES:
        sampler_s = VERIFY_ROW_S * batch * max(rows, 1)
        seconds = {"sampler": sampler_s, "propose": propose_s + propose_each_s * batch, "schedule": 1e-4}
        seconds["step"] = sum(seconds.values())
        points.append({"batch": batch, "context": 64.0, "queries": 1, "seconds": seconds})
    heads = [{"rows": batch, "head_s": 1e-4, "argmax_s": CHOICE_ROW_S * batch} for batch in STUB_BATCHES]
    return {"points": points, "heads": heads, "python_unit_s": 0.04}
