"""Checks of complete passes against the sum of their parts. The passes are timed, but no fit uses them."""

from __future__ import annotations

from typing import Any

from calibration.fit.in_place import OperatorShape, kind_of, layer_us, one_layer
from calibration.fit.parts import US, rounded
from calibration.measurements import Measurement, Measurements
from simulator.costs.profiles import Profile


def checks(measurements: Measurements, profile: Profile) -> list[dict[str, Any]]:
    """Stacks of layers with head, and loops of draft passes: measured, predicted, error in per cent.

    Only layers and heads with measured matrices are checked.
    """
    parts = _Parts(measurements, profile)
    results = [_check(f"stack {p.op}", p, parts.stack_us(p)) for p in measurements.of("stack")]
    # If there are graphs, the loop without a graph would only measure launches.
    op = "graph" if measurements.of("draft_loop", "graph") else "eager"
    results += [_check("draft loop", p, parts.loop_us(p)) for p in measurements.of("draft_loop", op)]
    return [check for check in results if check is not None]


class _Parts:
    """Sums of a profile's parts; None if one of them was not measured."""

    def __init__(self, measurements: Measurements, profile: Profile) -> None:
        self.profile = profile
        self.shapes = {tuple(shape) for shape in profile.gemm("bf16").shapes.tolist()}
        self.kinds = {_heads(p): kind_of(p) for p in measurements.of("layer")}
        self.heads = {(p.shape["hidden"], p.shape["vocab"]) for p in measurements.of("head")}

    def stack_us(self, point: Measurement) -> float | None:
        """Preparation, layers and head."""
        shape = point.shape
        step = shape["batch"], shape["queries"], shape["context"]
        return self._pass_us(point, kind_of(point), step, shape["rows"])

    def loop_us(self, point: Measurement) -> float | None:
        """Passes of one token, each with a greedy choice."""
        shape, sampler = point.shape, self.profile.draft_sampler("greedy")
        kind, vocab = self.kinds.get(_heads(point)), self._vocab(point)
        if kind is None or vocab is None or sampler is None:
            return None
        pass_us = self._pass_us(point, kind, (shape["batch"], 1, shape["context"]), shape["batch"])
        if pass_us is None:
            return None
        return shape["passes"] * (pass_us + float(sampler.time_us(shape["batch"], vocab)))

    def _pass_us(
        self, point: Measurement, kind: OperatorShape, step: tuple[int, int, int], rows: int
    ) -> float | None:
        hidden, vocab = point.shape["hidden"], self._vocab(point)
        matrices = {(float(matrix.n), float(matrix.k)) for matrix in one_layer(kind).matrices}
        if vocab is None or not matrices | {(float(vocab), float(hidden))} <= self.shapes:
            return None
        batch, queries, context = step
        us = point.shape["layers"] * layer_us(kind, batch, queries, context, self.profile)
        preparation = self.profile.preparation(hidden)
        us += 0.0 if preparation is None else float(preparation.time_us(batch * queries, hidden))
        return us + float(self.profile.gemm("bf16").time_us(vocab, hidden, rows))

    def _vocab(self, point: Measurement) -> int | None:
        """Vocabulary of the head, from the point, or from the only measured head of its hidden size."""
        if "vocab" in point.shape:
            return point.shape["vocab"]
        vocabs = [vocab for hidden, vocab in self.heads if hidden == point.shape["hidden"]]
        return vocabs[0] if len(vocabs) == 1 else None


def _heads(point: Measurement) -> OperatorShape:
    return tuple(point.shape[name] for name in ("hidden", "heads", "kv_heads", "head_dim"))


def _check(name: str, point: Measurement, us: float | None) -> dict[str, Any] | None:
    if us is None:
        return None
    return {
        "name": name,
        "shape": dict(point.shape),
        "measured_s": rounded(point.seconds),
        "predicted_s": rounded(us / US),
        "error_percent": round(100 * (us / US / point.seconds - 1), 2),
    }
