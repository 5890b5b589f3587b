"""What a layer does besides its matrices and its attention, and what a pass does besides its layers.

A layer is timed between its neighbours, with cold weights and a cold cache; what its matrices and its
attention take alone is subtracted. The rest holds norms, rotary embedding, cache writes, activation, and
all that operators cost more in company than alone: a table by tokens, of which nothing is charged twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from calibration.fit.by_rows import by_rows, fit_rows, left_out
from calibration.fit.points import (
    Fit,
    column,
    intervals_json,
    nested,
    noise_percent,
    rounded_values,
    shaky,
    us_of,
)
from calibration.fit.solve import far_off
from calibration.measurements import Measurement
from simulator.costs.network import Network, network
from simulator.costs.ops.numeric import Floats
from simulator.costs.profiles import Part, Profile
from simulator.models.config import model_from_config

_KIND = ("hidden", "heads", "kv_heads", "head_dim", "intermediate")


def fit_rest(points: Sequence[Measurement], profile: Profile) -> Fit:
    """The part `elementwise` from layers in place, with the matrices and the attention of `profile`.

    Of several kinds of layers the one with most points makes the table: others scale it by their traffic.
    """
    kinds = [kind_of(p) for p in points]
    common = max(sorted(set(kinds)), key=kinds.count)
    kept = [p for p, kind in zip(points, kinds, strict=True) if kind == common]
    tokens = column(kept, "batch") * column(kept, "queries")
    whole = us_of(kept)
    steps = [(p.shape["batch"], p.shape["queries"], p.shape["context"]) for p in kept]
    large = np.array([large_operators_us(common, *step, profile) for step in steps])
    rest = whole - large
    made = by_rows(tokens, rest, whole)
    residual = left_out(tokens, rest, whole).summary("a layer at each token count, from the others")
    share = float(np.median(rest / whole))
    residual |= {"noise_percent": noise_percent(kept), "share_of_layer_percent": round(100 * share, 1)}
    residual["intervals"] = intervals_json(made.solved.intervals)
    traffic = one_layer(common).traffic_bytes_per_token
    part = Part(
        name="elementwise",
        status="measured",
        source="torch decoder layer in place, less its matrices and its attention",
        coefficients={"traffic_bytes_per_token": traffic} | rounded_values(made.solved.values),
        table={"tokens": [int(x) for x in made.knots], "us": nested(made.us)},
        residual=residual,
        note="µs of one layer by tokens: neither matrix nor attention. The residual is of whole layers",
    )
    far = far_off(np.log((large + made.operator.time_us(tokens, 1.0)) / whole))
    return Fit(part, (*shaky(kept), *(p for p, is_far in zip(kept, far, strict=True) if is_far)))


def kind_of(point: Measurement) -> tuple[int, ...]:
    """What makes two layers alike: hidden, heads, KV heads, head dimension, intermediate."""
    return tuple(point.shape[name] for name in _KIND)


def layer_us(kind: tuple[int, ...], batch: int, queries: int, context: int, profile: Profile) -> float:
    """A layer in place under a profile that measured one."""
    rest, layer = profile.rest_of_layer(), one_layer(kind)
    us = large_operators_us(kind, batch, queries, context, profile)
    if rest is not None:
        us += float(rest.time_us(batch * queries, layer.traffic_bytes_per_token))
    return us


def large_operators_us(
    kind: tuple[int, ...], batch: int, queries: int, context: int, profile: Profile
) -> float:
    """Matrices and attention of a layer, as a profile prices them alone."""
    layer, gemm = one_layer(kind), profile.gemm("bf16")
    matrices = sum(one.count * float(gemm.time_us(one.n, one.k, batch * queries)) for one in layer.matrices)
    _, heads, kv_heads, dim, _ = kind
    attention = profile.attention("bf16").time_us(batch, context, kv_heads, dim, heads / kv_heads * queries)
    return matrices + float(attention)


@lru_cache(maxsize=16)
def one_layer(kind: tuple[int, ...]) -> Network:
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


def fit_preparation(points: Sequence[Measurement]) -> Fit:
    """The part `pass`: embedding, positions, rotary tables and mask, by tokens, once a pass."""
    hidden = max(
        {p.shape["hidden"] for p in points}, key=lambda h: sum(p.shape["hidden"] == h for p in points)
    )
    kept = [p for p in points if p.shape["hidden"] == hidden]
    tokens: Floats = column(kept, "batch") * column(kept, "queries")
    source = "torch embedding, positions, rotary tables and mask of a pass"
    return fit_rows("pass", kept, tokens, "tokens", ("hidden", float(hidden)), source)
