"""numba as railopt uses it: kernels, which Python calls, and their parts, which kernels call.

Importing this loads no numba; the first kernel that is defined does.

numba compiles a function anew for every literal and every type that it is called with, an int32 or
a read-only array for one; `np.int64(...)` where a part is called spares that.  `a[:] = b` of two
arrays takes three seconds to compile, for what it would say if their shapes differed: a loop.
"""

from __future__ import annotations

import fcntl
import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from railopt.base.interrupts import interrupts_wait

__all__ = ["kernel_part", "njit", "told"]

TRIED = 0, 68  # the newest numba that is helped to compile faster; later ones have it their way

PATIENCE_S, NAP_S = 60.0, 0.02  # with another process that compiles the same

_listeners: list[Callable[[], None]] = []
_held: list[int] = []  # the file that this process has locked


def njit(**options: Any) -> Any:
    """numba's decorator, for a kernel; without the wrapper for C, through which nobody calls it."""
    decorate = _numba().njit(no_cfunc_wrapper=True, **options)

    def kernel(function: Callable[..., Any]) -> Any:
        made = decorate(function)
        if (stored := getattr(made, "_cache", None)) is not None:
            stored.load_overload = _untorn(stored.load_overload)
            if options.get("cache"):
                _compiled_once(made, function.__code__.co_filename)
        return made

    return kernel


def _untorn(load: Callable[..., Any]) -> Callable[..., Any]:
    """Loading from numba's cache, during which Ctrl-C waits: LLVM asks Python for the machine code,
    and where that is torn it goes on without, and the kernel is called at address 0.
    """

    def loaded(*arguments: Any) -> Any:
        with interrupts_wait():
            return load(*arguments)

    return loaded


def _compiled_once(made: Any, file: str) -> None:
    """Have one process at a time compile the kernels of a file, and the others wait and load what
    it compiled: the ranks of a node begin together, and so do a command and its companion.
    """
    load, make = made._cache.load_overload, made.compile

    def loaded(*arguments: Any) -> Any:
        found = load(*arguments)
        if found is None and not _held and _locked(file):
            found = load(*arguments)
        return found

    def compiled(signature: Any) -> Any:
        outermost = not _held
        try:
            return make(signature)
        finally:
            while outermost and _held:
                os.close(_held.pop())

    made._cache.load_overload, made.compile = loaded, compiled


def _locked(file: str) -> bool:
    """Lock a file; whether another process had to be waited for.  Without a lock where that takes
    too long, or locks can't be had.
    """
    waited, until = False, time.monotonic() + PATIENCE_S
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError:
        return False
    try:
        while time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = True
                _tell()
                time.sleep(NAP_S)
            else:
                _held.append(handle)
                break
    except OSError:
        pass
    finally:
        if handle not in _held:
            os.close(handle)
    return waited


def kernel_part(**options: Any) -> Any:
    """The same for a function that kernels alone call: without the wrapper for Python either, whose
    compilation takes as long as that of a small function itself, or longer where named tuples of
    arrays have to be unpacked, and without code of its own.  Python that calls a part all the same
    crashes; a test sees to it that none of ours does.

    What is small and called in a hot loop says `forceinline=True`; what is called often and
    allocates nothing says `_nrt=False`: reference counts are atomic and can take longer than the
    work.
    """
    return njit(no_cpython_wrapper=True, **options)


@contextmanager
def told(begins: Callable[[], None]) -> Iterator[None]:
    """Have `begins` called once, if numba begins to compile what is not in its cache while the body
    runs, or another process is waited for that does.
    """
    _listeners.append(begins)
    try:
        yield
    finally:
        if begins in _listeners:
            _listeners.remove(begins)


def _tell() -> None:
    while _listeners:
        _listeners.pop()()


