"""How long prompts and outputs are, in whole tokens: one draw per request from the distributions of
docs/scenario.md.

Each request has one uniform and one normal number of its own, whatever class it belongs to and however
many requests there are; a distribution turns them into a length. So request r keeps its numbers when a
share, a median or the number of requests changes.
"""

from __future__ import annotations

import csv
import json
import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError, Problem
from simulator.traces.fields import MOST_TOKENS, RowError, whole_tokens
from simulator.traces.files import whole_text
from simulator.traffic.streams import stream

if TYPE_CHECKING:
    from simulator.scenario.lengths import Lengths

Z_95 = 1.6448536269514722
"""The 95 % point of the standard normal distribution."""

_NAMES = ("tokens", "length", "value")


class LengthDraws:
    """The random numbers of `n` requests for one kind of length.

    `name` is their stream: "prompt_tokens" or "output_tokens". They are drawn when they are first needed;
    fixed lengths need none.
    """

    def __init__(self, seed: int, name: str, n: int) -> None:
        self._seed, self._name, self.n = seed, name, n
        self._uniform: NDArray[np.float64] | None = None
        self._normal: NDArray[np.float64] | None = None

    @property
    def uniform(self) -> NDArray[np.float64]:
        """Uniforms in [0, 1), shape (n,)."""
        if self._uniform is None:
            self._uniform = stream(self._seed, f"{self._name}/uniform").random(self.n)
        return self._uniform

    @property
    def normal(self) -> NDArray[np.float64]:
        """Standard normals, shape (n,)."""
        if self._normal is None:
            self._normal = stream(self._seed, f"{self._name}/normal").standard_normal(self.n)
        return self._normal


def draw_lengths(
    lengths: Lengths,
    draws: LengthDraws,
    chosen: NDArray[np.bool_] | slice,
    *,
    base_dir: Path,
    column: str,
) -> NDArray[np.int64]:
    """Lengths of the `chosen` requests, all at least 1.

    The log-normal runs through its median and its 95th percentile and is clipped,
    not redrawn, to `min`..`max`, so that the bounds collect the mass beyond them.
    `column` is the CSV column or JSON key that an empirical file with several is asked for.
    Raises InputError for an empirical file that cannot be used.
    """
    if lengths.kind == "fixed":
        count = (
            len(range(*chosen.indices(draws.n)))
            if isinstance(chosen, slice)
            else int(np.count_nonzero(chosen))
        )
        return np.full(count, lengths.tokens, dtype=np.int64)
    if lengths.kind == "uniform":
        steps = draws.uniform[chosen] * (lengths.high - lengths.low + 1)
        return lengths.low + steps.astype(np.int64)
    if lengths.kind == "lognormal":
        sigma = math.log(lengths.p95 / lengths.median) / Z_95
        longest = MOST_TOKENS if lengths.max is None else lengths.max
        logarithm = draws.normal[chosen] * sigma + math.log(lengths.median)
        tokens = np.exp(np.clip(logarithm, math.log(lengths.min), math.log(longest)))
        return np.rint(tokens).astype(np.int64)
    values = read_lengths(base_dir / lengths.file, column)
    return values[(draws.uniform[chosen] * len(values)).astype(np.int64)]


def read_lengths(path: Path, column: str) -> NDArray[np.int64]:
    """The lengths in a file, sorted: numbers one a line, a CSV with a header, or JSON. Raises InputError.

    A CSV with several columns is asked for `column`, `tokens`, `length` or `value`; JSON is a list of
    numbers, or an object that holds such a list under one of these names.
    """
    try:
        stamp = path.stat()
    except OSError:
        stamp = None  # `whole_text` reports what is wrong
    return _read(path, column, stamp and (stamp.st_mtime_ns, stamp.st_size))


@lru_cache(maxsize=16)
def _read(path: Path, column: str, stamp: tuple[int, int] | None) -> NDArray[np.int64]:
    text = whole_text(path)
    names = (column, *_NAMES)
    rows = (
        _json_values(path, text, names) if text.lstrip()[:1] in ("[", "{") else _csv_values(path, text, names)
    )
    values, problems = [], []
    for line, value in rows:
        try:
            values.append(_length(value))
        except RowError as error:
            problems.append(error.problem.at(file=str(path), line=line))
    if not values and not problems:
        problems.append(Problem(file=str(path), message="holds no lengths", allowed="one number a line"))
    if problems:
        raise InputError(problems[:20])
    array = np.sort(np.array(values, dtype=np.int64))
    array.flags.writeable = False
    return array


def _length(value: object) -> int:
    tokens = whole_tokens(value, "tokens")
    if tokens < 1:
        raise RowError("tokens", value, "too short", f"must be from 1 to {MOST_TOKENS}")
    return tokens


def _csv_values(path: Path, text: str, names: tuple[str, ...]) -> list[tuple[int | None, object]]:
    """Line and value of each row that is not blank, from the only column or the one with a known name."""
    rows = [(line, row) for line, row in enumerate(csv.reader(text.splitlines()), start=1) if any(row)]
    if not rows:
        return []
    header = [name.strip().lower() for name in rows[0][1]]
    named = [name for name in names if name in header]
    if len(header) == 1:
        at, first = 0, 0 if _is_number(header[0]) else 1
    elif named:
        at, first = header.index(named[0]), 1
    else:
        allowed = f"one number a line, or a column named {' or '.join(names)}"
        raise InputError(Problem(file=str(path), line=1, message="several columns", allowed=allowed))
    return [(line, row[at].strip() if at < len(row) else None) for line, row in rows[first:]]


def _json_values(path: Path, text: str, names: tuple[str, ...]) -> list[tuple[int | None, object]]:
    """The values of a JSON list, or of the list under a known name."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line, why = (
            (error.lineno, error.msg) if isinstance(error, json.JSONDecodeError) else (None, str(error))
        )
        raise InputError(Problem(file=str(path), line=line, message=f"not JSON: {why}")) from None
    values = document
    if isinstance(document, dict):
        values = next((document[name] for name in names if name in document), None)
    if not isinstance(values, list):
        allowed = f"a list of numbers, or an object with one under {' or '.join(names)}"
        raise InputError(Problem(file=str(path), message="no list of lengths", allowed=allowed))
    return [(None, value) for value in values]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
