"""`rebalance` inside a server's process: nothing printed, no thread left, memory bounded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import gc
import threading
import tracemalloc

import numpy as np

from railopt.moe.placement.replicate import rebalance

rng = np.random.default_rng(0)
load = np.exp(rng.normal(size=(4, 32)))
old = rebalance(load, 40, 1, 2, 8)[0]


def steps(number):
    global old
    for _ in range(number):
        old = rebalance(load * np.exp(0.3 * rng.normal(size=load.shape)), 40, 1, 2, 8, old=old)[0]


steps(3)
tracemalloc.start()
for _ in range(5):  # a kernel may be compiled for the first time meanwhile
    steps(20)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    steps(20)
    gc.collect()
    if tracemalloc.get_traced_memory()[0] < held + 100_000:
        break
else:
    raise AssertionError("memory grows from call to call")
assert threading.active_count() == 1, "a thread is left"
"""


@pytest.mark.slow
def test_nothing_is_printed_and_nothing_left() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "RAILOPT_COMPILE": "always"},  # not in the calls that are measured
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
