"""Bytes, rates and times as people write them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from railopt import units
from railopt.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("256KiB", 262144),
        ("1MB", 10**6),
        ("4 MiB", 1 << 22),
        ("7", 7),
        (9, 9),
        ("1.5KiB", 1536),
        ("2kiB", 2048),
    ],
)
def test_bytes(text: str | int, value: int) -> None:
    assert units.parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("400Gb/s", 50 * 10**9), ("450GB/s", 450 * 10**9), ("100Gb/s", 12_500_000_000), (5, 5)],
)
def test_rates(text: str | int, value: int) -> None:
    assert units.parse_rate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12us", 12_000_000),
        ("1s", 10**12),
        ("0.5ns", 500),
        ("2min", 120 * 10**12),
        ("3", 3 * 10**12),
    ],
)
def test_times(text: str, value: int) -> None:
    assert units.parse_time(text) == value


@pytest.mark.parametrize(
    "text", ["0B", "-1KiB", "1.5B", "12 parsecs", "", "KiB", "1e999999Gb", None, True, 1.5]
)
def test_bad_bytes(text: object) -> None:
    with pytest.raises(InputError):
        units.parse_bytes(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0Gb/s", "-400Gb/s", "400Gx/s", "1b/s", "fast"])
def test_bad_rates(text: str) -> None:
    with pytest.raises(InputError):
        units.parse_rate(text)


def test_bits_and_bytes_stay_apart() -> None:
    assert units.parse_rate("8gb/s") * 8 == units.parse_rate("8gB/s")
    with pytest.raises(InputError, match="unknown unit"):
        units.parse_bytes("1Gb")


def test_fractions() -> None:
    assert units.parse_fraction("1/3") == Fraction(1, 3)
    assert units.parse_fraction("0.5") == Fraction(1, 2)
    for bad in ("1.5", "-0.1", "half", "1/0"):
        with pytest.raises(InputError):
            units.parse_fraction(bad)


def test_formats_read_back() -> None:
    for size in (1, 1023, 1 << 20, 5 << 30):
        assert units.parse_bytes(units.format_bytes(size)) == size
    assert units.format_rate(50 * 10**9) == "400Gb/s"
    assert units.format_time(Fraction(3, 2000)) == "1.5ms"
    assert units.format_time(Fraction(0)) == "0ns"
