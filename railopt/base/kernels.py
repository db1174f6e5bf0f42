"""Kernels: loops over arrays that run as plain Python while that is cheap, compiled when it pays.

    @kernel                       a function that Python calls
    def total(sizes): ...

    @part                         a function that kernels call; from Python it is itself
    def larger(a, b): ...

A kernel is the same function either way, so its results are the same, as long as it counts in
int64 or float64 (numpy keeps narrow types where numba widens them), sorts stably and draws by
`seeded` and `below`, not by `np.random`.  Where numpy does the same in a few lines over whole
arrays, Python runs that instead: `@kernel(numpy=other)`, `@part(numpy=other)`.  numba is used
through its documented decorators, and by the names of its cache's files, which are checked before
they are loaded; where it is missing, or fails, kernels stay plain Python.

RAILOPT_COMPILE says when: `auto` (as below), `always` (at the first call), `never`.  With `auto` a
kernel is compiled once interpreting has cost about as much as compiling it would, or at once where
a call's arrays are so large that it soon will.  A kernel that is in numba's cache costs little, and
is taken from there sooner.

A kernel is compiled in a thread of its own, so call none while its own module is being imported:
the thread may wait for that import.

numba compiles a function anew for every type that it is called with, an int32 or a read-only array
for one; `np.int64(...)` where a part is called spares that.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial, wraps
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, write_atomic
from railopt.base.errors import InputError, say

__all__ = [
    "PASSES_S",
    "SearchLimit",
    "added_up",
    "below",
    "compile_mode",
    "compiling_s",
    "kernel",
    "part",
    "seeded",
    "shuffle",
    "wall_s",
]

MODES = ("auto", "always", "never")

# CPU seconds of interpreting after which compiled code is worth its price: what it costs to import
# numba, to load a kernel from its cache, and to compile one: 1 to 3 s.  Those few that take 5 to
# 17 s are compiled as early: each run after the first gains.
IMPORT_S, LOAD_S, COMPILE_S = 0.3, 0.05, 1.5
SLOW_S = 0.02  # wall time of a call after which the next one is made in a thread, for Ctrl-C
SEAL = b"\nrailopt crc32 "  # stands before the checksum of a file in numba's cache
NO_CACHE = "numba's cache can't be used"
# CPU seconds per element of a call's arrays when interpreted: a kernel that looks at each element
# many times, one that passes over them a few times, and numpy
ELEMENT_S, PASSES_S, NUMPY_S = 3e-5, 3e-6, 1e-7

_parts: list[tuple[Any, Callable[..., Any], dict[str, Any]]] = []  # compiled with their callers
# over all kernels: CPU seconds of interpreting, wall seconds of compiling and loading, whether
# numba's cache can be used, and whether one was said not to be compiled
_totals: dict[str, Any] = {"interpreted": 0.0, "compiling": 0.0, "cache": True, "failed": False}
_loading = threading.RLock()  # threads may call their first kernel at the same time


class SearchLimit(NamedTuple):
    """A kernel that looks on until it finds or an argument, `limit` by position, is used up; with
    `few` for it the interpreter takes some tenths of a second.  `unfinished` tells of a result that
    it was used up.
    """

    limit: int
    few: int
    unfinished: Callable[[Any], bool]


@cache
def compile_mode() -> str:
    """RAILOPT_COMPILE: `auto`, `always` or `never`; read once."""
    mode = os.environ.get("RAILOPT_COMPILE") or "auto"
    if mode not in MODES:
        raise InputError(f"RAILOPT_COMPILE={mode}: expected one of {', '.join(MODES)}")
    return mode


def compiling_s() -> float:
    """Wall seconds that this process has spent compiling and loading kernels.  Time limits leave
    them out, since they are paid once per machine.
    """
    return float(_totals["compiling"])


def wall_s() -> float:
    """Wall-clock seconds in which no kernel was compiled or loaded, which is paid once."""
    return time.perf_counter() - compiling_s()


def part(function: Any = None, *, numpy: Any = None, **options: Any) -> Any:
    """Have kernels call `function`, Python that or `numpy`, which does the same and whose `plain`
    is the function; `options` are those of `numba.extending.register_jitable`, and `prefer_literal`
    of `overload`: compiled anew for every number that a caller writes out.
    """
    if function is None:
        return lambda given: part(given, numpy=numpy, **options)
    called = numpy or function
    called.plain = function
    _callable_from_kernels(called, function, options)
    return called


def kernel(
    function: Any = None,
    *,
    numpy: Any = None,
    element_s: float | None = None,
    writes: Callable[..., int] | None = None,
    search: SearchLimit | None = None,
    **options: Any,
) -> Any:
    """Run `function` interpreted or compiled, whichever is cheaper.

    numpy       what Python runs instead while it interprets, if that is faster
    element_s   CPU seconds that the interpreter takes per element of the arguments' arrays
    writes      of the arguments: how many elements the result has, where that may be far more
    search      how a search that an argument limits is tried while it is interpreted
    options     those of `numba.njit`

    Arguments are given by position.  `plain` of what is returned is the function itself, which
    takes arrays of Python's integers too, and `numpy` what Python runs.
    """
    if function is None:
        return lambda given: kernel(
            given, numpy=numpy, element_s=element_s, writes=writes, search=search, **options
        )
    element_s = element_s or (NUMPY_S if numpy else ELEMENT_S)
    state = _Kernel(function, numpy or function, element_s, options, writes)
    interpret = state.interpret if search is None else partial(state.interpret_search, search)

    @wraps(function)
    def call(*args: Any) -> Any:
        compiled = state.compiled
        if compiled is None:
            if not state.pays(args):
                return interpret(args)
            compiled = state.compile(args)
        began = time.perf_counter()
        try:
            return interruptible(compiled, *args) if state.slow else compiled(*args)
        except Exception as error:
            return state.again(args, error)
        finally:
            state.slow = time.perf_counter() - began > SLOW_S and state.compiled != state.plain

    del call.__wrapped__
    call.plain, call.numpy = function, numpy or function  # type: ignore[attr-defined]
    _callable_from_kernels(call, function, options)
    return call


class _Kernel:
    """A function, what interpreting it has cost so far, and its compiled form once there is one."""

    def __init__(
        self,
        function: FunctionType,
        python: Any,
        element_s: float,
        options: dict[str, Any],
        writes: Callable[..., int] | None = None,
    ) -> None:
        self.function, self.options, self._writes = function, options, writes
        self._python, self._element_s = python, element_s
        self.compiled: Callable[..., Any] | None = None
        self.slow = False  # whether the next call of the compiled form may be
        self._jitted: Any = None
        self._spent_s = 0.0  # CPU time

    def plain(self, *args: Any) -> Any:
        result = self._python(*args)
        return _unboxed(result) if isinstance(result, np.generic | list | tuple) else result

    def interpret(self, args: tuple[Any, ...]) -> Any:
        """Run the function as plain Python, and count what that takes without compiling others."""
        began, compiling_s = time.process_time(), _totals["compiling"]
        try:
            return self.plain(*args)
        finally:
            took = max(0.0, time.process_time() - began - (_totals["compiling"] - compiling_s))
            self._spent_s += took
            _totals["interpreted"] += took

    def interpret_search(self, search: SearchLimit, args: tuple[Any, ...]) -> Any:
        """As plain Python if it ends early; a longer one is compiled, and begins anew."""
        at, few = search.limit, search.few
        if compile_mode() == "never" or args[at] <= few:
            return self.interpret(args)
        found = self.interpret((*args[:at], few, *args[at + 1 :]))
        if not search.unfinished(found):
            return found
        return interruptible(self.compile(args), *args)

    def pays(self, args: tuple[Any, ...]) -> bool:
        """Whether compiled code is worth its price now."""
        mode = compile_mode()
        if mode != "auto":
            return mode == "always"
        elements = sum(map(_elements, args)) + (self._writes(*args) if self._writes else 0)
        coming_s = self._element_s * elements
        spent_s = _totals["interpreted"] + coming_s
        if spent_s < (LOAD_S if "numba" in sys.modules else IMPORT_S):
            return False
        if self._spent_s + coming_s >= COMPILE_S:
            return True
        return self._spent_s + coming_s >= LOAD_S and self._in_cache()

    def compile(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        """The function, compiled for arguments such as these, and for others at their first call;
        interpreted where that fails.
        """
        began = time.perf_counter()
        self.compiled = _in_a_thread(self._first_compiled, args)
        self.slow = self.compiled != self.plain
        _totals["compiling"] += time.perf_counter() - began
        return self.compiled

    def _first_compiled(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        numba = _numba()
        if numba is None:
            return self.plain
        try:
            jitted = self._with_cache()
            if not all(map(_whole, self._cached("nbc"))):
                raise ValueError("damaged")
            jitted.compile(tuple(map(numba.typeof, args)))
            for file in self._cached("nbc"):
                _seal(file)
        except Exception as error:
            return self._mended(args, error)
        return jitted

    def again(self, args: tuple[Any, ...], error: Exception) -> Any:
        """After an `error` of compiled code: another try, `_mended`, if compiling it for arguments
        of another type failed; what is compiled for others stays.
        """
        if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None  # it came while numba made the result
        if self.compiled == self.plain or not _failed_to_compile(self.compiled, args, error):
            raise error
        mended = _in_a_thread(self._mended, args, error)
        if mended != self.plain:
            self.compiled = mended
        return mended(*args)

    def _with_cache(self) -> Any:
        """numba's function, with a cache where a folder for it can be written."""
        if self._jitted is None:
            numba = _numba()
            try:
                self._jitted = numba.njit(cache=_totals["cache"], **self.options)(self.function)
                _say_if_elsewhere(getattr(self._jitted.stats, "cache_path", None))
            except (OSError, RuntimeError) as error:
                give_up_cache(error)
                self._jitted = numba.njit(**self.options)(self.function)
        return self._jitted

    def _cached(self, kind: str) -> list[Path]:
        """This function's files in numba's cache: indexes, `nbi`, and compiled code, `nbc`.  Where
        another numba names them otherwise none are found, which costs time alone.
        """
        folder = getattr(self._with_cache().stats, "cache_path", None)
        code = self.function.__code__
        name = f"{Path(code.co_filename).stem}.{self.function.__qualname__}-{code.co_firstlineno}"
        return sorted(Path(folder).glob(f"{name}.*.{kind}")) if folder else []

    def _in_cache(self) -> bool:
        if not _loaded.cache_info().currsize:
            began = time.perf_counter()
            _numba()
            _totals["compiling"] += time.perf_counter() - began
        try:
            return _numba() is not None and bool(self._cached("nbi"))
        except Exception:  # `compile` meets it again, and says what is the matter
            return True

    def _mended(self, args: tuple[Any, ...], error: Exception) -> Callable[..., Any]:
        """The function compiled without what its cache has, which may be damaged or of another
        version; without a cache where that can't be written; as it is where numba gives up.
        """
        numba = _numba()
        tries: tuple[bool, ...] = (False,)
        if isinstance(error, numba.NumbaError):
            tries = ()
        elif not isinstance(error, OSError) and self._dropped():
            tries = (True, False)
        for cache_too in tries:
            try:
                jitted = numba.njit(cache=cache_too, **self.options)(self.function)
                jitted.compile(tuple(map(numba.typeof, args)))
            except Exception as again:
                error = again if cache_too else error
            else:
                if not cache_too:
                    give_up_cache(error)
                return jitted
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # numba's words are in bold
        reason = [*plain.strip().splitlines(), type(error).__name__][0]
        if not _totals["failed"]:
            _totals["failed"] = True
            _note(
                f"{self.function.__module__}.{self.function.__name__} is interpreted, which is "
                f"slower: numba {numba.__version__} does not compile it ({reason}); others may be"
            )
        return self.plain

    def _dropped(self) -> bool:
        """Whether this function's cache files could be deleted."""
        try:
            files = self._cached("nbi") + self._cached("nbc")
            for file in files:
                file.unlink(missing_ok=True)
        except Exception:  # of the disk, or of a numba that does not take the function
            return False
        if not files:
            return False
        _note("files in numba's cache that can't be read are replaced")
        return True


