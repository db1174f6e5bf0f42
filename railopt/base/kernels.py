"""Kernels: loops over arrays that run as plain Python while that is cheap, compiled when it pays.

    @kernel                       a function that Python calls
    def total(sizes): ...

    @part                         a function that kernels call; from Python it is itself
    def larger(a, b): ...

A kernel is the same function either way, so its results are the same.  numba is used through its
documented decorators alone; where it is missing, or fails, kernels stay plain Python.

RAILOPT_COMPILE says when: `auto` (as below), `always` (at the first call), `never`.  With `auto` a
kernel is compiled once interpreting has cost about as much as compiling it would, or at once where
a call's arrays are so large that it soon will.  A kernel that is in numba's cache costs little, and
is taken from there sooner.

numba compiles a function anew for every type that it is called with, an int32 or a read-only array
for one; `np.int64(...)` where a part is called spares that.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from railopt.base.errors import InputError

__all__ = ["compile_mode", "compiling_s", "kernel", "part"]

MODES = ("auto", "always", "never")

# CPU seconds that are spent on interpreting before compiled code is got.  Importing numba takes
# about 0.3 s, loading a kernel from its cache 0.05 s, compiling one 1 to 3 s.
IMPORT_S, LOAD_S, COMPILE_S = 0.3, 0.05, 1.5
ELEMENT_S = 1e-5  # a kernel that is interpreted takes about so long per element of its arrays

_parts: list[tuple[Any, Callable[..., Any], dict[str, Any]]] = []  # what numba will be told of
_interpreted_s = 0.0  # CPU seconds spent so far on interpreting, of all kernels
_compiling_s = 0.0  # wall seconds spent so far on compiling and loading
_cache_usable = True
_warned: set[str] = set()


@cache
def compile_mode() -> str:
    """RAILOPT_COMPILE: `auto`, `always` or `never`; read once."""
    mode = os.environ.get("RAILOPT_COMPILE") or "auto"
    if mode not in MODES:
        raise InputError(f"RAILOPT_COMPILE={mode}: expected one of {', '.join(MODES)}")
    return mode


def compiling_s() -> float:
    """Wall seconds that this process has spent on compiling kernels and on loading them: what a
    time limit leaves out, since it is paid once per machine.
    """
    return _compiling_s


def part(function: Any = None, **options: Any) -> Any:
    """Have kernels call `function`; `options` are those of `numba.extending.register_jitable`."""
    if function is None:
        return lambda given: part(given, **options)
    _callable_from_kernels(function, function, options)
    return function


def kernel(function: Any = None, **options: Any) -> Any:
    """Have Python call `function` by way of whatever is cheaper, interpreter or compiled code.

    `options` are those of `numba.njit`.  Arguments are given by position.  `plain` of what is
    returned is the function itself, which takes arrays of Python's integers too.
    """
    if function is None:
        return lambda given: kernel(given, **options)
    compiled: Callable[..., Any] | None = None
    spent_s = 0.0

    @wraps(function)
    def call(*args: Any) -> Any:
        nonlocal compiled, spent_s
        if compiled is not None:
            return compiled(*args)
        if _pays(function, spent_s, args):
            compiled = _compiled(function, options, args)
            return compiled(*args)
        began = time.process_time()
        try:
            return _unboxed(function(*args))
        finally:
            took = time.process_time() - began
            spent_s += took
            _add(took)

    del call.__wrapped__
    call.plain = function  # type: ignore[attr-defined]
    _callable_from_kernels(call, function, options)
    return call


def _unboxed(value: Any) -> Any:
    """What compiled code would return: numbers of Python instead of numpy's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        parts = map(_unboxed, value)
        return tuple(parts) if type(value) is tuple else type(value)(*parts)
    return value


def _add(seconds: float) -> None:
    global _interpreted_s
    _interpreted_s += seconds


def _pays(function: FunctionType, spent_s: float, args: tuple[Any, ...]) -> bool:
    """Whether compiled code is worth its price now."""
    mode = compile_mode()
    if mode != "auto":
        return mode == "always"
    coming_s = ELEMENT_S * sum(map(_elements, args))
    if "numba" not in sys.modules and _interpreted_s + coming_s < IMPORT_S:
        return False
    return spent_s + coming_s >= (LOAD_S if _in_cache(function) else COMPILE_S)


def _elements(value: Any) -> int:
    """How many numbers an argument's arrays hold."""
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(_elements, value)) if isinstance(value, tuple) else 0


