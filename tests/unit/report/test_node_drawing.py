"""A node as text and as a figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from railopt import Fabric
from railopt.base.errors import InputError
from railopt.model.inside import Inside
from railopt.report.node import groups, node_figure, node_lines
from railopt.report.saving import save_figure

NEAR = [[0, 1], [0, 1], [2], [2], [3], [3, 4]]


def odd() -> Fabric:
    near = np.zeros((5, 6), np.bool_)
    for rail, gpus in enumerate(NEAR):
        near[gpus, rail] = True
    inside = Inside(near, 100 * 10**9, 29_250_000_000, 8_750_000_000)
    return Fabric.uniform(2, 6, gpus=5, inside=inside).degraded({(0, 2): "0", (0, 3): "0.5"})


def test_what_hangs_together() -> None:
    assert groups(odd().node) == [([0, 1], [0, 1]), ([2], [2, 3]), ([3, 4], [4, 5])]
    assert groups(Inside.usual(4, 2)) == [([0, 1], [0]), ([2, 3], [1])]


def test_a_node_as_text() -> None:
    assert node_lines(odd()) == [
        "scale-up: 450GB/s per GPU, a pair at most 100GB/s",
        "  GPU 0 --+-- rail 0  400Gb/s",
        "  GPU 1 --+-- rail 1  400Gb/s",
        "  GPU 2 --+-- rail 2  dead",
        "          +-- rail 3  200Gb/s",
        "  GPU 3 ----- rail 4  400Gb/s",
        "  GPU 3, 4 ----- rail 5  400Gb/s",
        "a far NIC, used directly: 234Gb/s alone",
        "a near and a far NIC of one GPU, used directly at once: 70Gb/s each, 140Gb/s together",
        "bytes for a far NIC are staged over scale-up at its first GPU, never put on it directly",
    ]
    assert node_lines(odd(), 1)[3] == "  GPU 2 --+-- rail 2  400Gb/s"
    assert node_lines(Fabric.uniform(1, 1, gpus=2)) == [
        "scale-up: 450GB/s per GPU, any pair at that rate",
        "  GPU 0 --+-- rail 0  400Gb/s",
        "  GPU 1 --+",
    ]
    with pytest.raises(InputError, match="node = 2: expected a whole number from 0 to 1"):
        node_lines(odd(), 2)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_a_node_as_a_figure(suffix: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_figure(node_figure(odd()), tmp_path / f"{name}.{suffix}")
    made = (tmp_path / f"a.{suffix}").read_bytes()
    assert made == (tmp_path / f"b.{suffix}").read_bytes()
    assert len(made) > 2000


def test_a_figure_has_a_line_for_each_near_nic_and_a_limit() -> None:
    axes = node_figure(odd()).axes[0]
    assert len(axes.lines) == 5 + sum(map(len, NEAR))
    texts = [text.get_text() for text in axes.texts]
    assert {"GPU 4", "rail 5", "dead", "200Gb/s"} <= set(texts)
    with pytest.raises(InputError, match="at most 128 of each"):
        node_figure(Fabric.uniform(1, 129))
