"""The measured device: opened and described, but never changed."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from calibration.measurements import DeviceNotes
from simulator.errors import InputError, Problem

_FP8_CAPABILITY = (8, 9)
"""Ada, the first capability with fp8 matrix units."""
CACHES_COLD = 2
"""Copies together cover this multiple of the last-level cache, so that none is still cached when its turn
comes.
"""
MAX_COPIES = 1024
"""Data so small that more copies would be needed stays in the cache of a real step, too."""
_IDLE = 1
"""The throttle reason of a GPU without work."""
_CACHE_UNKNOWN = 32 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30
_CLOCK_FIELDS = (
    *("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw"),
    *(
        "clocks_event_reasons.active",
        "clocks_throttle_reasons.active",
    ),  # the second name is that of older drivers
)
_TITLES = {"H100 80GB HBM3": "h100-sxm", "H100 NVL": "h100-nvl", "H100 PCIe": "h100-pcie"} | {
    "H200": "h200-sxm",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
}
"""The driver's name of a GPU without its maker → its catalogue name. MIG slices have longer names."""


@dataclass(frozen=True)
class Device:
    """A device ready for measurements; `notes` describe it."""

    notes: DeviceNotes
    fp8: bool

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.notes.kind)

    @property
    def on_gpu(self) -> bool:
        return self.notes.kind == "cuda"

    @property
    def free_bytes(self) -> float:
        """Memory that is free now."""
        if self.on_gpu:
            return float(torch.cuda.mem_get_info()[0])
        return min(_memory_info().get("MemAvailable", self.notes.memory_bytes), _container_bytes_left())

    @property
    def throttle_reasons(self) -> str | None:
        """Bit mask of the reasons for which the driver throttles the clocks now; None if it does not."""
        if not self.on_gpu:
            return None
        for name, value in self.clocks().items():
            with suppress(ValueError):  # the driver reports neither yes nor no
                if name.endswith("_reasons.active") and int(str(value), 16) & ~_IDLE:
                    return str(value)
        return None

    def copies_of(self, size_bytes: float) -> int:
        """Number of copies that together evict the first from the cache; from 2 to `MAX_COPIES`."""
        return min(MAX_COPIES, max(2, math.ceil(CACHES_COLD * self.notes.cache_bytes / size_bytes)))

    def clocks(self) -> Mapping[str, Any]:
        """Current clocks, and on a GPU temperature, power and throttle reasons; empty if they are unknown."""
        if self.on_gpu:
            return _nvidia_smi(_CLOCK_FIELDS)
        clocks = _cpu_facts("cpu MHz")
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        return {"mean_mhz": round(sum(map(float, clocks)) / len(clocks))} | {"load": load} if clocks else {}


def open_device(kind: str) -> Device:
    """Open the device of a kind and pin its thread count. Raises InputError if there is none."""
    if kind == "cuda" and not torch.cuda.is_available():
        built = torch.version.cuda
        why = (
            f"torch {torch.__version__} sees no GPU" if built else f"torch {torch.__version__} is a CPU build"
        )
        message, allowed = f"CUDA is not available: {why}", "--device cpu measures this machine's CPU"
        raise InputError(Problem(field="--device", value=kind, message=message, allowed=allowed))
    threads = min(torch.get_num_threads(), _usable_cpus())
    torch.set_num_threads(threads)
    _keep_freed_memory()
    return _cuda_device(threads) if kind == "cuda" else _cpu_device(threads)


def _cuda_device(threads: int) -> Device:
    facts = torch.cuda.get_device_properties(0)
    notes = DeviceNotes(
        kind="cuda",
        name=facts.name,
        gpu=_TITLES.get(facts.name.removeprefix("NVIDIA ")),
        count=torch.cuda.device_count(),
        memory_bytes=facts.total_memory,
        cache_bytes=facts.L2_cache_size,
        threads=threads,
        driver=str(_nvidia_smi(("driver_version",)).get("driver_version", "")),
        torch=f"{torch.__version__} (CUDA {torch.version.cuda})",
        platform=platform.platform(),
    )
    return Device(notes, torch.cuda.get_device_capability(0) >= _FP8_CAPABILITY)


def _cpu_device(threads: int) -> Device:
    names = _cpu_facts("model name")
    notes = DeviceNotes(
        kind="cpu",
        name=names[0] if names else platform.processor() or platform.machine(),
        gpu=None,
        count=1,
        memory_bytes=_memory_info().get("MemTotal", 0),
        cache_bytes=_last_level_cache_bytes(),
        threads=threads,
        driver="",
        torch=torch.__version__,
        platform=platform.platform(),
    )
    return Device(notes, fp8=False)


def _keep_freed_memory() -> None:
    """Make the C library keep freed memory for later allocations, if it has `mallopt`.

    By default, glibc returns large blocks to the system or not depending on earlier frees. Then the same
    temporary has page faults in one run and none in another, which doubles the time of a sampler.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        mallopt(option, _KEPT_BYTES)


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_facts(field: str) -> list[str]:
    """All values of a field of /proc/cpuinfo; empty without the file."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(field)]


def _memory_info() -> dict[str, int]:
    """Bytes by name from /proc/meminfo; empty without the file."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    except OSError:
        return {}
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}


def _container_bytes_left() -> float:
    """Bytes left under the container's memory limit; infinite without one."""
    try:
        limit, used = (
            Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current")
        )
        return int(limit) - int(used)
    except (OSError, ValueError):  # no such file, or "max"
        return math.inf


def _last_level_cache_bytes() -> int:
    """Size of the last-level cache of the first core; a usual size if the system does not report it."""
    sizes: dict[int, int] = {}
    for cache in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            size = (cache / "size").read_text().strip()
            sizes[int((cache / "level").read_text())] = int(size.rstrip("KM")) << (20 if "M" in size else 10)
        except (OSError, ValueError):
            continue
    return sizes[max(sizes)] if sizes else _CACHE_UNKNOWN


def _nvidia_smi(names: tuple[str, ...]) -> dict[str, str]:
    """Fields of torch's GPU as nvidia-smi prints them, without those it does not know."""
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    gpu_id = "0" if uuid is None else f"GPU-{uuid}"
    values = {}
    for name in names:
        command = ["nvidia-smi", f"--query-gpu={name}", "--format=csv,noheader", f"--id={gpu_id}"]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            continue
        values[name] = process.stdout.strip()
    return values
