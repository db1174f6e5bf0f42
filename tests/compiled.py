"""The property and contract suites run compiled, where nothing else is said: `make
test-interpreted` runs them as plain Python, and unit tests run as users do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from railopt.base.kernels import compile_mode


@pytest.fixture(autouse=True)
def kernels_are_compiled() -> Iterator[None]:
    """RAILOPT_COMPILE=always, here and in child processes."""
    if "RAILOPT_COMPILE" in os.environ:
        yield
        return
    os.environ["RAILOPT_COMPILE"] = "always"
    compile_mode.cache_clear()
    yield
    del os.environ["RAILOPT_COMPILE"]
    compile_mode.cache_clear()
