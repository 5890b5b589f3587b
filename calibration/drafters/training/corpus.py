"""The training text: windows of files, and text that the target writes itself.

The text of a shard depends only on the mix and the shard's index, so that runs of any length can share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibration.drafters.language_model import LanguageModel
from calibration.drafters.training.completions import complete, opening
from calibration.drafters.training.files import load_tokens, save_tokens
from calibration.drafters.training.text import Domain, TextDocument, beginnings, documents, tokens_of

DOMAINS: tuple[Domain, ...] = ("code", "prose")
_MIN_OPENING_TOKENS = 16
"""Tokens of context that give a completion a subject."""


@dataclass(frozen=True)
class Mix:
    """The content of a shard: numbers of sequences of `length` tokens per kind of text. A completion has two
    pieces.

    `together`: shards whose completions are written at once. `held_out`: number of held-out prompts per
    domain; each is a quarter of a sequence long, and the target continues it for as many tokens at
    temperature 1.
    """

    length: int = 512
    code: int = 9
    prose: int = 3
    completions: int = 4
    together: int = 4
    held_out: int = 24
    seed: int = 0

    @property
    def sequences(self) -> int:
        """Sequences in a shard."""
        return self.code + self.prose + self.completions

    @property
    def tokens(self) -> int:
        """Tokens in a shard."""
        return self.sequences * self.length

    def share(self, domain: Domain) -> int:
        """Sequences of a domain in a shard."""
        return self.code if domain == "code" else self.prose


@dataclass(frozen=True)
class HeldOutPrompts:
    """Held-out sequences (n, L); the first `prompt` tokens are the prompt, the rest is written by the target.

    `domains` and `names` have one entry per sequence.
    """

    tokens: Tensor
    prompt: int
    domains: list[str]
    names: list[str]

    @property
    def digest(self) -> str:
        """Hash of the text: figures with the same hash may be compared in pairs."""
        return hashlib.sha256(self.tokens.to(torch.int64).numpy().tobytes()).hexdigest()[:16]


@dataclass
class Corpus:
    """The text of one mix for one target; `folder` holds the text that the target wrote."""

    reader: LanguageModel
    mix: Mix
    folder: Path
    report: Callable[[str], None] = field(default=lambda text: None)
    """Called with a message before slow work."""

    def tokens(self, index: int) -> Tensor:
        """Return the sequences (n, length) of a shard."""
        rows = self._library_rows(index)
        missing = self.mix.sequences - len(rows)
        return torch.cat([rows, self._completions(index)]) if missing else rows

    def _library_rows(self, index: int) -> Tensor:
        """The windows of files of a shard; fewer at the end of the files."""
        parts = [torch.zeros(0, self.mix.length, dtype=torch.int64)]
        for domain in DOMAINS:
            share = self.mix.share(domain)
            parts.append(self._windows[domain].first((index + 1) * share)[index * share :])
        return torch.cat(parts)

    def _completions(self, index: int) -> Tensor:
        """The target's own text of a shard (n, length), written together with that of its group."""
        group = index // self.mix.together
        members = range(group * self.mix.together, (group + 1) * self.mix.together)
        needs = [self.mix.sequences - len(self._library_rows(member)) for member in members]
        path = self.folder / f"completions-{group:05d}.safetensors"
        if not path.exists():
            self.report(f"the target writes text for shards {members[0] + 1} to {members[-1] + 1}")
            pieces = self._write(2 * sum(needs), group)
            save_tokens(path, pieces.reshape(sum(needs), self.mix.length))
        before = sum(needs[: index - members[0]])
        return load_tokens(path)[before : before + needs[index - members[0]]]

    def _write(self, pieces: int, group: int) -> Tensor:
        """Pieces (n, length / 2), in turn: a conversation, continued code, continued prose."""
        chat_opening = opening(self.reader.tokenizer)
        has_chat = len(chat_opening) >= _MIN_OPENING_TOKENS
        length = len(chat_opening) if has_chat else _MIN_OPENING_TOKENS
        shards = (group + 1) * self.mix.together
        starts = {
            domain: self._windows[domain].first(shards * max(self.mix.share(domain), 1)) for domain in DOMAINS
        }
        prompts: list[Tensor] = []
        for piece in range(pieces):
            turn = (group + piece) % (len(DOMAINS) + has_chat)
            if turn == len(DOMAINS):
                prompts.append(torch.tensor(chat_opening))
            else:
                latest = starts[DOMAINS[turn]].flip(0)  # other groups have not used the latest windows
                prompts.append(latest[piece % len(latest), :length])
        generator = torch.Generator().manual_seed((self.mix.seed << 20) + group)
        temperatures = torch.tensor([1.0, 0.7]).repeat(pieces)[:pieces]
        return complete(self.reader, torch.stack(prompts), self.mix.length // 2, temperatures, generator)

    @cached_property
    def _windows(self) -> dict[Domain, Windows]:
        return {
            domain: Windows(
                documents(domain, held_out=False, seed=self.mix.seed), self.reader.tokenizer, self.mix.length
            )
            for domain in DOMAINS
        }


class Windows:
    """Windows of concatenated documents with end tokens in between; documents are read as needed."""

    def __init__(self, texts: Iterator[TextDocument], tokenizer: Any, length: int) -> None:
        self._texts, self._tokenizer, self._length = texts, tokenizer, length
        self._tokens: list[int] = []

    def first(self, count: int) -> Tensor:
        """Return the first `count` windows (n, length); fewer if the documents end."""
        end = self._tokenizer.eos_token_id
        while len(self._tokens) < count * self._length:
            document = next(self._texts, None)
            if document is None:
                break
            self._tokens += tokens_of(document.text, self._tokenizer) + ([] if end is None else [end])
        windows = min(count, len(self._tokens) // self._length)
        tokens = torch.tensor(self._tokens[: windows * self._length], dtype=torch.int64)
        return tokens.reshape(windows, self._length)


def held_out_prompts(network: LanguageModel, mix: Mix) -> HeldOutPrompts:
    """Return prompts of documents kept from training, continued by the target."""
    length = mix.length // 4
    prompts: list[Tensor] = []
    domains: list[str] = []
    names: list[str] = []
    for domain in DOMAINS:
        texts = documents(domain, held_out=True, seed=mix.seed)
        rows, row_names = beginnings(texts, network.tokenizer, length, mix.held_out)
        prompts.append(rows)
        domains += [domain] * len(rows)
        names += row_names
    generator = torch.Generator().manual_seed((mix.seed << 20) - 1 & 0x7FFFFFFF)
    chat_opening = opening(network.tokenizer)
    if len(chat_opening) >= _MIN_OPENING_TOKENS:
        start = torch.tensor(chat_opening)[:length].repeat(mix.held_out, 1)
        prompts.append(complete(network, start, length, torch.ones(len(start)), generator))
        domains += ["conversation"] * len(start)
        names += [f"conversation {number}" for number in range(len(start))]
    all_prompts = torch.cat(prompts)
    tokens = complete(network, all_prompts, 2 * length, torch.ones(len(all_prompts)), generator)
    return HeldOutPrompts(tokens, length, domains, names)
