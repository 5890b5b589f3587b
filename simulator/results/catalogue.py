"""The catalogue of figures: every figure of a result, declared once.

Measuring, comparing, studies, what-ifs, the command line, pages and docs read their names, titles, units and
directions here. A new figure is an entry here and its measurement in `measure.py`.

A figure has a path, as in the JSON: `throughput_tokens_per_s`, `tpot_s.p99`, `step_s.draft`,
`acceptance_rate_at.2`, and `classes.NAME.` in front of it for the requests of a traffic class. The first part
of the path names the entry of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

QUANTILE: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""The percentiles that are reported."""

STATISTICS = ("mean", *QUANTILE)
"""What is reported of every latency."""

CLASSES = "classes"
"""First part of the path of a traffic class's figures."""

STATISTIC_TITLES = {
    "mean": "mean",
    "p50": "P50",
    "p90": "P90",
    "p95": "P95",
    "p99": "P99",
    "p999": "P99.9",
}


class Kind(Enum):
    """What a figure is taken from, which decides when it exists."""

    REQUEST_LATENCY = "one sample per request"
    GAP_LATENCY = "one sample per emission, pooled over requests"
    ACCEPTANCE = "rounds of requests that draft"
    SLO = "requests held against the limits of an SLO"
    RUN = "the run as a whole"


