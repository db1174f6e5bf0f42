"""railopt.moe's names, loaded on first use."""

from __future__ import annotations

import pytest

from railopt import moe
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.trace import Trace


def test_names_are_those_of_the_modules() -> None:
    assert moe.Trace is Trace
    assert moe.Placement is Placement
    for name in dir(moe):
        assert getattr(moe, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Tracee'"):
        _ = moe.Tracee
