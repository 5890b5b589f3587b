"""The file of a profile, read and checked: everything that is wrong with it at once, each with its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from simulator.costs.faults import Faults
from simulator.costs.inherit import parse_gpu
from simulator.costs.ops.rows import RowTable, StreamedRows
from simulator.costs.profile_notes import check_residual
from simulator.costs.profile_parts import Part, Profile
from simulator.document import DataPath
from simulator.errors import InputError
from simulator.gpu import Gpu
from simulator.models.matrices import WEIGHT_FORMATS
from simulator.numerics.arrays import Floats

SCHEMA = "decodesim/profile-1"
STATUSES = ("measured", "inherited", "assumed")
REQUIRED = (
    *("gemm/bf16", "attention/bf16", "mla/bf16", "experts/bf16"),
    *("allreduce", "prefill", "streamed", "elementwise", "sampler"),
)
"""Parts that a file must bring, or name a profile to inherit from."""

AXES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("shapes", "knots"),
    "experts": ("shapes", "knots"),
    "attention": ("head_dims", "kv_heads", "batches", "contexts"),
    "mla": ("rows", "batches", "contexts"),
}
"""Family → the axes of its table of times, in order."""

ROWS: Mapping[str, str] = {
    "elementwise": "tokens",
    "pass": "tokens",
    "sampler": "rows",
    "draft_sampler": "rows",
}
"""Family → the axis of a table of times by rows alone; coefficients can stand in its place."""

BY_GPUS: Mapping[str, str] = {"allreduce": "bytes", "exchange": "tokens"}
"""Family → the axis of its tables, one for each number of GPUs."""

FURTHER_AXIS = {"attention": "queries"}
"""Family → the axis that its table may have after the others."""
SAMPLERS = ("sampler", "draft_sampler")
HOW_SAMPLED = ("greedy", "sampled", "plain-greedy", "plain-sampled")
"""Ways of choosing tokens; `plain-`: in a round that verifies nothing."""


def read_gpu(raw: Mapping[str, Any], faults: Faults) -> Gpu | None:
    """The GPU that the file names or describes."""
    described: Any = raw.get("gpu") if isinstance(raw.get("gpu"), dict) else {}
    peaks: Any = described.get("peak_flops_per_s")
    figures: dict[DataPath, object] = {
        ("gpu", key): value for key, value in described.items() if isinstance(value, float)
    }
    if isinstance(peaks, dict):
        figures |= {("gpu", "peak_flops_per_s", key): value for key, value in peaks.items()}
    for path, value in figures.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            faults.add(path, value, "is not usable", "a finite number above 0")
    try:
        return parse_gpu(raw["gpu"])
    except InputError as error:
        faults.noted += [(("gpu",), problem.at(field="gpu")) for problem in error.problems]
    except KeyError as error:
        missing: DataPath = ("gpu",) if error.args == ("gpu",) else ("gpu", str(error.args[0]))
        faults.add(missing, None, "is missing", "the name of a GPU, or an object with its figures")
    except (TypeError, ValueError) as error:
        faults.add(
            ("gpu",), None, f"is not usable: {error}", "the name of a GPU, or an object with its figures"
        )
    return None


def read_parts(raw: object, faults: Faults) -> dict[str, tuple[int, Part]]:
    """Name → (number in the file, part) of the parts that can be read."""
    if not isinstance(raw, list):
        faults.add(("parts",), raw, "is missing" if raw is None else "is not usable", "a list of parts")
        return {}
    parts: dict[str, tuple[int, Part]] = {}
    for index, entry in enumerate(raw):
        part = _read_part(entry, ("parts", index), faults)
        if part is not None and part.name in parts:
            faults.add(("parts", index, "name"), part.name, "stands twice", "each part once")
        elif part is not None:
            parts[part.name] = index, part
    return parts


def _read_part(raw: object, path: DataPath, faults: Faults) -> Part | None:
    if not isinstance(raw, dict):
        faults.add(path, raw, "is no part", "an object with name, status, coefficients and table")
        return None
    before = len(faults.noted)
    name, status = raw.get("name"), raw.get("status")
    family, _, variant = name.partition("/") if isinstance(name, str) else ("", "", "")
    if not isinstance(name, str):
        faults.add((*path, "name"), name, "is no text", f"for example {REQUIRED[0]}")
    elif family in ("gemm", "experts") and variant.partition("/")[0] not in WEIGHT_FORMATS:
        faults.add((*path, "name"), name, "unknown weight format", f"known: {', '.join(WEIGHT_FORMATS)}")
    elif family in SAMPLERS and variant not in ("", *HOW_SAMPLED):
        faults.add((*path, "name"), name, "unknown way of sampling", f"known: {', '.join(HOW_SAMPLED)}")
    if status not in STATUSES:
        faults.add((*path, "status"), status, "is not known", f"one of {', '.join(STATUSES)}")
    for key in ("coefficients", "table", "residual"):
        if not isinstance(raw.get(key, {}), dict):
            faults.add((*path, key), raw[key], "is not usable", "an object")
    if len(faults.noted) > before:
        return None
    for key, value in raw.get("coefficients", {}).items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value < 0:
            faults.add((*path, "coefficients", key), value, "is not usable", "a finite number, 0 or more")
    _check_table(family, raw.get("table", {}), (*path, "table"), faults)
    check_residual(raw.get("residual", {}), (*path, "residual"), faults)
    if len(faults.noted) > before:
        return None
    frozen = {key: MappingProxyType(dict(raw.get(key, {}))) for key in ("coefficients", "table", "residual")}
    return Part(str(name), str(status), str(raw.get("source", "")), **frozen, note=str(raw.get("note", "")))


def _check_table(family: str, table: Mapping[str, Any], path: DataPath, faults: Faults) -> None:
    """Axes that rise, and times that are positive and as many as the axes say."""
    if family in BY_GPUS:
        axis = BY_GPUS[family]
        for gpus, rows in table.items():
            if not gpus.isdecimal() or not isinstance(rows, dict):
                faults.add((*path, gpus), rows, "is not usable", f"GPUs: {{{axis}: […], us: […]}}")
                continue
            _check_times(rows, (axis,), ("us",), (*path, gpus), faults)
    elif family in ROWS and (table or family == "pass"):
        _check_times(table, (ROWS[family],), ("us",), path, faults)
    elif family in AXES and (table or family != "gemm"):
        times = [key for key in ("us", "log_ratio") if key in table] or ["us"]
        further = FURTHER_AXIS.get(family)
        axes = (*AXES[family], further) if further in table and further else AXES[family]
        _check_times(table, axes, times, path, faults)


def _check_times(
    table: Mapping[str, Any], axes: tuple[str, ...], times: Any, path: DataPath, faults: Faults
) -> None:
    shape: list[int] = []
    for key in axes:
        axis = _numbers(table.get(key), (*path, key), faults)
        if axis is None:
            continue
        if not len(axis) or (axis <= 0).any():
            faults.add(
                (*path, key), None, "holds no numbers or some that are not positive", "positive numbers"
            )
        elif key != "shapes" and (axis.ndim != 1 or (np.diff(axis) <= 0).any()):
            faults.add((*path, key), None, "does not rise", "a list in rising order, each number once")
        shape.append(len(axis))
    for key in times:
        values = _numbers(table.get(key), (*path, key), faults)
        if values is None or len(shape) < len(axes):
            continue
        if values.shape != tuple(shape):
            shape_text = " × ".join(map(str, values.shape))
            faults.add(
                (*path, key), shape_text, "has another shape than its axes", " × ".join(map(str, shape))
            )
        elif key == "us" and (values <= 0).any():
            faults.add((*path, key), float(values.min()), "is not a time", "finite and positive numbers")


def _numbers(raw: object, path: DataPath, faults: Faults) -> Floats | None:
    """The numbers of a table as an array; None when they are not."""
    if raw is None:
        faults.add(path, None, "is missing", "a list of numbers")
        return None
    try:
        values = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        faults.add(path, raw, "is not usable", "numbers, rows of equal length")
        return None
    if values.ndim == 0 or not np.isfinite(values).all():
        faults.add(path, None, "is not finite, or no list", "finite numbers")
        return None
    return values


def check_operators(profile: Profile, at: Mapping[str, int], faults: Faults) -> None:
    """Build every operator once, so that what is missing or gives no time is said here.

    `at`: number in the file of the parts that stand there.
    """
    builders: dict[str, Callable[[str], Floats]] = {
        "gemm": lambda v: profile.gemm(*v.split("/")).time_us(1024, 1024, [1, 8]),
        "attention": lambda v: profile.attention(v).time_us([1, 2], 100, 1, 128),
        "mla": lambda v: profile.latent(v).time_us([1, 2], 100, 16),
        "experts": lambda v: profile.experts(v).time_us([1, 2], 1024, 512, 2, 8),
        "prefill": lambda _: np.asarray(profile.prefill().pair_us(1.0)),
        "streamed": lambda _: profile.streamed().time_us(1.0, 1.0),
        "allreduce": lambda _: profile.allreduce().time_us([256, 1e6], 2),
        "exchange": lambda _: _exchange_us(profile),
        "elementwise": lambda v: _rest_us(profile, f"elementwise/{v}" if v else "elementwise"),
        "pass": lambda v: _of_rows(
            profile.preparation(profile.parts[f"pass/{v}" if v else "pass"].number("hidden"))
        ),
        "sampler": lambda v: _of_rows(profile.sampler(v)),
        "draft_sampler": lambda v: _of_rows(profile.draft_sampler(v)),
        "launch": lambda _: np.array([profile.parts["launch"].number("eager_call_us")]),
    }
    for name, index in at.items():
        family, _, variant = name.partition("/")
        if family not in builders:
            continue
        path: DataPath = ("parts", index)
        try:
            with np.errstate(all="ignore"):
                time_us = builders[family](variant)
        except KeyError as error:
            faults.add((*path, "coefficients", str(error.args[0])), None, "is missing", "a number, 0 or more")
        except (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError) as error:
            faults.add(path, name, f"makes no operator: {error}")
        else:
            if not np.isfinite(time_us).all():
                faults.add(path, name, "gives no finite time", "coefficients above 0 where they divide")


def _exchange_us(profile: Profile) -> Floats:
    exchange = profile.exchange()
    assert exchange is not None
    return exchange.time_us([1, 1000], 1024, 8)


def _rest_us(profile: Profile, name: str) -> Floats:
    """What the rest of a layer costs: in place where that was measured, else what streaming does."""
    part = profile.parts[name]
    if "us" in part.table:
        return _of_rows(profile.rest_of_layer(part.number("traffic_bytes_per_token")))
    return 1 / (profile.bandwidth() * np.array([part.number("memory_efficiency")]))


def _of_rows(operator: RowTable | StreamedRows | None) -> Floats:
    assert operator is not None
    return operator.time_us([1, 1000], 1024)


def version_problem(stated_version: object) -> tuple[str, str]:
    """(what is wrong, what to do) with a file whose schema is not this version's."""
    family, _, version = str(stated_version).rpartition("-")
    own_family, _, own = SCHEMA.rpartition("-")
    if family != own_family or not version.isdecimal():
        return "is no schema of a profile", f'"{SCHEMA}"'
    if int(version) > int(own):
        return "was written by a newer decodesim", f'an update of decodesim; this one reads "{SCHEMA}"'
    return (
        "is a version of profiles that is read no more",
        f'"{SCHEMA}": `decodesim calibrate` writes it, from the measurements beside the old one if they are '
        "there",
    )
