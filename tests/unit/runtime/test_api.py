"""The public names of railopt.runtime, light to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import railopt.runtime as runtime


def test_every_public_name_is_there() -> None:
    assert runtime.__all__ == sorted(runtime.__all__) == dir(runtime)
    for name in runtime.__all__:
        assert getattr(runtime, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        runtime.Nothing  # noqa: B018


@pytest.mark.slow
def test_ranks_and_devices_need_neither_numba_nor_libibverbs() -> None:
    code = (
        "import sys, railopt.runtime as r; r.join, r.detect, r.Options, r.Layout, r.Record; "
        "import railopt.cli.devices, railopt.cli.launching; "
        "bad = [m for m in ('numba', 'ortools', 'sympy', 'matplotlib', 'scipy') if m in "
        "sys.modules]; sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
