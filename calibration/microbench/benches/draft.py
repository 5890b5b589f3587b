"""The draft loop: K serial passes of a drafter, each on the last one's token, launched or in one graph."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from calibration.decoder.sampling import greedy
from calibration.decoder.shape import DecoderShape
from calibration.microbench.lab import Lab
from calibration.microbench.point import BenchPoint
from calibration.microbench.subject import BenchSubject, ShapeGrid
from calibration.microbench.timing import Work


def draft_points(subject: BenchSubject, grid: ShapeGrid, on_gpu: bool) -> Iterator[BenchPoint]:
    """Greedy drafts by (batch, passes); seconds of the whole loop. It is a check and not used by any fit."""
    if not subject.in_place or not subject.draft_layers:
        return
    for op in ("eager", "graph") if on_gpu else ("eager",):
        for batch in grid.batches:
            yield from (_loop(subject, op, batch, passes, grid.layer_contexts[0]) for passes in grid.passes)


def _loop(subject: BenchSubject, op: str, batch: int, passes: int, context: int) -> BenchPoint:
    shape = subject.decoder
    assert shape is not None
    layers = subject.draft_layers
    size = {"batch": batch, "passes": passes, "context": context, "layers": layers, "hidden": shape.hidden}
    size |= {"heads": shape.heads, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
    size |= {"vocab": shape.vocab}

    def prepare(lab: Lab) -> Work:
        decoder = lab.decoder(shape)
        cache = lab.cache(shape, batch, context)
        first = lab.tokens(batch, 1, vocab=shape.vocab)
        lengths = torch.full((batch,), context - passes, device=first.device)

        def run(i: int) -> None:
            tokens, cached_lengths = first, lengths
            for _ in range(passes):
                hidden = decoder.forward(
                    tokens, cached_lengths, cache, context, _layers_of_call(shape, i, layers)
                )
                tokens, cached_lengths = greedy(decoder.head(hidden)), cached_lengths + 1

        return Work(run, shape.layers, eager=op == "eager")

    weights = 2.0 * (layers * shape.layer_parameters + shape.vocab * shape.hidden)
    cached = 4.0 * batch * shape.kv_heads * context * shape.head_dim
    flops = passes * batch * weights
    return BenchPoint(
        "draft_loop", op, size, "bf16", passes * (weights + layers * cached), flops, cached, prepare
    )


def _layers_of_call(shape: DecoderShape, call: int, layers: int) -> list[int]:
    """Layers of a call: the same in all its passes, and other ones than in the call before."""
    return [(call * layers + i) % shape.layers for i in range(layers)]
