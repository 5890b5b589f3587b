"""How much of the evidence can be simulated, and why the rest cannot."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibration.validation.row import Row

if TYPE_CHECKING:
    from calibration.validation.trials.cases import Case
    from calibration.validation.trials.trial import Trial

NOTHING_PUBLISHED = "nothing published that a simulation could be compared with"
_COUNTED = re.compile(r"\b(H100|H200|A100)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Coverage:
    """Cases with a simulated row, of those on H100, H200 or A100 that are good enough for a gate.

    `reasons`: why → skipped rows, of all cases. `left_out`: (source, case) → why
    it has no simulated row, of all cases.
    """

    simulated: int
    of: int
    reasons: Mapping[str, int]
    left_out: Mapping[tuple[str, str], str]

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.simulated / self.of if self.of else None

    def to_json(self) -> dict[str, Any]:
        """The document's `coverage`."""
        return {
            "value": self.value,
            "simulated": self.simulated,
            "of": self.of,
            "reasons": dict(self.reasons),
            "left_out": {case: why for (_, case), why in self.left_out.items()},
        }


def counts(case: Case) -> bool:
    """Whether a case is among those that coverage is a share of."""
    return case.usable_as_gate and _COUNTED.search(case.hardware.gpu or "") is not None


def coverage_of(cases: Sequence[Case], trials: Iterable[Trial], rows: Sequence[Row]) -> Coverage:
    """What was simulated of these cases."""
    done = {(row.source, row.case_id) for row in rows if row.skipped is None}
    reasons = Counter(row.skipped for row in rows if row.skipped is not None)
    why: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        if row.skipped is not None:
            why.setdefault((row.source, row.case_id), Counter())[row.skipped] += 1
    for trial in trials:
        if not trial.published:
            found = why.setdefault((trial.case.source_id, trial.case.case_id), Counter())
            found.update(trial.skipped.values() or [NOTHING_PUBLISHED])
    keys = [(case.source_id, case.case_id) for case in cases]
    nothing = Counter({NOTHING_PUBLISHED: 1})
    left_out = {key: why.get(key, nothing).most_common(1)[0][0] for key in keys if key not in done}
    counted = [key for key, case in zip(keys, cases, strict=True) if counts(case)]
    return Coverage(
        simulated=sum(key in done for key in counted),
        of=len(counted),
        reasons=dict(reasons.most_common()),
        left_out=left_out,
    )
