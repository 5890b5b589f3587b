"""Several sequences decoded side by side: each runs the one decode loop, their passes run as one batch.

A language model of this size reads its weights for one row as for fifty, so lanes cost little more than one.
Every lane is a thread that waits whenever its network should read; when all wait, the passes of one kind run
together, in the order of the lanes, so that a run repeats exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor

from calibration.drafters.cache import KVCache, KVPool
from calibration.drafters.language_model import LanguageModel, Pass, Read, additive, visible
from calibration.drafters.target_session import TargetSession

Result = TypeVar("Result")

_LONG_ROWS = 40
"""A pass of more rows, a prompt, runs alone: filling others up to it would cost more than a second pass."""


@dataclass
class _Request:
    """One sequence's pass, waiting to be batched."""

    network: LanguageModel
    tokens: Tensor
    positions: Tensor
    cache: KVCache
    mask: Tensor | None
    layers: Sequence[int] | None
    watch: Sequence[int]
    last_only: bool
    answer: Read | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Requests with one key may run as a batch."""
        alone = id(self) if self.tokens.numel() > _LONG_ROWS else 0
        return (
            id(self.network),
            None if self.layers is None else tuple(self.layers),
            tuple(self.watch),
            alone,
        )


class _StoppedError(Exception):
    """Nobody waits for the lanes any more."""


class BatchSlots:
    """Runs jobs on `count` lanes and batches what their networks read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pools: dict[int, tuple[LanguageModel, KVPool]] = {}
        self._turn = threading.Condition()
        self._waiting: list[_Request] = []
        self._running = 0
        self._failure: BaseException | None = None

    def session(self, network: LanguageModel, lane: int) -> BatchedSession:
        """Return an empty session of a lane on these weights."""
        _, pool = self._pools.setdefault(id(network), (network, KVPool(network.layer_count, self.count)))
        return BatchedSession(self, lane, network, KVCache(network.layer_count, pool, lane))

    def run(self, jobs: Iterable[Callable[[int], Iterable[Result]]]) -> Iterator[Result]:
        """Yield what jobs yield, as it comes; each is called with the number of its lane.

        A job's exception ends all lanes and is raised here.
        """
        left, done = iter(jobs), SimpleQueue[tuple[bool, Any]]()
        self._running, self._failure, self._waiting = self.count, None, []
        threads = [
            threading.Thread(target=self._lane, args=(lane, left, done), daemon=True)
            for lane in range(self.count)
        ]
        for thread in threads:
            thread.start()
        try:
            ended = 0
            while ended < self.count:
                is_result, value = done.get()
                if is_result:
                    yield value
                else:
                    ended += 1
        finally:  # whoever reads may stop early: no lane goes on behind its back
            with self._turn:
                self._failure = self._failure or _StoppedError()
                self._turn.notify_all()
            for thread in threads:
                thread.join()
        if not isinstance(self._failure, _StoppedError):
            raise self._failure

    def read(self, request: _Request) -> Read:
        """Wait until the pass has run, with those of the other lanes; return what it gives."""
        with self._turn:
            self._waiting.append(request)
            self._serve_when_all_wait()
            self._turn.wait_for(lambda: request.answer is not None or self._failure is not None)
        if request.answer is None:
            raise RuntimeError("another lane failed")
        return request.answer

    def _lane(
        self, lane: int, left: Iterator[Callable[[int], Iterable[Any]]], done: SimpleQueue[tuple[bool, Any]]
    ) -> None:
        try:
            while self._failure is None:
                with self._turn:
                    job = next(left, None)
                if job is None:
                    break
                for result in job(lane):
                    done.put((True, result))
        except BaseException as error:
            with self._turn:
                self._failure = self._failure or error
                self._turn.notify_all()
        finally:
            with self._turn:
                self._running -= 1
                self._serve_when_all_wait()
            done.put((False, None))

    def _serve_when_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._running or self._failure is not None:
            return
        groups: dict[tuple[Any, ...], list[_Request]] = {}
        for request in sorted(self._waiting, key=lambda one: one.cache.slot):
            groups.setdefault(request.key, []).append(request)
        self._waiting = []
        try:
            for group in groups.values():
                for request, answer in zip(group, _read_batch(group), strict=True):
                    request.answer = answer
        except BaseException as error:
            self._failure = error
        self._turn.notify_all()


class BatchedSession(TargetSession):
    """A session whose network's passes run together with those of the other lanes."""

    def __init__(self, lanes: BatchSlots, lane: int, network: LanguageModel, cache: KVCache) -> None:
        super().__init__(_LaneNetwork(lanes, network), cache)
        self._lanes, self._lane = lanes, lane

    def beside(self, network: LanguageModel) -> TargetSession:
        """Return an empty session of the same lane on other weights."""
        return self._lanes.session(network, self._lane)


class _LaneNetwork(LanguageModel):
    """A network that reads when its lane's turn has come; all else is the network itself."""

    def __init__(self, lanes: BatchSlots, network: LanguageModel) -> None:
        self.__dict__.update(network.__dict__)
        self._lanes, self._whole = lanes, network

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
        return self._lanes.read(
            _Request(self._whole, tokens, positions, cache, mask, layers, watch, last_only)
        )


@torch.inference_mode()
def _read_batch(requests: list[_Request]) -> list[Read]:
    """Run the passes of several sequences as one, shorter ones filled up with rows that nobody sees."""
    first = requests[0]
    network, counts = first.network, [request.tokens.numel() for request in requests]
    rows, starts = max(counts), [request.cache.length for request in requests]
    tokens = torch.zeros(len(requests), rows, dtype=torch.int64)
    positions = torch.zeros_like(tokens)
    mask = torch.zeros(len(requests), 1, rows, max(starts) + rows, dtype=torch.bool)
    mask[..., 0] = True  # rows that fill up must see something
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
    wanted = [
        hidden[index, count - 1 : count] if request.last_only else hidden[index, :count]
        for index, (request, count) in enumerate(zip(requests, counts, strict=True))
    ]
    logits = torch.split(network.head(torch.cat(wanted)), [len(one) for one in wanted])
    return [
        Read(logits[index], {layer: state[index, :count] for layer, state in states.items()})
        for index, count in enumerate(counts)
    ]
