"""TOML descriptions as users write them: clear errors for unreadable files and unknown keys."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Set
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from railopt.base.errors import FormatError, InputError, about, did_you_mean, printable
from railopt.base.units import quoted

T = TypeVar("T")

MAX_BYTES = 1 << 20
# a.b.c... of 64 parts: tomllib's time grows with the square of their number
_DEEP_KEY = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){64}"""
)


def read(
    source: str | os.PathLike[str] | Traversable, parse: Callable[[Mapping[str, Any]], T]
) -> T:
    """Parse a TOML file of at most MAX_BYTES; every complaint begins with the file's name.

    `parse` gets values of any TOML type and has to check them; `only` helps.
    """
    name = printable(source)
    place = source if isinstance(source, Traversable) else Path(source)
    try:
        with place.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise FormatError(f"{name}: more than {MAX_BYTES} bytes, not a description")
        text = data.decode("utf-8-sig")
        if _DEEP_KEY.search(text):
            raise FormatError(f"{name}: nested too deeply")
        table = tomllib.loads(text)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except ValueError as error:  # not UTF-8, not TOML, a number of thousands of digits
        raise FormatError(f"{name}: not valid TOML ({printable(error)})") from error
    except RecursionError as error:
        raise FormatError(f"{name}: nested too deeply") from error
    with about(f"{name}: "):
        return parse(table)


def text(data: Mapping[str, Any], key: str, default: str = "") -> str:
    """A rate or a time of a description: a text with its unit."""
    value = data.get(key, default)
    if not isinstance(value, str):
        raise InputError(f"{key} = {quoted(value)}: expected a text with a unit in quotes")
    return value


def only(data: Any, known: Set[str], where: str) -> None:
    """Refuse what is not a table, and unknown keys."""
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: expected a table, found {quoted(data)}")
    unknown = sorted(set(data) - known)
    if unknown:
        raise InputError(
            f"{where}: unknown key {quoted(unknown[0])}; known keys: {', '.join(sorted(known))}"
            f"{did_you_mean(unknown[0], sorted(known))}"
        )