@cache
def _in_cache(function: FunctionType) -> bool:
    """Whether numba's cache seems to have a function.

    A wrong answer, where another numba names its files otherwise, costs time alone.
    """
    file = Path(function.__code__.co_filename)
    given = os.environ.get("NUMBA_CACHE_DIR")
    name = f"{file.stem}.{function.__qualname__}-{function.__code__.co_firstlineno}.*.nbi"
    folders = Path(given).glob(f"{file.parent.name}_*") if given else [file.parent / "__pycache__"]
    return any(next(folder.glob(name), None) for folder in folders)


def _callable_from_kernels(name: Any, function: Any, options: dict[str, Any]) -> None:
    """Have kernels that call `name` call `function`: now if numba is loaded, else when it is."""
    if _numba.cache_info().currsize:
        _register(name, function, options)
    else:
        _parts.append((name, function, options))


def _register(name: Any, function: Callable[..., Any], options: dict[str, Any]) -> None:
    from numba.extending import overload

    kept = {key: value for key, value in options.items() if key != "nogil"}
    inline = kept.pop("inline", "never")
    overload(name, jit_options=kept, strict=False, inline=inline)(lambda *args, **kwargs: function)


@cache
def _numba() -> Any:
    """numba, told of all parts; None where it can't be imported."""
    try:
        import numba
    except ImportError as error:
        _say(f"kernels are interpreted, which is slower: no numba ({error})")
        return None
    for each in _parts:
        _register(*each)
    return numba


def _compiled(
    function: FunctionType, options: dict[str, Any], args: tuple[Any, ...]
) -> Callable[..., Any]:
    """The function, compiled for arguments such as these, and for others at their first call;
    interpreted where that fails.
    """
    global _compiling_s
    began = time.perf_counter()
    try:
        return _compiled_or_not(function, options, args)
    finally:
        _compiling_s += time.perf_counter() - began


def _compiled_or_not(
    function: FunctionType, options: dict[str, Any], args: tuple[Any, ...]
) -> Callable[..., Any]:
    numba = _numba()
    if numba is None:
        return function
    jitted = _jitted(numba, function, options)
    try:
        jitted.compile(tuple(map(numba.typeof, args)))
    except Exception as error:
        jitted = _without_cache(numba, function, options, args, error)

    def call(*args: Any) -> Any:
        nonlocal jitted
        try:
            return jitted(*args)
        except Exception as error:
            if not _failed_to_compile(numba, jitted, args, error):
                raise
            jitted = _without_cache(numba, function, options, args, error)
            return jitted(*args)

    return call


def _jitted(numba: Any, function: FunctionType, options: dict[str, Any]) -> Any:
    """numba's function, with a cache where a folder for it can be written."""
    if _cache_usable:
        try:
            return numba.njit(cache=True, **options)(function)
        except (OSError, RuntimeError) as error:
            _give_up_cache(error)
    return numba.njit(**options)(function)


def _failed_to_compile(numba: Any, jitted: Any, args: tuple[Any, ...], error: Exception) -> bool:
    """Whether an error is one of compiling, loading or saving, and not one that the kernel raised:
    no kernel raises OSError, and what was compiled is listed.
    """
    if isinstance(error, OSError | numba.NumbaError):
        return True
    return tuple(map(numba.typeof, args)) not in jitted.signatures


def _without_cache(
    numba: Any, function: FunctionType, options: dict[str, Any], args: tuple[Any, ...], error: Any
) -> Callable[..., Any]:
    """The function compiled without numba's cache, which may be full or damaged; else as it is."""
    if not isinstance(error, numba.NumbaError):
        _give_up_cache(error)
        jitted = numba.njit(**options)(function)
        try:
            jitted.compile(tuple(map(numba.typeof, args)))
            return jitted
        except Exception as again:
            error = again
    reason = str(error).strip().splitlines()
    _say(
        f"{function.__module__}.{function.__name__} is interpreted, which is slower: numba "
        f"{numba.__version__} does not compile it ({reason[0] if reason else type(error).__name__})"
    )
    return function


def _give_up_cache(error: Exception) -> None:
    global _cache_usable
    _cache_usable = False
    _say(
        f"numba's cache can't be used ({type(error).__name__}: {error}): kernels are compiled "
        "anew; empty the folder, or name another in NUMBA_CACHE_DIR"
    )


def _say(sentence: str) -> None:
    """One line on stderr, once."""
    if sentence not in _warned:
        _warned.add(sentence)
        print(f"railopt: {sentence.splitlines()[0]}", file=sys.stderr)
