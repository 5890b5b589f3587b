"""The figures of a published point, in SI and in the words of `decodesim validate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from calibration.validation.trials.cases import VARIANTS, Case, Facts, Side, number, variant_facts
from calibration.validation.trials.lengths import LengthsChoice
from calibration.validation.trials.trial import Published

_LATENCIES: Mapping[str, tuple[tuple[str, float], ...]] = {
    "tpot_mean": (("tpot_mean_ms", 1e-3), ("ms_per_token", 1e-3)),
    "tpot_p99": (("tpot_p99_ms", 1e-3),),
    "itl_mean": (("itl_mean_ms", 1e-3),),
    "itl_p99": (("itl_p99_ms", 1e-3),),
    "ttft_mean": (("ttft_mean_ms", 1e-3),),
    "ttft_p99": (("ttft_p99_ms", 1e-3),),
    "e2e_mean": (("e2e_latency_mean_s", 1.0), ("e2e_latency_mean_ms", 1e-3)),
    "e2e_p99": (("e2e_latency_p99_s", 1.0), ("e2e_latency_p99_ms", 1e-3)),
}
"""Quantity → keys of a variant with what makes seconds of them, the surest first."""

SPEEDUP_TERMS: Mapping[str, tuple[str, bool]] = {
    "output_tok_per_s": ("throughput", True),
    "tpot_mean": ("tpot_mean", False),
    "e2e_mean": ("e2e_mean", False),
}
"""What a speedup is a ratio of → our quantity, and whether more of it is better."""

_PARTS: Mapping[str, str] = {
    "draft": "draft", "drafting": "draft", "propose": "draft",
    "verify": "verify", "verification": "verify", "target": "verify",
    "sampling": "sampling", "rejection_sampling": "sampling", "accept": "sampling",
    "overhead": "host", "system_overhead": "host", "host": "host", "scheduling": "host",
}  # fmt: skip
"""Part of a step in a source's words → ours."""

_SMALLEST_SHARE = 0.001
"""A share below a tenth of a per cent has no digits left."""

_LARGEST = 1e12


def figures_of(
    case: Case, point: Facts, lengths: LengthsChoice, gpus: float | None, ranks: float
) -> list[Published]:
    """Everything that a point publishes and a simulation can be held against."""
    found: list[Published] = []
    for variant in VARIANTS:
        facts = variant_facts(point, variant)
        rate = throughput(facts, lengths, gpus, ranks)
        if rate is not None:
            found.append(Published("throughput", variant, rate))
        for quantity, keys in _LATENCIES.items():
            seconds = _first(facts, keys)
            if seconds is not None and not _unreliable(case, quantity):
                found.append(Published(quantity, variant, seconds))
    ratio = _positive(point.get("speedup")) or _derived(case, found)
    if ratio is not None:
        found.append(Published("speedup", "both", ratio))
    verify, plain = _positive(point.get("verify_ms")), _positive(point.get("plain_step_ms"))
    if verify is not None and plain is not None:
        found.append(Published("step_ratio", "both", verify / plain))
    found += _shares(case, point)
    return found


def throughput(facts: Facts, lengths: LengthsChoice, gpus: float | None, ranks: float) -> float | None:
    """Output tokens per second of all GPUs together.

    Of a total with prompts, the outputs' share by the mean lengths.
    """
    outputs = lengths.output_mean / (lengths.prompt_mean + lengths.output_mean)
    for key, share in (("output_tok_per_s", 1.0), ("total_tok_per_s", outputs)):
        for suffix, times in (("", 1.0), ("_per_gpu", gpus), ("_per_rank", ranks)):
            value = _positive(facts.get(f"{key}{suffix}"))
            if value is not None and times is not None:
                return value * times * share
    return None


def _derived(case: Case, found: Sequence[Published]) -> float | None:
    """The speedup that follows from both variants where the source leaves it to the reader."""
    quantity, more_is_better = SPEEDUP_TERMS.get(case.speedup_of or "", SPEEDUP_TERMS["output_tok_per_s"])
    values = {one.variant: one.value for one in found if one.quantity == quantity}
    if "plain" not in values or "spec" not in values:
        return None
    return values["spec"] / values["plain"] if more_is_better else values["plain"] / values["spec"]


def _shares(case: Case, point: Facts) -> Iterator[Published]:
    """Shares of a step, of the variant that the case is about."""
    shares = point.get("share_pct")
    variant: Side = "plain" if case.draft is None else "spec"
    for name, value in shares.items() if isinstance(shares, Mapping) else ():
        part, share = _PARTS.get(str(name)), _positive(value)
        if part is not None and share is not None and _SMALLEST_SHARE <= share / 100 <= 1:
            yield Published("cost_share", variant, share / 100, part)


def _unreliable(case: Case, quantity: str) -> bool:
    """Figures that the source itself is known to have wrong."""
    return quantity in ("tpot_mean", "itl_mean") and "tpot_mean_unreliable" in case.quality_flags


def _first(facts: Facts, keys: tuple[tuple[str, float], ...]) -> float | None:
    values = (_positive(facts.get(key)) for key, _ in keys)
    return next(
        (value * unit for value, (_, unit) in zip(values, keys, strict=True) if value is not None), None
    )


def _positive(value: object) -> float | None:
    found = number(value)
    return found if found is not None and 0 < found < _LARGEST else None
