"""The guest is booted once a session; what it measured is printed at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hardware import vm

HERE = Path(__file__).parent
FIGURES: list[str] = []


@pytest.fixture(scope="session")
def numba_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the guest's kernels, compiled here for any CPU of this kind: the guest is too
    slow to compile.
    """
    folder = tmp_path_factory.mktemp("numba")
    subprocess.run(
        [sys.executable, str(HERE / "inside.py"), "warm"],
        check=True,
        env={**os.environ, **vm.environment(folder)},
    )
    return folder


@pytest.fixture(scope="session")
def scenarios(
    numba_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """Results of every scenario of inside.py, run in one guest: scenario -> what each node said."""
    out = tmp_path_factory.mktemp("guest")
    subprocess.run([sys.executable, str(HERE / "inside.py"), "plans", str(out)], check=True)
    guest = vm.boot(
        f"{sys.executable} {HERE / 'inside.py'}", out, environment=vm.environment(numba_cache)
    )
    status = guest.wait(timeout=900)
    assert status == 0, guest.words()
    results = [json.loads(line) for line in (out / "results").read_text().splitlines()]
    FIGURES.append(f"{guest.cpu_s:6.1f} s  of the host's CPUs in all")
    FIGURES.extend(f"{r['seconds']:6.1f} s  {r['scenario']}" for r in results)
    return {r["scenario"]: r["nodes"] for r in results}


@pytest.fixture
def figures() -> list[str]:
    """Lines for the end of the run."""
    return FIGURES


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section("the guest (emulated: correctness, not speed)")
    for line in FIGURES:
        terminalreporter.line(line)
