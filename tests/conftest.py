"""Shared by all tests: a fixed hypothesis profile, and the command line as a function."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import settings

from railopt.base import processes
from railopt.base.kernels import compile_mode
from railopt.cli.main import main
from tests.in_process import contained

settings.register_profile("default", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=200)
settings.load_profile("ci" if os.environ.get("CI") else "default")

signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # shells start background jobs with Ctrl-C ignored, and tests send it
gc.set_threshold(200_000, 20, 100)  # to look through all imports takes a sixth of the time
os.environ.pop("COLUMNS", None)  # lines of any length, whatever runs the tests says of its terminal


# Skips that CI expects: test id prefix -> why.  Any other skip fails CI.
EXPECTED_SKIPS: dict[str, str] = {
    "tests/torch/test_vllm.py": "vLLM's own policy, where vLLM is installed",
    "tests/torch/test_vllm_batches.py": "vLLM's own scheduler, which `make test-vllm` unpacks",
    "tests/torch/test_vllm_state.py": "vLLM's balancer, where it is",
    "tests/torch/test_gpu.py": "collectives, syncs and graphs on a GPU",
    "tests/torch/test_errors.py::test_over_nccl": "PyTorch's watchdog, over NCCL",
    "tests/unit/cuda/": "the GPU's kernels on the CPU, where there is no g++",
}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test that nobody expected is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:
        return
    surprising = [
        r.nodeid
        for r in reporter.stats.get("skipped", [])
        if not r.nodeid.startswith(tuple(EXPECTED_SKIPS) or ("-",))
    ]
    if surprising and session.exitstatus == 0:
        reporter.write_line(
            f"skipped in CI without being expected: {', '.join(surprising)}", red=True
        )
        session.exitstatus = 1


@pytest.fixture(autouse=True)
def ctrl_c() -> None:
    """Ctrl-C is Python's own again, whatever a library that was tested before has made of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-ends run here, without a process each."""
    monkeypatch.setattr(processes, "contain", contained)


@pytest.fixture
def compiled_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are compiled at their first call, whatever the environment says."""
    with monkeypatch.context() as patch:
        patch.setenv("RAILOPT_COMPILE", "always")
        compile_mode.cache_clear()
        yield
    compile_mode.cache_clear()


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def railopt_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run `railopt ARGS...` in this process."""

    def run(*args: object) -> Ran:
        try:
            code = main([str(arg) for arg in args])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
