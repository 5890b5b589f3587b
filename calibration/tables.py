"""Reads public kernel tables: the `aiconfigurator-core` package's own files, or filtered copies of them.

Two layouts of a directory are understood. The package's:
`…/systems/data/<system>/<op>/<framework>/<version>/*.parquet`, with times in ms (the directory may be the
package, its parent, or `systems`). A flat one: `gemm.parquet`, `attention_decode.parquet`,
`mla_decode.parquet`, `moe.parquet`, `comm.csv`, with times in µs and a column `system`. Both give the same
rows: µs rounded to 1 ns, the median of repeated measurements of one point.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError

Columns = dict[str, NDArray[Any]]

FRAMEWORK_FILES = {
    "gemm": "gemm_perf",
    "attention": "generation_attention_perf",
    "prefill": "context_attention_perf",
    "mla": "generation_mla_perf",
    "moe": "moe_perf",
    "allreduce": "custom_allreduce_perf",
    "gdn": "gdn_perf",
    "scaling": "computescale_perf",
    "dispatch": "wideep_deepep_normal_perf",
    "dispatch_few": "wideep_deepep_ll_perf",
}
_FOLDERS = {
    "prefill": "attention",
    "allreduce": "comm",
    "gdn": "linear_attention",
    "scaling": "quantize",
    "dispatch": "comm",
    "dispatch_few": "comm",
}
_FLAT = {
    "gemm": "gemm.parquet",
    "attention": "attention_decode.parquet",
    "mla": "mla_decode.parquet",
    "moe": "moe.parquet",
    "allreduce": "comm.csv",
}
_RENAMED = {
    "gemm_dtype": "dtype",
    "moe_dtype": "dtype",
    "allreduce_dtype": "dtype",
    "kv_cache_dtype": "kv_dtype",
    "batch_size": "batch",
    "num_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "kernel_source": "kernel",
    "num_tokens": "tokens",
    "num_token": "tokens",
    "num_topk": "topk",
    "hidden_size": "hidden",
    "inter_size": "inter",
    "num_experts": "experts",
    "moe_tp_size": "moe_tp",
    "moe_ep_size": "moe_ep",
    "num_gpus": "gpus",
    "message_size": "elements",
}


@dataclass
class Tables:
    """Kernel tables of one system. `files` records what was read: path, sha256, framework, version, rows."""

    root: Path
    system: str
    packaged: bool
    package: str
    version: str
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    _raw: dict[str, Columns] = field(default_factory=dict, repr=False)

    def read(self, op: str, framework: str, version: str) -> Columns | None:
        """The rows of one table, with a column `us`; None if this source does not have the table."""
        if self.packaged:
            return self._read_packaged(op, framework, version)
        return self._read_flat(op, framework, version)

    def _read_packaged(self, op: str, framework: str, version: str) -> Columns | None:
        folder = self.root / "data" / self.system / _FOLDERS.get(op, op) / framework / version
        path = folder / f"{FRAMEWORK_FILES[op]}.parquet"
        if not path.exists():
            return None
        raw = _parquet(path)
        columns = {_RENAMED.get(name, name): values for name, values in raw.items()}
        columns["us"] = np.round(_packaged_us(columns), 3)
        if "step" in columns and op in ("attention", "mla"):
            columns["context"] = columns["step"] + columns["isl"]
        if op == "allreduce":
            # TensorRT-LLM's rows have no backend, because all are nodes of a graph.
            backend = columns.get("backend", np.full(len(columns["us"]), "graph")).astype(str)
            columns["mode"] = np.array([name.rpartition("_")[2] for name in backend])
            columns["bytes"] = columns["elements"] * 2
        self._note(path, framework, version, columns)
        return columns

    def _read_flat(self, op: str, framework: str, version: str) -> Columns | None:
        path = self.root / _FLAT.get(op, f"{op}.parquet")
        if not path.exists():
            return None
        if path.name not in self._raw:
            self._raw[path.name] = _csv(path) if path.suffix == ".csv" else _parquet(path)
        columns = self._raw[path.name]
        owner = columns["library" if "library" in columns else "framework"].astype(str)
        selected = (columns["system"].astype(str) == self.system) & (owner == framework)
        selected &= columns["version"].astype(str) == version
        if not selected.any():
            return None
        columns = {name: values[selected] for name, values in columns.items()}
        columns["us"] = np.round(columns.pop("latency_us").astype(np.float64), 3)
        if op == "attention":
            columns["window_size"] = np.zeros(len(columns["us"]), dtype=np.int64)
        self._note(path, framework, version, columns)
        return columns

    def _note(self, path: Path, framework: str, version: str, columns: Columns) -> None:
        relative = path.relative_to(self.root).as_posix()
        self.files[f"{relative} ({framework})"] = {
            "file": relative,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "framework": framework,
            "version": version,
            "rows": len(columns["us"]),
        }


def _packaged_us(columns: Columns) -> NDArray[np.float64]:
    """The column in ms, or the sum of the columns in µs (dispatch and combine), in µs."""
    if "latency" in columns:
        return columns.pop("latency").astype(np.float64) * 1000.0
    parts = [values.astype(np.float64) for name, values in columns.items() if name.endswith("_us")]
    return np.asarray(np.sum(parts, axis=0))


def open_tables(directory: Path, system: str) -> Tables:
    """The tables in `directory` for a system such as `h100-sxm`. Raises InputError if there are none."""
    name = system.replace("-", "_")
    for root in (directory, *(directory / part for part in ("systems", "aiconfigurator_core/systems"))):
        if (root / "data" / name).is_dir():
            return Tables(root, name, True, "aiconfigurator-core", _package_version(root))
    if (directory / _FLAT["gemm"]).exists():
        return Tables(directory, name, False, "aiconfigurator-core", "0.12.0")
    raise InputError(
        f"{directory}: no kernel tables of {system}: expected the files of the package aiconfigurator-core "
        f"(systems/data/{name}/…) or {', '.join(_FLAT.values())}"
    )


def medians(
    columns: Columns, keys: Sequence[str], selected: NDArray[np.bool_]
) -> Mapping[tuple[int, ...], float]:
    """Median µs per distinct key (integer columns) over the selected rows, in ascending order of the keys."""
    table = np.stack([columns[key][selected].astype(np.int64) for key in keys], axis=1)
    us = columns["us"][selected]
    order = np.lexsort(tuple(table[:, i] for i in reversed(range(table.shape[1]))))
    table, us = table[order], us[order]
    is_first = np.ones(len(us), dtype=np.bool_)
    is_first[1:] = (np.diff(table, axis=0) != 0).any(axis=1)
    starts = np.flatnonzero(is_first)
    groups = np.split(us, starts[1:])
    return {
        tuple(int(x) for x in table[at]): float(np.median(g)) for at, g in zip(starts, groups, strict=False)
    }


def _package_version(root: Path) -> str:
    folders = sorted(root.parent.parent.glob("aiconfigurator_core-*.dist-info"))
    return (
        folders[0].name.removeprefix("aiconfigurator_core-").removesuffix(".dist-info")
        if folders
        else "unknown"
    )


def _parquet(path: Path) -> Columns:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow: pip install 'decodesim[parquet]'"
        ) from error
    table = pq.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def _csv(path: Path) -> Columns:
    with path.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    numeric = {"gpus", "elements", "bytes", "latency_us"}
    return {
        name: np.array([float(row[name]) if name in numeric else row[name] for row in rows])
        for name in (rows[0] if rows else {})
    }
