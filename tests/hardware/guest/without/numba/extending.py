"""Intrinsics are interpreted: the code that they generate is carried out as it is generated."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class _Builder:
    """What generates loads and stores; a pointer is (address, type of what lies there)."""

    def inttoptr(self, address: Any, pointer: Any) -> tuple[int, Any]:
        return int(address), pointer

    def load(self, pointer: tuple[int, Any], align: int) -> int:
        address, kind = pointer
        return int(kind.from_address(address).value)

    def store(self, value: Any, pointer: tuple[int, Any], align: int) -> None:
        address, kind = pointer
        kind.from_address(address).value = int(value)


_BUILDER, _CONTEXT = _Builder(), SimpleNamespace(get_dummy_value=lambda: None)


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does what the generated code would do."""
    arguments = function.__code__.co_argcount
    signature, generate = function(*[None] * arguments)

    def call(*args: Any) -> Any:
        return signature.made(generate(_CONTEXT, _BUILDER, signature, args))

    return call


def overload(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Plain Python calls the function itself."""
    return lambda given: given
