"""What the acceptance of a variant rests on. A verdict is only as sure as that."""

from __future__ import annotations

MEASURED = "measured"
"""A file of counters or of rounds on real text."""
GOLDEN = "golden"
"""A published curve for this target and drafter."""
GIVEN = "given"
"""A value in the scenario: the verdict holds if it is right."""
ASSUMED = "assumed"
"""Nothing was given, and the schema's default is used."""
