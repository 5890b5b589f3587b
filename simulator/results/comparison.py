"""Two variants against each other: ratios paired by replication, and the verdict.

The error of a ratio is that of the ratio of both step times, which is as large as that of one: its band
leaves the plain variant as it is and scales the decodes of the other; prompts cost both variants the same.
There is no verdict where the runs are too short to reach the load, where nothing was verified, or where no
acceptance was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.results.catalogue import COMPARED, metric_of
from simulator.results.estimate import Estimate, estimate_from_json, paired_ratio
from simulator.results.metric import Ratio
from simulator.results.summary import VariantMeasurement, model_factor
from simulator.results.verdict import LOSES, PAYS, Verdict, explain
from simulator.scenario.basis import ASSUMED, GIVEN

FEWEST_MEASURED = 30
"""Requests of all replications that must end between warm-up and drain before their figures are judged."""


@dataclass(frozen=True)
class Comparison:
    """A speculative variant against the plain one: name of the ratio → estimate, and the verdict.

    `acceptance_basis` is one of the words of `scenario/basis.py`.
    """

    ratios: Mapping[str, Estimate | None]
    verdict: Verdict
    acceptance_basis: str = GIVEN

    def to_json(self) -> dict[str, Any]:
        """`{"throughput_speedup": {…}, …, "verdict": "pays", "reason": "…", "acceptance_basis": "given"}`."""
        return {
            **{name: ratio and ratio.to_json() for name, ratio in self.ratios.items()},
            "verdict": self.verdict.outcome,
            "reason": self.verdict.sentence,
            "acceptance_basis": self.acceptance_basis,
        }


def comparison_from_json(document: Mapping[str, Any]) -> Comparison:
    """The comparison that `Comparison.to_json` wrote."""
    ratios = {
        name: value and estimate_from_json(value)
        for name, value in document.items()
        if name not in ("verdict", "reason", "acceptance_basis")
    }
    verdict = Verdict(document["verdict"], document["reason"])
    return Comparison(ratios, verdict, document.get("acceptance_basis", GIVEN))


def compare(
    name: str, plain: VariantMeasurement, speculative: VariantMeasurement, acceptance_basis: str = GIVEN
) -> Comparison:
    """Ratios paired by replication, and the verdict:
    on throughput in a closed loop, on mean TPOT at an offered rate.

    There is no verdict where the runs are too short for one, and none on an acceptance that is assumed.
    """
    ratios = {ratio: ratio_of(ratio, plain, speculative) for ratio in COMPARED}
    shortage = too_little(plain, speculative)
    if shortage is not None:
        verdict = Verdict.none(name, shortage)
    else:
        verdict = _verdict(name, ratios, plain, speculative)
        trade = trade_of(verdict.outcome, ratios)
        if trade is not None:
            verdict = Verdict(verdict.outcome, f"{verdict.sentence}; {trade}")
        if acceptance_basis == ASSUMED:
            verdict = Verdict.none(name, _needed(ratios, plain, speculative))
    return Comparison(ratios, verdict, acceptance_basis)


def too_little(plain: VariantMeasurement, speculative: VariantMeasurement) -> str | None:
    """Return why these runs are too little to judge by; None where they are enough."""
    requests, clients = plain.runs[0].requests, plain.scope.clients
    if clients is not None and requests < clients:
        return f"{requests:,} requests never keep {clients:,} clients busy at once: simulate more requests"
    for variant in (plain, speculative):
        measured = sum(run.measured for run in variant.runs)
        if measured < FEWEST_MEASURED:
            return (
                f"only {measured} requests end between warm-up and drain, and {FEWEST_MEASURED} are needed: "
                "simulate more requests"
            )
    if not any(run.drafted for run in speculative.runs):
        return "no drafts were verified"
    return None


def trade_of(outcome: str | None, ratios: Mapping[str, Estimate | None]) -> str | None:
    """Return what a verdict trades away: the P99 latencies that change beyond their band against it, as
    speculative ÷ plain. None where none does.
    """
    if outcome not in (PAYS, LOSES):
        return None
    against = []
    for name, estimate in ratios.items():
        ratio = COMPARED[name]
        if ratio.part != "p99" or estimate is None or estimate.band is None:
            continue
        to_plain = estimate.inverse() if ratio.inverted else estimate
        assert to_plain.band is not None
        low, high = to_plain.band
        if (low > 1) if outcome == PAYS else (high < 1):
            against.append(f"{ratio.metric.title_of(ratio.part)} × {to_plain.value:.2f}")
    if not against:
        return None
    return f"but {'worse' if outcome == PAYS else 'better'}: {', '.join(against)}"


def _needed(
    ratios: Mapping[str, Estimate | None],
    plain: VariantMeasurement,
    speculative: VariantMeasurement,
) -> str:
    """Return what acceptance it would take, in place of a verdict on one that is assumed."""
    speedup = ratios[_judged(plain)[1]]
    lengths = speculative.samples["mean_acceptance_length"]
    if speedup is None:
        return "no acceptance was given"
    needed = sum(lengths) / len(lengths) / speedup.value
    needs = (
        f"it takes about {needed:.2f} tokens a round to pay" if needed > 1 else "it pays at any acceptance"
    )
    return (
        f"no acceptance was given: {needs}; `decodesim breakeven` finds the break-even α, "
        "`decodesim read` and `decodesim accept` measure yours"
    )


def ratio_of(name: str, plain: VariantMeasurement, speculative: VariantMeasurement) -> Estimate | None:
    """One of `COMPARED`, paired by replication; None where a variant lacks the figure."""
    compared = COMPARED[name]
    path = compared.path
    if (plain.saturation.saturated or speculative.saturation.saturated) and metric_of(
        path
    ).is_void_above_capacity:
        return None
    return _paired(compared, plain, speculative)


def _paired(compared: Ratio, plain: VariantMeasurement, speculative: VariantMeasurement) -> Estimate | None:
    path, sign = compared.path, -1 if compared.inverted else 1
    pair = (speculative.samples[path], plain.samples[path])[::sign]
    estimate = paired_ratio(*pair)
    factors = [model_factor(end[path], speculative.samples[path]) ** sign for end in speculative.decode_ends]
    if estimate is not None and path in plain.without_interval | speculative.without_interval:
        return Estimate(estimate.value)
    if estimate is None or not factors:
        return estimate
    return estimate.with_model_range(*(estimate.value * f for f in (min(factors), max(factors))))


def _verdict(
    name: str,
    ratios: Mapping[str, Estimate | None],
    plain: VariantMeasurement,
    speculative: VariantMeasurement,
) -> Verdict:
    before, after = plain.saturation, speculative.saturation
    if before.saturated and not after.saturated:
        return Verdict(
            PAYS, f"{name}: {PAYS}: it serves the rate, which plain decoding does not: {before.reason}"
        )
    if after.saturated and not before.saturated:
        return Verdict(
            LOSES, f"{name}: {LOSES}: plain decoding serves the rate, and it does not: {after.reason}"
        )
    metric, ratio = _judged(plain)
    before_after = [
        {path: sum(values) / len(values) for path, values in variant.samples.items()}
        for variant in (plain, speculative)
    ]
    return explain(name, metric, ratios[ratio], *before_after)


def _judged(plain: VariantMeasurement) -> tuple[str, str]:
    """Return the figure that decides, in words, and the name of its ratio."""
    offered = plain.scope.open_loop and not plain.saturation.saturated
    return ("TPOT speedup", "tpot_mean_speedup") if offered else ("throughput", "throughput_speedup")
