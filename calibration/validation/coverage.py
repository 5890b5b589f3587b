"""How many published cases are simulated, and why the others are not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibration.validation.row import ComparisonRow

if TYPE_CHECKING:
    from calibration.validation.reconstruction.cases import PublishedCase
    from calibration.validation.reconstruction.published_run import PublishedRun

NOTHING_PUBLISHED = "nothing published that a simulation could be compared with"
_COUNTED = re.compile(r"\b(H100|H200|A100)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Coverage:
    """How many of the cases on H100, H200 or A100 that may serve as a gate have a simulated row.

    `reasons`: reason → number of skipped rows. `left_out`: (source, case) → reason why the case has no
    simulated row. Both cover all cases.
    """

    simulated: int
    of: int
    reasons: Mapping[str, int]
    left_out: Mapping[tuple[str, str], str]

    @property
    def value(self) -> float | None:
        """Share of the cases that are simulated; None without cases."""
        return self.simulated / self.of if self.of else None

    def to_json(self) -> dict[str, Any]:
        """The `coverage` object of the JSON document."""
        return {
            "value": self.value,
            "simulated": self.simulated,
            "of": self.of,
            "reasons": dict(self.reasons),
            "left_out": {case_id: reason for (_, case_id), reason in self.left_out.items()},
        }


def counts(case: PublishedCase) -> bool:
    """Whether a case counts in the denominator of coverage."""
    return case.usable_as_gate and _COUNTED.search(case.hardware.gpu or "") is not None


def coverage_of(
    cases: Sequence[PublishedCase], runs: Iterable[PublishedRun], rows: Sequence[ComparisonRow]
) -> Coverage:
    """The coverage of these cases by their runs and rows."""
    simulated = {(row.source, row.case_id) for row in rows if row.skipped is None}
    reasons = Counter(row.skipped for row in rows if row.skipped is not None)
    reasons_by_case: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        if row.skipped is not None:
            reasons_by_case.setdefault((row.source, row.case_id), Counter())[row.skipped] += 1
    for run in runs:
        if not run.published:
            case_reasons = reasons_by_case.setdefault((run.case.source_id, run.case.case_id), Counter())
            case_reasons.update(run.skipped.values() or [NOTHING_PUBLISHED])
    keys = [(case.source_id, case.case_id) for case in cases]
    nothing_published = Counter({NOTHING_PUBLISHED: 1})
    left_out = {
        key: reasons_by_case.get(key, nothing_published).most_common(1)[0][0]
        for key in keys
        if key not in simulated
    }
    counted_keys = [key for key, case in zip(keys, cases, strict=True) if counts(case)]
    return Coverage(
        simulated=sum(key in simulated for key in counted_keys),
        of=len(counted_keys),
        reasons=dict(reasons.most_common()),
        left_out=left_out,
    )
