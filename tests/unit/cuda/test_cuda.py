"""The GPU kernels under numba's simulator (cases.py), and what is said where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import railopt
from railopt.cuda import Planner
from railopt.errors import BackendError

HERE = Path(__file__).parent


@pytest.mark.slow
def test_kernels_plan_what_the_host_plans() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ran = subprocess.run(
        [*command, str(HERE / "cases.py")],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "0"},
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout
    assert "skipped" not in ran.stdout


def test_without_a_gpu_the_error_says_what_to_do() -> None:
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BackendError, match=r"install railopt\[cuda\]"):
        Planner(railopt.Fabric.uniform(nodes=2, rails=2), capacity=9)
