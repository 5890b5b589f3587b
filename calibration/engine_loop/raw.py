"""The raw file of a cell: what vLLM's client and counters report, and the figures that follow from it.

The client's gaps are kept in tenths of a millisecond, and of `/metrics` only the counters that acceptance
needs. Nothing in it names a path or a host.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from calibration.engine_loop.matrix import LoopCell
from simulator.numerics.arrays import Floats

SCHEMA = "decodesim/engine-cell-1"
GAP_UNIT_S = 1e-4
TIMES = ("tpot_s", "ttft_s", "itl_s")
"""Latencies of a cell whose means are compared, and whose P99 is, where it has enough requests."""
TAILS = ("tpot_p99_s", "ttft_p99_s", "itl_p99_s")
_KEPT = (
    "vllm:spec_decode_",
    "vllm:generation_tokens",
    "vllm:inter_token_latency_seconds",
    "vllm:time_to_first_token_seconds",
    "vllm:iteration_tokens_total",
)


def raw_cell(cell: LoopCell, begun: str, bench: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
    """The document of a cell. `bench`: the client's; `before`, `after`: texts of `/metrics`."""
    return {
        "schema": SCHEMA,
        "cell": asdict(cell),
        "begun": begun,
        "duration_s": bench["duration"],
        "input_tokens": bench["input_lens"],
        "output_tokens": bench["output_lens"],
        "ttft_s": [round(value, 5) for value in bench["ttfts"]],
        "gaps": [[round(gap / GAP_UNIT_S) for gap in gaps] for gaps in bench["itls"]],
        "before": kept_lines(before),
        "after": kept_lines(after),
    }


def kept_lines(metrics: str) -> str:
    """The lines of the counters that are needed, with their types."""
    lines = metrics.splitlines()
    lines = [
        line for line in lines if line.removeprefix("# TYPE ").startswith(_KEPT) and "_created" not in line
    ]
    return "\n".join(lines) + "\n"


def acceptance_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The document of `decodesim read` over the counters before and after a cell."""
    from calibration.telemetry.answer import read

    with TemporaryDirectory(prefix="decodesim-") as scratch:
        files = [Path(scratch) / f"{name}.metrics.txt" for name in ("before", "after")]
        for file in files:
            file.write_text(raw[file.name.partition(".")[0]], "utf-8")
        return read([str(file) for file in files]).to_json()


@dataclass(frozen=True)
class Figures:
    """What a client reports of a cell, in SI. Times of tokens are means and P99 over requests or gaps."""

    tpot_s: float
    tpot_p99_s: float
    ttft_s: float
    ttft_p99_s: float
    itl_s: float
    itl_p99_s: float | None
    """None: the run is too short for it."""
    throughput_tokens_per_s: float

    @classmethod
    def of_raw(cls, raw: Mapping[str, Any]) -> Figures:
        """Those of a raw file."""
        ttft = np.array(raw["ttft_s"])
        gaps = np.concatenate([np.array(row, dtype=float) for row in raw["gaps"]]) * GAP_UNIT_S
        return cls._of(cls.tpots_s(raw), ttft, gaps, sum(raw["output_tokens"]) / raw["duration_s"])

    @staticmethod
    def tpots_s(raw: Mapping[str, Any]) -> Floats:
        """TPOT of every request of a raw file, in the order in which they were sent."""
        totals_s = np.array([sum(gaps) for gaps in raw["gaps"]]) * GAP_UNIT_S
        later_tokens: Floats = np.array(raw["output_tokens"], dtype=float) - 1
        return totals_s / later_tokens

    @classmethod
    def _of(cls, tpot: Floats, ttft: Floats, gaps: Floats, throughput: float) -> Figures:
        means = {"tpot_s": tpot, "ttft_s": ttft, "itl_s": gaps}
        tails = {"tpot_p99_s": tpot, "ttft_p99_s": ttft, "itl_p99_s": gaps}
        return cls(
            throughput_tokens_per_s=throughput,
            **{name: float(values.mean()) for name, values in means.items()},
            **{name: float(np.quantile(values, 0.99)) for name, values in tails.items()},
        )

    @classmethod
    def of_simulation(cls, figures: Mapping[str, float]) -> Figures:
        """Those of a simulated run, see `calibration.validation.predict`."""
        gap_p99_s = figures["itl_s.p99"]
        return cls(
            throughput_tokens_per_s=figures["throughput_tokens_per_s"],
            itl_p99_s=None if math.isnan(gap_p99_s) else gap_p99_s,
            **{name: figures[f"{name}.mean"] for name in ("tpot_s", "ttft_s", "itl_s")},
            **{f"{name}_p99_s": figures[f"{name}_s.p99"] for name in ("tpot", "ttft")},
        )


def read_raw(path: Path) -> dict[str, Any]:
    """A raw file."""
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document
