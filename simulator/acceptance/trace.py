"""Replay of measured acceptance: emission lengths by output position,
and the files that hold them (docs/acceptance.md).

A trace has one sequence per measured request. Entry i (from 1) is the number of tokens a round emits,
accepted drafts + 1, when it starts at output position i, that is with i - 1 tokens emitted before it; it
is there for every position, whether or not the measured run started a round at it. Two forms of file:

- JSON: `{"sequences": [[2, 1, 3, …], …]}` (or the list of lists alone)
- text: one sequence a line, as a JSON list `[2, 1, 3]` or as integers apart by blanks or commas; blank
  lines and lines beginning with `#` are skipped
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from simulator.acceptance.base import TRACE, AcceptanceEntry, AcceptanceModel, check_draft_length, fault
from simulator.acceptance.chains import Positional
from simulator.errors import InputError, Problem, reason
from simulator.files import parse_json
from simulator.numerics.arrays import Floats

ALLOWED = "whole numbers from 1 (accepted drafts + 1 at each output position)"
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class ReplayedAcceptance(AcceptanceModel):
    """Request r replays sequence r mod sequences: at output position i a round
    of K drafts accepts min(entry_i - 1, K).

    Keeps every correlation that was measured. More drafts than the trace was measured with accept no more.
    A replay has no parameter: its break-even family is that of its per-position rates
    (`Positional`), `alpha` their first.
    """

    name: ClassVar[str] = "trace"
    kind: ClassVar[int] = TRACE
    lengths: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.lengths:
            raise fault("sequences", None, "is empty", "at least one sequence")
        for index, sequence in enumerate(self.lengths):
            if not sequence or min(sequence) < 1:
                raise fault(
                    f"sequences[{index}]", sequence[:8], "is not a sequence of emission lengths", ALLOWED
                )

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> ReplayedAcceptance:
        """`{model: trace, file}`."""
        return cls(read_sequences(entry.path("file")))

    @property
    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """The sequences."""
        return self.lengths

    @property
    def most_drafts(self) -> int:
        """Largest number of accepted drafts in the trace, at least 1."""
        return max(1, max(max(sequence) for sequence in self.lengths) - 1)

    @property
    def rates(self) -> Positional:
        """The per-position rates of a replay at the draft length of the trace; 0 beyond."""
        return Positional((*self.conditional(self.most_drafts).tolist(), 0.0))

    @property
    def alpha(self) -> float:
        """c_1 of the per-position rates."""
        return self.rates.alpha

    def survival(self, depth: int) -> Floats:
        """Share of a replay's rounds that accept at least j: every sequence once, from its second token
        (prefill emits the first).
        """
        check_draft_length(depth)
        return np.array(_replay(self.lengths, depth))

    def conditional(self, depth: int) -> Floats:
        """S_j / S_{j-1} of the replay; it depends on K, because K decides where rounds start."""
        survival = self.survival(depth)
        before = np.concatenate([np.ones(min(1, depth)), survival[:-1]])
        rates: Floats = np.divide(survival, before, out=np.zeros(depth), where=before > 0.0)
        return rates

    def shifted(self, delta_logit: float) -> Positional:
        """Shift the per-position rates."""
        return self.rates.shifted(delta_logit)

    def with_alpha(self, alpha: float) -> Positional:
        """Shift the per-position rates so that the first is alpha."""
        return self.rates.with_alpha(alpha)


@lru_cache(maxsize=32)
def _replay(sequences: tuple[tuple[int, ...], ...], draft_length: int) -> tuple[float, ...]:
    """Survival over all rounds of one pass through each sequence."""
    counts = np.zeros(draft_length + 1, dtype=np.int64)
    for sequence in sequences:
        emitted, tokens = 1, len(sequence)
        while emitted < max(tokens, 2):
            accepted = min(sequence[emitted % tokens] - 1, draft_length)
            counts[accepted] += 1
            emitted += accepted + 1
    at_least = counts[::-1].cumsum()[::-1]
    return tuple((at_least[1:] / at_least[0]).tolist())


def read_sequences(path: Path) -> tuple[tuple[int, ...], ...]:
    """Return the sequences of a trace file. Raises InputError with file and line
    for everything that is wrong with it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            Problem(file=str(path), message=f"cannot be read: {reason(error)}", allowed="a text file")
        ) from None
    content = text.lstrip()
    if content.startswith("{") or (content.startswith("[") and content[1:].lstrip().startswith("[")):
        rows = _rows_of_document(path, text)
    else:
        rows = [
            (number, line)
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
    problems: list[Problem] = []
    sequences = []
    for place, row in rows:
        sequence = _sequence(row)
        if sequence is None:
            on_line = isinstance(row, str)
            problems.append(
                Problem(
                    file=str(path),
                    line=place if on_line else None,
                    field=None if on_line else f"sequences[{place}]",
                    value=row,
                    message="is not a sequence of emission lengths",
                    allowed=ALLOWED,
                )
            )
        else:
            sequences.append(sequence)
    if not rows:
        problems.append(Problem(file=str(path), message="holds no sequence", allowed="at least one sequence"))
    if problems:
        raise InputError(problems[:_MOST_PROBLEMS])
    return tuple(sequences)


def _rows_of_document(path: Path, text: str) -> list[tuple[int, object]]:
    document = parse_json(text, str(path))
    rows = document.get("sequences") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise InputError(
            Problem(
                file=str(path),
                field="sequences",
                value=rows,
                message="is not a list",
                allowed="a list of sequences",
            )
        )
    return list(enumerate(rows))


def _sequence(row: object) -> tuple[int, ...] | None:
    """The sequence in a row, or None where the row is not a sequence."""
    if isinstance(row, str):
        try:
            row = (
                json.loads(row)
                if row.lstrip().startswith("[")
                else [int(word) for word in row.replace(",", " ").split()]
            )
        except (ValueError, RecursionError):
            return None
    if not isinstance(row, list) or not row:
        return None
    if any(isinstance(item, bool) or not isinstance(item, int) or not 1 <= item < 2**31 for item in row):
        return None
    return tuple(row)
