"""What a layer does besides its matrices and its attention, and what a pass does besides its layers.

A layer is timed between its neighbours, with cold weights and a cold cache; what its matrices and its
attention take alone is subtracted. The rest holds norms, rotary embedding, cache writes, activation, and
all that operators cost more in company than alone: a table by tokens, of which nothing is charged twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from calibration.fit.by_rows import by_rows, fit_rows, left_out
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
from simulator.costs.network import Interconnect, network
from simulator.costs.ops.numeric import Floats
from simulator.costs.profiles import Part, Profile
from simulator.models.config import model_from_config

_FEW = 4
"""Different counts of tokens below which no slope is read from differences."""
Kind = tuple[int, ...]
"""What makes two layers alike: the values of `_KIND`."""
_KIND = ("hidden", "heads", "kv_heads", "head_dim", "intermediate")


def fit_rests(points: Sequence[Measurement], profile: Profile) -> Iterator[FittedPart]:
    """The parts `elementwise`, one for each kind of layers whose matrices were measured: the one with most
    traffic bears the name alone, it is the target's.
    """
    known = {tuple(shape) for shape in profile.gemm("bf16").shapes.tolist()}
    kinds = {kind_of(p) for p in points}
    measured = [k for k in kinds if all((one.n, one.k) in known for one in one_layer(k).matrices)]
    measured.sort(key=lambda kind: one_layer(kind).traffic_bytes_per_token, reverse=True)
    for number, kind in enumerate(measured):
        kept = [p for p in points if kind_of(p) == kind]
        fit = _fit_rest(kind, kept, profile)
        name = "elementwise" if number == 0 else f"elementwise/{kind[0]}x{kind[1]}x{kind[4]}"
        yield replace(fit, part=replace(fit.part, name=name))


def _fit_rest(kind: Kind, kept: Sequence[Measurement], profile: Profile) -> FittedPart:
    tokens = column(kept, "batch") * column(kept, "queries")
    whole = us_of(kept)
    steps = [(p.shape["batch"], p.shape["queries"], p.shape["context"]) for p in kept]
    large = np.array([large_operators_us(kind, *step, profile) for step in steps])
    rest = whole - large
    made = by_rows(tokens, rest, whole)
    residual = left_out(tokens, rest, whole).summary("a layer at each token count, from the others")
    share = float(np.median(rest / whole))
    residual |= {"noise_percent": noise_percent(kept), "share_of_layer_percent": round(100 * share, 1)}
    residual["intervals"] = intervals_json(made.solved.intervals)
    part = Part(
        name="elementwise",
        status="measured",
        source="torch decoder layer in place, less its matrices and its attention",
        coefficients={"traffic_bytes_per_token": one_layer(kind).traffic_bytes_per_token}
        | rounded_values(made.solved.values),
        table={"tokens": [int(x) for x in made.knots], "us": nested(made.us)},
        residual=residual,
        note="µs of one layer by tokens: neither matrix nor attention. The residual is of whole layers",
    )
    far = far_off(np.log((large + made.operator.time_us(tokens, 1.0)) / whole))
    return FittedPart(part, tuple(p for p, is_far in zip(kept, far, strict=True) if is_far))


def kind_of(point: Measurement) -> Kind:
    """What makes two layers alike: hidden, heads, KV heads, head dimension, intermediate."""
    return tuple(point.shape[name] for name in _KIND)


def layer_us(kind: Kind, batch: int, queries: int, context: int, profile: Profile) -> float:
    """A layer in place under a profile that measured one."""
    layer = one_layer(kind)
    rest = profile.rest_of_layer(layer.traffic_bytes_per_token)
    us = large_operators_us(kind, batch, queries, context, profile)
    if rest is not None:
        us += float(rest.time_us(batch * queries, layer.traffic_bytes_per_token))
    return us


def large_operators_us(kind: Kind, batch: int, queries: int, context: int, profile: Profile) -> float:
    """Matrices and attention of a layer, as a profile prices them alone."""
    layer, gemm = one_layer(kind), profile.gemm("bf16")
    matrices = sum(one.count * float(gemm.time_us(one.n, one.k, batch * queries)) for one in layer.matrices)
    _, heads, kv_heads, dim, _ = kind
    attention = profile.attention("bf16").time_us(batch, context, kv_heads, dim, heads / kv_heads * queries)
    return matrices + float(attention)


@lru_cache(maxsize=16)
def one_layer(kind: Kind) -> Interconnect:
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
    """The parts `pass`, one for each hidden size, the largest without a further name."""
    for number, hidden in enumerate(sorted({p.shape["hidden"] for p in points}, reverse=True)):
        of_size = [[p for p in found if p.shape["hidden"] == hidden] for found in (points, first, layers)]
        fit = _fit_preparation(hidden, *of_size)
        name = "pass" if number == 0 else f"pass/{hidden}"
        yield replace(fit, part=replace(fit.part, name=name))


def _fit_preparation(
    hidden: int, kept: Sequence[Measurement], first: Sequence[Measurement], layers: Sequence[Measurement]
) -> FittedPart:
    """Embedding, positions, rotary tables and mask, by tokens, once a pass; and what the first layer takes
    more than the others, because all that ran before it has emptied the caches.
    """
    more = _more(first, layers)
    added, error_us = _line_through([tokens for tokens, _ in more], [us for _, us in more])
    whole = [replace(p, seconds=p.seconds + added(_tokens(p)) / US) for p in kept]
    tokens: Floats = column(kept, "batch") * column(kept, "queries")
    source = "torch embedding, positions, rotary tables and mask of a pass"
    source += "; what its first layer takes more" if more else ""
    fit = fit_rows("pass", whole, tokens, "tokens", ("hidden", float(hidden)), source)
    again = {id(made): point for made, point in zip(whole, kept, strict=True)}
    widened = _widened(fit.part, TWO_SIDED * error_us)
    return FittedPart(widened, tuple(again[id(point)] for point in fit.suspects))


def _widened(part: Part, half_us: float) -> Part:
    """The part with the 95 % interval of its start widened by what was added to all of its points."""
    intervals = dict(part.residual["intervals"])
    if "start_us" in intervals:
        low, high = intervals["start_us"]
        half = float(np.hypot((high - low) / 2, half_us))
        intervals["start_us"] = [rounded(max((low + high) / 2 - half, 0.0)), rounded((low + high) / 2 + half)]
    return replace(part, residual={**part.residual, "intervals": intervals})


def _more(first: Sequence[Measurement], layers: Sequence[Measurement]) -> list[tuple[float, float]]:
    """(tokens, µs more than a later layer of the same step)."""
    later = {tuple(sorted(p.shape.items())): p.seconds for p in layers}
    return [
        (_tokens(p), (p.seconds - later[key]) * US)
        for p in first
        if (key := tuple(sorted(p.shape.items()))) in later
    ]


def _line_through(tokens: Sequence[float], us: Sequence[float]) -> tuple[Callable[[float], float], float]:
    """The median line (Theil and Sen) and the standard error of its height; level where few points say more,
    never below 0.
    """
    if not us:
        return lambda _: 0.0, 0.0
    x, y = np.array(tokens), np.array(us)
    if len(set(tokens)) < _FEW:
        middle = max(float(np.median(y)), 0.0)
        return lambda _: middle, error_of_median(y)
    from scipy.stats import theilslopes

    slope, start, _, _ = theilslopes(y, x)
    return lambda at: max(float(start + slope * at), 0.0), error_of_median(y - start - slope * x)


def _tokens(point: Measurement) -> float:
    return float(point.shape["batch"] * point.shape["queries"])
