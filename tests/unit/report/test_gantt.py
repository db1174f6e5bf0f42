"""The picture of timelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from railopt.moe.iteration.timeline import Event, IterationTimeline
from railopt.report.gantt import gantt
from railopt.report.saving import save_figure


def line(style: str, count: int) -> IterationTimeline:
    kinds = (("a2a", "network"), ("fec", "compute"), ("bnec", "compute"))
    return IterationTimeline(
        style,
        tuple(Event(0, *kinds[i % 3], 10**9 * i, 10**9 * (i + 1)) for i in range(count)),
    )


@pytest.mark.slow
def test_every_event_is_a_shape_and_every_timeline_is_named(tmp_path: Path) -> None:
    shapes = {}
    for count in (3, 43):
        path = tmp_path / f"{count}.svg"
        lines = [line("deepspeed", count), line("ours", count)]
        figure = gantt(lines, title="two styles")
        save_figure(figure, path)
        picture = path.read_text()
        shapes[count] = sum(len(bars.get_paths()) for bars in figure.axes[0].collections)
        for name in ("no balancing", "(as DeepSpeed)", "railopt", "two styles"):
            assert f"<!-- {name} -->" in picture
        for name in ("all-to-all of tokens", "other computation"):
            assert f"<!-- {name} -->" in picture
        assert "deepspeed" not in picture
        assert "Trans" not in picture  # nothing of it happens here
    assert shapes == {3: 2 * 3, 43: 2 * 43}


def test_bands_are_called_as_they_are_told() -> None:
    (axes,) = gantt([line("deepspeed", 3), line("ours", 3)], ("before", "after")).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["after", "before"]
