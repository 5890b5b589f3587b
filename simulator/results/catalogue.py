"""The catalogue of figures: every metric of a result, declared once.

Measuring, comparing, studies, what-ifs, the command line, pages and docs read names, titles, units and
directions here. A new metric is an entry here and its measurement in `measure.py`.

A figure has a path, as in the JSON: `throughput_tokens_per_s`, `tpot_s.p99`, `step_s.draft`,
`acceptance_rate_at.2`, and `classes.NAME.` in front of it for the requests of a traffic class. The first part
of the path names the entry of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from simulator.results.metric import STATISTICS, Detail, Kind, Metric, Ratio

PAGE, SUMMARY, TABLE = Detail.PAGE, Detail.SUMMARY, Detail.TABLE

CLASSES = "classes"
"""First part of the path of a traffic class's figures."""


def _latency(
    name: str,
    title: str,
    definition: str,
    shown: Mapping[str, Detail],
    *,
    kind: Kind = Kind.REQUEST_LATENCY,
    shown_unit: str = "ms",
    samples: str = "requests",
    limits: tuple[str, ...] = (),
    reported_by_clients: bool = False,
    is_drawn: bool = False,
) -> Metric:
    return Metric(
        name, title, "s", definition, kind, better=-1, parts=STATISTICS, shown=shown, shown_unit=shown_unit,
        samples=samples, limits=limits, reported_by_clients=reported_by_clients, is_drawn=is_drawn,
    )  # fmt: skip


def _fraction(
    name: str,
    title: str,
    definition: str,
    kind: Kind = Kind.RUN,
    *,
    better: int = 0,
    in_percent: bool = False,
    by_position: bool = False,
    shown: Mapping[str, Detail] = MappingProxyType({}),
) -> Metric:
    return Metric(
        name, title, "1", definition, kind, better, shown=shown, shown_unit="%" if in_percent else None,
        is_fraction=True, by_position=by_position,
    )  # fmt: skip


