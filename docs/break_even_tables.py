"""The tables of docs/break-even-map.md, made of the map of a stored study."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import dropwhile, pairwise, takewhile
from statistics import fmean, median
from typing import Any

from break_even_limits import LoadLimit, limit_of

from dashboards.stored import THRESHOLD, StoredStudy
from experiments.maps.choice import PLAIN, choices
from experiments.maps.study_map import UNREACHABLE_ALPHA, MapCell, SettingValue, StudyMap

VARIANT, OTHER = "eagle3", "draft-1b"
SHOWN_LENGTHS = (1, 3, 5, 7)
_MANY = 1 / 3
SHOWN_LOADS = (1, 16, 64, 128, 256, 512)


def blocks_of(study: StoredStudy) -> dict[str, str]:
    """Name → Markdown of every part of the page that is made of figures."""
    study_map = study.map
    variants = list(dict.fromkeys(cell.variant for cell in study_map.cells))
    return {
        "state": _state(study),
        "answer": "\n".join(_answer(study_map, variant) for variant in variants),
        "threshold": _threshold(study_map, variants),
        **{f"limits {variant}": _limits(study_map, variant) for variant in variants},
        **{f"needed {variant}": _needed(study_map, variant) for variant in variants},
        "choices": _choices(study_map, variants),
        "regret": _regret(study_map, variants),
        "ties": _ties(study_map),
        "memory": _memory(study_map),
        "closed form": _closed_form(study_map, variants),
    }


def _state(study: StoredStudy) -> str:
    cells = " and ".join(f"{count:,} {status}" for status, count in study.counts.items())
    return f"{sum(study.counts.values()):,} cells: {cells}; decodesim {study.version}."


def _answer(study_map: StudyMap, variant: str) -> str:
    """Where the rule of thumb is too cautious, where it is right, and where too bold, in a sentence each."""
    loads = sorted({cell.load for cell in study_map.cells})
    by_load = {load: [cell for cell in _known(study_map, variant) if cell.load == load] for load in loads}
    sure = [*takewhile(lambda load: _surely_enough(by_load[load]), loads)]
    shares = {load: _share(by_load[load]) for load in loads}
    bold = [*dropwhile(lambda load: shares[load] < _MANY, loads)]
    right = ", ".join(f"{_crossed(study_map, variant, length)} with K = {length}" for length in SHOWN_LENGTHS)
    needed = [
        alpha
        for cell in _known(study_map, variant)
        if (alpha := cell.required_alpha()) is not None and alpha < UNREACHABLE_ALPHA
    ]
    return (
        f"- **{variant}** needs an α of {min(needed):.2f} to {max(needed):.2f}. {THRESHOLD:g} is too "
        f"cautious up "
        f"to {max(sure, default=0):g} clients, where it is surely enough in every cell. It is about right at "
        f"these numbers of clients, in the rows whose line crosses it at all: {right}. "
        + (f"It is too bold from {bold[0]:g} clients on, where it is surely not enough in " if bold else "")
        + (f"{min(shares[load] for load in bold):.0%} of the cells and more." if bold else "")
    )


def _surely_enough(cells: Sequence[MapCell]) -> bool:
    """Whether the rule of thumb is surely enough in every one of these cells, of which there are some."""
    return bool(cells) and all(_end(cell, 1) < THRESHOLD for cell in cells)


def _share(cells: Sequence[MapCell]) -> float:
    """Of these cells, in how many the rule of thumb is surely not enough."""
    return sum(_end(cell, 0) > THRESHOLD for cell in cells) / max(len(cells), 1)


def _crossed(study_map: StudyMap, variant: str, length: int) -> str:
    """From where to where the lines of a draft length cross the rule of thumb, over all places."""
    lines = [line for (of, k, _), line in study_map.lines().items() if (of, k) == (variant, length)]
    limits = [limit.load for line in lines if (limit := limit_of(line, THRESHOLD)) is not None]
    inside = [load for load in limits if 0 < load < math.inf]
    ends = [f"{float(f'{load:.2g}'):g}" for load in (min(inside, default=0.0), max(inside, default=0.0))]
    return "no number of" if not inside else ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _threshold(study_map: StudyMap, variants: Sequence[str]) -> str:
    """By clients: the share of cells in which the rule of thumb is surely enough, open, surely not enough."""
    heading = [f"{variant}, {word}" for variant in variants for word in ("enough", "open", "not enough")]
    rows = []
    for load in sorted({cell.load for cell in study_map.cells}):
        row = [f"{load:g}"]
        for variant in variants:
            cells = [cell for cell in _known(study_map, variant) if cell.load == load]
            enough = sum(_end(cell, 1) < THRESHOLD for cell in cells)
            lacking = sum(_end(cell, 0) > THRESHOLD for cell in cells)
            shares = (enough, len(cells) - enough - lacking, lacking)
            row += [f"{share / len(cells):.0%}" if cells else "–" for share in shares]
        rows.append(row)
    return _table(["clients", *heading], rows)


def _limits(study_map: StudyMap, variant: str) -> str:
    """By GPUs and prompt: up to how many clients the rule of thumb is enough."""
    lines = study_map.lines()

    def cell(place: tuple[Any, ...], length: int) -> str:
        return _limit(limit_of(lines.get((variant, length, place), ()), THRESHOLD), study_map)

    return _by_place(study_map, SHOWN_LENGTHS, lambda length: f"K = {length}", cell)


def _limit(limit: LoadLimit | None, study_map: StudyMap) -> str:
    if limit is None:
        return "–"
    ends = (_clients(limit.low, study_map), _clients(limit.high, study_map))
    band = f" ({ends[0]} to {ends[1]})" if ends[0] != ends[1] else ""
    again = " *" if limit.crossings > 1 else ""
    return f"{_clients(limit.load, study_map)}{band}{again}"


def _clients(load: float, study_map: StudyMap) -> str:
    most = max(cell.load for cell in study_map.cells)
    return "all" if load > most else "none" if load < 1 else f"{float(f'{load:.2g}'):g}"


def _needed(study_map: StudyMap, variant: str) -> str:
    """By GPUs and prompt: the acceptance needed with K = 3, by clients."""
    at = {
        (cell.place, cell.load): cell
        for cell in study_map.cells
        if (cell.variant, cell.draft_length) == (variant, 3)
    }

    def cell(place: tuple[Any, ...], load: int) -> str:
        here = at.get((place, float(load)))
        if here is None or here.required_alpha() is None:
            return "–"
        if here.required_alpha() == UNREACHABLE_ALPHA:
            return "none is enough"
        return f"{here.required_alpha():.2f} ({_end(here, 0):.2f} to {_end(here, 1):.2f})"

    return _by_place(study_map, SHOWN_LOADS, lambda load: f"{load}", cell)


def _choices(study_map: StudyMap, variants: Sequence[str]) -> str:
    """By clients and acceptance: the draft lengths that are best somewhere, by variant; how often plain
    is.
    """
    best = [choices(study_map, alpha, (variant,)) for variant in variants for alpha in study_map.alphas]
    rows = []
    for load in sorted({cell.load for cell in study_map.cells}):
        lengths = [sorted(choice.best[1] or 0 for choice in column if choice.load == load) for column in best]
        rows.append([f"{load:g}", *map(_range, lengths)])
    heading = [f"{variant}, α {alpha:g}" for variant in variants for alpha in study_map.alphas]
    return _table(["clients", *heading], rows)


def _range(lengths: Sequence[int]) -> str:
    if not lengths:
        return "–"
    low, high = lengths[0], lengths[-1]
    return f"{low}" if low == high else f"{low} to {high}, mostly {max(set(lengths), key=lengths.count)}"


def _regret(study_map: StudyMap, variants: Sequence[str]) -> str:
    """By variant and acceptance: what a fixed draft length gives away, mean and worst of all cells."""
    rows = []
    for variant in variants:
        for alpha in study_map.alphas:
            here = choices(study_map, alpha, (variant,))
            row = [f"{variant}, α {alpha:g}"]
            for option in [PLAIN, *((variant, length) for length in SHOWN_LENGTHS)]:
                regrets = [choice.regret(option).value for choice in here if option in choice.speedups]
                row.append(f"{fmean(regrets):.0%} ({max(regrets):.0%})" if regrets else "–")
            rows.append(row)
    return _table(["", "plain", *(f"K = {length}" for length in SHOWN_LENGTHS)], rows)


def _ties(study_map: StudyMap) -> str:
    """By clients and prompt: the α at which the draft model ties with a head of α 0.7, best K each."""
    best: dict[tuple[float, float], dict[tuple[str, float], list[float]]] = {}
    for alpha in study_map.alphas:
        for variant in (VARIANT, OTHER):
            for choice in choices(study_map, alpha, (variant,)):
                gains = best.setdefault((choice.load, _number(choice.place[1])), {})
                gains.setdefault((variant, alpha), []).append(choice.speedups[choice.best].value)

    def tie(load: float, prompt: float) -> str:
        gains = best.get((load, prompt), {})
        target = fmean(map(math.log, gains.get((VARIANT, 0.7), [math.nan])))
        known = [
            (alpha, fmean(map(math.log, gains[OTHER, alpha])))
            for alpha in study_map.alphas
            if (OTHER, alpha) in gains
        ]
        for (low, below), (high, above) in pairwise(known):
            if below <= target <= above and above > below:
                return f"{low + (high - low) * (target - below) / (above - below):.2f}"
        return "–"

    prompts = sorted({prompt for _, prompt in best})
    rows = [
        [f"{load:g}", *(tie(load, prompt) for prompt in prompts)]
        for load in sorted({load for load, _ in best})
    ]
    return _table(["clients", *(f"prompt {prompt:,g}" for prompt in prompts)], rows)


def _memory(study_map: StudyMap) -> str:
    """By GPUs and prompt: how many requests decode together, by clients."""
    at = {(cell.place, cell.load): cell for cell in study_map.cells if cell.variant == VARIANT}

    def cell(place: tuple[Any, ...], load: int) -> str:
        here = at.get((place, float(load)))
        batch = here and here.row.get(f"{VARIANT}.plain_mean_batch")
        return "–" if batch is None else f"{batch:.0f}"

    return _by_place(study_map, SHOWN_LOADS[2:], lambda load: f"{load}", cell)


def _closed_form(study_map: StudyMap, variants: Sequence[str]) -> str:
    """By prompt: simulated − geometric break-even, median over the cells, by variant and range of clients."""
    ranges = ((1, 8), (16, 64), (128, 512))
    prompts = sorted({_prompt(cell) for cell in study_map.cells})
    rows = []
    for prompt in prompts:
        row = [f"{prompt:,g}"]
        for variant in variants:
            for low, high in ranges:
                gaps = [
                    (cell.required_alpha() or 0) - cell.row[f"{variant}.geometric_alpha"]
                    for cell in _known(study_map, variant)
                    if _prompt(cell) == prompt
                    and low <= cell.load <= high
                    and cell.required_alpha() != UNREACHABLE_ALPHA
                    and cell.row.get(f"{variant}.geometric_alpha") is not None
                ]
                row.append(f"{median(gaps):+.2f}" if gaps else "–")
        rows.append(row)
    heading = [f"{variant}, {low} to {high}" for variant in variants for low, high in ranges]
    return _table(["prompt", *heading], rows)


def _by_place(
    study_map: StudyMap,
    columns: Sequence[int],
    name: Callable[[int], str],
    cell: Callable[[tuple[Any, ...], int], str],
) -> str:
    places = list(dict.fromkeys(map_cell.place for map_cell in study_map.cells))
    rows = [
        [f"{place[0]:g} GPUs, {place[1]:,g}", *(cell(place, column) for column in columns)]
        for place in places
    ]
    return _table(["GPUs, prompt", *map(name, columns)], rows)


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---", *["--:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _known(study_map: StudyMap, variant: str) -> Iterator[MapCell]:
    return (cell for cell in study_map.cells if cell.variant == variant and cell.required_alpha() is not None)


def _end(cell: MapCell, end: int) -> float:
    value = cell.required_alpha(end)
    assert value is not None
    return value


def _prompt(cell: MapCell) -> float:
    return _number(cell.place[1])


def _number(setting: SettingValue) -> float:
    assert isinstance(setting, float | int)
    return setting
