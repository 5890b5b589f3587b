"""Whole passes against the sum of their parts: what was timed, and never enters a fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from calibration.fit.in_place import kind_of, layer_us
from calibration.fit.points import US, rounded
from calibration.measurements import Measurement, Measurements
from simulator.costs.profiles import Profile


def checks(measurements: Measurements, profile: Profile) -> list[dict[str, Any]]:
    """Stacks of layers with head, and loops of draft passes: measured, predicted, error in percent."""
    return [*_stacks(measurements, profile), *_loops(measurements, profile)]


def _stacks(measurements: Measurements, profile: Profile) -> Iterator[dict[str, Any]]:
    for point in measurements.of("stack"):
        shape = point.shape
        tokens = shape["batch"] * shape["queries"]
        us = shape["layers"] * layer_us(
            kind_of(point), shape["batch"], shape["queries"], shape["context"], profile
        )
        us += _preparation_us(profile, tokens, shape["hidden"])
        us += _head_us(profile, measurements, shape["rows"], shape["hidden"])
        yield _check(f"stack {point.op}", point, us)


def _loops(measurements: Measurements, profile: Profile) -> Iterator[dict[str, Any]]:
    """Draft loops run operator by operator: each pass is layers, preparation, head and a greedy choice."""
    layers_of = {_heads(p): kind_of(p) for p in measurements.of("layer")}
    for point in measurements.of("draft_loop", "eager"):
        shape = point.shape
        kind = layers_of.get(_heads(point))
        sampler = profile.draft_sampler("greedy")
        if kind is None or sampler is None or measurements.device.kind == "cuda":
            continue
        batch, vocab = shape["batch"], _vocab(measurements, shape["hidden"])
        us = shape["layers"] * layer_us(kind, batch, 1, shape["context"], profile)
        us += _preparation_us(profile, batch, shape["hidden"])
        us += _head_us(profile, measurements, batch, shape["hidden"])
        us += float(sampler.time_us(batch, vocab))
        yield _check("draft loop", point, us * shape["passes"])


def _heads(point: Measurement) -> tuple[int, ...]:
    return tuple(point.shape[name] for name in ("hidden", "heads", "kv_heads", "head_dim"))


def _vocab(measurements: Measurements, hidden: int) -> int:
    found = [p.shape["vocab"] for p in measurements.of("head") if p.shape["hidden"] == hidden]
    return found[0] if found else 0


def _head_us(profile: Profile, measurements: Measurements, rows: int, hidden: int) -> float:
    vocab = _vocab(measurements, hidden)
    return float(profile.gemm("bf16").time_us(vocab, hidden, rows)) if vocab else 0.0


def _preparation_us(profile: Profile, tokens: int, hidden: int) -> float:
    preparation = profile.preparation()
    return 0.0 if preparation is None else float(preparation.time_us(tokens, hidden))


def _check(name: str, point: Measurement, us: float) -> dict[str, Any]:
    return {
        "name": name,
        "shape": dict(point.shape),
        "measured_s": rounded(point.seconds),
        "predicted_s": rounded(us / US),
        "error_percent": round(100 * (us / US / point.seconds - 1), 2),
    }