CATALOGUE: Mapping[str, Metric] = MappingProxyType({
    metric.name: metric
    for metric in (
        Metric(
            "throughput_tokens_per_s", "throughput", "tokens/s",
            "output tokens ÷ time, over the window of steady arrivals", better=1, shown={"": SUMMARY},
        ),
        Metric(
            "request_rate_per_s", "requests served", "requests/s",
            "requests that end ÷ time, over the window of steady arrivals", better=1, shown={"": TABLE},
        ),
        Metric(
            "goodput_requests_per_s", "goodput", "requests/s",
            "requests that meet every limit of the SLO ÷ time", Kind.SLO, 1, shown={"": SUMMARY},
        ),
        _fraction(
            "slo_attainment", "SLO attainment", "requests that meet every limit of the SLO ÷ requests",
            Kind.SLO, better=1, in_percent=True, shown={"": PAGE},
        ),
        _latency(
            "ttft_s", "TTFT", "first emission − arrival", {"mean": TABLE, "p99": SUMMARY},
            limits=("ttft",), reported_by_clients=True, is_drawn=True,
        ),
        _latency(
            "tpot_s", "TPOT", "(last − first emission) ÷ (output tokens − 1) of a request",
            {"mean": SUMMARY, "p50": PAGE, "p99": SUMMARY},
            limits=("tpot",), reported_by_clients=True, is_drawn=True,
        ),
        _latency(
            "itl_s", "ITL", "time between two emissions of a request", {"mean": TABLE, "p99": SUMMARY},
            kind=Kind.GAP_LATENCY, samples="gaps", reported_by_clients=True, is_drawn=True,
        ),
        _latency(
            "itl_token_s", "ITL per token", "ITL ÷ tokens of the emission that ends it, once per token",
            {"mean": PAGE, "p99": PAGE}, kind=Kind.GAP_LATENCY, samples="tokens", is_drawn=True,
        ),
        _latency(
            "worst_gap_s", "max ITL", "largest ITL of a request", {"p99": TABLE}, limits=("itl", "worst_gap")
        ),
        _latency(
            "e2e_s", "end to end", "last emission − arrival", {"mean": TABLE, "p99": PAGE},
            shown_unit="s", limits=("e2e",), reported_by_clients=True,
        ),
        _latency("queue_s", "queue time", "admission − arrival", {}),
        Metric(
            "mean_acceptance_length", "mean acceptance length", "tokens",
            "1 + accepted tokens ÷ rounds with a draft, as engine logs print it",
            Kind.ACCEPTANCE, 1, shown={"": SUMMARY},
        ),
        _fraction(
            "draft_acceptance_rate", "draft acceptance rate", "accepted ÷ drafted tokens",
            Kind.ACCEPTANCE, better=1,
        ),
        _fraction(
            "acceptance_rate_at", "acceptance rate at position",
            "rounds that accept at least j drafts ÷ rounds with a draft",
            Kind.ACCEPTANCE, better=1, by_position=True,
        ),
        _fraction(
            "conditional_acceptance", "conditional acceptance at position",
            "acceptance at position j if all earlier drafts are accepted: the α of the theory",
            Kind.ACCEPTANCE, better=1, by_position=True,
        ),
        _fraction("draft_coverage", "draft coverage", "rounds with a draft ÷ decode rounds"),
        Metric(
            "tokens_per_round", "tokens per round", "tokens",
            "emitted tokens ÷ decode rounds: rounds without drafts count, and stops cut the last round",
            better=1, shown={"": PAGE},
        ),
        Metric(
            "mean_batch", "mean batch", "requests", "requests that decode at the same time, mean",
            shown={"": SUMMARY},
        ),
        Metric(
            "preemptions", "preemptions", "requests", "requests that lost their KV blocks to others",
            better=-1, shown={"": PAGE},
        ),
        _fraction(
            "kv_peak_fraction", "peak KV use", "largest number of KV blocks in use ÷ all KV blocks",
            in_percent=True, shown={"": PAGE},
        ),
        Metric("steps", "steps", "steps", "engine steps of a run"),
        Metric(
            "step_s", "step", "s",
            "mean duration of an engine step, and its parts; attention and communication are within verify",
            better=-1, parts=("mean", "draft", "verify", "attention", "communication", "sampling", "host"),
            shown={"mean": SUMMARY}, shown_unit="ms",
        ),
        Metric(
            "wasted_rows", "wasted rows", "rows",
            "query rows computed for nothing: rejected drafts, padding, ghost rows, tokens after a stop",
            better=-1, parts=("rejected", "padding", "ghost", "trimmed"),
        ),
        _fraction(
            "timed_out_fraction", "timed out", "requests whose client timed out ÷ requests",
            better=-1, in_percent=True,
        ),
        _fraction(
            "rejected_fraction", "rejected", "requests that can never be served ÷ requests",
            better=-1, in_percent=True,
        ),
    )
})  # fmt: skip
"""Name → metric, in the order in which tables show them."""

COMPARED: Mapping[str, Ratio] = MappingProxyType({
    ratio.name: ratio
    for ratio in (
        Ratio(CATALOGUE["throughput_tokens_per_s"]),
        Ratio(CATALOGUE["tpot_s"], "mean", inverted=True),
        Ratio(CATALOGUE["tpot_s"], "p99", inverted=True),
        Ratio(CATALOGUE["itl_s"], "mean"),
        Ratio(CATALOGUE["itl_s"], "p99"),
        Ratio(CATALOGUE["ttft_s"], "p99"),
        Ratio(CATALOGUE["e2e_s"], "mean", inverted=True),
        Ratio(CATALOGUE["goodput_requests_per_s"]),
    )
})  # fmt: skip
"""Name → comparison, in the order of the JSON."""

