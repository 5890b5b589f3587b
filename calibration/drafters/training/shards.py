"""The target's hidden states over text, on disk in shards: read once, learned from many times.

Logits of a million tokens would take 98 GB, hidden states take 1.2 GB a layer; the head turns them back into
laws. A shard holds sequences of code, of prose and of the target's own text, and is made when it is first
asked for; each is a safetensors file, there whole or not at all, and read through memory mapping.
"""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibration.drafters.network import Network
from calibration.drafters.training.completions import complete, opening
from calibration.drafters.training.text import Domain, beginnings, documents, windows
from simulator.errors import InputError, Problem
from simulator.files import whole_file

DOMAINS: tuple[Domain, ...] = ("code", "prose")
_AT_A_TIME = 8
"""Sequences of one pass of the target."""
_ENOUGH_OPENING = 16
"""Tokens of context that a completion needs to have a subject."""


@dataclass(frozen=True)
class Mix:
    """What a shard holds: sequences of `length` tokens of each sort. Completions are two pieces each.

    `together`: shards whose completions are written in one go. The held-out side: `held_out` prompts of a
    quarter of a sequence from each domain, continued by the target for as many tokens at temperature 1.
    """

    length: int = 512
    code: int = 9
    prose: int = 3
    completions: int = 4
    together: int = 8
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


@dataclass(frozen=True)
class Shard:
    """tokens (n, L), and features {layer: (n, L, h)}; those after the last layer behind the final norm."""

    tokens: Tensor
    features: dict[int, Tensor]


@dataclass(frozen=True)
class HeldOut(Shard):
    """Sequences that begin with `prompt` tokens of a document kept from training; the rest is the target's.

    `domains` and `names`: of each sequence.
    """

    prompt: int
    domains: list[str]
    names: list[str]