@dataclass(frozen=True)
class Figure:
    """One entry. `unit` is that of the JSON (SI, `1` for a plain number). People read it in
    `shown_unit`. `better`: +1 where more is better, −1 where less is, 0 where neither. `parts`: what the path
    goes on with; none for a single number.
    """

    name: str
    title: str
    unit: str
    definition: str
    kind: Kind = Kind.RUN
    better: int = 0
    parts: tuple[str, ...] = ()
    shown_unit: str | None = None
    is_fraction: bool = False
    by_position: bool = False
    """Followed by a draft position, from 1: a list in the JSON."""

    @property
    def scale(self) -> float:
        """What a value is multiplied by for people."""
        return {"ms": 1e3, "%": 100.0}.get(self.shown_unit or "", 1.0)

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths; none where they depend on the draft length."""
        if self.by_position:
            return ()
        return tuple(f"{self.name}.{part}" for part in self.parts) or (self.name,)


def _latency(
    name: str, title: str, definition: str, kind: Kind = Kind.REQUEST_LATENCY, shown_unit: str = "ms"
) -> Figure:
    return Figure(name, title, "s", definition, kind, -1, STATISTICS, shown_unit)


CATALOGUE: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "throughput_tokens_per_s", "throughput", "tokens/s",
            "output tokens ÷ time, over the window of steady arrivals", better=1,
        ),
        Figure(
            "request_rate_per_s", "requests served", "requests/s",
            "requests that end ÷ time, over the window of steady arrivals", better=1,
        ),
        Figure(
            "goodput_requests_per_s", "goodput", "requests/s",
            "requests that meet every limit of the SLO ÷ time", Kind.SLO, better=1,
        ),
        Figure(
            "slo_attainment", "SLO attainment", "1",
            "requests that meet every limit of the SLO ÷ requests", Kind.SLO, 1, shown_unit="%", is_fraction=True,
        ),
        _latency("ttft_s", "TTFT", "first emission − arrival"),
        _latency("tpot_s", "TPOT", "(last − first emission) ÷ (output tokens − 1) of a request"),
        _latency("itl_s", "ITL", "time between two emissions of a request", Kind.GAP_LATENCY),
        _latency(
            "itl_token_s", "ITL per token",
            "ITL ÷ tokens of the emission that ends it, once per token", Kind.GAP_LATENCY,
        ),
        _latency("worst_gap_s", "max ITL", "largest ITL of a request"),
        _latency("e2e_s", "end to end", "last emission − arrival", shown_unit="s"),
        _latency("queue_s", "queue time", "admission − arrival"),
        Figure(
            "mean_acceptance_length", "mean acceptance length", "tokens",
            "1 + accepted tokens ÷ rounds with a draft, as engine logs print it", Kind.ACCEPTANCE, 1,
        ),
        Figure(
            "draft_acceptance_rate", "draft acceptance rate", "1",
            "accepted ÷ drafted tokens", Kind.ACCEPTANCE, 1, is_fraction=True,
        ),
        Figure(
            "acceptance_rate_at", "acceptance rate at position", "1",
            "rounds that accept at least j drafts ÷ rounds with a draft",
            Kind.ACCEPTANCE, 1, is_fraction=True, by_position=True,
        ),
        Figure(
            "conditional_acceptance", "conditional acceptance at position", "1",
            "acceptance at position j if all earlier drafts are accepted: the α of the theory",
            Kind.ACCEPTANCE, 1, is_fraction=True, by_position=True,
        ),
        Figure(
            "draft_coverage", "draft coverage", "1", "rounds with a draft ÷ decode rounds", is_fraction=True
        ),
        Figure(
            "tokens_per_round", "tokens per round", "tokens",
            "emitted tokens ÷ decode rounds: rounds without drafts count, and stops cut the last round", better=1,
        ),
        Figure("mean_batch", "mean batch", "requests", "requests that decode at the same time, mean"),
        Figure("preemptions", "preemptions", "requests", "requests that lost their KV blocks to others", better=-1),
        Figure(
            "kv_peak_fraction", "peak KV use", "1",
            "largest number of KV blocks in use ÷ all KV blocks", shown_unit="%", is_fraction=True,
        ),
        Figure("steps", "steps", "steps", "engine steps of a run"),
        Figure(
            "step_s", "step", "s",
            "mean duration of an engine step, and its parts; attention and communication are within verify",
            better=-1,
            parts=("mean", "draft", "verify", "attention", "communication", "sampling", "host"),
            shown_unit="ms",
        ),
        Figure(
            "wasted_rows", "wasted rows", "rows",
            "query rows computed for nothing: rejected drafts, padding, ghost rows, tokens after a stop",
            better=-1, parts=("rejected", "padding", "ghost", "trimmed"),
        ),
        Figure(
            "timed_out_fraction", "timed out", "1",
            "requests whose client timed out ÷ requests", better=-1, shown_unit="%", is_fraction=True,
        ),
        Figure(
            "rejected_fraction", "rejected", "1",
            "requests that can never be served ÷ requests", better=-1, shown_unit="%", is_fraction=True,
        ),
    )
}  # fmt: skip
"""Name → figure, in the order in which tables show them."""


@dataclass(frozen=True)
class Ratio:
    """A comparison of a speculative variant with plain decoding. `inverted`: plain ÷ speculative, for a
    figure where less is better; otherwise speculative ÷ plain. A speedup above 1 is better for speculation.
    """

    name: str
    path: str
    inverted: bool = False

    @property
    def is_speedup(self) -> bool:
        """Whether more than 1 is better for speculation."""
        return self.inverted or self.figure.better > 0

    @property
    def figure(self) -> Figure:
        """The figure that is compared."""
        return figure_of(self.path)

    @property
    def title(self) -> str:
        """`TPOT P99 speedup`, `ITL P99 ratio`."""
        word = "speedup" if self.is_speedup else "ratio"
        return f"{title_of(self.path)} {word}"

    @property
    def definition(self) -> str:
        """What is divided by what, and which way is better."""
        sides = "plain ÷ speculative" if self.inverted else "speculative ÷ plain"
        return f"{title_of(self.path)}, {sides}; {'above' if self.is_speedup else 'below'} 1 is better"


COMPARED: Mapping[str, Ratio] = {
    ratio.name: ratio
    for ratio in (
        Ratio("throughput_speedup", "throughput_tokens_per_s"),
        Ratio("tpot_mean_speedup", "tpot_s.mean", inverted=True),
        Ratio("tpot_p99_speedup", "tpot_s.p99", inverted=True),
        Ratio("itl_mean_ratio", "itl_s.mean"),
        Ratio("itl_p99_ratio", "itl_s.p99"),
        Ratio("ttft_p99_ratio", "ttft_s.p99"),
        Ratio("e2e_mean_speedup", "e2e_s.mean", inverted=True),
        Ratio("goodput_speedup", "goodput_requests_per_s"),
    )
}
"""Name → comparison, in the order of the JSON."""

BREAK_EVEN: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure("break_even_alpha", "break-even α", "1", "acceptance α at which the variant equals plain decoding"),
        Figure(
            "break_even_acceptance_length", "break-even acceptance length", "tokens",
            "mean acceptance length at the break-even α",
        ),
        Figure("overhead", "overhead", "1", "speculative step ÷ plain step − 1, of uniform steps"),
        Figure(
            "geometric_alpha", "geometric break-even α", "1",
            "break-even α of independent drafts, from step times alone",
        ),
        Figure(
            "linear_acceptance_rate", "linear break-even", "1",
            "break-even share of accepted drafts, from step times alone",
        ),
        Figure("scenario_alpha", "α of the scenario", "1", "the scenario's own α", better=1),
        Figure("plain_mean_batch", "plain mean batch", "requests", "mean batch of plain decoding"),
    )
}  # fmt: skip
"""What a break-even says of a speculative variant in numbers."""

TABLE = (
    "throughput_tokens_per_s", "request_rate_per_s", "ttft_s.mean", "ttft_s.p99", "tpot_s.mean", "tpot_s.p99",
    "itl_s.mean", "itl_s.p99", "worst_gap_s.p99", "e2e_s.mean", "mean_acceptance_length", "mean_batch",
    "step_s.mean", "goodput_requests_per_s",
)  # fmt: skip
"""Rows of the table of a simulation, and what a what-if compares."""

CHANGES = (
    "throughput_tokens_per_s", "ttft_s.p99", "tpot_s.mean", "tpot_s.p99", "itl_s.p99", "e2e_s.mean",
    "goodput_requests_per_s", "mean_batch",
)  # fmt: skip
"""Rows of the table of a what-if."""

REPLICA = ("ttft_s.p99", "tpot_s.mean", "tpot_s.p99", "mean_batch")
"""Rows of one replica at its part of the load."""

PLAN = ("ttft_s.mean", "ttft_s.p99", "tpot_s.mean", "tpot_s.p99", "itl_s.p99", "e2e_s.mean", "mean_batch")
"""What the JSON of a plan has of one replica at its part of the load."""

TILES = ("throughput_speedup", "tpot_mean_speedup", "tpot_p99_speedup", "itl_p99_ratio", "ttft_p99_ratio")
"""Comparisons at the top of a report."""

TAILS = ("tpot_p99_speedup", "itl_p99_ratio", "ttft_p99_ratio")
"""Comparisons of the slowest requests and gaps."""

PAGE = (
    *TABLE[:4], "tpot_s.mean", "tpot_s.p50", "tpot_s.p99", "itl_s.mean", "itl_s.p99", "itl_token_s.mean",
    "itl_token_s.p99", "worst_gap_s.p99", "e2e_s.mean", "e2e_s.p99", "mean_acceptance_length", "tokens_per_round",
    "mean_batch", "step_s.mean", "kv_peak_fraction", "preemptions", "slo_attainment", "goodput_requests_per_s",
)  # fmt: skip
"""Rows of the table on a page."""

CLASS_TABLE = ("ttft_s.p99", "tpot_s.mean", "tpot_s.p99", "mean_acceptance_length")
"""Rows of a traffic class."""

STUDY = (
    "throughput_tokens_per_s", "ttft_s.p99", "tpot_s.mean", "tpot_s.p99", "itl_s.p99", "mean_acceptance_length",
    "mean_batch", "step_s.mean",
)  # fmt: skip
"""What a study keeps of every variant unless it says otherwise."""

SHORT_NAMES: Mapping[str, str] = {
    "throughput": "throughput_tokens_per_s",
    "goodput": "goodput_requests_per_s",
    "tpot_mean": "tpot_s.mean",
    "tpot_p99": "tpot_s.p99",
    "itl_mean": "itl_s.mean",
    "itl_p99": "itl_s.p99",
    "ttft_p99": "ttft_s.p99",
    "e2e_mean": "e2e_s.mean",
}
"""Word of `--metric` → path."""


def _named(wanted: Callable[[Figure], bool]) -> tuple[str, ...]:
    return tuple(figure.name for figure in CATALOGUE.values() if wanted(figure))


REQUEST_LATENCIES = _named(lambda figure: figure.kind is Kind.REQUEST_LATENCY)
GAP_LATENCIES = _named(lambda figure: figure.kind is Kind.GAP_LATENCY)
LATENCY_KINDS = (Kind.REQUEST_LATENCY, Kind.GAP_LATENCY)
LATENCIES = _named(lambda figure: figure.kind in LATENCY_KINDS)
"""Blocks of `{mean, p50, …}`."""
LIMITABLE = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
"""What an SLO can limit."""
POSITIONAL = _named(lambda figure: figure.by_position)
"""Figures by draft position: lists in the JSON, paths `NAME.1`, `NAME.2`, … elsewhere."""


def without_class(path: str) -> tuple[str | None, str]:
    """The traffic class of a path, None for that of all requests, and the rest of the path."""
    if not path.startswith(f"{CLASSES}."):
        return None, path
    _, name, rest = path.split(".", 2)
    return name, rest


def figure_of(path: str) -> Figure:
    """The entry that a path belongs to. Raises KeyError for a path of no figure."""
    return CATALOGUE[without_class(path)[1].partition(".")[0]]


def is_kind(path: str, *kinds: Kind) -> bool:
    """Whether a path is that of a figure of one of these kinds."""
    figure = CATALOGUE.get(without_class(path)[1].partition(".")[0])
    return figure is not None and figure.kind in kinds


def title_of(path: str) -> str:
    """The figure in the industry's words: `TPOT P99`, `chat: TTFT mean`, `step draft`."""
    traffic_class, rest = without_class(path)
    name, _, part = rest.partition(".")
    title = " ".join(filter(None, (CATALOGUE[name].title, STATISTIC_TITLES.get(part, part))))
    return title if traffic_class is None else f"{traffic_class}: {title}"


def label_of(path: str) -> str:
    """The title with the unit in which people read it: `TPOT P99, ms`, `preemptions`."""
    figure = figure_of(path)
    unit = figure.shown_unit or ("" if figure.unit in ("1", "steps") else figure.unit)
    return f"{title_of(path)}, {unit}" if unit and unit != figure.title else title_of(path)


def all_paths() -> Iterator[str]:
    """Every path that does not depend on the draft length or on traffic classes."""
    for figure in CATALOGUE.values():
        yield from figure.paths
