"""The verdict in words for people who decide: what is gained, why, what the tail pays, how safe it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.change import BETTER, EVEN, WORSE, direction, growth
from dashboards.figures.look import clients
from dashboards.markup import sentence
from dashboards.stragglers import stragglers
from dashboards.subject import PLAIN, Subject
from simulator.results.catalogue import COMPARED, paths_shown, title_of
from simulator.results.estimate import Estimate
from simulator.results.metric import Detail
from simulator.results.verdict import LOSES, PAYS, UNDECIDED
from simulator.units import format_number, format_rate, format_seconds


@dataclass(frozen=True)
class Tile:
    """One figure of both variants; `grown` is speculative ÷ plain, `direction` says whether that is good."""

    label: str
    before: str
    after: str
    grown: Estimate
    direction: str


@dataclass(frozen=True)
class Headline:
    """The verdict on one variant. `claim` is one sentence; each of `support` another."""

    variant: str
    outcome: str
    claim: str
    support: tuple[str, ...]
    changes: tuple[Tile, ...]


def headlines(subject: Subject) -> list[Headline]:
    """One verdict per speculative variant."""
    return [
        _headline(subject, variant) for variant in subject.speculative if variant in subject.result.comparison
    ]


def _headline(subject: Subject, variant: str) -> Headline:
    comparison = subject.result.comparison[variant]
    outcome = comparison.verdict.outcome
    why, offered = _reason(variant, outcome, comparison.verdict.sentence)
    ratio = comparison.ratios.get("tpot_mean_speedup" if offered else "throughput_speedup")
    if ratio is None or ratio.band is None or "serves the rate" in why:
        claim, support = f"{_what(subject, variant)} {_WORDS[outcome]}.", [sentence(why)]
    else:
        claim = f"{_what(subject, variant)} {_WORDS[outcome]}: {_gain(ratio, outcome, offered)}."
        support = [sentence(why)]
    more = (_saturated, _tail, _stragglers, _needs, _assumed, _slo)
    support += [line for line in (say(subject, variant) for say in more) if line]
    return Headline(variant, outcome, claim, tuple(support), tuple(_changes(subject, variant, _TILES)))


_TILES = tuple(name for name, ratio in COMPARED.items() if ratio.path in paths_shown(Detail.SUMMARY))
"""Comparisons at the top of a page."""
_TAILS = tuple(name for name in _TILES if COMPARED[name].part == "p99")
"""Comparisons of the slowest requests and gaps."""
_WORDS = {PAYS: "pays", LOSES: "does not pay", UNDECIDED: "may or may not pay"}


def _reason(variant: str, outcome: str, sentence_of_verdict: str) -> tuple[str, bool]:
    """The reason alone, of the verdict's sentence, and whether the verdict is about TPOT."""
    why = sentence_of_verdict.removeprefix(f"{variant}: ").removeprefix(f"{outcome}: ")
    offered = why.startswith("TPOT ")
    if why.startswith(("TPOT speedup × ", "throughput × ")):
        why = why.partition(": ")[2] or why
    return why, offered


def _what(subject: Subject, variant: str) -> str:
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


def _gain(ratio: Estimate, outcome: str, offered: bool) -> str:
    assert ratio.band is not None
    more, fewer = ("faster", "slower") if offered else ("more", "fewer")

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
    if offered:
        return f"at the same traffic answers stream {change(ratio.value)} ({band} with the model's error)"
    return f"the same GPUs serve {change(ratio.value)} tokens per second ({band} with the model's error)"


def _changes(subject: Subject, variant: str, comparisons: Sequence[str]) -> list[Tile]:
    plain, speculative = subject.result.variants[PLAIN], subject.result.variants[variant]
    found = []
    for name in comparisons:
        ratio = subject.result.comparison[variant].ratios.get(name)
        before, after = (side.estimates.get(COMPARED[name].path) for side in (plain, speculative))
        if ratio is not None and ratio.value > 0 and before is not None and after is not None:
            grown = growth(name, ratio)
            shown = _pair(COMPARED[name].path, before.value, after.value)
            found.append(Tile(_heading(COMPARED[name].path), *shown, grown, direction(name, grown)))
    return found


def _heading(path: str) -> str:
    title = title_of(path)
    return title[0].upper() + title[1:]


def _pair(path: str, before: float, after: float) -> tuple[str, str]:
    if path.endswith("per_s"):
        return format_number(before), format_rate(after)
    shown = format_seconds(before), format_seconds(after)
    same = shown[0].split(" ")[1] == shown[1].split(" ")[1]
    return (shown[0].split(" ")[0] if same else shown[0]), shown[1]


def _tail(subject: Subject, variant: str) -> str | None:
    """What happens to the slowest one in a hundred."""
    changes = _changes(subject, variant, _TAILS)
    if not changes:
        return None
    parts = []
    for verb, meant in (("worsens", WORSE), ("improves", BETTER), ("stays within the error", EVEN)):
        these = [change for change in changes if change.direction == meant]
        if these:
            listed = ", ".join(f"{change.label} {_glued(change)}" for change in these)
            parts.append(f"{verb}: {listed}")
    return f"Tail latency {'; '.join(parts)}."


def _stragglers(subject: Subject, variant: str) -> str | None:
    """Who the slow ones are, where it is those without drafts."""
    found = stragglers(subject, variant)
    if found is None or not found.explain_the_tail:
        return None
    notes = [
        note.removeprefix(f"{variant}: ") for note in subject.result.notes if note.startswith(f"{variant}: ")
    ]
    why = next((note.partition(", and")[0] for note in notes if "outgrow the drafter" in note), None)
    share = "All" if found.of_slowest > 0.995 else f"{found.of_slowest:.0%}"
    return (
        f"{share} of the slowest 1% by TPOT go without drafts ({why or f'{found.of_all:.1%} of all do'}); "
        f"the P99 of those that draft is {format_seconds(found.others_p99_s)}."
    )


def _glued(change: Tile) -> str:
    """Both figures, with spaces at which no line breaks."""
    return f"{change.before} → {change.after}".replace(" ", "\u00a0")


def _saturated(subject: Subject, variant: str) -> str | None:
    """Why there are no latencies, where the load is above capacity."""
    above = [name for name in (PLAIN, variant) if subject.result.variants[name].saturated]
    if not above:
        return None
    who = "both variants" if len(above) == 2 else above[0]
    return f"The offered rate is more than {who} can serve: waiting grows without end, so no latencies."


def _needs(subject: Subject, variant: str) -> str | None:
    """The break-even at the scenario's own load."""
    document = subject.study.break_even.get(variant)
    load = subject.result.scenario.get("workload", {}).get("arrivals", {}).get("concurrency")
    row = next((row for row in (document or {}).get("rows", ()) if row["concurrency"] == load), None)
    if row is None or row["simulated_alpha"] is None or row["scenario_alpha"] is None:
        return None
    needed: Mapping[str, Any] = row["simulated_alpha"]
    band = f" ({needed['band'][0]:.2f} to {needed['band'][1]:.2f})" if needed["band"] else ""
    return (
        f"At {clients(load)} it needs an acceptance α of {needed['value']:.2f}{band} to break even; "
        f"the scenario has {row['scenario_alpha']:.2f}."
    )


def _assumed(subject: Subject, variant: str) -> str | None:
    """A word of caution where the acceptance was not given."""
    if f"speculation.{variant}.acceptance" not in subject.result.provenance.defaults_used:
        return None
    return "The acceptance is a default, not a measurement: measure yours, it decides the answer."


def _slo(subject: Subject, variant: str) -> str | None:
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
