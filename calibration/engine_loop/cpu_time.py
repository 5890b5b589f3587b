"""CPU time of the machine and of process groups, from /proc: whether cores were quiet while a cell ran."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_IDLE = (3, 4)
"""Fields of /proc/stat that are no work: idle, and waiting for disks."""
_FIELDS = 8
"""user, nice, system, idle, iowait, irq, softirq, steal; what guests take is counted in user already."""
_GROUP, _USER, _SYSTEM = 2, 11, 12
"""Fields of a process's stat behind its name."""


def machine_cpu_s() -> float:
    """Seconds that all cores together worked so far, or that the hypervisor took from them."""
    line = Path("/proc/stat").read_text("utf-8").splitlines()[0]
    ticks = [int(field) for field in line.split()[1 : 1 + _FIELDS]]
    return _seconds(sum(count for at, count in enumerate(ticks) if at not in _IDLE))


def process_cpu_s(process: int) -> float:
    """Seconds of one process so far."""
    fields = _stat(Path(f"/proc/{process}"))
    return _seconds(int(fields[_USER]) + int(fields[_SYSTEM]))


def group_cpu_s(group: int) -> float:
    """Seconds of all processes of a group so far; those that ended do not count."""
    stats = [stat for stat in _all_stats() if int(stat[_GROUP]) == group]
    return _seconds(sum(int(stat[_USER]) + int(stat[_SYSTEM]) for stat in stats))


def _all_stats() -> Iterator[list[str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield _stat(folder)


def _stat(folder: Path) -> list[str]:
    return (folder / "stat").read_text("utf-8").rpartition(")")[2].split()


def _seconds(ticks: int) -> float:
    return ticks / os.sysconf("SC_CLK_TCK")
