"""Sampling: the operations of a draft pass on its logits, and those of a round on the logits of verification.

Both follow a head, which evicts everything else from the caches of a CPU, including code.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from calibration.decoder.sampling import accept_greedy, accept_sampled, greedy, sample
from calibration.microbench.lab import Lab
from calibration.microbench.point import BenchPoint
from calibration.microbench.subject import BenchSubject, ShapeGrid
from calibration.microbench.timing import Work
from calibration.sampling.distributions import filtered_distribution
from calibration.sampling.protocols import Sampling

_BF16, _FP32 = 2.0, 4.0
_TEMPERATURE = 1.0
_TOP_P = Sampling(temperature=_TEMPERATURE, top_p=0.9)


def sampler_points(subject: BenchSubject, grid: ShapeGrid) -> Iterator[BenchPoint]:
    """Choosing a token per row, by rows; accepting K drafts per sequence, by sequences (K = 0: plain
    decoding).
    """
    vocab = subject.network.head_features
    for rows in grid.rows:
        yield from (_choose(op, rows, vocab) for op in ("greedy", "sample", "top_p"))
    for batch in grid.batches:
        for drafts in grid.drafts:
            yield from (_accept(op, batch, drafts, vocab) for op in ("accept_greedy", "accept_sampled"))


def _choose(op: str, rows: int, vocab: int) -> BenchPoint:
    def prepare(lab: Lab) -> Work:
        logits, uniforms = lab.shared("logits", rows, vocab), lab.uniforms(rows)
        if op == "greedy":
            return Work(lambda _: greedy(logits), before=lab.empty_caches)
        if op == "top_p":
            return Work(lambda _: filtered_distribution(logits, _TOP_P), before=lab.empty_caches)
        draft_distributions = lab.cold("distributions", rows, vocab, dtype="fp32")
        return Work(
            lambda i: _drawn(logits, uniforms, draft_distributions[i % len(draft_distributions)]),
            len(draft_distributions),
            before=lab.empty_caches,
        )

    logit_bytes = _BF16 * rows * vocab
    moved = logit_bytes if op == "greedy" else logit_bytes + 2 * _FP32 * rows * vocab
    return BenchPoint(
        "sampler", op, {"rows": rows, "vocab": vocab}, "bf16", moved, 0.0, 12.0 * rows * vocab, prepare
    )


def _drawn(logits: Tensor, uniforms: Tensor, stored: Tensor) -> Tensor:
    """A draft of each row; its distribution is stored for verification."""
    tokens, distributions = sample(logits, uniforms, _TEMPERATURE)
    stored.copy_(distributions)
    return tokens


def _accept(op: str, batch: int, drafts: int, vocab: int) -> BenchPoint:
    rows = batch * (drafts + 1)

    def prepare(lab: Lab) -> Work:
        logits = lab.shared("logits", batch, drafts + 1, vocab)
        proposed = lab.tokens(batch, drafts, vocab=vocab)
        if op == "accept_greedy":
            return Work(lambda _: accept_greedy(logits, proposed), before=lab.empty_caches)
        uniforms = lab.uniforms(batch, drafts + 1)
        # Any values serve as distributions: the time does not depend on which drafts are accepted.
        none = [logits[:, :0].float()]
        distributions = lab.cold("distributions", batch, drafts, vocab, dtype="fp32") if drafts else none
        return Work(
            lambda i: accept_sampled(
                logits, distributions[i % len(distributions)], proposed, uniforms, _TEMPERATURE
            ),
            len(distributions),
            before=lab.empty_caches,
        )

    shape = {"batch": batch, "draft_length": drafts, "vocab": vocab}
    moved = _BF16 * rows * vocab
    if op == "accept_sampled":
        moved += _FP32 * (rows + batch * drafts) * vocab
    return BenchPoint("sampler", op, shape, "bf16", moved, 0.0, 16.0 * rows * vocab, prepare)
