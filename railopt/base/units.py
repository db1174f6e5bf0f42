"""Numbers, bytes, rates and times as written by people: the only place where 1e9 and 2**20 meet,
and the only reader of numbers that come from outside.

Inside railopt a size is an int of bytes, a rate an int of bytes per second, a time an int of
picoseconds or, where it is exact, a Fraction of seconds.  Nothing here passes through a float.

A number is written as `12`, `-0.5`, `1e-3` or `1/3`, with at most MAX_CHARACTERS characters and an
exponent of at most two digits, so that reading takes time in proportion to its length.  What ends
in an array fits int64.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.base.errors import InputError, did_you_mean, printable

MAX_CHARACTERS = 1000
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
PS_PER_S = 10**12
PS_PER_US = 10**6

_SIZES = {
    "B": 1,
    **{f"{p}B": 10 ** (3 * i) for i, p in enumerate("KMGT", 1)},
    **{f"{p}iB": 2 ** (10 * i) for i, p in enumerate("KMGT", 1)},
}
_RATES = {f"{unit}/s": Fraction(n) for unit, n in _SIZES.items()} | {
    f"{p}b/s": Fraction(10 ** (3 * i), 8) for i, p in enumerate(["", "K", "M", "G", "T"])
}
_TIMES = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12, "min": 60 * 10**12}
_EXAMPLES = {"size": "256KiB", "rate": "400Gb/s", "time": "12us"}
_DECIMAL = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,2})?"
_WHOLE = re.compile(r"\s*[+-]?\d+\s*\Z", re.ASCII)
_PLAIN = re.compile(rf"\s*({_DECIMAL}|[+-]?\d+/\d+)\s*\Z", re.ASCII)
_WITH_UNIT = re.compile(rf"\s*({_DECIMAL}|[+-]?\d+/\d+)\s*([A-Za-zµ/]*)\s*\Z", re.ASCII)


def parse_number(text: str | int | float | Fraction, what: str = "number") -> Fraction:
    """`"12"`, `"-0.5"`, `"1e-3"` or `"1/3"` -> the exact Fraction; a float counts as its shortest
    decimal, as a TOML file wrote it.  `what` names it in the complaint.
    """
    if isinstance(text, Fraction):
        return text
    if isinstance(text, float | np.floating) and math.isfinite(text):
        return Fraction(str(text))
    if isinstance(text, int | np.integer) and not isinstance(text, bool):
        return Fraction(int(text))
    match = _match(_PLAIN, text)
    if match is None:
        raise InputError(f"{quoted(text)} is not a {what}: expected e.g. 12, 0.5, 1e-3 or 1/3")
    return _exact(match[1], text)


def parse_integer(
    text: str | int, what: str = "", *, low: int = INT64_MIN, high: int = INT64_MAX
) -> int:
    """`"12"` -> 12, a whole number from `low` to `high`; `what` names it in the complaint."""
    number = isinstance(text, int | np.integer) and not isinstance(text, bool)
    if number or _match(_WHOLE, text):
        value = int(text)
        if low <= value <= high:
            return value
    named = f"{what}, a " if what else ""
    raise InputError(f"{quoted(text)}: expected a {named}whole number from {low} to {high}")


def parse_options(text: str, known: Sequence[str], where: str) -> dict[str, str]:
    """`"step=3,layer=2"` -> {"step": "3", "layer": "2"}, each at most once and of `known`."""
    options: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if key not in known or not (equals and value) or key in options:
            raise InputError(
                f"{where}: found {quoted(item)}, expected each once of "
                f"{', '.join(f'{name}=...' for name in known)}{did_you_mean(key, known)}"
            )
        options[key] = value
    return options


def quoted(value: object) -> str:
    """A value from outside as a complaint names it: its `repr`, printable, at most 60 characters
    of it.
    """
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    return printable(repr(value), 60)


def _match(pattern: re.Pattern[str], text: object) -> re.Match[str] | None:
    return pattern.match(text) if isinstance(text, str) and len(text) <= MAX_CHARACTERS else None


def _exact(number: str, text: object) -> Fraction:
    try:
        return Fraction(number)
    except ZeroDivisionError:
        raise InputError(f"{quoted(text)} divides by zero: expected e.g. 0.5 or 1/3") from None


def _parse(text: str | int, units: dict[str, int] | dict[str, Fraction], what: str) -> Fraction:
    """An exact number of the base unit of `what`, with a unit from `units`, or without one where
    a plain number has a meaning; a small prefix letter is forgiven.
    """
    bare = {"size": "B", "rate": "B/s", "time": "s"}[what]
    if isinstance(text, int | np.integer) and not isinstance(text, bool):
        return Fraction(int(text)) * units[bare]
    match = _match(_WITH_UNIT, text)
    if match is None:
        raise InputError(
            f"{quoted(text)} is not a {what}: expected a number and a unit, e.g. {_EXAMPLES[what]}"
        )
    number, unit = match.groups()
    if not unit and what == "rate":
        raise InputError(f"{quoted(text)} has no unit: a rate needs one, e.g. 400Gb/s or 50GB/s")
    unit = unit.replace("µ", "u") or bare
    if unit not in units:
        unit = unit[:1].upper() + unit[1:]  # kB, kiB; b and B stay apart
    if unit not in units:
        raise InputError(
            f"{quoted(text)}: unknown unit {printable(unit, 20)!r} for a {what}"
            f"{_meant(number, unit, what)}; known units: {', '.join(units)}"
        )
    return _exact(number, text) * units[unit]


def _meant(number: str, unit: str, what: str) -> str:
    """`"; did you mean 1MiB?"` where a unit is a prefix alone."""
    endings = {"size": "iB", "rate": "b/s"}
    if what not in endings or unit not in ("K", "M", "G", "T"):
        return ""
    return f"; did you mean {number}{unit}{endings[what]}?"


def _whole(value: Fraction, text: str | int, what: str, unit: str) -> int:
    if value.denominator != 1:
        raise InputError(f"{quoted(text)}: a {what} must be a whole number of {unit}")
    if value > INT64_MAX:
        raise InputError(f"{quoted(text)}: a {what} is at most 2**63 - 1 {unit}")
    return value.numerator


def parse_bytes(text: str | int) -> int:
    """`"256KiB"` -> 262144 bytes; a plain number is bytes.
    Positive, whole, within int64.

        >>> from railopt import units
        >>> units.parse_bytes("256KiB"), units.parse_rate("400Gb/s"), units.parse_time("12us")
        (262144, 50000000000, 12000000)
        >>> units.format_bytes(262144), units.format_rate(50_000_000_000)
        ('256KiB', '400Gb/s')
    """
    value = _whole(_parse(text, _SIZES, "size"), text, "size", "bytes")
    if value <= 0:
        raise InputError(f"{quoted(text)}: a size must be at least 1 byte")
    return value


def parse_rate(text: str | int) -> int:
    """`"400Gb/s"` -> 50_000_000_000 bytes per second.  Positive, whole, within int64.

    An int is bytes per second; a string needs its unit, since 400 rarely means bytes.
    """
    value = _whole(_parse(text, _RATES, "rate"), text, "rate", "bytes per second")
    if value <= 0:
        raise InputError(
            f"{quoted(text)}: a rate must be above zero (a dead NIC has the rate or fraction "
            f'"0", without a unit)'
        )
    return value


def parse_time(text: str | int) -> int:
    """`"12us"` -> 12_000_000 picoseconds; a plain number is seconds.  Not negative, within int64
    (106 days).
    """
    value = _whole(_parse(text, _TIMES, "time"), text, "time", "picoseconds")
    if value < 0:
        raise InputError(f"{quoted(text)}: a time can't be negative")
    return value


def parse_fraction(text: str | int | float | Fraction) -> Fraction:
    """`"0.5"`, `"1/3"` or `1` -> an exact Fraction in [0, 1]."""
    value = parse_number(text, "fraction")
    if not 0 <= value <= 1:
        raise InputError(
            f"{quoted(text)}: a fraction of the healthy rate lies between 0 (dead) and 1 (healthy)"
        )
    return value


def time_limit(limit_s: Any, least: float = -math.inf) -> float:
    """A limit in seconds, once it is known to be a number of at least `least`."""
    try:
        found = math.nan if isinstance(limit_s, str) else float(limit_s)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if math.isnan(found):
        raise InputError(f"a time limit of {quoted(limit_s)}: expected seconds, a number")
    if found < least:
        raise InputError(f"a time limit of {quoted(limit_s)} s: expected {least:g} or more")
    return found


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


def exact(value: Any) -> Any:
    """A value as JSON has it: Fractions as texts "p/q", in lists, tuples and mappings too."""
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return {key: exact(each) for key, each in value.items()}
    return [exact(each) for each in value] if isinstance(value, list | tuple) else value


def seconds(picoseconds: int) -> Fraction:
    """Picoseconds -> exact seconds."""
    return Fraction(picoseconds, PS_PER_S)


class Quantity(str):
    """A number as people read it; `value` is the number itself, None where there is none, in
    `unit`: "s", "B", "B/s" or "", which is none or the one that the column names.
    """

    value: float | None
    unit: str

    def __new__(cls, text: str, value: float | None, unit: str = "") -> Quantity:
        made = super().__new__(cls, text)
        made.value = value
        made.unit = unit
        return made


def duration(seconds: Fraction | int) -> Quantity:
    """Seconds, as `12.3us`."""
    return Quantity(format_time(seconds), float(seconds), "s")


def size(count: int) -> Quantity:
    """Bytes, as `256KiB`."""
    return Quantity(format_bytes(count), count, "B")


def rate(bytes_per_s: Fraction | int) -> Quantity:
    """Bytes per second, as `400Gb/s`."""
    return Quantity(format_rate(int(bytes_per_s)), float(bytes_per_s), "B/s")


def percent(gap: Fraction | None) -> Quantity:
    """A gap as a percentage, three significant digits; an exact zero says so.  Where there is none
    it is a dash, and empty in CSV.
    """
    if gap is None:
        return Quantity("-", None)
    return Quantity("0" if gap == 0 else f"{float(gap) * 100:.3g}", float(gap * 100))
