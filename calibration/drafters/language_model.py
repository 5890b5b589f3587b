"""A transformers model in parts: embedding, decoder layers, final norm and head, run on the cache of this
package.

transformers lets an attention function be registered by name. The one here writes keys and values into a
`KVPool` and attends under any mask. So trees, skipped layers and layers made for a drafter all run in the
same way, and nothing depends on transformers' caches. Layers are counted by the hidden state after them: 0 is
the embedding, `layer_count` is the last hidden state before the final norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from calibration.drafters.cache import KVCache, KVPool
from simulator.errors import InputError, Problem

ATTENTION = "decodesim"
"""The name under which the attention function is registered."""
_SELF_CHECK_TOKENS = 24
_AGREEMENT = 1e-2
"""Tolerance of logits, relative to the largest: the precision of bfloat16."""


@dataclass
class Pass:
    """The pass that the attention function runs in."""

    pool: KVPool | None
    slots: Sequence[int]
    starts: Sequence[int]
    mask: Tensor | None  # additive, (b or 1, 1, n, keys)
    layer: int = 0


_PASS: ContextVar[Pass | None] = ContextVar("pass", default=None)


class Read(NamedTuple):
    """The result of a pass over new tokens: logits (rows, V) and watched hidden states {layer: (n, h)}."""

    logits: Tensor
    hidden: dict[int, Tensor]


class LanguageModel:
    """The weights of a causal language model, which sessions (`TargetSession`) share."""

    def __init__(self, model: Any, tokenizer: Any = None, field: str = "target") -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.config = model.config
        base = model.base_model
        name = type(model).__name__
        layers, norm = _part(base, "layers", "h"), _part(base, "norm", "ln_f")
        if layers is None or norm is None:
            raise _unsupported(field, name, "has no decoder layers or final norm in a known place")
        self.layers: list[nn.Module] = list(layers)
        self.norm: nn.Module = norm
        self.lm_head: nn.Module = model.get_output_embeddings()
        self._tokens: nn.Module = model.get_input_embeddings()
        self._positions: nn.Module | None = getattr(base, "wpe", None)
        self._rotary: nn.Module | None = getattr(base, "rotary_emb", None)
        self.vocab_size = int(self.lm_head.weight.shape[0])
        self.hidden_size = int(self._tokens.weight.shape[1])
        self.layer_count = len(self.layers)
        self.dtype: torch.dtype = self._tokens.weight.dtype
        self.max_tokens = _max_tokens(self.config)
        if not self._reproduces_logits():
            raise _unsupported(field, name, "computes its logits in a way that is not supported")

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def embed(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return the embedding of tokens, plus that of their positions if the model has one (GPT-2)."""
        hidden: Tensor = self._tokens(tokens)
        if self._positions is not None and positions is not None:
            hidden = hidden + self._positions(positions)
        return hidden

    def head(self, hidden: Tensor) -> Tensor:
        """Return the logits of a last hidden state: head(final norm(hidden))."""
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits

    def run_layers(
        self,
        layers: Sequence[nn.Module],
        hidden: Tensor,
        positions: Tensor,
        cache: KVCache | None = None,
        mask: Tensor | None = None,
        cache_layers: Sequence[int] | None = None,
        watch: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """Return hidden states (b, n, h) after these layers.

        Without a cache: causal, or under `mask` (…, n, n), True = attends. With the cache of one sequence (b
        = 1): rows are written at its length; they attend to all kept rows, and to each other causally or by
        `mask` (n, n). `cache_layers` are the cache's layers to use, by default 0, 1, …. `watch` is filled
        with the hidden states after the layers that are its keys, counted along `layers`.
        """
        if cache is None:
            return self.run_pass(
                layers,
                hidden,
                positions,
                Pass(None, (), (), additive(mask, hidden)),
                range(len(layers)),
                watch,
            )
        seen = visible(hidden.shape[1], mask, cache.length)
        step = Pass(cache.pool, (cache.slot,), (cache.length,), additive(seen, hidden))
        return self.run_pass(layers, hidden, positions, step, cache_layers or range(len(layers)), watch)

    @torch.inference_mode()
    def read(
        self,
        tokens: Tensor,
        positions: Tensor,
        cache: KVCache,
        mask: Tensor | None = None,
        layers: Sequence[int] | None = None,
        watch: Sequence[int] = (),
        last_only: bool = False,
    ) -> Read:
        """Read new tokens (n,) of one sequence after its cache, with all layers or only `layers`.

        `last_only`: return the logits of the last row only, (1, V).
        """
        used = range(self.layer_count) if layers is None else layers
        states = dict.fromkeys(watch, tokens)  # placeholders, replaced during the pass
        hidden = self.embed(tokens[None], positions[None])
        hidden = self.run_layers(
            [self.layers[i] for i in used], hidden, positions[None], cache, mask, used, states
        )
        rows = hidden[0, -1:] if last_only else hidden[0]
        return Read(self.head(rows), {layer: state[0] for layer, state in states.items()})

    @torch.no_grad()
    def hidden_states(self, tokens: Tensor, layers: Sequence[int]) -> dict[int, Tensor]:
        """Return {layer: (b, n, h)} of whole sequences (b, n), causal, without a cache."""
        states = dict.fromkeys(layers, tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        self.run_layers(self.layers, self.embed(tokens, positions), positions, watch=states)
        return states

    def run_pass(
        self,
        layers: Sequence[nn.Module],
        hidden: Tensor,
        positions: Tensor,
        step: Pass,
        cache_layers: Sequence[int],
        watch: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """Return hidden states (b, n, h) after these layers, as `run_layers`, for a given pass."""
        rotary = {} if self._rotary is None else {"position_embeddings": self._rotary(hidden, positions)}
        watched = watch if watch is not None else {}
        token = _PASS.set(step)
        try:
            if 0 in watched:
                watched[0] = hidden
            for count, (layer, cache_layer) in enumerate(zip(layers, cache_layers, strict=True), 1):
                step.layer = cache_layer
                out = layer(hidden, **rotary)
                hidden = out[0] if isinstance(out, tuple) else out  # older transformers return tuples
                if count in watched:
                    watched[count] = hidden
        finally:
            _PASS.reset(token)
        return hidden

    @torch.no_grad()
    def _reproduces_logits(self) -> bool:
        """Whether the parts, run with the attention function of this module, give the logits of the unchanged
        model.

        From here on the model uses this attention function.
        """
        count = min(_SELF_CHECK_TOKENS, self.max_tokens or _SELF_CHECK_TOKENS)
        tokens = (torch.arange(count, device=self.device)[None] * 7919 + 1) % self.vocab_size
        original = self.model(input_ids=tokens, use_cache=False).logits.double()
        register_attention()
        self.config._attn_implementation = ATTENTION
        try:
            reproduced = self.head(self.hidden_states(tokens, [self.layer_count])[self.layer_count]).double()
        except (TypeError, AttributeError, ValueError, RuntimeError):  # a layer with another signature
            return False
        return torch.allclose(
            reproduced, original, rtol=_AGREEMENT, atol=_AGREEMENT * float(original.abs().max())
        )


def visible(rows: int, mask: Tensor | None, length: int) -> Tensor:
    """Return what new rows attend to, bool (rows, length + rows): all kept rows, and each other causally or
    by `mask` (rows, rows).
    """
    new_rows = torch.ones(rows, rows, dtype=torch.bool).tril() if mask is None else mask
    return torch.cat([torch.ones(rows, length, dtype=torch.bool), new_rows], dim=1)


def register_attention() -> None:
    """Register the attention function with transformers."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if ATTENTION not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention, (b, heads, n, d) → (b, n, heads, d).

    Query heads that share keys are stacked as rows, so that keys are never copied.
    """
    step = _PASS.get()
    mask = attention_mask
    if step is not None:
        mask = step.mask
        if step.pool is not None:
            key, value = step.pool.write(step.layer, step.slots, step.starts, key, value)
    batch, heads, rows, size = query.shape
    shared = heads // key.shape[1]
    if mask is None:
        out = scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, dropout_p=dropout, enable_gqa=shared > 1
        )
        return out.transpose(1, 2), None
    if shared > 1:
        query = query.reshape(batch, key.shape[1], shared * rows, size)
        mask = mask.repeat(1, 1, shared, 1)
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, dropout_p=dropout)
    return out.reshape(batch, heads, rows, -1).transpose(1, 2), None


def additive(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Return a 4-D mask with 0 where a row attends and -inf elsewhere."""
    if mask is None:
        return None
    added = like.new_zeros(mask.shape).masked_fill_(~mask.to(like.device), float("-inf"))
    return added.reshape((1,) * (4 - added.dim()) + tuple(added.shape))


def _max_tokens(config: Any) -> int | None:
    """Return the longest sequence: the number of positions, or the sliding window (up to it, a sliding layer
    is a full one); None without a limit.
    """
    limits = [getattr(config, "max_position_embeddings", None)]
    if getattr(config, "use_sliding_window", True):
        limits.append(getattr(config, "sliding_window", None))
    return min((int(limit) for limit in limits if limit), default=None)


def _part(base: Any, *names: str) -> Any:
    return next((getattr(base, name) for name in names if hasattr(base, name)), None)


def _unsupported(field: str, name: str, why: str) -> InputError:
    allowed = "a decoder of the Llama or GPT-2 family"
    return InputError(Problem(field=field, value=name, message=why, allowed=allowed))
