"""The part of a layer besides its matrices and attention, and the part of a pass besides its layers.

A layer is timed between its neighbours, with cold weights and a cold cache. The times of its matrices and its
attention by themselves are subtracted. The rest covers norms, rotary embedding, cache writes, activation, and
what operators cost more together than separately. It is a table by tokens, and nothing is charged twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from calibration.fit.by_rows import by_rows, fit_rows, held_out_errors
from calibration.fit.parts import (
    US,
    FittedPart,
    column,
    intervals_json,
    nested,
    noise_percent,
    rounded,
    rounded_values,
    us_of,
)
from calibration.fit.robust import TWO_SIDED, error_of_median, far_off
from calibration.measurements import Measurement
from simulator.costs.network import Network, network
from simulator.costs.profiles import Part, Profile
from simulator.models.config import model_from_config
from simulator.numerics.arrays import Floats

_FEW = 4
"""With fewer distinct token counts, no slope is fitted to differences."""
OperatorShape = tuple[int, ...]
"""The shape of a layer: the values of `_KIND`."""
_KIND = ("hidden", "heads", "kv_heads", "head_dim", "intermediate")


def fit_rests(points: Sequence[Measurement], profile: Profile) -> Iterator[FittedPart]:
    """The parts `elementwise`, one for each kind of layer with measured matrices.

    The kind with the most traffic, the target's, has the name without a suffix.
    """
    shapes = {tuple(shape) for shape in profile.gemm("bf16").shapes.tolist()}
    kinds = {kind_of(p) for p in points}
    measured = [k for k in kinds if all((matrix.n, matrix.k) in shapes for matrix in one_layer(k).matrices)]
    measured.sort(key=lambda kind: one_layer(kind).traffic_bytes_per_token, reverse=True)
    for index, kind in enumerate(measured):
        kind_points = [p for p in points if kind_of(p) == kind]
        fit = _fit_rest(kind, kind_points, profile)
        name = "elementwise" if index == 0 else f"elementwise/{kind[0]}x{kind[1]}x{kind[4]}"
        yield replace(fit, part=replace(fit.part, name=name))


def _fit_rest(kind: OperatorShape, points: Sequence[Measurement], profile: Profile) -> FittedPart:
    tokens = column(points, "batch") * column(points, "queries")
    total_us = us_of(points)
    steps = [(p.shape["batch"], p.shape["queries"], p.shape["context"]) for p in points]
    large_us = np.array([large_operators_us(kind, *step, profile) for step in steps])
    rest_us = total_us - large_us
    table = by_rows(tokens, rest_us, total_us)
    residual = held_out_errors(tokens, rest_us, total_us).summary(
        "a layer at each token count, from the others"
    )
    share = float(np.median(rest_us / total_us))
    residual |= {"noise_percent": noise_percent(points), "share_of_layer_percent": round(100 * share, 1)}
    residual["intervals"] = intervals_json(table.solved.intervals)
    part = Part(
        name="elementwise",
        status="measured",
        source="torch decoder layer in place, less its matrices and its attention",
        coefficients={"traffic_bytes_per_token": one_layer(kind).traffic_bytes_per_token}
        | rounded_values(table.solved.values),
        table={"tokens": [int(x) for x in table.knots], "us": nested(table.us)},
        residual=residual,
        note="µs of one layer by tokens: neither matrix nor attention. The residual is of whole layers",
    )
    far = far_off(np.log((large_us + table.operator.time_us(tokens, 1.0)) / total_us))
    return FittedPart(part, tuple(p for p, is_far in zip(points, far, strict=True) if is_far))


def kind_of(point: Measurement) -> OperatorShape:
    """The kind of a layer: hidden, heads, KV heads, head dimension, intermediate."""
    return tuple(point.shape[name] for name in _KIND)


def layer_us(kind: OperatorShape, batch: int, queries: int, context: int, profile: Profile) -> float:
    """µs of a layer in place under a profile that measured one."""
    layer = one_layer(kind)
    rest = profile.rest_of_layer(layer.traffic_bytes_per_token)
    us = large_operators_us(kind, batch, queries, context, profile)
    if rest is not None:
        us += float(rest.time_us(batch * queries, layer.traffic_bytes_per_token))
    return us


def large_operators_us(
    kind: OperatorShape, batch: int, queries: int, context: int, profile: Profile
) -> float:
    """µs of the matrices and the attention of a layer, as a profile prices them separately."""
    layer, gemm = one_layer(kind), profile.gemm("bf16")
    matrices = sum(m.count * float(gemm.time_us(m.n, m.k, batch * queries)) for m in layer.matrices)
    _, heads, kv_heads, dim, _ = kind
    attention = profile.attention("bf16").time_us(batch, context, kv_heads, dim, heads / kv_heads * queries)
    return matrices + float(attention)


@lru_cache(maxsize=16)
def one_layer(kind: OperatorShape) -> Network:
    """A network of one layer: hidden, heads, KV heads, head dimension, intermediate."""
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")
    config = {
        **dict(zip(names, kind, strict=True)),
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "vocab_size": 256,
        "max_position_embeddings": 1 << 20,
    }
    return network(model_from_config(config, "a layer", "the shape of a point"))


def fit_preparations(
    points: Sequence[Measurement], first: Sequence[Measurement], layers: Sequence[Measurement]
) -> Iterator[FittedPart]:
    """The parts `pass`, one for each hidden size; the largest has the name without a suffix."""
    for index, hidden in enumerate(sorted({p.shape["hidden"] for p in points}, reverse=True)):
        of_size = [[p for p in group if p.shape["hidden"] == hidden] for group in (points, first, layers)]
        fit = _fit_preparation(hidden, *of_size)
        name = "pass" if index == 0 else f"pass/{hidden}"
        yield replace(fit, part=replace(fit.part, name=name))


def _fit_preparation(
    hidden: int, points: Sequence[Measurement], first: Sequence[Measurement], layers: Sequence[Measurement]
) -> FittedPart:
    """Embedding, positions, rotary tables and mask, by tokens, once per pass, plus the extra time of the
    first layer, which finds the caches evicted.
    """
    extra_us = _extra_of_first_layer(first, layers)
    extra_line, error_us = _line_through([tokens for tokens, _ in extra_us], [us for _, us in extra_us])
    with_first_layer = [replace(p, seconds=p.seconds + extra_line(_tokens(p)) / US) for p in points]
    tokens: Floats = column(points, "batch") * column(points, "queries")
    source = "torch embedding, positions, rotary tables and mask of a pass"
    source += "; extra time of its first layer" if extra_us else ""
    fit = fit_rows("pass", with_first_layer, tokens, "tokens", ("hidden", float(hidden)), source)
    original = {id(made): point for made, point in zip(with_first_layer, points, strict=True)}
    widened = _widened(fit.part, TWO_SIDED * error_us)
    return FittedPart(widened, tuple(original[id(point)] for point in fit.suspects))


def _widened(part: Part, half_us: float) -> Part:
    """The part with the 95 % interval of its start widened by the uncertainty of the time added to all
    points.
    """
    intervals = dict(part.residual["intervals"])
    if "start_us" in intervals:
        low, high = intervals["start_us"]
        half = float(np.hypot((high - low) / 2, half_us))
        intervals["start_us"] = [rounded(max((low + high) / 2 - half, 0.0)), rounded((low + high) / 2 + half)]
    return replace(part, residual={**part.residual, "intervals": intervals})


def _extra_of_first_layer(
    first: Sequence[Measurement], layers: Sequence[Measurement]
) -> list[tuple[float, float]]:
    """(tokens, µs above a later layer of the same step)."""
    later = {tuple(sorted(p.shape.items())): p.seconds for p in layers}
    return [
        (_tokens(p), (p.seconds - later[key]) * US)
        for p in first
        if (key := tuple(sorted(p.shape.items()))) in later
    ]


def _line_through(tokens: Sequence[float], us: Sequence[float]) -> tuple[Callable[[float], float], float]:
    """The median line (Theil–Sen), never below 0, and the standard error of its height; a constant for few
    points.
    """
    if not us:
        return lambda _: 0.0, 0.0
    x, y = np.array(tokens), np.array(us)
    if len(set(tokens)) < _FEW:
        middle = max(float(np.median(y)), 0.0)
        return lambda _: middle, error_of_median(y)
    from scipy.stats import theilslopes

    slope, start, _, _ = theilslopes(y, x)
    return lambda tokens_at: max(float(start + slope * tokens_at), 0.0), error_of_median(
        y - start - slope * x
    )


def _tokens(point: Measurement) -> float:
    return float(point.shape["batch"] * point.shape["queries"])