def _in_a_thread(work: Callable[..., Any], *args: Any) -> Any:
    """Do the work in a thread and wait for it.  Ctrl-C strikes the main thread alone, so it can't
    strike inside a callback of LLVM's or while a package is half imported, where it would be lost.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(*args)
    from concurrent.futures import ThreadPoolExecutor  # 10 ms, which commands need not spend

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *args).result()


def interruptible(work: Callable[..., Any], *args: Any) -> Any:
    """The result of a kernel that may run for long, by a thread, so that Ctrl-C is handled after
    it, or meanwhile if it runs without the GIL; the thread then goes on to its end, unheard.  In
    the main thread Ctrl-C would strike while numba makes an array of the result, where it is lost
    or fatal.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(*args)
    from concurrent.futures import Future  # 10 ms, which commands need not spend

    made: Future[Any] = Future()

    def run() -> None:
        try:
            made.set_result(work(*args))
        except BaseException as error:  # raised where the result is waited for
            made.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return made.result()


def _whole(file: Path) -> bool:
    """Whether a file of numba's cache is as it was when it was sealed, if it was."""
    code, seal, checksum = file.read_bytes().rpartition(SEAL)
    return not seal or checksum == _checksum(code)


def _seal(file: Path) -> None:
    """Put a checksum after what numba saved and reads, since it has none, and damaged code may end
    the process.
    """
    data = file.read_bytes()
    if SEAL not in data:
        with suppress(InputError):  # a folder that can't be written stays as it is
            write_atomic(file, data + SEAL + _checksum(data), force=True)


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


