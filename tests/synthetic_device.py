"""A device whose operators are known exactly, and what a bench would read off it, noise included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from calibration.measurements import DeviceNotes, Measurement, Measurements
from simulator.costs.network import network
from simulator.costs.ops.attention import AttentionForm
from simulator.costs.ops.gemm import GemmForm
from simulator.models.catalogue import load_model

NOTES = DeviceNotes(
    kind="cpu",
    name="a synthetic CPU",
    gpu=None,
    count=1,
    memory_bytes=2**34,
    cache_bytes=2**25,
    threads=2,
    driver="",
    torch="2.13.0",
    platform="none",
)
BANDWIDTH, PEAK = 2e10, 4e11
MODEL = load_model("smollm2-135m-instruct")
NETWORK = network(MODEL)
HEADS = {"heads": 9, "kv_heads": 3, "head_dim": 64}
LAYER = {"hidden": 576, **HEADS, "intermediate": 1536}
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128)
STEPS = [(b, q) for b in (1, 2, 4, 8, 16) for q in (1, 2, 3, 5, 8)]


_GEMM = GemmForm(BANDWIDTH, PEAK, 2.0, 2.0, 22.0, 0.8, 0.6, 1.4, 0.0, tile_tokens=1)
_ATTENTION = AttentionForm(BANDWIDTH, PEAK, 2.0, 3.0, 14.0, 0.45, 0.06, 1.5)


@dataclass(frozen=True)
class Device:
    """The truth, in µs: forms of matrices and attention, lines for the rest."""

    gemm: GemmForm = _GEMM
    attention: AttentionForm = _ATTENTION
    rest: tuple[float, float] = (150.0, 6.0)
    first_layer_us: float = 120.0
    preparation: tuple[float, float] = (60.0, 1.0)
    samplers: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {
            "greedy": (20.0, 160.0),
            "sample": (30.0, 210.0),
            "accept_greedy": (30.0, 165.0),
            "accept_sampled": (60.0, 260.0),
        }
    )

    per_sequence: Mapping[str, float] = field(
        default_factory=lambda: {"accept_greedy": 0.0, "accept_sampled": 120.0}
    )

    def matrices_us(self, tokens: int) -> float:
        """Of one layer."""
        return sum(
            matrix.count / 30 * float(self.gemm.time_us(matrix.n, matrix.k, tokens))
            for matrix in NETWORK.matrices
        )

    def attention_us(self, batch: int, queries: int, context: int) -> float:
        return float(self.attention.time_us(batch, context, 3, 64, queries))

    def layer_us(self, batch: int, queries: int, context: int) -> float:
        tokens = batch * queries
        return self.matrices_us(tokens) + self.attention_us(batch, queries, context) + line(self.rest, tokens)

    def prepare_us(self, tokens: int) -> float:
        """Before the layers, and what the first of them takes more."""
        return line(self.preparation, tokens) + self.first_layer_us

    def accept_us(self, op: str, batch: int, rows: int) -> float:
        return line(self.samplers[op], rows) + self.per_sequence[op] * batch

    def head_us(self, rows: int) -> float:
        return float(self.gemm.time_us(MODEL.vocab_size, 576, rows))

    def step_us(self, batch: int, queries: int, context: int, sampler: str = "accept_greedy") -> float:
        """A whole pass of the target, its tokens accepted."""
        tokens = batch * queries
        layers = MODEL.layer_count * self.layer_us(batch, queries, context)
        return (
            layers + self.prepare_us(tokens) + self.head_us(tokens) + self.accept_us(sampler, batch, tokens)
        )

    def points(self) -> Iterator[tuple[str, str, dict[str, int], float, float, float]]:
        """(bench, op, shape, bytes, FLOPs, µs) of everything that a session times."""
        for op, arrays in (("copy", 2), ("triad", 3)):
            moved = arrays * 2.0**26
            yield "memory", op, {"bytes": 2**26}, moved, 0.0, moved / BANDWIDTH * 1e6
        for matrix in (*NETWORK.matrices, NETWORK.head):
            for m in TOKENS:
                shape = {"n": matrix.n, "k": matrix.k, "m": m}
                flops = 2.0 * matrix.n * matrix.k * m
                yield (
                    "linear",
                    matrix.name,
                    shape,
                    1.0,
                    flops,
                    float(self.gemm.time_us(matrix.n, matrix.k, m)),
                )
        for batch, queries in STEPS:
            step = {"batch": batch, "queries": queries}
            for context in (192, 384, 768, 1280):
                shape = step | {"context": context} | HEADS
                yield "attention", "decode", shape, 1.0, 1.0, self.attention_us(batch, queries, context)
            for context in (192, 768):
                us = self.layer_us(batch, queries, context)
                yield "layer", "in_place", step | {"context": context} | LAYER, 1.0, 1.0, us
                yield (
                    "first_layer",
                    "in_place",
                    step | {"context": context} | LAYER,
                    1.0,
                    1.0,
                    us + self.first_layer_us,
                )
            yield (
                "prepare",
                "in_place",
                step | {"context": 768} | LAYER,
                1.0,
                0.0,
                line(self.preparation, batch * queries),
            )
        for rows in TOKENS:
            shape = {"rows": rows, "hidden": 576, "vocab": MODEL.vocab_size}
            yield "head", "in_place", shape, 1.0, 1.0, self.head_us(rows)
            for op in ("greedy", "sample"):
                shape = {"rows": rows, "vocab": MODEL.vocab_size}
                yield "sampler", op, shape, 1.0, 0.0, line(self.samplers[op], rows)
        for batch, queries in ((1, 1), (4, 4)):
            size = {"batch": batch, "queries": queries, "context": 640} | LAYER
            size |= {"layers": 10, "rows": batch * queries, "vocab": MODEL.vocab_size}
            us = 10 * self.layer_us(batch, queries, 640) + self.prepare_us(batch * queries)
            us += self.head_us(batch * queries)
            yield "stack", "plain" if queries == 1 else "verify", size, 1.0, 1.0, us
        for batch in (1, 4):
            size = {"batch": batch, "passes": 3, "context": 640, "layers": 2, "hidden": 576} | HEADS
            us = 2 * self.layer_us(batch, 1, 640) + self.prepare_us(batch) + self.head_us(batch)
            us += line(self.samplers["greedy"], batch)
            yield "draft_loop", "eager", size | {"vocab": MODEL.vocab_size}, 1.0, 1.0, 3 * us
        for op in ("accept_greedy", "accept_sampled"):
            for batch in (1, 2, 4, 8, 16):
                for drafts in (0, 1, 2, 4, 7):
                    shape = {"batch": batch, "draft_length": drafts, "vocab": MODEL.vocab_size}
                    yield "sampler", op, shape, 1.0, 0.0, self.accept_us(op, batch, batch * (drafts + 1))


def line(of: tuple[float, float], x: float) -> float:
    return of[0] + of[1] * x


def measured(
    device: Device | None = None,
    noise: float = 0.01,
    seed: int = 0,
    rounds: int = 5,
    keep: Callable[[str, str, Mapping[str, int]], bool] = lambda *_: True,
    disturb: Callable[[str, str, Mapping[str, int]], float] = lambda *_: 1.0,
) -> Measurements:
    """What benches of `device` read: rounds off by `noise` (lognormal), times what `disturb` says."""
    rng = np.random.default_rng(seed)
    result = []
    for bench, op, shape, moved, flops, us in (device or Device()).points():
        if not keep(bench, op, shape):
            continue
        times = us * 1e-6 * np.exp(noise * rng.standard_normal(rounds)) * disturb(bench, op, shape)
        middle = float(np.median(times))
        figures = middle, 0.99 * middle, 1.01 * middle
        result.append(
            Measurement(bench, op, shape, "bf16", moved, flops, *figures, 50, tuple(float(x) for x in times))
        )
    session = {"begun": "2026-01-01T00:00:00", "clocks_before": {}, "clocks_after": {}, "notes": []}
    return Measurements(NOTES, tuple(result), (session,))
