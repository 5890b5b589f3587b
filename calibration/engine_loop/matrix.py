"""What is measured: variants of the engine, loads, and the requests of every cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from calibration.engine_loop.calibration_points import LOOKUP
from calibration.engine_loop.checkpoints import checkpoint

PLAIN = "plain"
PROMPT_TOKENS = 64
CALIBRATION_LOADS = (2, 16)
"""Clients of the plain runs that the preset is made from."""
CALIBRATION_ROUNDS = 3
"""Times that each of them runs, in turns."""
REQUESTS_FOR_P99 = 500
ACCEPTANCE_REQUESTS = 48
ACCEPTANCE_LOAD = 8
_REQUESTS = {1: 16, 2: 24, 4: 40, 8: 64, 16: 128, 32: 192}
_RATE_SECONDS = 20
_SHORT_FROM = 16
"""Clients from which outputs are short, so that many requests fit into a cell."""
_LONG_OUTPUT, _SHORT_OUTPUT = 64, 32
_SLOW_SHARE = 0.5
"""Share of the requests where the variant drafts with a model, which takes several times as long."""


@dataclass(frozen=True)
class EngineVariant:
    """Plain decoding, or one speculative configuration of the server."""

    name: str
    method: str | None = None
    draft_length: int = 0
    draft_layers: int | None = None

    def speculative_config(self, folder: Path) -> dict[str, Any] | None:
        """vLLM's `--speculative-config`; None for plain decoding."""
        if self.method is None:
            return None
        length = {"num_speculative_tokens": self.draft_length}
        if self.draft_layers is None:
            return {**LOOKUP, **length}
        return {"method": self.method, "model": str(checkpoint(folder, self.draft_layers)), **length}


@dataclass(frozen=True)
class LoopCell:
    """One variant at one load: concurrent clients, or Poisson arrivals."""

    variant: str
    requests: int
    output_tokens: int
    clients: int | None = None
    rate_per_s: float | None = None

    @property
    def load(self) -> str:
        """The load as its file name has it."""
        return f"c{self.clients}" if self.clients else f"r{self.rate_per_s:g}"

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.variant}-{self.load}"

    @property
    def load_words(self) -> str:
        """The load in words."""
        if self.clients:
            return f"{self.clients} client{'' if self.clients == 1 else 's'}"
        return f"{self.rate_per_s:g} requests/s"

    @property
    def claims_p99(self) -> bool:
        """Whether it has enough requests for a P99."""
        return self.requests >= REQUESTS_FOR_P99


@dataclass(frozen=True)
class LoopMatrix:
    """Variants × loads. `p99`: names of the cells that get enough requests for a P99."""

    variants: tuple[EngineVariant, ...]
    clients: tuple[int, ...]
    rates_per_s: tuple[float, ...] = ()
    p99: frozenset[str] = frozenset()
    rounds: int = 1
    """Times that a cell is measured, unless it has the requests for a P99: then it is long enough."""

    def cells(self) -> Iterator[LoopCell]:
        """Load by load, and at each load all variants one after another."""
        for clients in self.clients:
            for variant in self.variants:
                yield self._cell(variant, clients=clients)
        for rate in self.rates_per_s:
            for variant in self.variants:
                yield self._cell(variant, rate_per_s=rate)

    def visits(self) -> Iterator[tuple[LoopCell, int]]:
        """(cell, round from 1) in the order of measuring. At each load the rounds go forth and back through
        the variants: a steady drift meets all alike, and few servers have to be exchanged.
        """
        for _, cells_of_load in groupby(self.cells(), key=lambda cell: cell.load):
            cells = list(cells_of_load)
            for number in range(1, self.rounds + 1):
                order = cells if number % 2 else cells[::-1]
                yield from ((cell, number) for cell in order if number == 1 or not cell.claims_p99)

    def _cell(
        self, variant: EngineVariant, clients: int | None = None, rate_per_s: float | None = None
    ) -> LoopCell:
        output = _SHORT_OUTPUT if clients and clients >= _SHORT_FROM else _LONG_OUTPUT
        requests = _REQUESTS[clients] if clients else round(_RATE_SECONDS * (rate_per_s or 0.0))
        if variant.draft_layers is not None:
            requests = max(clients or 1, round(requests * _SLOW_SHARE))
        cell = LoopCell(variant.name, requests, output, clients, rate_per_s)
        if cell.name not in self.p99:
            return cell
        return LoopCell(variant.name, REQUESTS_FOR_P99, output, clients, rate_per_s)


def round_name(name: str, number: int) -> str:
    """The name of the file of a round, from 1."""
    return name if number == 1 else f"{name}.{number}"


def _lookup(draft_length: int) -> EngineVariant:
    return EngineVariant(f"ngram-k{draft_length}", "ngram", draft_length)


def _draft(layers: int, draft_length: int) -> EngineVariant:
    return EngineVariant(f"draft-{layers}-k{draft_length}", "draft_model", draft_length, layers)


_PLAIN = EngineVariant(PLAIN)
_LOADS = (1, 2, 4, 8, 16, 32)
_P99 = frozenset(f"{variant}-c{clients}" for variant in (PLAIN, "ngram-k3") for clients in (16, 32))

MATRICES = {
    "small": LoopMatrix((_PLAIN, _lookup(3), _draft(6, 1)), (1, 4, 16), rounds=2),
    "half-hour": LoopMatrix(
        (_PLAIN, _lookup(1), _lookup(3), _lookup(5), _draft(6, 1), _draft(24, 3)), _LOADS, (1.0, 3.0), _P99
    ),
    "full": LoopMatrix(
        (
            _PLAIN,
            *(_lookup(count) for count in (1, 3, 5)),
            *(_draft(layers, count) for layers in (6, 15, 24) for count in (1, 3, 5)),
        ),
        _LOADS,
        (1.0, 3.0),
        frozenset(
            f"{name}-c{clients}"
            for name in (PLAIN, "ngram-k1", "ngram-k3", "ngram-k5")
            for clients in (8, 16, 32)
        ),
        rounds=3,
    ),
}
"""Name → matrix. `small` is that of `make engine`, `full` that of `make engine-full`."""
