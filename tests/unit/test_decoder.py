"""The lean decoder: transformers' logits, whatever is cached; operators against their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from simulator.errors import InputError
from simulator.models.catalogue import load_model

if TYPE_CHECKING:
    from calibration.decoder.decoder import Decoder
    from calibration.drafters.language_model import LanguageModel

_CLOSE = 2e-3
"""Logits of SmolLM2 reach 35; fp32 sums of 576 terms in another order."""


def test_logits_are_those_of_transformers_after_prompts_and_in_verify_passes(
    decoder: Decoder, smollm2: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(smollm2.config, "_attn_implementation", "eager")
    tokens = torch.tensor([smollm2.tokenizer.encode(text)[:20] for text in _TEXTS])
    lengths = torch.tensor([17, 12])  # so far the prompts are kept: the rest is junk that nobody may see
    drafts = torch.tensor([[5, 900, 31, 7], [40, 41, 11111, 3]])
    with torch.inference_mode():
        cache = decoder.cache(2, 40)
        nothing = torch.zeros(2, dtype=torch.int64)
        read = decoder.head(decoder.forward(tokens, nothing, cache, tokens.shape[1]))
        expected = smollm2.model(tokens).logits
        assert (read - expected).abs().max() < _CLOSE
        span = int(lengths.max()) + drafts.shape[1]
        verified = decoder.head(decoder.forward(drafts, lengths, cache, span))
        for row, length in enumerate(lengths.tolist()):
            all_tokens = torch.cat((tokens[row, :length], drafts[row]))[None]
            expected = smollm2.model(all_tokens).logits[0, length:]
            assert (verified[row] - expected).abs().max() < _CLOSE


_TEXTS = (
    "The rain had stopped by the time the train reached the coast, and the sea lay grey and still.",
    "A prime number is a whole number larger than one that no other number divides without a rest, as 7.",
)


def test_shape_from_the_catalogue_is_that_of_the_weights(decoder: Decoder) -> None:
    from dataclasses import replace

    from calibration.decoder.shape import DecoderShape

    result = DecoderShape.of(load_model("smollm2-135m-instruct"))
    assert replace(result, norm_eps=decoder.shape.norm_eps) == decoder.shape


def test_shards_hold_their_part_and_other_architectures_are_refused() -> None:
    from calibration.decoder.shape import DecoderShape

    shard = DecoderShape.of(load_model("llama-3.3-70b-instruct"), tensor_parallel=4)
    assert (shard.heads, shard.kv_heads, shard.intermediate) == (16, 2, 7168)
    for name in ("mixtral-8x7b-instruct", "deepseek-v3"):
        with pytest.raises(InputError, match="is not a dense Llama-type decoder"):
            DecoderShape.of(load_model(name))


def test_packed_attention_is_attention() -> None:
    import torch

    from calibration.decoder.ops import attention, causal_mask

    torch.manual_seed(0)
    batch, queries, heads, kv_heads, dim, span = 3, 4, 6, 2, 8, 20
    lengths = torch.tensor([16, 9, 3])
    asked = torch.randn(batch, queries, heads, dim, dtype=torch.float64)
    keys, values = torch.randn(2, batch, kv_heads, span, dim, dtype=torch.float64)
    mask = causal_mask(lengths, queries, span, heads // kv_heads, torch.float64)
    result = attention(asked, keys, values, mask).view(batch, queries, heads, dim)
    for b in range(batch):
        for q in range(queries):
            seen = int(lengths[b]) + q + 1
            for h in range(heads):
                k, v = keys[b, h // 3, :seen], values[b, h // 3, :seen]
                weights = torch.softmax(k @ asked[b, q, h] / dim**0.5, 0)
                torch.testing.assert_close(result[b, q, h], weights @ v)
