"""The picture of what a block waits for."""

from __future__ import annotations

from fractions import Fraction

import pytest

from railopt.moe.hybrid import spec
from railopt.moe.hybrid import stream as model
from railopt.moe.hybrid.answer import answer
from railopt.report.hybrid_figure import latency_figure, parts


@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (4, 1), (4, 8)])
def test_the_parts_add_up_to_the_block(sizes: tuple[int, int]) -> None:
    stream = answer(spec.read(None)).stream
    domains = [
        model.Domain(level.count, level.count // size)
        for level, size in zip(stream.levels, sizes, strict=True)
    ]
    found = model.latency(stream, domains)
    times = parts(stream, found)
    assert sum(times.values()) == found.total
    assert all(time >= 0 for time in times.values())
    returned = times["computation that hides gradients"] + times["gradients returned"]
    assert returned == found.gradients


def test_sizes_are_plain_numbers_and_the_optimum_is_marked() -> None:
    found = answer(spec.read(None))
    (axis,) = latency_figure(found.stream, found.best).axes
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert labels == ["1\n1", "2\n0.67", "4\n0"]
    (mark,) = (text for text in axis.texts if "optimum" in text.get_text())
    assert mark.get_position()[0] == 2
    assert mark.get_text() == f"★ optimum\n{float(found.best.latency.total) * 1e3:.4g}"


def test_sizes_that_do_not_fit_are_left_out() -> None:
    level = model.Level("dc", 4, 10**9)
    stream = model.Stream((level,), 10**6, 10**6, Fraction(1, 1000), memory=2 * 10**6)
    (axis,) = latency_figure(stream, model.optimum(stream)).axes
    assert [label.get_text().split()[0] for label in axis.get_xticklabels()] == ["1", "2"]
