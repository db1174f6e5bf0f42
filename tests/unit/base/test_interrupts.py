"""A Ctrl-C that foreign code lost arrives all the same."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core.codegen import CPUCodeLibrary

from railopt.base.interrupts import AGAIN_S, KeepInterrupts, interrupts_wait
from railopt.base.kernels import kernel
from railopt.cli.main import main
from railopt.sweep import client, spec


def lost_in_a_callback() -> None:
    """As in numba's compiler: Ctrl-C while C calls Python back."""

    @ctypes.CFUNCTYPE(None)
    def called_back() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

    called_back()


def lost_in_a_bare_except() -> None:
    """As in libraries that try an import and take any failure for an answer."""
    with contextlib.suppress(BaseException):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)


def lose(how: Callable[[], None], then_s: float) -> None:
    """Lose a Ctrl-C, and go on for a while."""
    how()
    time.sleep(then_s)


def lose_and_fail(*_: object) -> int:
    lost_in_a_callback()
    raise RuntimeError("no compiled object yet")


@pytest.mark.slow
@pytest.mark.parametrize("how", [lost_in_a_callback, lost_in_a_bare_except])
def test_a_lost_ctrl_c_arrives_all_the_same(
    how: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), KeepInterrupts():
        lose(how, then_s=60)
    assert time.monotonic() - began < 30
    with KeepInterrupts() as kept:
        lose(how, then_s=0.1)
    assert kept.struck
    time.sleep(1.5 * AGAIN_S)  # it is not sent any more
    assert signal.set_wakeup_fd(-1) == -1
    with KeepInterrupts() as kept:
        pass
    assert not kept.struck
    assert capsys.readouterr().err == ""


def test_descriptors_above_a_thousand() -> None:
    """Where select() would refuse the pipe of signals."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = 1100 if hard == resource.RLIM_INFINITY else min(hard, 1100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, room), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1030)]
    try:
        with KeepInterrupts(again_s=None) as kept, contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        assert kept.struck
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class HalfMade:
    """As llvmlite's objects whose making was torn: their end needs what they never got."""

    def __del__(self) -> None:
        del self.pointer  # type: ignore[attr-defined]


def test_the_end_of_what_was_left_half_made_is_not_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: said.append(lost.exc_type))
    for _ in range(20):
        with KeepInterrupts(again_s=None):
            with contextlib.suppress(KeyboardInterrupt):
                made = HalfMade()
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
            del made
    assert (said, capsys.readouterr().err) == ([], "")
    with KeepInterrupts(again_s=None):
        HalfMade()  # without a Ctrl-C it is somebody's mistake
    assert said == [AttributeError]


def test_what_a_lost_ctrl_c_breaks_is_an_interrupt() -> None:
    """As in numba's cache, which finds no object where the callback was torn."""
    with pytest.raises(KeyboardInterrupt) as found, KeepInterrupts():
        lose_and_fail()
    assert isinstance(found.value.__cause__, RuntimeError)
    with pytest.raises(RuntimeError, match="of its own"), KeepInterrupts():
        raise RuntimeError("of its own")
    with pytest.raises(RuntimeError, match="no compiled"), KeepInterrupts(again_s=None) as kept:
        lose_and_fail()
    assert kept.struck


def test_a_ctrl_c_waits_for_what_must_not_be_torn() -> None:
    done = []

    def struck() -> None:
        with interrupts_wait():
            with interrupts_wait():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
                done.append("inner")
            done.append("outer")
        done.append("after")

    with pytest.raises(KeyboardInterrupt):
        struck()
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with interrupts_wait():  # nothing came: nothing strikes
        pass


STRUCK_WHILE_LOADING = """
import os, signal, sys, time
from numba.core.codegen import JITCodeLibrary
import railopt

code_of = JITCodeLibrary._object_getbuffer_hook
strikes = sys.argv[1:]

def struck(module):
    if strikes:
        strikes.pop()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    return code_of(module)

JITCodeLibrary._object_getbuffer_hook = struck

def plan():
    fabric = railopt.Fabric.uniform(nodes=2, rails=2)
    railopt.plan(fabric, railopt.workloads.uniform(fabric, size="64KiB").chunks("16KiB"))

try:
    plan()
except KeyboardInterrupt:
    print("interrupted")
    plan()  # the kernel is whole
print("done")
"""


@pytest.mark.slow
def test_a_kernel_that_a_ctrl_c_meets_on_its_way_from_the_cache_is_whole() -> None:
    """LLVM asks Python for the code in a callback, in which an interrupt was lost; it then went on
    with a kernel at address 0.
    """
    said = [
        subprocess.run(
            [sys.executable, "-c", STRUCK_WHILE_LOADING, *struck],
            capture_output=True,
            text=True,
            timeout=300,
        )
        for struck in ([], ["once"])
    ]
    assert [(ran.returncode, ran.stdout) for ran in said] == [
        (0, "done\n"),
        (0, "interrupted\ndone\n"),
    ], said


def test_a_ctrl_c_tears_no_module_of_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM takes modules over when they are linked: one that is torn there is freed twice."""
    strikes, whole = ["once"], []
    optimise, make = CPUCodeLibrary._optimize_final_module, CPUCodeLibrary._finalize_final_module

    def struck(library: Any) -> None:
        if strikes:
            strikes.pop()
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        optimise(library)

    def made(library: Any) -> None:
        make(library)
        whole.append(library)

    monkeypatch.setattr(CPUCodeLibrary, "_optimize_final_module", struck)
    monkeypatch.setattr(CPUCodeLibrary, "_finalize_final_module", made)
    finalize = CPUCodeLibrary.finalize

    @kernel
    def kernel(number: int) -> int:
        return number + 1

    with pytest.raises(KeyboardInterrupt):
        kernel(1)
    assert whole, "the interrupt came after the module"
    assert CPUCodeLibrary.finalize is finalize, "numba's own again"
    assert kernel(1) == 2


def test_what_c_prints_of_a_lost_ctrl_c_is_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """A library in C that fails to import another prints why, with the hook for it."""
    with KeepInterrupts():
        sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
        assert capsys.readouterr().err == ""
        sys.excepthook(ValueError, ValueError("odd"), None)
    assert "ValueError: odd" in capsys.readouterr().err
    assert sys.excepthook.__name__ == "excepthook"


def test_a_command_that_loses_a_ctrl_c_and_fails_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("railopt.cli.plan.run", lose_and_fail)
    assert main(["plan", "uniform:size=1MiB"]) == 130
    assert capsys.readouterr().err == "railopt: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [60.0, 0.1]
)  # the sweep is still at work as it is sent again, or done
def test_a_sweep_that_loses_a_ctrl_c_says_so(
    more: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def crew(*_: object) -> Iterator[Iterator[str]]:
        def outcomes() -> Iterator[str]:
            yield ""
            lose(lost_in_a_bare_except, more)
            yield ""

        yield outcomes()
        gone.append(True)

    gone: list[bool] = []
    monkeypatch.setattr(client, "_threads", crew)
    path = tmp_path / "spec.toml"
    path.write_text(
        "[grid]\nnodes = [2]\nrails = [2]\ngpus = [2]\nseed = [0, 1]\n"
        'traffic = ["uniform:size=1MiB"]\nchunk = ["1MiB"]\npolicy = ["lpt"]\n'
    )
    began = time.monotonic()
    summary = client.run(spec.read(path), tmp_path / "results", shard=(0, 1))
    assert summary.interrupted
    assert time.monotonic() - began < 30
    assert gone == ([] if more > 1 else [True])