def _unboxed(value: Any) -> Any:
    """What compiled code would return: numbers of Python instead of numpy's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list):
        return [_unboxed(each) for each in value]
    if isinstance(value, tuple):
        parts = map(_unboxed, value)
        return tuple(parts) if type(value) is tuple else type(value)(*parts)
    return value


def _elements(value: Any) -> int:
    """How many numbers an argument's arrays hold."""
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(_elements, value)) if isinstance(value, tuple) else 0


def _callable_from_kernels(name: Any, function: Any, options: dict[str, Any]) -> None:
    """Have kernels that call `name` call `function`: now if numba is loaded, else when it is."""
    if not _loaded.cache_info().currsize:
        _parts.append((name, function, options))
    elif _loaded() is not None:
        _register(name, function, options)


def _register(name: Any, function: Callable[..., Any], options: dict[str, Any]) -> None:
    from numba.extending import overload

    kept = {key: value for key, value in options.items() if key != "nogil"}
    literal = kept.pop("prefer_literal", False)
    overload(name, jit_options=kept, strict=False, prefer_literal=literal)(
        lambda *args, **kwargs: function
    )


def _numba() -> Any:
    """numba, with all parts registered; None where it can't be imported."""
    with _loading:
        return _loaded() if _loaded.cache_info().currsize else _in_a_thread(_loaded)