COMPARED_BY_WORD: Mapping[str, Ratio] = MappingProxyType({ratio.word: ratio for ratio in COMPARED.values()})
"""Word of `--metric` → comparison."""

COMPARED_BY_PATH: Mapping[str, Ratio] = MappingProxyType({ratio.path: ratio for ratio in COMPARED.values()})
"""Path → the comparison of that figure."""

BREAK_EVEN: Mapping[str, Metric] = MappingProxyType({
    metric.name: metric
    for metric in (
        Metric("break_even_alpha", "break-even α", "1", "acceptance α at which both variants tie"),
        Metric(
            "break_even_acceptance_length", "break-even acceptance length", "tokens",
            "mean acceptance length at the break-even α",
        ),
        Metric("overhead", "overhead", "1", "speculative step ÷ plain step − 1, of uniform steps"),
        Metric(
            "geometric_alpha", "geometric break-even α", "1",
            "break-even α of independent drafts, from step times alone",
        ),
        Metric(
            "linear_acceptance_rate", "linear break-even", "1",
            "break-even share of accepted drafts, from step times alone",
        ),
        Metric("scenario_alpha", "α of the scenario", "1", "the scenario's own α", better=1),
        Metric("plain_mean_batch", "plain mean batch", "requests", "mean batch of plain decoding"),
    )
})  # fmt: skip
"""What a break-even says of a speculative variant in numbers."""


def names_of(is_meant: Callable[[Metric], bool]) -> tuple[str, ...]:
    """Names of the metrics that are meant, in the order of the catalogue."""
    return tuple(metric.name for metric in CATALOGUE.values() if is_meant(metric))


def paths_shown(detail: Detail) -> tuple[str, ...]:
    """Paths of a table: those shown at this detail and those more prominent."""
    return tuple(
        f"{metric.name}.{part}".rstrip(".")
        for metric in CATALOGUE.values()
        for part in metric.parts or ("",)
        if metric.shown.get(part, Detail.PAGE + 1) <= detail
    )


def all_paths() -> tuple[str, ...]:
    """Every path that does not depend on the draft length or on traffic classes."""
    return tuple(path for metric in CATALOGUE.values() for path in metric.paths)


REQUEST_LATENCIES = names_of(lambda metric: metric.kind is Kind.REQUEST_LATENCY)
GAP_LATENCIES = names_of(lambda metric: metric.kind is Kind.GAP_LATENCY)
POSITIONAL = names_of(lambda metric: metric.by_position)
"""Metrics by draft position: lists in the JSON, paths `NAME.1`, `NAME.2`, … elsewhere."""
REPORTED_BY_CLIENTS = names_of(lambda metric: metric.reported_by_clients)
LIMITED: Mapping[str, str] = MappingProxyType(
    {word: metric.name for metric in CATALOGUE.values() for word in metric.limits}
)
"""Word of an SLO limit → what each request is held to: an ITL limit is held against its largest ITL."""


def without_class(path: str) -> tuple[str | None, str]:
    """The traffic class of a path, None for that of all requests, and the rest of the path."""
    if not path.startswith(f"{CLASSES}."):
        return None, path
    _, name, rest = path.split(".", 2)
    return name, rest


@cache
def metric_of(path: str) -> Metric:
    """The entry that a path belongs to. Raises KeyError for a path of no metric."""
    return CATALOGUE[without_class(path)[1].partition(".")[0]]


def title_of(path: str) -> str:
    """The figure in the industry's words: `TPOT P99`, `chat: TTFT mean`, `step draft`."""
    traffic_class, rest = without_class(path)
    title = metric_of(path).title_of(rest.partition(".")[2])
    return title if traffic_class is None else f"{traffic_class}: {title}"


def label_of(path: str) -> str:
    """The title with the unit in which people read it: `TPOT P99, ms`, `steps`."""
    unit = metric_of(path).label_unit
    return f"{title_of(path)}, {unit}" if unit else title_of(path)
