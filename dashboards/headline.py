"""The verdict in sentences: the gain, its reason, the effect on tail latency, and the uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.change import BETTER, EVEN, WORSE, after_to_before, direction
from dashboards.figures.look import clients
from dashboards.markup import sentence
from dashboards.stragglers import stragglers
from dashboards.subject import PLAIN, ReportedResult
from simulator.results.catalogue import COMPARED, paths_shown, title_of
from simulator.results.estimate import Estimate
from simulator.results.metric import Detail
from simulator.results.verdict import LOSES, NO_VERDICT, PAYS, UNDECIDED
from simulator.scenario.basis import GIVEN
from simulator.units import format_number, format_rate, format_seconds


@dataclass(frozen=True)
class Tile:
    """One figure of both variants.

    `ratio` is speculative ÷ plain; `direction` states whether it is better.
    """

    label: str
    before: str
    after: str
    ratio: Estimate
    direction: str


@dataclass(frozen=True)
class Headline:
    """The verdict on one variant. `claim` is one sentence; each of `support` another."""

    variant: str
    outcome: str | None
    claim: str
    support: tuple[str, ...]
    changes: tuple[Tile, ...]


def headlines(subject: ReportedResult) -> list[Headline]:
    """One verdict per speculative variant."""
    return [
        _headline(subject, variant) for variant in subject.speculative if variant in subject.result.comparison
    ]


def _headline(subject: ReportedResult, variant: str) -> Headline:
    comparison = subject.result.comparison[variant]
    outcome = comparison.verdict.outcome
    reason, by_tpot = _reason(variant, outcome, comparison.verdict.sentence)
    ratio = comparison.ratios.get("tpot_mean_speedup" if by_tpot else "throughput_speedup")
    claim = f"{_condition(subject, variant)}{_variant_text(subject, variant)} {_OUTCOME_TEXTS[outcome]}"
    if outcome is NO_VERDICT or ratio is None or ratio.band is None or "serves the rate" in reason:
        claim += "."
    else:
        claim += f": {_gain(ratio, outcome, by_tpot)}."
    support = [sentence(reason)]
    statements = (_saturated, _tail, _stragglers, _break_even, _assumed, _slo)
    support += [line for line in (statement(subject, variant) for statement in statements) if line]
    return Headline(variant, outcome, claim, tuple(support), tuple(_changes(subject, variant, _TILES)))


_TILES = tuple(name for name, ratio in COMPARED.items() if ratio.path in paths_shown(Detail.SUMMARY))
"""Comparisons at the top of a page."""
_TAILS = tuple(name for name in _TILES if COMPARED[name].part == "p99")
"""Comparisons of the slowest requests and gaps."""
_OUTCOME_TEXTS = {
    PAYS: "pays",
    LOSES: "does not pay",
    UNDECIDED: "may or may not pay",
    NO_VERDICT: "gets no verdict",
}


def _reason(variant: str, outcome: str | None, sentence_text: str) -> tuple[str, bool]:
    """The reason in the verdict's sentence, and whether the verdict is about TPOT."""
    reason = sentence_text.removeprefix(f"{variant}: ").removeprefix(f"{outcome or 'no verdict'}: ")
    by_tpot = reason.startswith("TPOT ")
    if reason.startswith(("TPOT speedup × ", "throughput × ")):
        reason = reason.partition(": ")[2] or reason
    return reason, by_tpot


def _condition(subject: ReportedResult, variant: str) -> str:
    """`If α is 0.70, ` where the verdict holds for an acceptance that the scenario gives."""
    from simulator.scenario import given_acceptance

    comparison = subject.result.comparison[variant]
    if (
        subject.scenario is None
        or comparison.acceptance_basis != GIVEN
        or comparison.verdict.outcome is NO_VERDICT
    ):
        return ""
    return f"If {given_acceptance(subject.scenario, variant)}, "


def _variant_text(subject: ReportedResult, variant: str) -> str:
    """The variant in words: `EAGLE-3 with 3 drafts a round`."""
    from simulator.speculation import method

    if subject.scenario is None:
        return variant
    entry = subject.scenario.variant(variant)
    title = method(entry.method).title.partition(",")[0].removesuffix(" head")
    drafts = entry.draft_length
    if isinstance(drafts, int):
        return f"{title[:1].upper()}{title[1:]} with {drafts} draft{'s' if drafts != 1 else ''} a round"
    return f"{title[:1].upper()}{title[1:]} with up to {entry.max_draft_length} drafts a round"


def _gain(ratio: Estimate, outcome: str | None, by_tpot: bool) -> str:
    assert ratio.band is not None
    more, fewer = ("faster", "slower") if by_tpot else ("more", "fewer")

    def change(value: float) -> str:
        return f"{value - 1:.0%} {more}" if value >= 1 else f"{1 - value:.0%} {fewer}"

    low, high = ratio.band
    same_side = (low >= 1) == (high >= 1)
    between = (
        f"{abs(low - 1):.0%} to {abs(high - 1):.0%}"
        if low >= 1
        else f"{abs(high - 1):.0%} to {abs(low - 1):.0%}"
    )
    band = between if same_side else f"between {change(low)} and {change(high)}"
    if by_tpot:
        return f"at the same traffic answers stream {change(ratio.value)} ({band} with the model's error)"
    return f"the same GPUs serve {change(ratio.value)} tokens per second ({band} with the model's error)"


