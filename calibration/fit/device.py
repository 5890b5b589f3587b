"""The device of a profile: a known GPU by its datasheet, any other device by its measured rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibration.fit.parts import FittedPart, noise_percent, rounded
from calibration.measurements import Measurement, Measurements
from simulator.costs.profiles import BASE, Part
from simulator.gpu import GPUS, Gpu

_PCIE_BYTES_PER_S = 64e9
_MIN_ROUNDS = 4
"""With fewer rounds, Student's t gives uselessly wide intervals."""
HERE = "measured on the device itself"


def gpu_of(measurements: Measurements) -> tuple[str | dict[str, Any], Gpu]:
    """(entry of the profile file, record). Raises ValueError if memory or bf16 matrices were not timed."""
    device = measurements.device
    if device.gpu in GPUS:
        return str(device.gpu), GPUS[str(device.gpu)]
    bandwidth, flops = best_bandwidth(measurements), best_rate(measurements, "bf16")
    if not bandwidth or not flops:
        raise ValueError("memory and bf16 matrices must be measured to describe this device")
    peaks = {"bf16": flops} | ({"fp8": fp8} if (fp8 := best_rate(measurements, "fp8")) else {})
    on_gpu = device.kind == "cuda"
    figures: dict[str, Any] = {
        "name": device.name,
        "title": device.name,
        "memory_bytes": device.memory_bytes,
        "hbm_bandwidth_bytes_per_s": rounded(bandwidth),
        "peak_flops_per_s": {name: rounded(rate) for name, rate in peaks.items()},
        "l2_bytes": max(device.cache_bytes, 1),
        "sms": max(device.threads, 1),
        "nvlink_bandwidth_bytes_per_s": _PCIE_BYTES_PER_S if on_gpu else rounded(bandwidth),
        "interconnect": "PCIe, assumed" if on_gpu else "none: one device",
        "nvlink_gpus": 1,
        "sources": {"hbm_bandwidth_bytes_per_s": HERE, "peak_flops_per_s": HERE, "memory_bytes": HERE},
    }
    return figures, Gpu(**figures)


def base_of(measurements: Measurements) -> str:
    """The profile from which unmeasured parts are inherited."""
    gpu = measurements.device.gpu
    return str(gpu) if gpu in GPUS else BASE


def best_bandwidth(measurements: Measurements) -> float:
    """Largest measured memory bandwidth in bytes/s; 0 without measurements."""
    return max((p.bytes / p.seconds for p in measurements.of("memory")), default=0.0)


def best_rate(measurements: Measurements, dtype: str) -> float:
    """Largest FLOP/s of a linear layer in this format; 0 without measurements."""
    return max((p.flops / p.seconds for p in measurements.of("linear") if p.dtype == dtype), default=0.0)


def fit_memory(measurements: Measurements) -> FittedPart | None:
    """The part `memory`: bytes/s of each access pattern at its best size, with intervals.

    No operator is priced by it; it reports the bandwidth that the device reaches.
    """
    best: dict[str, Measurement] = {}
    for point in measurements.of("memory"):
        if (
            point.op not in best
            or point.bytes / point.seconds > best[point.op].bytes / best[point.op].seconds
        ):
            best[point.op] = point
    if not best:
        return None
    rates = {f"{op}_bytes_per_s": rounded(p.bytes / p.seconds) for op, p in sorted(best.items())}
    intervals = {f"{op}_bytes_per_s": _rate_interval(p) for op, p in sorted(best.items())}
    residual = {"intervals": intervals, "noise_percent": noise_percent(tuple(best.values()))}
    part = Part(
        "memory",
        "measured",
        "torch, large fp32 arrays",
        rates,
        {},
        residual,
        "not a price: the bandwidth reached",
    )
    return FittedPart(part)


def _rate_interval(point: Measurement) -> list[float]:
    """95 % interval of bytes/s from the rounds; P10 to P90 of the calls if there are few rounds."""
    from scipy.stats import t

    rates = point.bytes / np.array(point.rounds_s)
    if len(rates) < _MIN_ROUNDS:
        return [rounded(point.bytes / point.p90_s), rounded(point.bytes / point.p10_s)]
    middle = point.bytes / point.seconds
    half = float(t.ppf(0.975, len(rates) - 1)) * float(rates.std(ddof=1)) / np.sqrt(len(rates))
    return [rounded(max(middle - half, 0.0)), rounded(middle + half)]


def fit_launch(measurements: Measurements) -> FittedPart:
    """The part `launch`: host time of one operation that torch launches on a GPU.

    On a CPU the time of an operation includes its call.
    """
    if measurements.device.kind != "cuda":
        note = "the host is the device: the times of operators include their calls"
        return FittedPart(Part("launch", "assumed", "torch on the CPU", {"eager_call_us": 0.0}, {}, {}, note))
    points = measurements.of("launch", "eager")
    us = float(np.median([p.seconds for p in points])) * 1e6
    residual = {"noise_percent": noise_percent(points)}
    part = Part(
        "launch", "measured", "torch, small kernels in a row", {"eager_call_us": rounded(us)}, {}, residual
    )
    return FittedPart(part)


def provenance(measurements: Measurements, file: str) -> dict[str, Any]:
    """The provenance of the figures: device, driver, versions, threads, clocks before and after, dates."""
    device, sessions = measurements.device, list(measurements.sessions)
    began: Sequence[str] = sorted(str(session.get("begun", "")) for session in sessions)
    return {
        "builder": "decodesim calibrate",
        "measurements": file,
        "points": len(measurements.points),
        "date": began[-1] if began else "",
        "device": device.name,
        "kind": device.kind,
        "count": device.count,
        "threads": device.threads,
        "driver": device.driver,
        "torch": device.torch,
        "platform": device.platform,
        "sessions": sessions,
    }
