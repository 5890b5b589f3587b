"""Sobol indices: the share of an answer's variance that each uncertain input causes, alone and with all
others.

The sampling and the estimators are Saltelli's (`scipy.stats.sobol_indices`), on randomly shifted Sobol points
with inputs uniform over their ranges. All samples use the random numbers of the first replication, so that
the answer is a function of its inputs and noise does not enter the indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.sensitivity.inputs import UncertainInput
from experiments.sensitivity.runs import BREAK_EVEN, SPEEDUP
from experiments.sensitivity.tornado import SensitivityStudy
from simulator.errors import InputError, Problem
from simulator.numerics.arrays import Floats
from simulator.results.estimate import Estimate

if TYPE_CHECKING:
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

SAMPLES = 128
MAX_SAMPLES = 4096
_SEED = 20_25
_RESAMPLES = 200


@dataclass(frozen=True)
class SobolIndex:
    """The indices of one input, with bootstrap intervals.

    `first_order`: the share of the variance that disappears when only this input is known. `total_order`: the
    share that remains when all others are known, interactions included.
    """

    input: UncertainInput
    first_order: Estimate
    total_order: Estimate


@dataclass(frozen=True)
class Sobol:
    """The indices, largest total first, and how the answer spreads: mean, standard deviation, quantiles.

    `pays_share`: of the combinations of inputs, those in which speculation pays: a speedup above 1, or a
    break-even below the scenario's own acceptance; None where that is not what was asked.
    """

    variant: str
    of: str
    indices: tuple[SobolIndex, ...]
    samples: int
    mean: float
    sd: float
    quantiles: Mapping[str, float]
    pays_share: float | None
    notes: tuple[str, ...]


def sobol(
    scenario: Scenario,
    variant: str | None = None,
    of: str = SPEEDUP,
    inputs: Sequence[UncertainInput] = (),
    samples: int = SAMPLES,
    progress: Progress | None = None,
) -> Sobol:
    """Vary all uncertain inputs together. `samples`, a power of 2, takes samples × (inputs + 2) evaluations.

    Raises InputError, also where a combination of inputs has no answer.
    """
    question = SensitivityStudy.of(scenario, variant, of, inputs)
    runs = question.runs

    def answer(values: Mapping[UncertainInput, float]) -> float:
        (outcome,) = runs.outcome(values, replications=1)
        if math.isnan(outcome):
            point = ", ".join(
                f"{uncertain_input.name} {value:.3g}" for uncertain_input, value in values.items()
            )
            message = f"no answer at {point}: a variant cannot serve the rate"
            raise InputError(Problem(field="workload.arrivals", message=message, allowed="a lower rate"))
        return outcome

    indices, outcomes = indices_of(answer, question.inputs, samples, progress)
    acceptance = runs.variants()[1].variant.acceptance[0] if of == BREAK_EVEN else None
    pays = (
        outcomes < acceptance.alpha
        if acceptance is not None
        else outcomes > 1
        if of == SPEEDUP or of.endswith("speedup")
        else None
    )
    return Sobol(
        runs.variant,
        of,
        tuple(sorted(indices, key=lambda index: -index.total_order.value)),
        samples,
        float(outcomes.mean()),
        float(outcomes.std(ddof=1)),
        {name: float(np.quantile(outcomes, q)) for name, q in (("p5", 0.05), ("p50", 0.5), ("p95", 0.95))},
        None if pays is None else float(pays.mean()),
        question.notes,
    )


def require_samples(samples: int) -> None:
    """Raises InputError for a number of samples that is no power of 2 from 8 to 4,096."""
    if not (8 <= samples <= MAX_SAMPLES and samples & (samples - 1) == 0):
        allowed = f"a power of 2 from 8 to {MAX_SAMPLES:,}"
        message = "is no number of samples"
        raise InputError(Problem(field="--sobol", value=samples, message=message, allowed=allowed))


def indices_of(
    answer: Callable[[Mapping[UncertainInput, float]], float],
    inputs: Sequence[UncertainInput],
    samples: int,
    progress: Progress | None = None,
) -> tuple[list[SobolIndex], Floats]:
    """The indices of any function of the inputs, and its values at 2 × `samples` independent points.

    Raises InputError for a number of samples that is no power of 2 from 8 to 4,096.
    """
    require_samples(samples)
    points = _points(samples, 2 * len(inputs))
    a, b = points[: len(inputs)], points[len(inputs) :]
    mixed = np.repeat(a[None], len(inputs), axis=0)
    for index in range(len(inputs)):
        mixed[index, index] = b[index]
    total, done = samples * (len(inputs) + 2), 0

    def values(columns: Floats) -> Floats:
        nonlocal done
        answers = []
        for column in columns.T:
            point = {
                uncertain_input: uncertain_input.low + (uncertain_input.high - uncertain_input.low) * x
                for uncertain_input, x in zip(inputs, column, strict=True)
            }
            answers.append(answer(point))
            done += 1
            if progress is not None:
                progress(done, total, "all inputs together")
        return np.array(answers)

    f_a, f_b = values(a), values(b)
    f_ab = np.stack([values(matrix) for matrix in mixed])
    outcomes = np.concatenate([f_a, f_b])
    if np.ptp(outcomes) == 0:
        message = "nothing changes over the ranges of the inputs"
        raise InputError(Problem(field="--input", message=message, allowed="wider ranges"))
    orders = _orders(f_a, f_b, f_ab)
    generator = np.random.default_rng(_SEED)
    resamples = (generator.integers(samples, size=samples) for _ in range(_RESAMPLES))
    spread = np.array([_orders(f_a[rows], f_b[rows], f_ab[:, rows]) for rows in resamples])
    low, high = np.quantile(spread, (0.025, 0.975), axis=0)

    def estimate(order: int, index: int) -> Estimate:
        value = float(orders[order, index])
        return Estimate(value, (min(low[order, index], value), max(high[order, index], value)))

    return [
        SobolIndex(uncertain_input, estimate(0, i), estimate(1, i))
        for i, uncertain_input in enumerate(inputs)
    ], outcomes


def _orders(f_a: Floats, f_b: Floats, f_ab: Floats) -> Floats:
    """First and total order (2, inputs) from the values at both samples and at those mixed."""
    from scipy.stats import sobol_indices

    indices = sobol_indices(func={"f_A": f_a[None], "f_B": f_b[None], "f_AB": f_ab[:, None]}, n=len(f_a))
    return np.stack([np.ravel(indices.first_order), np.ravel(indices.total_order)])


def _points(count: int, dimensions: int) -> Floats:
    """Sobol points in the unit cube (dimensions, count), all moved by one random shift."""
    from scipy.stats import qmc

    plain = qmc.Sobol(dimensions, scramble=False).random(count)
    shift = np.random.default_rng(_SEED).random(dimensions)
    return np.asarray((plain + shift) % 1.0, dtype=np.float64).T
