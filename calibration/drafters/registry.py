"""All kinds of drafters by name, with the source that each needs and its paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calibration.drafters.draft_model import DraftModel
from calibration.drafters.feature_head import FeatureHead
from calibration.drafters.layer_skip import LayerSkip
from calibration.drafters.lookahead import Lookahead
from calibration.drafters.medusa import Medusa
from calibration.drafters.ngram import NGram
from calibration.drafters.quantised import quantised
from calibration.drafters.suffix import Suffix
from calibration.drafters.target_session import TargetSession, load_network
from calibration.drafters.trained import drafter_of, load_head
from calibration.sampling.protocols import Drafter
from simulator.errors import InputError, Problem

Maker = Callable[[TargetSession], Drafter]
"""Makes a drafter for one session of the target; sessions share what it has loaded."""


@dataclass(frozen=True)
class DrafterKind:
    """One kind of drafter. `source` describes the text after the colon in KIND:SOURCE; empty if none is
    allowed.

    `deterministic`: its drafts do not depend on draft sampling, as with prompt lookup.
    """

    name: str
    paper: str
    source: str
    load: Callable[[TargetSession, str], Maker]
    deterministic: bool = False


def _layer_skip(target: TargetSession, source: str) -> Maker:
    layers = _layers(source, target.layer_count) if source else None
    return lambda session: LayerSkip(session, layers)


def _draft_model(target: TargetSession, source: str) -> Maker:
    network = load_network(source, str(target.network.dtype).removeprefix("torch."), "draft")
    if network.vocab_size != target.vocab_size:
        raise InputError(
            Problem(
                field="draft",
                value=source,
                message=f"has {network.vocab_size} tokens where the target has {target.vocab_size}",
                allowed="a draft model with the target's vocabulary",
            )
        )
    return lambda session: DraftModel(session.sibling(network))


def _quantised(target: TargetSession, source: str) -> Maker:
    if not source.isdecimal() or not 2 <= int(source) <= 8:
        raise _bad(f"quantised:{source}", "quantised:BITS with 2 to 8 bits")
    network = quantised(target.network, int(source))
    return lambda session: DraftModel(session.sibling(network), kind="quantised")


class _Trained:
    """Makes drafters on one head. `max_levels`: drafts per round if each head predicts one position."""

    def __init__(self, head: Medusa | FeatureHead) -> None:
        self._head = head
        self.max_levels = len(head.heads) if isinstance(head, Medusa) else None

    def __call__(self, session: TargetSession) -> Drafter:
        return drafter_of(self._head, session)


def _trained(kind: str) -> Callable[[TargetSession, str], Maker]:
    def load(target: TargetSession, source: str) -> Maker:
        head = load_head(Path(source), target.network)
        if head.kind != kind:
            raise _bad(f"{kind}:{source}", f"{head.kind}:{source}, which it is")
        return _Trained(head)

    return load


def max_levels(maker: Maker) -> int | None:
    """Return the largest number of successive drafts of a maker's drafters; None without a limit."""
    return getattr(maker, "max_levels", None)


_TRAINED = "a folder that decodesim distill wrote"

KINDS: dict[str, DrafterKind] = {
    kind.name: kind
    for kind in (
        DrafterKind("layer-skip", "arXiv 2309.08168, 2404.16710", "layers kept, as 0-7+22-29", _layer_skip),
        DrafterKind("ngram", "arXiv 2304.04487", "", lambda _t, _s: lambda _: NGram(), deterministic=True),
        DrafterKind("suffix", "arXiv 2411.04975", "", lambda _t, _s: lambda _: Suffix(), deterministic=True),
        DrafterKind("lookahead", "arXiv 2402.02057", "", lambda _t, _s: Lookahead, deterministic=True),
        DrafterKind("draft-model", "arXiv 2211.17192, 2302.01318", "a Hugging Face folder", _draft_model),
        DrafterKind("eagle", "arXiv 2401.15077", _TRAINED, _trained("eagle")),
        DrafterKind("eagle3", "arXiv 2503.01840", _TRAINED, _trained("eagle3")),
        DrafterKind("medusa", "arXiv 2401.10774", _TRAINED, _trained("medusa")),
        DrafterKind("mtp", "arXiv 2412.19437", _TRAINED, _trained("mtp")),
        DrafterKind("quantised", "arXiv 2410.11305", "bits of a weight", _quantised),
    )
}


def load_drafter(entry: str, target: TargetSession) -> tuple[DrafterKind, Maker]:
    """Return the kind of `KIND[:SOURCE]` and its maker. Raises InputError."""
    name, _, source = entry.partition(":")
    kind = KINDS.get(name)
    if kind is None:
        raise _bad(entry, ", ".join(KINDS))
    if source and not kind.source:
        raise _bad(entry, f"{name} alone")
    if not source and kind.source and name != "layer-skip":
        raise _bad(entry, f"{name}:SOURCE, {kind.source}")
    return kind, kind.load(target, source)


def _layers(text: str, layer_count: int) -> tuple[int, ...]:
    """Return the layers that `0-7+22-29` names."""
    layers: list[int] = []
    for part in text.split("+"):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise _bad(f"layer-skip:{text}", "layers kept, as 0-7+22-29")
        layers += range(int(first), int(last if dash else first) + 1)
    if not layers or layers != sorted(set(layers)) or layers[-1] >= layer_count:
        raise _bad(f"layer-skip:{text}", f"layers kept in rising order, from 0 to {layer_count - 1}")
    return tuple(layers)


def _bad(value: str, allowed: str) -> InputError:
    return InputError(Problem(field="draft", value=value, message="is not a drafter", allowed=allowed))
