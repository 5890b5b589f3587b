"""Decodes several sequences in one batch: each runs the decode loop, and their passes run together.

A language model of this size reads its weights once for one row or for fifty, so that more batch slots cost
little. Every slot is a thread that waits when its model has to read. When all threads wait, passes of the
same kind run together, in the order of the slots, so that a run is reproducible.

The threads take turns: only one of them runs at a time. torch releases the interpreter's lock in every
operation, and fifty threads that compete for it take three times the CPU time of their work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from calibration.drafters.cache import KVCache, KVPool
from calibration.drafters.language_model import LanguageModel, Pass, Read, additive, visible
from calibration.drafters.target_session import TargetSession

JobOutput = TypeVar("JobOutput")

_LONG_ROWS = 40
"""A pass with more rows, such as a prompt, runs alone: padding the others to it would cost more than a second
pass.
"""


@dataclass
class _Request:
    """The pass of one sequence, waiting to be batched."""

    network: LanguageModel
    tokens: Tensor
    positions: Tensor
    cache: KVCache
    mask: Tensor | None
    layers: Sequence[int] | None
    watch: Sequence[int]
    last_only: bool
    result: Read | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Requests with the same key may run as a batch."""
        alone = id(self) if self.tokens.numel() > _LONG_ROWS else 0
        return (
            id(self.network),
            None if self.layers is None else tuple(self.layers),
            tuple(self.watch),
            alone,
        )


class _StoppedError(Exception):
    """The reader of the results has stopped early."""


class BatchSlots:
    """Runs jobs in `count` batch slots and batches the passes of their models."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pools: dict[int, tuple[LanguageModel, KVPool]] = {}
        self._turns = [threading.Semaphore(0) for _ in range(count)]
        self._turn_over = threading.Semaphore(0)
        self._running: set[int] = set()
        self._waiting: list[_Request] = []
        self._results: list[Any] = []
        self._failure: BaseException | None = None

    def session(self, network: LanguageModel, slot: int) -> BatchedSession:
        """Return an empty session of a slot on these weights."""
        _, pool = self._pools.setdefault(id(network), (network, KVPool(network.layer_count, self.count)))
        return BatchedSession(self, slot, network, KVCache(network.layer_count, pool, slot))

    def run(self, jobs: Iterable[Callable[[int], Iterable[JobOutput]]]) -> Iterator[JobOutput]:
        """Yield the results of the jobs as they come; each job is called with the number of its slot.

        An exception in a job ends all slots and is raised here.
        """
        remaining_jobs, self._failure = iter(jobs), None
        self._running, self._waiting, self._results = set(range(self.count)), [], []
        threads = [
            threading.Thread(target=self._slot, args=(slot, remaining_jobs), daemon=True)
            for slot in range(self.count)
        ]
        for thread in threads:
            thread.start()
        try:
            while self._running and self._failure is None:
                for slot in sorted(self._running):
                    self._give_turn(slot)
                results, self._results = self._results, []
                yield from results
                self._read_waiting()
        finally:  # the reader may stop early: then the slots must stop, too
            self._failure = self._failure or _StoppedError()
            for slot in sorted(self._running):
                self._give_turn(slot)
            for thread in threads:
                thread.join()
        if not isinstance(self._failure, _StoppedError):
            raise self._failure

    def read(self, request: _Request) -> Read:
        """Wait until the pass has run together with those of the other slots; return its result."""
        self._waiting.append(request)
        self._turn_over.release()
        self._turns[request.cache.slot].acquire()
        if self._failure is not None or request.result is None:
            raise RuntimeError("another batch slot failed")
        return request.result

    def _give_turn(self, slot: int) -> None:
        """Let a slot run until it waits for a pass or ends."""
        self._turns[slot].release()
        self._turn_over.acquire()

    def _slot(self, slot: int, remaining_jobs: Iterator[Callable[[int], Iterable[Any]]]) -> None:
        self._turns[slot].acquire()
        try:
            while self._failure is None and (job := next(remaining_jobs, None)) is not None:
                for result in job(slot):
                    self._results.append(result)
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            self._running.remove(slot)
            self._turn_over.release()

    def _read_waiting(self) -> None:
        """Run the passes that the slots wait for; those of the same kind run together."""
        groups: dict[tuple[Any, ...], list[_Request]] = {}
        for request in self._waiting:  # in the order of the slots
            groups.setdefault(request.key, []).append(request)
        self._waiting = []
        for group in groups.values():
            for request, result in zip(group, _read_batch(group), strict=True):
                request.result = result


class BatchedSession(TargetSession):
    """A session whose passes run together with those of the other slots."""

    def __init__(self, batch_slots: BatchSlots, slot: int, network: LanguageModel, cache: KVCache) -> None:
        super().__init__(_BatchedModel(batch_slots, network), cache)
        self._batch_slots, self._slot = batch_slots, slot

    def sibling(self, network: LanguageModel) -> TargetSession:
        """Return an empty session of the same slot on other weights."""
        return self._batch_slots.session(network, self._slot)


class _BatchedModel(LanguageModel):
    """A model whose passes are batched with those of the other slots; everything else is the model itself."""

    def __init__(self, batch_slots: BatchSlots, network: LanguageModel) -> None:
        self.__dict__.update(network.__dict__)
        self._batch_slots, self._model = batch_slots, network

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
        """As `LanguageModel.read`."""
        return self._batch_slots.read(
            _Request(self._model, tokens, positions, cache, mask, layers, watch, last_only)
        )


@torch.inference_mode()
def _read_batch(requests: list[_Request]) -> list[Read]:
    """Run the passes of several sequences as one batch; shorter ones are padded with rows that no other row
    sees.
    """
    first = requests[0]
    network, counts = first.network, [request.tokens.numel() for request in requests]
    rows, starts = max(counts), [request.cache.length for request in requests]
    tokens = torch.zeros(len(requests), rows, dtype=torch.int64)
    positions = torch.zeros_like(tokens)
    mask = torch.zeros(len(requests), 1, rows, max(starts) + rows, dtype=torch.bool)
    mask[..., 0] = True  # padding rows must attend to something
    for index, (request, count, start) in enumerate(zip(requests, counts, starts, strict=True)):
        tokens[index, :count] = request.tokens
        positions[index, :count] = request.positions
        mask[index, 0, :count, : start + count] = visible(count, request.mask, start)
    hidden = network.embed(tokens, positions)
    layers = range(network.layer_count) if first.layers is None else first.layers
    states = dict.fromkeys(first.watch, tokens)
    step = Pass(
        first.cache.pool, [request.cache.slot for request in requests], starts, additive(mask, hidden)
    )
    hidden = network.run_pass([network.layers[i] for i in layers], hidden, positions, step, layers, states)
    last_hidden = [
        hidden[index, count - 1 : count] if request.last_only else hidden[index, :count]
        for index, (request, count) in enumerate(zip(requests, counts, strict=True))
    ]
    logits = torch.split(network.head(torch.cat(last_hidden)), [len(rows) for rows in last_hidden])
    return [
        Read(logits[index], {layer: state[index, :count] for layer, state in states.items()})
        for index, count in enumerate(counts)
    ]
