"""Numbers, bytes, rates and times as people write them, and as nobody should."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from railopt import units
from railopt.base.errors import InputError


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


@pytest.mark.parametrize("text", ["0Gb/s", "-400Gb/s", "400Gx/s", "1b/s", "fast", "400", "1e9"])
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


def test_a_rate_without_a_unit_is_refused_and_says_so() -> None:
    with pytest.raises(InputError, match="a rate needs one"):
        units.parse_rate("400")


def test_numbers() -> None:
    assert units.parse_number("-1.25e2") == -125
    assert units.parse_number(" 2/6 ") == Fraction(1, 3)
    assert units.parse_number(0.1) == Fraction(1, 10)
    assert units.parse_number(7) == 7
    assert units.parse_integer("+12") == 12
    assert units.parse_integer(str(2**63 - 1)) == 2**63 - 1
    assert units.parse_integer("0", "seed", low=0) == 0


@pytest.mark.parametrize(("text", "low"), [("-1", 0), ("0", 1), (str(2**63), 0), (-1, 0)])
def test_integers_out_of_range_name_the_range(text: str | int, low: int) -> None:
    with pytest.raises(InputError, match=f"expected a seed, a whole number from {low} to"):
        units.parse_integer(text, "seed", low=low)


HOSTILE = [
    "1e-999999999",
    "1e999999999",
    "1e100",
    "1/0",
    "0/0",
    "nan",
    "-inf",
    "infinity",
    "9" * 5000,
    "1/" + "9" * 5000,
    "0x10",
    "1_000",
    "١٢",
    "²",
    "1\x00",
    "--1",
    "",
    None,
    True,
    float("nan"),
    float("inf"),
    b"1",
    [],
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_numbers_are_one_sentence(text: object) -> None:
    for read in (
        units.parse_number,
        units.parse_integer,
        units.parse_fraction,
        units.parse_bytes,
        units.parse_rate,
        units.parse_time,
    ):
        with pytest.raises(InputError) as found:
            read(text)  # type: ignore[operator]
        assert len(str(found.value)) < 200
        assert str(found.value).isprintable()


def test_what_does_not_fit_int64_is_refused() -> None:
    assert units.parse_bytes(str(2**63 - 1)) == 2**63 - 1
    for read, text in (
        (units.parse_bytes, str(2**63)),
        (units.parse_bytes, 2**70),
        (units.parse_bytes, "8388608TiB"),
        (units.parse_rate, "1e9TB/s"),
        (units.parse_time, "1e8s"),
        (units.parse_bytes, 10**2000),
    ):
        with pytest.raises(InputError, match="at most"):
            read(text)  # type: ignore[operator]


def test_fuzzed_numbers_are_read_or_refused() -> None:
    dice = random.Random(15)
    alphabet = "0123456789" * 2 + "+-./eE KMGTibBs/µ²\n\x00é"
    read = 0
    for _ in range(4000):
        text = "".join(dice.choice(alphabet) for _ in range(dice.randint(0, 12)))
        for parse in (
            units.parse_number,
            units.parse_integer,
            units.parse_fraction,
            units.parse_bytes,
            units.parse_rate,
            units.parse_time,
        ):
            try:
                value = parse(text)
            except InputError:
                continue
            read += 1
            assert isinstance(value, int | Fraction)
    assert read > 500


def test_formats_read_back() -> None:
    for size in (1, 1023, 1 << 20, 5 << 30):
        assert units.parse_bytes(units.format_bytes(size)) == size
    assert units.format_rate(50 * 10**9) == "400Gb/s"
    assert units.format_time(Fraction(3, 2000)) == "1.5ms"
    assert units.format_time(Fraction(0)) == "0ns"


def test_whole_numbers_of_numpy_are_numbers() -> None:
    assert units.parse_bytes(np.int64(4096)) == units.parse_bytes(4096) == 4096
    assert units.parse_rate(np.uint32(7)) == 7
    for odd in (np.float64(4), True, np.bool_(True)):
        with pytest.raises(InputError, match="not a size"):
            units.parse_bytes(odd)  # type: ignore[arg-type]
    assert units.parse_integer(np.int16(3)) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("type_", [np.float16, np.float32, np.float64])
def test_a_float_of_numpy_is_its_shortest_decimal(type_: Any) -> None:
    assert units.parse_fraction(type_(0.1)) == Fraction(1, 10)
    assert units.parse_fraction(np.int64(1)) == 1  # type: ignore[arg-type]
    for odd in (type_("nan"), type_("inf"), np.bool_(True)):
        with pytest.raises(InputError, match="not a fraction"):
            units.parse_fraction(odd)


def test_a_prefix_alone_is_no_unit_and_what_was_meant_is_said() -> None:
    with pytest.raises(InputError, match=r"unknown unit 'M' for a size; did you mean 1MiB\?"):
        units.parse_bytes("1M")
    with pytest.raises(InputError, match=r"unknown unit 'G' for a rate; did you mean 400Gb/s\?"):
        units.parse_rate("400G")
    with pytest.raises(InputError, match=r"did you mean 64KiB\?"):
        units.parse_bytes("64k")
    with pytest.raises(InputError, match=r"unknown unit 'M' for a time; known units"):
        units.parse_time("1M")
