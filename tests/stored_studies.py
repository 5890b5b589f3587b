"""Studies whose every figure is a formula, as their stores would hold them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from dashboards.stored import StoredStudy
from experiments.store.columns import METRIC, REAL, SETTING, TEXT, StoreColumn, column_with_meaning
from simulator.breakeven.theory import alpha_from_tokens_per_verify, tokens_per_verify

VARIANTS = ("head", "draft")
GPUS, PROMPTS, LOADS, LENGTHS = (2, 4), (1024, 4096, 16384), (1, 4, 16, 64, 256), (1, 3, 5)
ALPHAS = (0.55, 0.7, 0.85)
CLIENTS, PROMPT = "workload.arrivals.concurrency", "workload.prompt_tokens.tokens"

Metrics = Mapping[str, float | str | tuple[float, float, float]]
"""Metric → a figure, a word, or (value, low, high) of a band; its sampling interval is a tenth of that."""


def overhead(variant: str, gpus: int, prompt: int, load: int, draft_length: int) -> float:
    """Speculative step ÷ plain step − 1: grows with load and drafts, falls with the prompt."""
    row = (0.05 + 0.55 * load / 256) / math.cbrt(prompt / 1024)
    return draft_length * (row + (0.06 if variant == "draft" else 0.02) * gpus / 2)


def break_even_metrics(variant: str, gpus: int, prompt: int, load: int, draft_length: int) -> Metrics:
    """What `measure: breakeven` says of a variant."""
    needed = 1 + overhead(variant, gpus, prompt, load, draft_length)
    alpha, low, high = (
        alpha_from_tokens_per_verify(max(1.0, needed * scale), draft_length) for scale in (1.0, 0.9, 1.1)
    )
    result: dict[str, float | str | tuple[float, float, float]] = {
        f"speedup_at.{at:g}": tuple(tokens_per_verify(at, draft_length) / needed / s for s in (1, 1.1, 0.9))  # type: ignore[misc]
        for at in ALPHAS
    }
    if alpha is None or low is None:
        return {**result, "break_even_verdict": "unreachable"}
    high = 1.0 if high is None else high
    verdict = "pays" if high < 0.7 else "loses" if low > 0.7 else "undecided"
    return {
        **result,
        "break_even_alpha": (alpha, low, high),
        "break_even_acceptance_length": (needed, 0.9 * needed, 1.1 * needed),
        "break_even_verdict": verdict,
    }


def break_even_study(unfit: Sequence[tuple[int, int]] = ((2, 16384),)) -> StoredStudy:
    """A study of both variants over GPUs, prompts, clients and K; `unfit` (GPUs, prompt) do not fit."""
    rows = []
    for gpus, prompt, load, k in product(GPUS, PROMPTS, LOADS, LENGTHS):
        settings = {
            "hardware.tensor_parallel": gpus,
            PROMPT: prompt,
            CLIENTS: load,
            **{f"speculation.{variant}.draft_length": k for variant in VARIANTS},
        }
        fits = (gpus, prompt) not in unfit
        metrics = {
            variant: break_even_metrics(variant, gpus, prompt, load, k) if fits else {}
            for variant in VARIANTS
        }
        rows.append((settings, metrics, "done" if fits else "does-not-fit"))
    zips = [[f"speculation.{variant}.draft_length" for variant in VARIANTS]]
    return stored(rows, "Break-even of two drafters", zips)


def speedup_study() -> StoredStudy:
    """A study that simulates one variant over clients and α, as `measure: simulate` stores it."""
    rows = []
    for load, alpha in product(LOADS, ALPHAS):
        speedup = tokens_per_verify(alpha, 3) / (1 + overhead("head", 2, 1024, load, 3))
        settings = {CLIENTS: load, "speculation.head.acceptance.alpha": alpha}
        metrics: Mapping[str, Metrics] = {
            "plain": {"throughput_tokens_per_s": 100.0 * load},
            "head": {"throughput_speedup": (speedup, 0.93 * speedup, 1.07 * speedup), "verdict": "pays"},
        }
        rows.append((settings, metrics, "done"))
    return stored(rows, "Speedup of one drafter")


def stored(
    cells: Sequence[tuple[Mapping[str, float], Mapping[str, Metrics], str]],
    name: str,
    zips: Sequence[Sequence[str]] = (),
) -> StoredStudy:
    """The study with these cells: (settings, variant → metrics, status)."""
    flat = [dict(_flat(settings, metrics, status)) for settings, metrics, status in cells]
    names = dict.fromkeys(name for row in flat for name in row)
    settings = [*cells[0][0], "seed"]
    columns = tuple(_column(name, settings, flat) for name in names)
    counts = {
        status: sum(row["status"] == status for row in flat)
        for status in dict.fromkeys(r["status"] for r in flat)
    }
    axes = {name: sorted({row[name] for row in flat}) for name in cells[0][0]}
    variants = [{"name": variant, "acceptance": {"model": "geometric", "alpha": 0.7}} for variant in VARIANTS]
    document = {"name": name, "scenario": {"speculation": variants}, "axes": axes, "zip": zips, "seeds": 1}
    rows = tuple({name: row.get(name) for name in names} for row in flat)
    reasons = tuple((status, "too large", count) for status, count in counts.items() if status != "done")
    return StoredStudy(
        {**document, "where": [], "refine": None}, "0.1.0+test", columns, rows, counts, reasons
    )


def _flat(
    settings: Mapping[str, float], metrics: Mapping[str, Metrics], status: str
) -> Iterator[tuple[str, Any]]:
    yield from (("key", str(hash(tuple(settings.items())))), ("status", status), ("seconds_s", 0.1))
    yield from settings.items()
    yield "seed", 0
    for variant, of_variant in metrics.items():
        for name, value in of_variant.items():
            if not isinstance(value, tuple):
                yield f"{variant}.{name}", value
                continue
            middle, low, high = value
            half = 0.1 * min(middle - low, high - middle) if math.isfinite(low + high) else 0.0
            ends = {"ci95_low": middle - half, "ci95_high": middle + half, "band_low": low, "band_high": high}
            yield f"{variant}.{name}", middle
            yield from ((f"{variant}.{name}.{end}", number) for end, number in ends.items())


def _column(name: str, settings: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> StoreColumn:
    if name in ("key", "status", "seconds_s"):
        return column_with_meaning(name, "cell", TEXT)
    values = [row[name] for row in rows if name in row]
    return column_with_meaning(
        name, SETTING if name in settings else METRIC, TEXT if isinstance(values[0], str) else REAL
    )