@dataclass
class Shards:
    """The shards of one target in one folder. Raises InputError: the folder is another target's."""

    folder: Path
    network: Network
    mix: Mix = field(default_factory=Mix)
    rich: int = 0
    """So many shards at the beginning hold the features of `rich_layers` too, whoever asks first."""
    rich_layers: tuple[int, ...] = ()
    say: Callable[[str], None] = lambda text: None
    """Told what takes long."""

    def __post_init__(self) -> None:
        found = {"target": fingerprint(self.network), "mix": asdict(self.mix)}
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "shards.json"
        if not manifest.exists():
            with whole_file(manifest) as part:
                part.write_text(json.dumps(found, indent=1))
        kept = json.loads(manifest.read_text())
        for key, what in (("target", "another target"), ("mix", "another mix of text")):
            if kept.get(key) != found[key]:
                raise InputError(
                    Problem(
                        file=str(self.folder),
                        message=f"holds hidden states of {what}",
                        allowed="a new folder",
                    )
                )

    def shard(self, index: int, layers: Iterable[int], count: int) -> Shard:
        """Return shard `index` of a run over `count` shards with the features after `layers`."""
        wanted = sorted({*layers, self.network.layer_count})
        path = self.folder / f"shard-{index:05d}.safetensors"
        if not _holds(path, wanted):
            tokens = self._tokens(index, count)
            self.say(f"the target reads shard {index + 1} of {count}")
            made = sorted({*wanted, *(self.rich_layers if index < self.rich else ())})
            _save(path, tokens, self._features(self._reader, tokens, made), {})
        tokens, features, _ = _load(path, wanted)
        return Shard(tokens, features)

    def held_out(self, layers: Iterable[int]) -> HeldOut:
        """Return what drafters are judged on, in the precision of the network."""
        wanted = sorted({*layers, self.network.layer_count})
        path = self.folder / "held-out.safetensors"
        if not _holds(path, wanted):
            self.say("the target continues and reads the held-out prompts")
            tokens, notes = self._held_out_tokens()
            _save(path, tokens, self._features(self.network, tokens, wanted), notes)
        tokens, features, notes = _load(path, wanted)
        return HeldOut(
            tokens,
            features,
            self.mix.length // 4,
            json.loads(notes["domains"]),
            json.loads(notes["names"]),
        )

    @cached_property
    def _reader(self) -> Network:
        """The target in bfloat16, twice as fast; its laws differ from those in float32 by little."""
        if self.network.dtype != torch.float32:
            return self.network
        return Network(copy.deepcopy(self.network.model).to(torch.bfloat16), self.network.tokenizer)

    def _features(self, network: Network, tokens: Tensor, layers: list[int]) -> dict[int, Tensor]:
        parts: dict[int, list[Tensor]] = {layer: [] for layer in layers}
        for some in torch.split(tokens, _AT_A_TIME):
            states = network.hidden_states(some, layers)
            states[network.layer_count] = network.norm(states[network.layer_count])
            for layer in layers:
                parts[layer].append(states[layer].detach())
        return {layer: torch.cat(states) for layer, states in parts.items()}

    def _windows(self, domain: Domain, count: int) -> Tensor:
        """All windows of a domain that a run over `count` shards needs, or as many as there are."""
        share = self._share(domain)
        if self._cut.get(domain, (0, None))[0] < count:
            found = documents(domain, held_out=False, seed=self.mix.seed)
            cut = windows(found, self.network.tokenizer, self.mix.length, max(share * count, 1))
            self._cut[domain] = (count, cut)
        return self._cut[domain][1][: share * count]

    def _share(self, domain: Domain) -> int:
        return self.mix.code if domain == "code" else self.mix.prose

    @cached_property
    def _cut(self) -> dict[str, tuple[int, Tensor]]:
        return {}

    def _tokens(self, index: int, count: int) -> Tensor:
        rows = self._library_rows(index, count)
        missing = self.mix.sequences - len(rows)
        return torch.cat([rows, self._completions(index, count)[:missing]]) if missing else rows

    def _library_rows(self, index: int, count: int) -> Tensor:
        """A shard's windows of files; fewer where they have run out."""
        parts = []
        for domain in DOMAINS:
            if share := self._share(domain):
                parts.append(self._windows(domain, count)[index * share : (index + 1) * share])
        return torch.cat(parts) if parts else torch.zeros(0, self.mix.length, dtype=torch.int64)

    def _completions(self, index: int, count: int) -> Tensor:
        """The target's own text of a shard (n, length), written with that of its neighbours."""
        group = index // self.mix.together
        members = range(group * self.mix.together, min((group + 1) * self.mix.together, count))
        needs = [self.mix.sequences - len(self._library_rows(member, count)) for member in members]
        path = self.folder / f"completions-{group:05d}-of-{sum(needs)}.safetensors"
        if not path.exists():
            self.say(f"the target writes text for shards {members[0] + 1} to {members[-1] + 1} of {count}")
            _save(
                path, self._write(2 * sum(needs), group, count).reshape(sum(needs), self.mix.length), {}, {}
            )
        before = sum(needs[: index - members[0]])
        return _load(path, [])[0][before : before + needs[index - members[0]]]

    def _write(self, pieces: int, group: int, count: int) -> Tensor:
        """Pieces (n, length / 2) in turn: a conversation, code continued, prose continued."""
        begin = opening(self.network.tokenizer)
        talks = len(begin) >= _ENOUGH_OPENING
        length = len(begin) if talks else _ENOUGH_OPENING
        sorts = [domain for domain in DOMAINS if self._windows(domain, count).numel()]
        prompts: list[Tensor] = []
        for piece in range(pieces):
            turn = (group * 1_000_003 + piece) % (len(sorts) + talks)
            if turn == len(sorts):
                prompts.append(torch.tensor(begin))
            else:
                found = self._windows(sorts[turn], count)
                prompts.append(found[(group * 7919 + piece * 31) % len(found), :length])
        generator = torch.Generator().manual_seed((self.mix.seed << 20) + group)
        temperatures = torch.tensor([1.0, 0.7]).repeat(pieces)[:pieces]
        return complete(self._reader, torch.stack(prompts), self.mix.length // 2, temperatures, generator)

    def _held_out_tokens(self) -> tuple[Tensor, dict[str, str]]:
        length = self.mix.length // 4
        prompts: list[Tensor] = []
        domains: list[str] = []
        names: list[str] = []
        for domain in DOMAINS:
            found = documents(domain, held_out=True, seed=self.mix.seed)
            rows, of = beginnings(found, self.network.tokenizer, length, self.mix.held_out)
            prompts.append(rows)
            domains += [domain] * len(rows)
            names += of
        generator = torch.Generator().manual_seed((self.mix.seed << 20) - 1 & 0x7FFFFFFF)
        begin = opening(self.network.tokenizer)
        if len(begin) >= _ENOUGH_OPENING:
            start = torch.tensor(begin)[:length].repeat(self.mix.held_out, 1)
            prompts.append(complete(self.network, start, length, torch.ones(len(start)), generator))
            domains += ["conversation"] * len(start)
            names += [f"conversation {number}" for number in range(len(start))]
        asked = torch.cat(prompts)
        tokens = complete(self.network, asked, 2 * length, torch.ones(len(asked)), generator)
        return tokens, {"domains": json.dumps(domains), "names": json.dumps(names)}


class Ahead:
    """Makes shards in the background, in order, while the run learns from those there are."""

    def __init__(self, shards: Shards, layers: Iterable[int], indices: range, count: int) -> None:
        self._shards, self._layers, self._count = shards, tuple(layers), count
        self._made = {index: threading.Event() for index in indices}
        self._error: BaseException | None = None
        threading.Thread(target=self._make, daemon=True).start()

    def shard(self, index: int) -> Shard:
        """Return a shard as soon as it is there. Raises what went wrong with it."""
        self._made[index].wait()
        if self._error is not None:
            raise self._error
        return self._shards.shard(index, self._layers, self._count)

    def _make(self) -> None:
        for index, made in self._made.items():
            try:
                self._shards.shard(index, self._layers, self._count)
            except BaseException as error:
                self._error = error
                for later in self._made.values():
                    later.set()
                return
            made.set()


def fingerprint(network: Network) -> str:
    """Return what tells one target's weights from another's: a hash over a part of every tensor."""
    found = hashlib.sha256()
    for name, value in sorted(network.model.state_dict().items()):
        found.update(f"{name}{tuple(value.shape)}".encode())
        found.update(value.detach().reshape(-1)[:1024].float().numpy().tobytes())
    return found.hexdigest()[:16]


def _holds(path: Path, layers: list[int]) -> bool:
    from safetensors import safe_open

    if not path.exists():
        return False
    with safe_open(path, framework="pt") as file:
        return set(map(str, layers)) <= set(file.keys())


def _save(path: Path, tokens: Tensor, features: dict[int, Tensor], notes: dict[str, str]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {"tokens": tokens.to(torch.int32)}
    tensors |= {str(layer): state.contiguous() for layer, state in features.items()}
    with whole_file(path) as part:
        try:
            save_file(tensors, part, metadata=notes or None)
        except SafetensorError as error:  # how it says that a disk is full
            raise OSError(None, f"cannot be written: {error}", str(path)) from error


def _load(path: Path, layers: list[int]) -> tuple[Tensor, dict[int, Tensor], dict[str, Any]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        features = {layer: file.get_tensor(str(layer)) for layer in layers}
        return file.get_tensor("tokens").to(torch.int64), features, file.metadata() or {}
