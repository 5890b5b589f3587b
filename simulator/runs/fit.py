"""All variants of a scenario, compiled, and whether the memory of its GPUs holds them."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import InputError, Problem
from simulator.memory.report import fix_of, smallest_tensor_parallel
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario


def compile_variants(scenario: Scenario) -> list[CompiledVariant]:
    """Return plain decoding and every speculative variant of a scenario, ready to run.

    Raises InputError for what cannot be used. Whether the memory holds them is asked afterwards.
    """
    return [CompiledVariant.compile(scenario, variant) for variant in (None, *scenario.speculation)]


def fitting_variants(scenario: Scenario) -> list[CompiledVariant]:
    """Return `compile_variants`. Raises InputError where the memory does not hold one of them: with the
    numbers of each that does not fit, and the smallest tensor parallelism that holds all.
    """
    variants = compile_variants(scenario)
    shortages = _shortages(variants)
    if shortages:
        ranks, text = scenario.hardware.tensor_parallel, "; ".join(shortages)
        fix = fix_of(smallest_tensor_parallel(scenario))
        raise InputError(Problem(field="hardware.tensor_parallel", value=ranks, message=text, allowed=fix))
    return variants


def shortage_of(*variants: CompiledVariant) -> str | None:
    """Return what these variants of one scenario need beyond its memory, and what would hold all of the
    scenario; None where they fit, or memory sets no limit.
    """
    shortages = _shortages(variants)
    if not shortages:
        return None
    return "; ".join((*shortages, fix_of(smallest_tensor_parallel(variants[0].scenario))))


def _shortages(variants: Sequence[CompiledVariant]) -> list[str]:
    return [variant.memory.shortage or "" for variant in variants if not variant.fits]
