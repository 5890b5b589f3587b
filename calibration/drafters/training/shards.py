"""The target's hidden states over text, in shards on disk: computed once, used many times.

Logits of a million tokens would take 98 GB, hidden states take 1.2 GB per layer; the head turns them into
distributions. A shard is made when it is first needed.
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

_BATCH = 8
"""Sequences in one pass of the target."""


@dataclass(frozen=True)
class Shard:
    """tokens (n, L), and features {layer: (n, L, h)}; those of the last layer are after the final norm."""

    tokens: Tensor
    features: dict[int, Tensor]


@dataclass(frozen=True)
class HeldOutText(HeldOutPrompts):
    """Held-out text with features {layer: (n, L, h)}."""

    features: dict[int, Tensor]


@dataclass
class Shards:
    """The shards of one target in one folder. Raises InputError if the folder belongs to another target."""

    folder: Path
    network: LanguageModel
    mix: Mix = field(default_factory=Mix)
    rich: int = 0
    """Number of first shards that also hold the features of `rich_layers`, whoever needs them first."""
    rich_layers: tuple[int, ...] = ()
    report: Callable[[str], None] = field(default=lambda text: None)
    """Called with a message before slow work."""

    def __post_init__(self) -> None:
        identity = {"target": fingerprint(self.network), "mix": asdict(self.mix)}
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "shards.json"
        if not manifest.exists():
            with whole_file(manifest) as part:
                part.write_text(json.dumps(identity, indent=1))
        try:
            stored = dict(json.loads(manifest.read_text()))
        except ValueError as error:
            raise InputError(
                Problem(file=str(manifest), message="is damaged", allowed="a new folder")
            ) from error
        for key, other in (("target", "another target"), ("mix", "another mix of text")):
            if stored.get(key) != identity[key]:
                message = f"holds hidden states of {other}"
                raise InputError(Problem(file=str(self.folder), message=message, allowed="a new folder"))

    def shard(self, index: int, layers: Iterable[int]) -> Shard:
        """Return shard `index` with the features after `layers` and after the last layer."""
        needed = {*layers, self.network.layer_count}
        path = self.folder / f"shard-{index:05d}.safetensors"
        stored = layers_in(path) if path.exists() else set[int]()
        if not needed <= stored:
            tokens = load(path, ())[0] if path.exists() else self._corpus.tokens(index)
            self.report(f"the target reads shard {index + 1}")
            layers_made = needed | stored | (set(self.rich_layers) if index < self.rich else set())
            save(path, tokens, _features(self._reader, tokens, sorted(layers_made)))
        tokens, features, _ = load(path, sorted(needed))
        return Shard(tokens, features)

    def held_out(self, layers: Iterable[int]) -> HeldOutText:
        """Return the text on which drafters are evaluated, with features in the precision of the model."""
        needed = {*layers, self.network.layer_count}
        path = self.folder / "held-out.safetensors"
        stored = layers_in(path) if path.exists() else set[int]()
        if not needed <= stored:
            self.report("the target continues and reads the held-out prompts")
            text = _prompts(path, self.mix) if path.exists() else held_out_prompts(self.network, self.mix)
            notes = {"domains": json.dumps(text.domains), "names": json.dumps(text.names)}
            save(path, text.tokens, _features(self.network, text.tokens, sorted(needed | stored)), notes)
        text = _prompts(path, self.mix)
        features = load(path, sorted(needed))[1]
        return HeldOutText(text.tokens, text.prompt, text.domains, text.names, features)

    @cached_property
    def _corpus(self) -> Corpus:
        return Corpus(self._reader, self.mix, self.folder, lambda text: self.report(text))

    @cached_property
    def _reader(self) -> LanguageModel:
        """The target in bfloat16, which is twice as fast and changes the distributions little."""
        if self.network.dtype != torch.float32:
            return self.network
        return LanguageModel(copy.deepcopy(self.network.model).to(torch.bfloat16), self.network.tokenizer)


class ShardPrefetcher:
    """Makes shards in a background thread, in order, while the run learns from earlier ones."""

    def __init__(self, shards: Shards, layers: Iterable[int], indices: Iterable[int]) -> None:
        self._shards, self._layers = shards, tuple(layers)
        self._made = {index: threading.Event() for index in indices}
        self._error: BaseException | None = None
        threading.Thread(target=self._make, daemon=True).start()

    def shard(self, index: int) -> Shard:
        """Return a shard as soon as it is made. Raises the error of the background thread."""
        self._made[index].wait()
        if self._error is not None:
            raise self._error
        return self._shards.shard(index, self._layers)

    def _make(self) -> None:
        for index, shard in self._made.items():
            try:
                self._shards.shard(index, self._layers)
            except BaseException as error:
                self._error = error
                for later in self._made.values():
                    later.set()
                return
            shard.set()


def fingerprint(network: LanguageModel) -> str:
    """Return a hash of a target's weights, over a part of every tensor."""
    digest = hashlib.sha256()
    for name, value in sorted(network.model.state_dict().items()):
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.detach().reshape(-1)[:1024].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _features(network: LanguageModel, tokens: Tensor, layers: Sequence[int]) -> dict[int, Tensor]:
    """The target's hidden states over tokens (n, L), {layer: (n, L, h)}."""
    parts: dict[int, list[Tensor]] = {layer: [] for layer in layers}
    for batch in torch.split(tokens, _BATCH):
        states = network.hidden_states(batch.to(network.device), layers)
        states[network.layer_count] = network.norm(states[network.layer_count])
        for layer in layers:
            parts[layer].append(states[layer].detach().cpu())
    return {layer: torch.cat(states) for layer, states in parts.items()}


def _prompts(path: Path, mix: Mix) -> HeldOutPrompts:
    tokens, _, notes = load(path, ())
    return HeldOutPrompts(tokens, mix.length // 4, json.loads(notes["domains"]), json.loads(notes["names"]))
