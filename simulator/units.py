"""SI inside, people's units at the edge: constants, the clock's conversions, how figures are printed."""

from __future__ import annotations

import math

NS_PER_S = 1_000_000_000
"""Nanoseconds in a second; the simulated clock counts integer nanoseconds."""

GIB = 1 << 30
"""Bytes in a gibibyte."""

LATEST_S = 4e9
"""The last moment at which a request may arrive. The clock counts integer ns and takes 2**62 of them, 4.6e9
s, for never; what lies between is left for service."""


def seconds_to_ns(duration_s: float) -> int:
    """A duration in seconds as integer nanoseconds, rounded to the nearest (ties to even).

    Raises ValueError when the duration is NaN or infinite.
    """
    if not math.isfinite(duration_s):
        raise ValueError(f"a duration must be finite, not {duration_s}")
    return round(duration_s * NS_PER_S)


def format_bytes(size_bytes: float) -> str:
    """`18.6 GiB`: three significant digits and a binary unit."""
    return _scaled(size_bytes, ((1 << 40, "TiB"), (GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")))


def format_seconds(duration_s: float) -> str:
    """`12.3 ms`: three significant digits and the unit that suits them."""
    return _scaled(duration_s, ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")))


def format_rate(rate_per_s: float, unit: str = "tokens/s") -> str:
    """`4,310 tokens/s`: three or more significant digits and the unit a second that was counted."""
    return f"{format_number(rate_per_s)} {unit}"


def format_number(value: float) -> str:
    """Three significant digits without an exponent; whole figures keep all digits and get separators."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    if decimals <= 0:
        return f"{value:,.0f}"
    return f"{value:.{min(decimals, 12)}f}"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """`value` in the largest of `units` (size, name; descending) that leaves a digit before the point."""
    if math.isnan(value):
        return "–"
    if value == 0:
        return f"0 {next(name for size, name in units if size == 1)}"
    size, name = next((unit for unit in units if abs(value) >= unit[0]), units[-1])
    return f"{format_number(value / size)} {name}"
