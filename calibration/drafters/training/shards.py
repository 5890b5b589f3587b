"""The target's hidden states over text, on disk in shards: read once, learned from many times.

Logits of a million tokens would take 98 GB, hidden states take 1.2 GB a layer; the head turns them back into
distributions. A shard is made when it is first asked for.
"""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from calibration.drafters.language_model import LanguageModel
from calibration.drafters.training.corpus import Corpus, HeldOutPrompts, Mix, held_out_prompts
from calibration.drafters.training.files import layers_in, load, save
from simulator.errors import InputError, Problem
from simulator.files import whole_file

_AT_A_TIME = 8
"""Sequences of one pass of the target."""


@dataclass(frozen=True)
class Shard:
    """tokens (n, L), and features {layer: (n, L, h)}; those after the last layer behind the final norm."""

    tokens: Tensor
    features: dict[int, Tensor]


@dataclass(frozen=True)
class HeldOutText(HeldOutPrompts):
    """Held-out text with features {layer: (n, L, h)}."""

    features: dict[int, Tensor]


@dataclass
class Shards:
    """The shards of one target in one folder. Raises InputError: the folder is another target's."""

    folder: Path
    network: LanguageModel
    mix: Mix = field(default_factory=Mix)
    rich: int = 0
    """So many shards at the beginning hold the features of `rich_layers` too, whoever asks first."""
    rich_layers: tuple[int, ...] = ()
    say: Callable[[str], None] = field(default=lambda text: None)
    """Told what takes long."""

    def __post_init__(self) -> None:
        found = {"target": fingerprint(self.network), "mix": asdict(self.mix)}
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "shards.json"
        if not manifest.exists():
            with whole_file(manifest) as part:
                part.write_text(json.dumps(found, indent=1))
        try:
            kept = dict(json.loads(manifest.read_text()))
        except ValueError as error:
            raise InputError(
                Problem(file=str(manifest), message="is damaged", allowed="a new folder")
            ) from error
        for key, what in (("target", "another target"), ("mix", "another mix of text")):
            if kept.get(key) != found[key]:
                message = f"holds hidden states of {what}"
                raise InputError(Problem(file=str(self.folder), message=message, allowed="a new folder"))

    def shard(self, index: int, layers: Iterable[int]) -> Shard:
        """Return shard `index` with the features after `layers` and after the last."""
        wanted = {*layers, self.network.layer_count}
        path = self.folder / f"shard-{index:05d}.safetensors"
        there = layers_in(path) if path.exists() else set[int]()
        if not wanted <= there:
            tokens = load(path, ())[0] if path.exists() else self._corpus.tokens(index)
            self.say(f"the target reads shard {index + 1}")
            made = wanted | there | (set(self.rich_layers) if index < self.rich else set())
            save(path, tokens, _features(self._reader, tokens, sorted(made)))
        tokens, features, _ = load(path, sorted(wanted))
        return Shard(tokens, features)

    def held_out(self, layers: Iterable[int]) -> HeldOutText:
        """Return what drafters are judged on, in the precision of the network."""
        wanted = {*layers, self.network.layer_count}
        path = self.folder / "held-out.safetensors"
        there = layers_in(path) if path.exists() else set[int]()
        if not wanted <= there:
            self.say("the target continues and reads the held-out prompts")
            text = _prompts(path, self.mix) if path.exists() else held_out_prompts(self.network, self.mix)
            notes = {"domains": json.dumps(text.domains), "names": json.dumps(text.names)}
            save(path, text.tokens, _features(self.network, text.tokens, sorted(wanted | there)), notes)
        text = _prompts(path, self.mix)
        features = load(path, sorted(wanted))[1]
        return HeldOutText(text.tokens, text.prompt, text.domains, text.names, features)

    @cached_property
    def _corpus(self) -> Corpus:
        return Corpus(self._reader, self.mix, self.folder, lambda text: self.say(text))

    @cached_property
    def _reader(self) -> LanguageModel:
        """The target in bfloat16, twice as fast; its distributions differ from those in float32 by little."""
        if self.network.dtype != torch.float32:
            return self.network
        return LanguageModel(copy.deepcopy(self.network.model).to(torch.bfloat16), self.network.tokenizer)


class ShardPrefetcher:
    """Makes shards in the background, in order, while the run learns from those there are."""

    def __init__(self, shards: Shards, layers: Iterable[int], indices: Iterable[int]) -> None:
        self._shards, self._layers = shards, tuple(layers)
        self._made = {index: threading.Event() for index in indices}
        self._error: BaseException | None = None
        threading.Thread(target=self._make, daemon=True).start()

    def shard(self, index: int) -> Shard:
        """Return a shard as soon as it is there. Raises what went wrong with it."""
        self._made[index].wait()
        if self._error is not None:
            raise self._error
        return self._shards.shard(index, self._layers)

    def _make(self) -> None:
        for index, made in self._made.items():
            try:
                self._shards.shard(index, self._layers)
            except BaseException as error:
                self._error = error
                for later in self._made.values():
                    later.set()
                return
            made.set()


def fingerprint(network: LanguageModel) -> str:
    """Return what tells one target's weights from another's: a hash over a part of every tensor."""
    found = hashlib.sha256()
    for name, value in sorted(network.model.state_dict().items()):
        found.update(f"{name}{tuple(value.shape)}".encode())
        found.update(value.detach().reshape(-1)[:1024].float().cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def _features(network: LanguageModel, tokens: Tensor, layers: Sequence[int]) -> dict[int, Tensor]:
    """The target's hidden states over tokens (n, L), {layer: (n, L, h)}."""
    parts: dict[int, list[Tensor]] = {layer: [] for layer in layers}
    for some in torch.split(tokens, _AT_A_TIME):
        states = network.hidden_states(some.to(network.device), layers)
        states[network.layer_count] = network.norm(states[network.layer_count])
        for layer in layers:
            parts[layer].append(states[layer].detach().cpu())
    return {layer: torch.cat(states) for layer, states in parts.items()}


def _prompts(path: Path, mix: Mix) -> HeldOutPrompts:
    tokens, _, notes = load(path, ())
    return HeldOutPrompts(tokens, mix.length // 4, json.loads(notes["domains"]), json.loads(notes["names"]))