@cache
def _loaded() -> Any:
    try:
        import numba

        for each in _parts:
            _register(*each)
    except Exception as error:  # a numba that does not fit numpy may raise anything
        _note(f"kernels are interpreted, which is slower: no numba ({error})")
        return None
    return numba


def _failed_to_compile(jitted: Any, args: tuple[Any, ...], error: Exception) -> bool:
    """Whether an error is one of compiling, loading or saving, and not one that the kernel raised:
    no kernel raises OSError, and what was compiled is listed.
    """
    numba = _numba()
    if isinstance(error, OSError | numba.NumbaError):
        return True
    return tuple(map(numba.typeof, args)) not in jitted.signatures


def _say_if_elsewhere(folder: str | None) -> None:
    """Say so where numba silently uses another folder because it can't make the one asked for."""
    asked = os.environ.get("NUMBA_CACHE_DIR")
    if asked and folder and not Path(folder).absolute().is_relative_to(Path(asked).absolute()):
        _note(f"NUMBA_CACHE_DIR={asked} can't be used: numba keeps kernels elsewhere")


def _note(sentence: str) -> None:
    """Say something that makes kernels slower, no more: a server's log may have it, not stderr."""
    say(sentence, slower=True)


def give_up_cache(error: Exception) -> None:
    _totals["cache"] = False
    _note(
        f"{NO_CACHE} ({type(error).__name__}: {error}): kernels are compiled "
        "anew; empty the folder, or name another in NUMBA_CACHE_DIR"
    )


def _added_up_by_numpy(ends: Array, size: Array, count: int) -> Array:
    """`added_up` for Python."""
    total = np.zeros(count, np.int64)
    np.add.at(total, ends, size)
    return total


@kernel(numpy=_added_up_by_numpy)
def added_up(ends: Array, size: Array, count: int) -> Array:
    """int64 [count]: the sizes of what has each number from 0 on as its end."""
    total = np.zeros(count, np.int64)
    for i in range(len(ends)):
        total[ends[i]] += size[i]
    return total


_BITS = 0xFFFFFFFF  # of the state, so that no product here passes 63 bits


@kernel
def seeded(seed: int) -> Array:
    """The state of a generator, int64 [1]; nearby seeds give unrelated states."""
    x = (seed & _BITS) ^ 0x2545F491
    for _ in range(3):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & _BITS
    draws = np.empty(1, np.int64)
    draws[0] = max(x, 1)
    return draws


@part
def below(draws: Array, end: int) -> int:
    """A number from 0 to `end` - 1, `end` at most 2**31 (Marsaglia's xorshift of 32 bits)."""
    x = draws[0]
    x ^= (x << 13) & _BITS
    x ^= x >> 17
    x ^= (x << 5) & _BITS
    draws[0] = x
    return (x * end) >> 32


@part
def shuffle(draws: Array, items: Array, length: int) -> None:
    """Permute items[:length] in place."""
    for i in range(length - 1, 0, -1):
        j = below(draws, i + 1)
        items[i], items[j] = items[j], items[i]
