"""One variant before and after a change of its scenario: ratios after ÷ before, paired by replication.

The band holds what the cost model does not know. Where both scenarios run the same kernels it errs alike on
both (`together`): the same random numbers are run with the GPU times of both longer, and of both shorter.
Otherwise only the variant after errs, as in a comparison with plain decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.results.catalogue import COMPARED
from simulator.results.estimate import Estimate, paired_ratio
from simulator.results.summary import VariantMeasurement, model_factor


def change_of(
    path: str, before: VariantMeasurement, after: VariantMeasurement, together: bool
) -> Estimate | None:
    """A figure of a variant after ÷ before; None where one of them does not have it."""
    if any(variant.summary().estimates.get(path) is None for variant in (before, after)):
        return None
    old, new = before.samples[path], after.samples[path]
    old_factors = [model_factor(end[path], old) for end in before.model_ends]
    new_factors = [model_factor(end[path], new) for end in after.model_ends]
    ratio = _with_band(paired_ratio(new, old), old_factors, new_factors, together)
    bare = path in before.without_interval | after.without_interval
    return Estimate(ratio.value) if ratio is not None and bare else ratio


def speedup_change(
    name: str,
    before: tuple[VariantMeasurement, VariantMeasurement],
    after: tuple[VariantMeasurement, VariantMeasurement],
    together: bool,
) -> Estimate | None:
    """A speedup of `COMPARED` after ÷ before, each of (plain, speculative); None where one does not exist."""
    path, inverted = COMPARED[name].path, COMPARED[name].inverted
    if any(variant.summary().estimates.get(path) is None for variant in (*before, *after)):
        return None
    (old_plain, old), (new_plain, new) = (
        [variant.samples[path] for variant in pair] for pair in (before, after)
    )
    tops = [a * b for a, b in zip(new, old_plain, strict=True)]
    bottoms = [a * b for a, b in zip(new_plain, old, strict=True)]
    if inverted:
        tops, bottoms = bottoms, tops
    sign = -1 if inverted else 1
    old_factors, new_factors = (
        [model_factor(end[path], variant.samples[path]) ** sign for end in variant.decode_ends]
        for variant in (before[1], after[1])
    )
    return _with_band(paired_ratio(tops, bottoms), old_factors, new_factors, together)


def _with_band(
    ratio: Estimate | None, before: Sequence[float], after: Sequence[float], together: bool
) -> Estimate | None:
    if ratio is None or not after:
        return ratio
    factors = [a / b for a, b in zip(after, before, strict=True)] if together else after
    return ratio.with_model_range(*(ratio.value * factor for factor in (min(factors), max(factors))))
