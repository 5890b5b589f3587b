"""Real language models for tests: SmolLM2 once per process, and tiny random ones saved as real folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from calibration.decoder.decoder import Decoder
    from calibration.drafters.language_model import LanguageModel
    from calibration.drafters.target_session import TargetSession

FAMILIES = ("llama", "gpt2")
TINY_VOCABULARY = 97


@pytest.fixture(scope="session")
def smollm2() -> LanguageModel:
    """SmolLM2-135M-Instruct in float32; sessions on it: `TargetSession(network)`."""
    from calibration.drafters.target_session import load_network

    return load_network("builtin")


@pytest.fixture(scope="session")
def decoder() -> Decoder:
    """SmolLM2-135M-Instruct as the lean decoder, in float32."""
    from calibration.decoder.decoder import Decoder
    from calibration.decoder.weights import smollm2_weights

    return Decoder(*smollm2_weights())


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder with a tiny random model of the family that the test is parametrised with (indirect)."""
    return save_tiny(tmp_path_factory.mktemp("tiny") / request.param, request.param)


def save_tiny(folder: Path, family: str, layers: int = 4, seed: int = 0, window: int = 512) -> Path:
    """Save a tiny random model with a tokenizer of characters as a Hugging Face folder, return the folder."""
    import torch
    import transformers

    torch.manual_seed(seed)
    if family == "llama":
        config = transformers.LlamaConfig(
            vocab_size=TINY_VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=window,
            initializer_range=0.2, tie_word_embeddings=True,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.GPT2Config(
            vocab_size=TINY_VOCABULARY, n_embd=32, n_layer=layers, n_head=4, n_positions=window,
            initializer_range=0.2, resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0,
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def tiny_tokenizer():  # type: ignore[no-untyped-def]
    """A tokenizer with one token a printable character."""
    import tokenizers
    import transformers

    letters = {chr(code): code - 31 for code in range(32, 127)} | {"<e>": 0, "\n": 96}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="<e>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<e>", eos_token="<e>")


def tiny_target(folder: Path, dtype: str = "float64") -> TargetSession:
    """The target in a tiny folder, in double precision: rounding cannot turn an argmax."""
    from calibration.drafters.target_session import load_target

    return load_target(folder, dtype)
