"""The box: a child process that runs instances one after the other for its worker, within limits.

A worker (a Dask worker, or a thread of a shard) keeps one box.  An instance that takes too long or
too much memory costs the box, never the worker: it is killed and a new one is started.  The child
is started as a command of its own, `python -m railopt.sweep.box`, because Dask's workers are
daemonic processes, which may have no children of multiprocessing's making.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import socket
import subprocess
import threading
from concurrent.futures import CancelledError
from multiprocessing.connection import Connection
from typing import Any

from railopt.base import processes
from railopt.sweep.spec import Instance

_LOST = (EOFError, BrokenPipeError, ConnectionResetError)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Read by libraries when they are imported: set before the child starts."""


class Failed(Exception):
    """An instance that gave no row: what happened."""


class Box:
    """A killable process with a memory limit; `run` is not for two threads at once."""

    def __init__(self, memory: int, threads: int) -> None:
        self.memory, self.threads, self._stopped = memory, threads, False
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    @property
    def pid(self) -> int | None:
        """The number of the child process, if there is one."""
        return None if self._process is None else self._process.pid

    def run(self, instance: Instance, timeout_s: float) -> dict[str, Any]:
        """One row, or `Failed`; CancelledError once the box is stopped."""
        try:
            pipe = self._open()
            pipe.send(instance)
            if not pipe.poll(timeout_s):
                self.close()
                raise Failed(f"no result after {timeout_s:g} s: given up")
            answer = pipe.recv()
        except _LOST as error:
            code = self._ended()
            self._check_stopped()
            raise Failed(
                f"its process ended with exit code {code} (killed, or out of the {self.memory} "
                "bytes it may use)"
            ) from error
        if isinstance(answer, str):
            raise Failed(answer)
        return dict(answer)

    def _open(self) -> Connection:
        if self._pipe is not None and self._process is not None and self._process.poll() is None:
            return self._pipe
        self.close()
        self._pipe = self._start()
        self._check_stopped()
        self._pipe.recv()  # that it has started, which takes none of an instance's time
        return self._pipe

    def _start(self) -> Connection:
        """Start the child, with the other end of the returned pipe as its standard input."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = processes.start(
                processes.command("railopt.sweep.box", memory=self.memory),
                stdin=theirs.fileno(),
                environ={**os.environ, **dict.fromkeys(_THREADS, str(self.threads))},
            )
        return Connection(ours.detach())

    def _ended(self) -> int | None:
        """The exit code of a child that has ended or is about to."""
        code: int | None = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(5)
        self.close()
        return code

    def stop(self) -> None:
        """From any thread: no instance is run any more, and the one at work is given up."""
        self._stopped = True
        if (process := self._process) is not None:
            processes.kill(process)

    def _check_stopped(self) -> None:
        if self._stopped:
            self.close()
            raise CancelledError

    def close(self) -> None:
        """Kill the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            processes.kill(process)
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


def _serve(pipe: Connection, memory: int) -> None:
    """The child: rows for instances, until the pipe is closed."""
    from railopt.base.errors import RailoptError
    from railopt.sweep import instance as work

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
        except (Exception, SystemExit) as error:
            pipe.send(f"{type(error).__name__}: {error}")


_boxes: dict[int, Box] = {}  # of each worker thread


def of_this_worker(memory: int, threads: int) -> Box:
    """The box of the calling worker thread, made on its first instance."""
    me = threading.get_ident()
    box = _boxes.get(me)
    if box is None or (box.memory, box.threads) != (memory, threads):
        if box is not None:
            box.close()
        box = _boxes[me] = Box(memory, threads)
    return box


def stop_all() -> None:
    """Stop the boxes of all threads of this process, whatever they are doing."""
    for box in list(_boxes.values()):
        box.stop()


@atexit.register
def close_all() -> None:
    """End the boxes of all threads of this process, whose work is done."""
    while _boxes:
        _boxes.popitem()[1].close()


if __name__ == "__main__":
    _serve(Connection(os.dup(0)), resource.getrlimit(resource.RLIMIT_DATA)[0])
