"""The figures of a published point in SI units, named as in `decodesim validate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from calibration.validation.reconstruction.cases import VARIANTS, PublishedCase, Side, variant_facts
from calibration.validation.reconstruction.lengths import LengthsChoice
from calibration.validation.reconstruction.published_run import PublishedFigure
from calibration.validation.reconstruction.sections import Facts, MetricDefinitions, number

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
"""Quantity → keys of a variant with their factor to seconds, the most reliable first."""

SPEEDUP_TERMS: Mapping[str, tuple[str, bool]] = {
    "output_tok_per_s": ("throughput", True),
    "tpot_mean": ("tpot_mean", False),
    "e2e_mean": ("e2e_mean", False),
}
"""The term that a source's speedup is a ratio of → quantity here, and whether more of it is better."""

_PARTS: Mapping[str, str] = {
    "draft": "draft", "drafting": "draft", "propose": "draft",
    "verify": "verify", "verification": "verify", "target": "verify",
    "sampling": "sampling", "rejection_sampling": "sampling", "accept": "sampling",
    "overhead": "host", "system_overhead": "host", "host": "host", "scheduling": "host",
}  # fmt: skip
"""Part of a step in a source's words → part here."""

_SMALLEST_SHARE = 0.001
"""Smaller shares are ignored, because sources print no more digits."""

_LARGEST = 1e12


def figures_of(
    case: PublishedCase, point: Facts, lengths: LengthsChoice, gpus: float | None, ranks: float
) -> list[PublishedFigure]:
    """All figures of a point that a simulation can be compared with."""
    figures: list[PublishedFigure] = []
    for variant in VARIANTS:
        facts = variant_facts(point, variant)
        rate = throughput(facts, lengths, gpus, ranks, case.metrics.throughput == "total")
        if rate is not None:
            figures.append(PublishedFigure("throughput", variant, rate))
        for quantity, keys in _LATENCIES.items():
            seconds = _first(facts, keys)
            if seconds is not None and not _unreliable(case, quantity):
                figures.append(_latency(case.metrics, quantity, variant, seconds))
    ratio = _positive(point.get("speedup")) or _derived(case, figures)
    if ratio is not None:
        figures.append(PublishedFigure("speedup", "both", ratio))
    verify, plain = _positive(point.get("verify_ms")), _positive(point.get("plain_step_ms"))
    if verify is not None and plain is not None:
        figures.append(PublishedFigure("step_ratio", "both", verify / plain))
    figures += _shares(case, point)
    return figures


TPOT_WITH_TTFT = "TPOT includes TTFT"
ITL_OF_SEVERAL = "ITL per group of tokens"


def _latency(metrics: MetricDefinitions, quantity: str, variant: Side, seconds: float) -> PublishedFigure:
    """A latency as the source's client defines it."""
    if quantity.startswith("tpot") and metrics.tpot == "with_ttft":
        return PublishedFigure(quantity, variant, seconds, not_comparable=TPOT_WITH_TTFT)
    if quantity.startswith("itl") and metrics.itl == "per_n_tokens":
        return PublishedFigure(quantity, variant, seconds, not_comparable=ITL_OF_SEVERAL)
    per_token = quantity.startswith("itl") and metrics.itl == "per_token"
    return PublishedFigure(quantity, variant, seconds, per_token=per_token)


def in_terms_of_load(case: PublishedCase, point: Facts) -> PublishedCase:
    """The case with the terms of its speedup, where it states none and requests arrive at a rate.

    Below capacity both variants serve the rate, so a ratio of throughputs would be 1.
    """
    at_rate = case.load.kind == "rate" or (
        case.load.kind is None and _positive(point.get("request_rate_rps"))
    )
    closed = any(point.get(key) is not None for key in CLOSED_KEYS)
    if case.speedup_of is not None or not at_rate or closed:
        return case
    plain, spec = variant_facts(point, "plain"), variant_facts(point, "spec")
    for term, keys in _TERMS_AT_A_RATE.items():
        if any(_positive(plain.get(key)) and _positive(spec.get(key)) for key in keys):
            return replace(case, speedup_of=term)
    return replace(case, speedup_of="e2e_mean") if _positive(point.get("speedup")) else case


_TERMS_AT_A_RATE: Mapping[str, tuple[str, ...]] = {
    "e2e_mean": ("e2e_latency_mean_s", "e2e_latency_mean_ms"),
    "tpot_mean": ("tpot_mean_ms", "ms_per_token"),
}
CLOSED_KEYS = ("batch_size", "concurrency", "running_requests", "concurrency_cap")
"""Keys of a point that state how many requests are in flight at once."""


def throughput(
    facts: Facts, lengths: LengthsChoice, gpus: float | None, ranks: float, total: bool = False
) -> float | None:
    """Output tokens per second of all GPUs together.

    Of a total that includes prompts, the outputs' share is taken by the mean lengths. `total`: the client's
    throughput is such a total, whatever its name.
    """
    output_share = lengths.output_mean / (lengths.prompt_mean + lengths.output_mean)
    for key, share in (
        ("output_tok_per_s", output_share if total else 1.0),
        ("total_tok_per_s", output_share),
    ):
        for suffix, factor in (("", 1.0), ("_per_gpu", gpus), ("_per_rank", ranks)):
            value = _positive(facts.get(f"{key}{suffix}"))
            if value is not None and factor is not None:
                return value * factor * share
    return None


def _derived(case: PublishedCase, figures: Sequence[PublishedFigure]) -> float | None:
    """The speedup computed from both variants, where the source does not state it."""
    quantity, more_is_better = SPEEDUP_TERMS.get(case.speedup_of or "", SPEEDUP_TERMS["output_tok_per_s"])
    values = {figure.variant: figure.value for figure in figures if figure.quantity == quantity}
    if "plain" not in values or "spec" not in values:
        return None
    return values["spec"] / values["plain"] if more_is_better else values["plain"] / values["spec"]


def _shares(case: PublishedCase, point: Facts) -> Iterator[PublishedFigure]:
    """Shares of a step, for the variant that the case is about."""
    shares = point.get("share_pct")
    variant: Side = "plain" if case.draft is None else "spec"
    for name, value in shares.items() if isinstance(shares, Mapping) else ():
        part, share = _PARTS.get(str(name)), _positive(value)
        if part is not None and share is not None and _SMALLEST_SHARE <= share / 100 <= 1:
            yield PublishedFigure("cost_share", variant, share / 100, part)


def _unreliable(case: PublishedCase, quantity: str) -> bool:
    """Whether the source is known to have this figure wrong."""
    return quantity in ("tpot_mean", "itl_mean") and "tpot_mean_unreliable" in case.quality_flags


def _first(facts: Facts, keys: tuple[tuple[str, float], ...]) -> float | None:
    values = (_positive(facts.get(key)) for key, _ in keys)
    return next(
        (value * unit for value, (_, unit) in zip(values, keys, strict=True) if value is not None), None
    )


def _positive(value: object) -> float | None:
    finite = number(value)
    return finite if finite is not None and 0 < finite < _LARGEST else None
