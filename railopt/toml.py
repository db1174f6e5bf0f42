"""TOML descriptions as users write them: clear errors for unreadable files and unknown keys."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from railopt.errors import FormatError, InputError

T = TypeVar("T")


def read(
    source: str | os.PathLike[str] | Traversable, parse: Callable[[Mapping[str, Any]], T]
) -> T:
    """Parse a TOML file; every complaint begins with the file's name."""
    place = source if isinstance(source, Traversable) else Path(source)
    try:
        return parse(tomllib.loads(place.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{source}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{source}: not valid TOML ({error})") from error
    except InputError as error:
        raise type(error)(f"{source}: {error}") from error


def only(data: Any, known: set[str], where: str) -> None:
    """Refuse what is not a table, and keys that nobody knows."""
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: expected a table, found {data!r}")
    unknown = sorted(set(data) - known)
    if unknown:
        raise InputError(
            f"{where}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}"
        )
