"""Bytes, rates and times as written by people, as integers: the only place where 1e9 and 2**20
meet.

Inside railopt a size is an int of bytes, a rate an int of bytes per second, a time an int of
picoseconds
or, where it is exact, a Fraction of seconds.  Nothing here passes through a float.
"""

from __future__ import annotations

import re
from fractions import Fraction

from railopt.errors import InputError

_SIZES = {
    "B": 1,
    **{f"{p}B": 10 ** (3 * i) for i, p in enumerate("KMGT", 1)},
    **{f"{p}iB": 2 ** (10 * i) for i, p in enumerate("KMGT", 1)},
}
_RATES = {f"{unit}/s": Fraction(n) for unit, n in _SIZES.items()} | {
    f"{p}b/s": Fraction(10 ** (3 * i), 8) for i, p in enumerate(["", "K", "M", "G", "T"])
}
_TIMES = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12, "min": 60 * 10**12}
_NUMBER = re.compile(
    r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?|[+-]?\d+/\d+)\s*([A-Za-zµ/]*)\s*\Z"
)

PS_PER_S = 10**12


def _parse(
    text: str | int, units: dict[str, int] | dict[str, Fraction], bare: str, what: str
) -> Fraction:
    """An exact number with a unit from `units`; a small prefix letter is forgiven."""
    if isinstance(text, int) and not isinstance(text, bool):
        return Fraction(text) * units[bare]
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if match is None:
        raise InputError(
            f"{text!r} is not a {what}: expected a number and a unit, e.g. {_example(what)}"
        )
    number, unit = match.groups()
    unit = unit.replace("µ", "u") or bare
    if unit not in units:
        unit = unit[:1].upper() + unit[1:]  # kB, kiB; b and B stay apart
    if unit not in units:
        raise InputError(
            f"{text!r}: unknown unit {unit!r} for a {what}; known units: {', '.join(units)}"
        )
    return Fraction(number) * units[unit]


def _example(what: str) -> str:
    return {"size": "256KiB", "rate": "400Gb/s", "time": "12us"}[what]


def _whole(value: Fraction, text: str | int, what: str, unit: str) -> int:
    if value.denominator != 1:
        raise InputError(
            f"{text!r} is {float(value):g} {unit}: a {what} must be a whole number of {unit}"
        )
    return value.numerator


def parse_bytes(text: str | int) -> int:
    """`"256KiB"` -> 262144 bytes; a plain number is bytes.  Must be positive and whole."""
    value = _whole(_parse(text, _SIZES, "B", "size"), text, "size", "bytes")
    if value <= 0:
        raise InputError(f"{text!r}: a size must be at least 1 byte")
    return value


def parse_rate(text: str | int) -> int:
    """`"400Gb/s"` -> 50_000_000_000 bytes per second; a plain number is bytes per second.  Must be
    positive.
    """
    value = _whole(_parse(text, _RATES, "B/s", "rate"), text, "rate", "bytes per second")
    if value <= 0:
        raise InputError(
            f'{text!r}: a rate must be above zero (write a dead NIC as a degraded fraction of "0")'
        )
    return value


def parse_time(text: str | int) -> int:
    """`"12us"` -> 12_000_000 picoseconds; a plain number is seconds.  Must not be negative."""
    value = _whole(_parse(text, _TIMES, "s", "time"), text, "time", "picoseconds")
    if value < 0:
        raise InputError(f"{text!r}: a time can't be negative")
    return value


def parse_fraction(text: str | int) -> Fraction:
    """`"0.5"`, `"1/3"` or `1` -> an exact Fraction in [0, 1]."""
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError, TypeError) as error:
        raise InputError(f'{text!r} is not a fraction: expected e.g. "0.5" or "1/3"') from error
    if not 0 <= value <= 1:
        raise InputError(
            f"{text!r}: a fraction of the healthy rate lies between 0 (dead) and 1 (healthy)"
        )
    return value


def format_bytes(size: int) -> str:
    """262144 -> `256KiB`: the largest binary unit that keeps the number exact, else a rounded
    one.
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _SIZES[unit]:
            whole, rest = divmod(size, _SIZES[unit])
            return f"{whole}{unit}" if rest == 0 else f"{size / _SIZES[unit]:.2f}{unit}"
    return f"{size}B"


def format_rate(rate: int) -> str:
    """50_000_000_000 -> `400Gb/s`."""
    bits = rate * 8
    for unit in ("Tb/s", "Gb/s", "Mb/s", "Kb/s"):
        scale = int(_RATES[unit] * 8)
        if bits >= scale:
            return f"{bits / scale:.6g}{unit}"
    return f"{bits}b/s"


def format_time(seconds: Fraction | int) -> str:
    """Fraction of seconds -> `12.3us`, four significant digits."""
    for unit, scale in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        if seconds * scale >= 1 or unit == "ns":
            return f"{float(seconds * scale):.4g}{unit}"
    raise AssertionError("unreachable")


def seconds(picoseconds: int) -> Fraction:
    """Picoseconds -> exact seconds."""
    return Fraction(picoseconds, PS_PER_S)