@cache
def _numba() -> Any:
    """numba, listened to."""
    import numba
    from numba.core import event

    class Compiling(event.Listener):  # type: ignore[misc]  # numba carries no types
        """Says that a compilation begins, and rests the garbage collector until it ends: it would
        look at all of the compiler's objects again and again and find nothing.  Within that of a
        kernel of ours, which alone have no wrapper for C, parts are compiled as parts, calls are
        remembered, and Ctrl-C tears no module of LLVM.
        """

        nested, collects, ours, within = 0, False, False, ExitStack()

        def on_start(self, event: Any) -> None:
            if self.nested == 0:
                self.ours = "no_cfunc_wrapper" in event.data["dispatcher"].targetoptions
                if self.ours:
                    self.within.enter_context(_calls_remembered())
                    self.within.enter_context(_modules_untorn())
                self.collects = gc.isenabled()
                gc.disable()
                _tell()
            elif self.ours:
                _as_part(event.data["dispatcher"])
            self.nested += 1

        def on_end(self, event: Any) -> None:
            self.nested -= 1
            if self.nested == 0:
                self.within.close()
                if self.collects:
                    gc.enable()

    event.register("numba:compile", Compiling())
    return numba


@contextmanager
def _calls_remembered() -> Iterator[None]:
    """Meanwhile numba remembers, for every function that it compiles, what its own functions give
    for arguments of the same types.

    It goes through dozens of candidates for every `a + b` and `a[i]`, a fifth of the time of a
    first run.
    """
    if _numba().version_info.short > TRIED:
        yield
        return
    from numba.core.targetconfig import ConfigStack
    from numba.core.types import functions

    numbas: Any = functions.BaseFunction
    asked, known = numbas.get_call_type, {}

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        options = ConfigStack.top_or_none()  # an object of the function that is compiled
        call = function, args, id(options)
        if kws or call not in known:
            signature = asked(function, context, args, kws)
            if not kws and signature is not None:
                known[call] = signature, function.get_impl_key(signature), options
            return signature
        signature, function._impl_keys[signature.args], _ = known[call]
        return signature

    numbas.get_call_type = get_call_type
    try:
        yield
    finally:
        numbas.get_call_type = asked


@contextmanager
def _modules_untorn() -> Iterator[None]:
    """Meanwhile Ctrl-C waits while numba links a module and turns it into machine code: between the
    call of LLVM that takes a module over and the line that says so, it would be freed twice, and in
    what LLVM calls back it would be lost.
    """
    from numba.core.codegen import CPUCodeLibrary

    finalize = CPUCodeLibrary.finalize

    def finalized(library: Any) -> None:
        with interrupts_wait():
            finalize(library)

    CPUCodeLibrary.finalize = finalized
    try:
        yield
    finally:
        CPUCodeLibrary.finalize = finalize


def _as_part(dispatcher: Any) -> None:
    """Have a function that a kernel calls compiled as a part, numba's own (`np.zeros`) too; but not
    one that Python may call.
    """
    compiler, options = _part_compiler(), dispatcher.targetoptions
    if compiler is not None and options.get("no_cpython_wrapper"):
        options["no_cfunc_wrapper"] = True
        dispatcher._compiler.pipeline_class = compiler


@cache
def _part_compiler() -> Any:
    """numba's compiler, for parts: it leaves them to be optimised and turned into machine code as
    pieces of the kernels that they are linked into.

    numba does both for every function, and again for each of its callers, so that what a kernel
    calls at the fourth remove is optimised five times: a third of the time of a first run.
    """
    if _numba().version_info.short > TRIED:
        return None
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import LoweringPass, register_pass
    from numba.core.typed_passes import AnnotateTypes

    class Linked(JITCodeLibrary):  # type: ignore[misc]
        """A part's code, only to be linked into others'."""

        @property
        def codegen(self) -> Linked:
            return self

        def set_env(self, *_: Any) -> None:
            """Nothing: constants of a function that is called from Python."""

        def _optimize_final_module(self) -> None:
            """Nothing: whoever links it does."""

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            self._ensure_finalized()
            return 0

    @register_pass(mutates_CFG=False, analysis_only=False)
    class IntoLinked(LoweringPass):  # type: ignore[misc]
        """Has the code put there by the pass that follows."""

        _name = "railopt_into_linked"

        def __init__(self) -> None:
            super().__init__()  # abstract in numba

        def run_pass(self, state: Any) -> bool:
            state.library = Linked(state.targetctx.codegen(), state.func_id.func_qualname)
            return False

    class PartCompiler(CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.add_pass_after(IntoLinked, AnnotateTypes)
            passes.finalize()
            return [passes]

    return PartCompiler
