"""All-reduce of bf16 messages over the GPUs of this machine, one process per GPU, in a graph and launched."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from calibration.measurements import MeasurementRow
from calibration.microbench.cuda_graph import captured
from calibration.microbench.timing import WARM_UPS, Timed, timed_of
from calibration.workers import for_worker

_BF16 = 2
_IN_GRAPH, _REPEATS = 20, 20
_HOST = "127.0.0.1"


def allreduce_rows(kind: str, gpus: int, message_bytes: Sequence[int]) -> list[MeasurementRow]:
    """A row per message size and launch mode, from the first of `gpus` ranks; on CPUs only launched."""
    mp: Any = torch.multiprocessing
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    arguments = (gpus, kind, tuple(message_bytes), _free_port(), results)
    mp.spawn(for_worker(_rank), args=arguments, nprocs=gpus)
    timings: list[tuple[str, int, Timed]] = results.get()
    return [_row(op, gpus, size, timed) for op, size, timed in timings]


def _row(op: str, gpus: int, size: int, timed: Timed) -> MeasurementRow:
    moved = 2.0 * (gpus - 1) / gpus * size  # bytes that one rank sends in a ring
    shape = {"gpus": gpus, "bytes": size}
    return MeasurementRow("allreduce", op, shape, "bf16", moved, size / _BF16, *timed, round=0)


def _rank(rank: int, gpus: int, kind: str, sizes: Sequence[int], port: int, results: Any) -> None:
    """One process of the group."""
    os.environ |= {"MASTER_ADDR": _HOST, "MASTER_PORT": str(port)}
    if kind == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", rank=rank, world_size=gpus)
    timings = []
    for size in sizes:
        message = torch.ones(size // _BF16, dtype=torch.bfloat16, device=kind)
        if kind == "cuda":
            timings.append(("graph", size, _in_graph(message)))
        timings.append(("eager", size, _launched(message)))
    if rank == 0:
        results.put(timings)
    dist.barrier()
    dist.destroy_process_group()


def _in_graph(message: torch.Tensor) -> Timed:
    def reduce(times: int) -> None:
        for _ in range(times):
            dist.all_reduce(message)

    replay = captured(lambda: reduce(_IN_GRAPH), lambda: reduce(WARM_UPS))
    for _ in range(WARM_UPS):
        replay()
    return timed_of(np.array([replay() for _ in range(_REPEATS)]) / _IN_GRAPH)


def _launched(message: torch.Tensor) -> Timed:
    """All ranks start together; the clock stops when the device has finished."""
    import time

    samples = []
    for _ in range(WARM_UPS + _REPEATS):
        dist.barrier()
        started_s = time.perf_counter()
        dist.all_reduce(message)
        if message.is_cuda:
            torch.cuda.synchronize()
        samples.append(time.perf_counter() - started_s)
    return timed_of(np.array(samples[WARM_UPS:]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
