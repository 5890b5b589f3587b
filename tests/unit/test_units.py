"""Conversions and how figures are printed."""

import math

import pytest

from simulator.units import (
    GIB,
    NS_PER_S,
    format_bytes,
    format_number,
    format_rate,
    format_seconds,
    seconds_to_ns,
)


def test_seconds_become_integer_nanoseconds() -> None:
    assert seconds_to_ns(1.5) == 1_500_000_000
    assert seconds_to_ns(2.4e-9) == 2
    assert isinstance(seconds_to_ns(0.1), int)
    assert NS_PER_S == 10**9


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_duration_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        seconds_to_ns(bad)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (512, "512 B"), (79.65 * GIB, "79.7 GiB"), (1536, "1.50 KiB"), (-2 * GIB, "-2.00 GiB")],
)
def test_bytes(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0.0, "0 s"),
        (1234.5, "1,234 s"),
        (0.0123, "12.3 ms"),
        (5e-6, "5.00 µs"),
        (3e-9, "3.00 ns"),
        (math.nan, "–"),
    ],
)
def test_seconds(duration_s: float, text: str) -> None:
    assert format_seconds(duration_s) == text


def test_rates_and_numbers() -> None:
    assert format_rate(4310.4) == "4,310 tokens/s"
    assert format_rate(0.5, "requests/s") == "0.500 requests/s"
    assert [format_number(x) for x in (math.inf, -math.inf, 99.96, 1.005)] == ["∞", "-∞", "100.0", "1.00"]
