"""What is unhealthy about a run or doubtful about its figures: one function per question, all asked in one
place.

The findings of readers (a cut file, a counter that began anew) come first; these look at the figures
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from calibration.telemetry.alpha import drafts_full
from calibration.telemetry.combine import FEW_ROUNDS, Combined, differ, mean_and_error
from calibration.telemetry.intervals import FEWEST_BLOCKS, of_running
from calibration.telemetry.reading import SEVERITIES, Counts, Finding, MeasuredAcceptance, Reading, RoundBlock
from calibration.telemetry.run_health import findings_of_run
from simulator.results import metrics

_NONE_BELOW, _FIRST_BELOW = 1.02, 0.05
"""Mean acceptance length and rate of the first position below which a drafter does not work."""
_LITTLE_COVERAGE = 0.9
_LARGER_BATCH = 1.5


def findings_of(readings: Sequence[Reading], combined: Combined, earlier: Sequence[Finding]) -> list[Finding]:
    """Every finding on the readings of one command, those made `earlier` included, the severest first."""
    findings = [*earlier, *(finding for reading in readings for finding in reading.findings)]
    if combined.acceptance is not None:
        findings += _on_acceptance(combined.acceptance)
    findings += _on_coverage(combined)
    findings += _on_batch(readings)
    findings += _on_runs(readings)
    findings += _on_sources(readings)
    return sorted(dict.fromkeys(findings), key=lambda finding: SEVERITIES.index(finding.severity))


def _on_acceptance(acceptance: MeasuredAcceptance) -> Iterator[Finding]:
    total, length = acceptance.total, acceptance.total.mean_length
    many = not acceptance.counted or total.rounds >= FEW_ROUNDS
    first = total.accepted_at[0] / total.rounds if total.accepted_at else None
    if many and (length <= _NONE_BELOW or (first is not None and first < _FIRST_BELOW)):
        text = (
            f"mean acceptance length {length:.2f}: the drafter does not work here. Usual causes: a head of "
            f"another kind or model (EAGLE for EAGLE-3), another quantisation of the target, a wrong "
            f"tokenizer or template. Fix this before tuning the draft length"
        )
        yield Finding("acceptance-none", "error", text)
    if many and acceptance.draft_length and total.accepted >= acceptance.draft_length * total.rounds > 0.0:
        text = (
            "every draft is accepted: acceptance is synthetic, the prompts repeat, or the drafter is the "
            "target itself; real traffic accepts less"
        )
        yield Finding("acceptance-perfect", "warning", text)
    if acceptance.counted and total.rounds < FEW_ROUNDS:
        yield Finding("few-rounds", "warning", f"{total.rounds:g} draft rounds are too few to conclude from")
    if total.accepted_at and not drafts_full(total):
        share = metrics.share(total.drafted or 0.0, len(total.accepted_at) * total.rounds)
        text = (
            f"{share:.1%} of the draft positions were drafted: rounds are of different length, so rates of "
            f"later positions are lower bounds, and no model of α is fitted"
        )
        yield Finding("short-drafts", "info", text)
    yield from _contradictions(acceptance)


def _contradictions(acceptance: MeasuredAcceptance) -> Iterator[Finding]:
    """Counts that cannot all be true."""
    total = acceptance.total
    slack = 1e-6 * max(total.rounds, 1.0)
    if total.accepted_at:
        reached = (total.rounds, *total.accepted_at)
        if any(later > earlier + slack for earlier, later in pairwise(reached)):
            text = (
                "a later draft position is accepted more often than the one before it: the counts are damaged"
            )
            yield Finding("contradiction", "error", text)
        if abs(math.fsum(total.accepted_at) - total.accepted) > 0.005 * max(total.accepted, 1.0) + 1.0:
            text = (
                f"the positions add up to {math.fsum(total.accepted_at):,.0f} accepted tokens, the total is "
                f"{total.accepted:,.0f}: a part is missing"
            )
            yield Finding("contradiction", "warning", text)
    if total.drafted is not None and total.accepted > total.drafted + slack:
        yield Finding(
            "contradiction", "error", "more tokens are accepted than drafted: the counts are damaged"
        )
    longest = acceptance.draft_length
    if longest and total.accepted > longest * total.rounds + slack:
        yield Finding(
            "contradiction", "error", f"more than {longest} tokens are accepted per round on average"
        )


def _on_coverage(combined: Combined) -> Iterator[Finding]:
    length = combined.acceptance.total.mean_length if combined.acceptance else 0.0
    if combined.coverage is not None:
        coverage, per_step, how = combined.coverage, combined.tokens_per_step, ""
    elif combined.acceptance is not None and len(combined.accepted_by) == 1 and length > _NONE_BELOW:
        latencies = combined.accepted_by[0].latencies
        if not {"itl_s", "tpot_s"} <= latencies.keys() or not latencies["tpot_s"].values["mean"]:
            return
        per_step = latencies["itl_s"].values["mean"] / latencies["tpot_s"].values["mean"]
        coverage = min(max((per_step - 1.0) / (length - 1.0), 0.0), 1.0)
        how = " (estimated from mean ITL ÷ mean TPOT; a benchmark with --save-detailed tells it exactly)"
    else:
        return
    if coverage < _LITTLE_COVERAGE:
        step = f": a step emits {per_step:.2f} tokens, not {length:.2f}" if per_step else ""
        text = (
            f"{coverage:.0%} of the decode steps had a draft{step}{how}. The other steps pay the cost of "
            f"speculation without its gain"
        )
        yield Finding("draft-coverage", "warning", text)


def _on_batch(readings: Sequence[Reading]) -> Iterator[Finding]:
    """Whether acceptance changes with the batch, which it must not: within a series, and between runs."""
    for reading in readings:
        blocks = of_running(reading.acceptance.blocks if reading.acceptance else ())
        if len(blocks) >= FEWEST_BLOCKS:
            half = len(blocks) // 2
            small, large = blocks[:half], blocks[half:]
            yield from _change(
                [block.counts for block in small],
                [block.counts for block in large],
                (_mean_running(small), _mean_running(large)),
            )
    runs = [
        (reading.load["concurrency"], reading.acceptance.total)
        for reading in readings
        if reading.acceptance and reading.acceptance.counted and reading.load.get("concurrency")
    ]
    runs.sort(key=lambda run: run[0])
    if len(runs) > 1:
        yield from _change([runs[0][1]], [runs[-1][1]], (runs[0][0], runs[-1][0]))


def _change(
    small: Sequence[Counts], large: Sequence[Counts], running: tuple[float, float]
) -> Iterator[Finding]:
    if running[1] >= _LARGER_BATCH * running[0] and differ(small, large):
        low, high = 1.0 + mean_and_error(small)[0], 1.0 + mean_and_error(large)[0]
        text = (
            f"mean acceptance length is {low:.2f} at {running[0]:.3g} running requests and {high:.2f} at "
            f"{running[1]:.3g}: it must not depend on the batch. Suspect the engine, or other prompts; do "
            f"not fit it"
        )
        yield Finding("acceptance-varies-with-batch", "warning", text)


def _mean_running(blocks: Sequence[RoundBlock]) -> float:
    values = [block.running for block in blocks if block.running]
    return sum(values) / len(values)


def _on_runs(readings: Sequence[Reading]) -> Iterator[Finding]:
    """Findings on each run by itself; what is true of several runs is one finding that names them."""
    runs: dict[Finding, list[str]] = {}
    for reading in readings:
        for finding in findings_of_run(reading):
            runs.setdefault(finding, []).append(reading.label)
    for finding, labels in runs.items():
        where = f"{'; '.join(labels)}: " if len(readings) > 1 else ""
        yield replace(finding, text=f"{where}{finding.text}")


def _on_sources(readings: Sequence[Reading]) -> Iterator[Finding]:
    """Whether sources of different kinds, which may be of the same requests, agree on acceptance."""
    counted = [
        (reading, reading.acceptance)
        for reading in readings
        if reading.acceptance and reading.acceptance.counted
    ]
    for (first, own), (other, other_counts) in combinations(counted, 2):
        if first.format == other.format:
            continue
        if differ([own.total], [other_counts.total]):
            text = (
                f"mean acceptance length is {own.total.mean_length:.2f} in {first.label} and "
                f"{other_counts.total.mean_length:.2f} in {other.label}: they are not of the same traffic"
            )
            yield Finding("sources-differ", "warning", text)
