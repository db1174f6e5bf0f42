"""A verdict of the checker in the words of the program, to be compared and recorded."""

from __future__ import annotations

from typing import Any


def said(verdict: Any) -> dict[str, Any]:
    """A verdict as `railopt-verified --json` writes it."""
    numbers = {name: getattr(verdict, name) for name in ("bound", "value", "best")}
    return {
        **{name: getattr(verdict, name) for name in ("ok", "optimal", "optimum", "kind")},
        **{name: None if number is None else str(number) for name, number in numbers.items()},
        "message": str(verdict.message),
    }
