"""Commands take memory in proportion to what occurs: three chunks between two of 30,000 nodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from railopt import Chunks, Fabric, plan

LINES = (["gap"], ["gap", "--moved"], ["solve"], ["simulate"], ["check"])
# A process's own peak in KiB: ru_maxrss would be its parent's too, which it keeps across exec.
CHILD = f"""
import re, sys
from railopt.cli.main import main
codes = [main([*line, sys.argv[1]]) for line in {LINES!r}]
print(codes, re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.slow
def test_a_few_chunks_on_many_nodes(tmp_path: Path) -> None:
    """A slow NIC, so that divisible traffic is a linear program; a matrix of all nodes has 7 GB."""
    rates = np.full((30_000, 2), 50_000_000_000)
    slow = rates.copy()
    slow[0, 1] //= 2
    fabric = Fabric(30_000, 2, 2, slow, rates)
    sizes = [1 << 20, 1 << 19, 1 << 19]
    chunks = Chunks.from_units(fabric, src_gpu=[0, 0, 1], dst=[1, 1, 1], size=sizes)
    plan(fabric, chunks, "lpt").save(tmp_path / "few.npz")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "few.npz")],
        capture_output=True,
        text=True,
        check=True,
    )
    *codes, peak_kib = done.stdout.splitlines()[-1].split()
    assert codes == ["[0,", "0,", "0,", "0,", "0]"], done.stderr
    assert int(peak_kib) < 600 << 10
