"""In-place timing: one decoder layer between its neighbours, with cold weights and a cold cache; the first
layer of a pass and its preparation; the head with its norm; and the whole stack, as a check of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from calibration.decoder.decoder import Cache, Decoder, PassInputs
from calibration.decoder.shape import DecoderShape
from calibration.microbench.lab import Lab
from calibration.microbench.point import BenchPoint
from calibration.microbench.subject import BenchSubject, ShapeGrid
from calibration.microbench.timing import Work

IN_A_ROW = 5
"""Layers that are timed together: a step is the sum of many layers, so that their mean counts, not their
median.
"""
_BF16 = 2.0


def layer_points(subject: BenchSubject, grid: ShapeGrid, on_gpu: bool) -> Iterator[BenchPoint]:
    """Layers and preparation by (batch, queries, context), head by rows. No fit uses `stack`."""
    shape = subject.decoder
    if shape is None or not subject.in_place:
        return
    steps = grid.steps(max(grid.tokens))
    for context in grid.layer_contexts:
        yield from (layer_point(shape, batch, queries, context) for batch, queries in steps)
    context = grid.layer_contexts[-1]
    if not on_gpu:
        yield from (first_layer_point(shape, batch, queries, context) for batch, queries in steps)
    yield from (prepare_point(shape, batch, queries, context) for batch, queries in steps)
    yield from (head_point(shape, rows) for rows in grid.tokens if rows <= max(b * q for b, q in steps))
    middle = len(grid.queries) // 2
    for batch in grid.batches[:3]:
        yield from (stack_point(shape, batch, grid.queries[i], context) for i in (0, middle))


def layer_point(shape: DecoderShape, batch: int, queries: int, context: int) -> BenchPoint:
    """A few layers in a row, each on the output of the last one."""

    def prepare(lab: Lab) -> Work:
        decoder, step, cache = _ready(lab, shape, batch, queries, context)
        hidden = step.hidden

        def run(i: int) -> None:
            nonlocal hidden
            for index in range(i * IN_A_ROW, (i + 1) * IN_A_ROW):
                layer_index = index % shape.layers
                hidden = decoder.layer(layer_index, hidden if layer_index else step.hidden, step, cache)

        return Work(run, shape.layers, calls=IN_A_ROW)

    return _point("layer", "in_place", shape, (batch, queries, context), prepare)


def first_layer_point(shape: DecoderShape, batch: int, queries: int, context: int) -> BenchPoint:
    """The first layer of a pass: on a CPU, the work before it has also evicted its code from the caches."""

    def prepare(lab: Lab) -> Work:
        decoder, step, cache = _ready(lab, shape, batch, queries, context)
        tokens, lengths = _tokens(lab, shape, batch, queries, context)

        def before() -> None:
            lab.empty_caches()
            decoder.prepare(tokens, lengths, context)

        return Work(
            lambda i: decoder.layer(i % shape.layers, step.hidden, step, cache), shape.layers, before=before
        )

    return _point("first_layer", "in_place", shape, (batch, queries, context), prepare)


def prepare_point(shape: DecoderShape, batch: int, queries: int, context: int) -> BenchPoint:
    """Embedding, positions, rope tables and mask of a pass, after the head of the previous pass."""

    def prepare(lab: Lab) -> Work:
        decoder = lab.decoder(shape)
        tokens, lengths = _tokens(lab, shape, batch, queries, context)
        return Work(lambda _: decoder.prepare(tokens, lengths, context), before=lab.empty_caches)

    return _point("prepare", "in_place", shape, (batch, queries, context), prepare)


def head_point(shape: DecoderShape, rows: int) -> BenchPoint:
    """The final norm and the head, on cold copies of the head."""
    size = {"rows": rows, "hidden": shape.hidden, "vocab": shape.vocab}

    def prepare(lab: Lab) -> Work:
        decoder = lab.decoder(shape)
        heads = lab.cold("weights", shape.vocab, shape.hidden)
        hidden = lab.random(rows, 1, shape.hidden)
        decoders = [_with_head(decoder, head) for head in heads]
        return Work(lambda i: decoders[i % len(decoders)].head(hidden), len(decoders))

    weights = _BF16 * shape.vocab * shape.hidden
    moved = weights + _BF16 * rows * (shape.vocab + shape.hidden)
    flops = 2.0 * rows * shape.vocab * shape.hidden
    return BenchPoint("head", "in_place", size, "bf16", moved, flops, 2 * weights, prepare)


def stack_point(shape: DecoderShape, batch: int, queries: int, context: int) -> BenchPoint:
    """Preparation, all layers and the head together, to compare with the sum of the parts."""

    def prepare(lab: Lab) -> Work:
        decoder, _, cache = _ready(lab, shape, batch, queries, context)
        tokens, lengths = _tokens(lab, shape, batch, queries, context)
        return Work(lambda _: decoder.head(decoder.forward(tokens, lengths, cache, context)))

    op = "plain" if queries == 1 else "verify"
    return _point("stack", op, shape, (batch, queries, context), prepare)


def _ready(
    lab: Lab, shape: DecoderShape, batch: int, queries: int, context: int
) -> tuple[Decoder, PassInputs, Cache]:
    decoder = lab.decoder(shape)
    cache = lab.cache(shape, batch, context)
    return decoder, decoder.prepare(*_tokens(lab, shape, batch, queries, context), context), cache


def _tokens(lab: Lab, shape: DecoderShape, batch: int, queries: int, context: int) -> tuple[Tensor, Tensor]:
    tokens = lab.tokens(batch, queries, vocab=shape.vocab)
    return tokens, torch.full((batch,), context - queries, device=tokens.device)


def _with_head(decoder: Decoder, head: Tensor) -> Decoder:
    return Decoder(decoder.shape, replace(decoder.weights, head=head))


def _point(
    bench: str, op: str, shape: DecoderShape, step: tuple[int, int, int], prepare: Callable[[Lab], Work]
) -> BenchPoint:
    """A point at (batch, queries, context), with the bytes and FLOPs of its work."""
    batch, queries, context = step
    rows, weights = batch * queries, _BF16 * shape.layer_parameters
    cached = 2 * _BF16 * batch * shape.kv_heads * context * shape.head_dim
    flops = rows * (weights + 4.0 * context * shape.heads * shape.head_dim)
    moved, head = weights + cached, _BF16 * shape.vocab * shape.hidden
    size = {"batch": batch, "queries": queries, "context": context, "hidden": shape.hidden}
    size |= {"heads": shape.heads, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
    size |= {"intermediate": shape.intermediate}
    if bench == "prepare":
        moved, flops = 2 * _BF16 * rows * shape.hidden, 0.0
    if bench == "stack":
        size |= {"layers": shape.layers, "rows": rows, "vocab": shape.vocab}
        moved, flops = shape.layers * moved + head, shape.layers * flops + rows * head
    return BenchPoint(bench, op, size, "bf16", moved, flops, cached, prepare)