def _changes(subject: ReportedResult, variant: str, comparisons: Sequence[str]) -> list[Tile]:
    plain, speculative = subject.result.variants[PLAIN], subject.result.variants[variant]
    comparisons_made = []
    for name in comparisons:
        ratio = subject.result.comparison[variant].ratios.get(name)
        before, after = (side.estimates.get(COMPARED[name].path) for side in (plain, speculative))
        if ratio is not None and ratio.value > 0 and before is not None and after is not None:
            ratio_to_plain = after_to_before(name, ratio)
            value_texts = _pair(COMPARED[name].path, before.value, after.value)
            comparisons_made.append(
                Tile(
                    _heading(COMPARED[name].path),
                    *value_texts,
                    ratio_to_plain,
                    direction(name, ratio_to_plain),
                )
            )
    return comparisons_made


def _heading(path: str) -> str:
    title = title_of(path)
    return title[0].upper() + title[1:]


def _pair(path: str, before: float, after: float) -> tuple[str, str]:
    if path.endswith("per_s"):
        return format_number(before), format_rate(after)
    texts = format_seconds(before), format_seconds(after)
    same = texts[0].split(" ")[1] == texts[1].split(" ")[1]
    return (texts[0].split(" ")[0] if same else texts[0]), texts[1]


def _tail(subject: ReportedResult, variant: str) -> str | None:
    """The change of the P99 latencies."""
    changes = _changes(subject, variant, _TAILS)
    if not changes:
        return None
    parts = []
    for verb, meaning in (("worsens", WORSE), ("improves", BETTER), ("stays within the error", EVEN)):
        comparisons = [change for change in changes if change.direction == meaning]
        if comparisons:
            figures = ", ".join(f"{change.label} {_without_breaks(change)}" for change in comparisons)
            parts.append(f"{verb}: {figures}")
    return f"Tail latency {'; '.join(parts)}."


def _stragglers(subject: ReportedResult, variant: str) -> str | None:
    """Whether the slowest requests are those without drafts."""
    straggler_shares = stragglers(subject, variant)
    if straggler_shares is None or not straggler_shares.explain_the_tail:
        return None
    notes = [
        note.removeprefix(f"{variant}: ") for note in subject.result.notes if note.startswith(f"{variant}: ")
    ]
    reason = next((note.partition(", and")[0] for note in notes if "outgrow the drafter" in note), None)
    share = "All" if straggler_shares.slowest_fraction > 0.995 else f"{straggler_shares.slowest_fraction:.0%}"
    explanation = reason or f"{straggler_shares.overall_fraction:.1%} of all do"
    return (
        f"{share} of the slowest 1% by TPOT decode without drafts ({explanation}); "
        f"the P99 of those that draft is {format_seconds(straggler_shares.drafting_p99_s)}."
    )


def _without_breaks(change: Tile) -> str:
    """Both figures, with non-breaking spaces."""
    return f"{change.before} → {change.after}".replace(" ", "\u00a0")


def _saturated(subject: ReportedResult, variant: str) -> str | None:
    """Why there are no latencies; None where the load is below capacity."""
    saturated_names = [name for name in (PLAIN, variant) if subject.result.variants[name].saturated]
    if not saturated_names:
        return None
    saturated_text = "both variants" if len(saturated_names) == 2 else saturated_names[0]
    message = "waiting grows without bound, so there are no latencies"
    return f"The offered rate is more than {saturated_text} can serve: {message}."


def _break_even(subject: ReportedResult, variant: str) -> str | None:
    """The break-even at the scenario's own load."""
    document = subject.study.break_even.get(variant)
    load = subject.result.scenario.get("workload", {}).get("arrivals", {}).get("concurrency")
    row = next((row for row in (document or {}).get("rows", ()) if row["concurrency"] == load), None)
    if row is None or row["simulated_alpha"] is None or row["scenario_alpha"] is None:
        return None
    break_even_alpha: Mapping[str, Any] = row["simulated_alpha"]
    band = (
        f" ({break_even_alpha['band'][0]:.2f} to {break_even_alpha['band'][1]:.2f})"
        if break_even_alpha["band"]
        else ""
    )
    return (
        f"At {clients(load)} it needs an acceptance α of {break_even_alpha['value']:.2f}{band} "
        "to break even; "
        f"the scenario has {row['scenario_alpha']:.2f}."
    )


def _assumed(subject: ReportedResult, variant: str) -> str | None:
    """A caution where the acceptance is a default."""
    if f"speculation.{variant}.acceptance" not in subject.result.provenance.defaults_used:
        return None
    return "The acceptance is a default, not a measurement: measure yours, because it decides the answer."


def _slo(subject: ReportedResult, variant: str) -> str | None:
    limits = {
        key: value for key, value in (subject.result.scenario.get("slo") or {}).items() if value is not None
    }
    before, after = (
        subject.result.variants[name].estimates.get("slo_attainment") for name in (PLAIN, variant)
    )
    if not limits or before is None or after is None:
        return None
    words = " and ".join(
        f"{key.split('_')[0].upper()} ≤ {format_seconds(value)}" for key, value in limits.items()
    )
    return f"Requests with {words}: {before.value:.1%} without, {after.value:.1%} with it."
