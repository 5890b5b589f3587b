"""The draft length by batch in the forms of the engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.scenario import GoodputPolicy, Scenario, Variant, engine_preset

Row = tuple[int, int | None, int]
"""(first, last, K) by running requests, both included; None: without end."""


def rows_of(scenario: Scenario, variant: Variant) -> tuple[Row, ...] | None:
    """The table of a variant over every batch up to `max_num_seqs`; None without one.

    The last row has no end: beyond the limit of running requests there is no batch.
    """
    length = variant.draft_length
    if not isinstance(length, tuple):
        return None
    most = max_num_seqs(scenario)
    end = length[-1][1]
    rows = length if end is None else (*length, (end + 1, None, 0))
    reached = [row for row in rows if row[0] <= most]
    low, _, tokens = reached[-1]
    return (*reached[:-1], (low, None, tokens))


def max_num_seqs(scenario: Scenario) -> int:
    """The limit of running requests: the scenario's, else the preset's."""
    return engine_preset(scenario)[0].max_num_seqs


def single_length(scenario: Scenario, variant: Variant) -> int:
    """One K in place of a table or policy: the table's at the scenario's clients, else the longest."""
    rows, arrivals = rows_of(scenario, variant), scenario.workload.arrivals
    if rows is None or arrivals.kind != "closed":
        return variant.chain_length
    clients = arrivals.concurrency
    at_load = next(k for low, high, k in rows if low <= clients and (high is None or clients <= high))
    return at_load or variant.chain_length


def draft_length_text(variant: Variant) -> str:
    """`a table by batch`, `a goodput policy`, `the policy adaptive`, `K 3`."""
    if variant.policy is not None:
        return f"the policy {variant.policy.kind}"
    if isinstance(variant.draft_length, GoodputPolicy):
        return "a goodput policy"
    return f"K {variant.draft_length}" if isinstance(variant.draft_length, int) else "a table by batch"


def rows_from_triples(triples: Sequence[Sequence[int]]) -> list[list[int | None]]:
    """vLLM's inclusive ranges as a table: gaps and the tail keep the K before them, equal rows join."""
    starts = [(low, length) for low, _, length in sorted(tuple(triple) for triple in triples)]
    return _rows(starts)


def rows_from_bounds(bounds: Mapping[int, int]) -> list[list[int | None]]:
    """SGLang's lower bounds of the batch as a table."""
    return _rows(sorted(bounds.items()))


def rows_from_thresholds(thresholds: Mapping[int, int]) -> list[list[int | None]]:
    """TensorRT-LLM's upper bounds of the batch as a table; nothing is drafted above the last."""
    ends = sorted(thresholds)
    starts = [
        (low, thresholds[high]) for low, high in zip([1, *(end + 1 for end in ends)], ends, strict=False)
    ]
    return _rows([*starts, (ends[-1] + 1, 0)])


def _rows(starts: Sequence[tuple[int, int]]) -> list[list[int | None]]:
    """Rows from (first batch, K), the first from batch 1."""
    changes: list[tuple[int, int]] = []
    for low, length in starts:
        if not changes or changes[-1][1] != length:
            changes.append((low, length))
    ends = [*(low - 1 for low, _ in changes[1:]), None]
    return [
        [low if number else 1, high, length]
        for number, ((low, length), high) in enumerate(zip(changes, ends, strict=True))
    ]
