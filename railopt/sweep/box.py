"""The box: a child process that runs instances one after the other for its worker, within limits.

A worker (a Dask worker, or the shard's own process) keeps one box.  An instance that takes too long
or too much memory
costs the box, never the worker: it is killed and a new one is started.  Solver threads are declared
through the environment before anything that reads it is imported.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import threading
from multiprocessing.connection import Connection
from typing import Any

from railopt.sweep.spec import Instance

_START_S = 120.0


class Failed(Exception):
    """An instance that gave no row: what happened; `died` if its process did, which is worth
    another try.
    """

    def __init__(self, message: str, *, died: bool = False) -> None:
        super().__init__(message)
        self.died = died


class Box:
    """A killable process with a memory limit; `run` is not for two threads at once."""

    def __init__(self, memory: int, threads: int) -> None:
        self.memory, self.threads = memory, threads
        self._process: Any = None
        self._pipe: Connection | None = None

    def run(self, instance: Instance, timeout_s: float) -> dict[str, Any]:
        """One row, or `Failed`."""
        pipe = self._open()
        try:
            pipe.send(instance)
            if not pipe.poll(timeout_s):
                self.close()
                raise Failed(f"no result after {timeout_s:g} s: given up")
            answer = pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            code = self._ended()
            raise Failed(
                f"its process ended with exit code {code} (killed, or out of the {self.memory} "
                f"bytes it may use)",
                died=True,
            ) from error
        if isinstance(answer, str):
            raise Failed(answer)
        return dict(answer)

    def _open(self) -> Connection:
        if self._process is None or not self._process.is_alive() or self._pipe is None:
            self.close()
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
                os.environ[name] = str(self.threads)
            self._process = context.Process(target=_serve, args=(theirs, self.memory), daemon=True)
            self._process.start()
            theirs.close()
            if not self._pipe.poll(_START_S):
                self.close()
                raise Failed(f"its process did not start within {_START_S:g} s", died=True)
            try:
                self._pipe.recv()
            except EOFError as error:
                raise Failed(
                    f"its process could not start (exit code {self._ended()}); is {self.memory} "
                    f"bytes of memory enough?"
                ) from error
        return self._pipe

    def _ended(self) -> int | None:
        code: int | None = None
        if self._process is not None:
            self._process.join(5)
            code = self._process.exitcode
        self.close()
        return code

    def close(self) -> None:
        """Kill the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
            process.join()
            process.close()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


def _serve(pipe: Connection, memory: int) -> None:
    """The child: rows for instances, until the pipe is closed."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's to handle
    from railopt.errors import RailoptError
    from railopt.sweep import instance as work

    _warm()
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    pipe.send("ready")
    while True:
        try:
            given = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(work.run(given))
        except MemoryError:
            pipe.send(f"out of memory: the instance may use {memory} bytes")
        except RailoptError as error:
            pipe.send(str(error))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


def _warm() -> None:
    """Import what every instance needs before the clock runs."""
    from railopt.bounds_kernels import best_pigeonhole
    from railopt.policies import kernels

    del best_pigeonhole, kernels


_mine = threading.local()


def of_this_worker(memory: int, threads: int) -> Box:
    """The box of the calling worker thread, made on its first instance."""
    box: Box | None = getattr(_mine, "box", None)
    if box is None or (box.memory, box.threads) != (memory, threads):
        if box is not None:
            box.close()
        box = _mine.box = Box(memory, threads)
    return box
