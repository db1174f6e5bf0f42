"""Timelines: sums done by hand, nothing on one stream at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.iteration.timeline import STYLES, IterationTimeline, timeline
from railopt.moe.iteration.timemodel import Terms, TimeModel


def model(fnec: int = 7) -> TimeModel:
    one = np.array([1, 1])
    return TimeModel(2, 1, one, 0, 1, one, 0, fnec_ps=fnec)


LAYERS = [Terms(10, 5, 3, 3, 0, 1), Terms(12, 6, 20, 20, 0, 2), Terms(9, 4, 40, 40, 0, 3)]


def busy_ps(made: IterationTimeline, operation: str) -> int:
    """Time spent in one kind of operation."""
    return sum(e.end_ps - e.start_ps for e in made.events if e.operation == operation)


def test_without_balancing_every_operation_follows_the_last() -> None:
    bare = [t._replace(trans=0, agg=0) for t in LAYERS]
    expected = sum(4 * t.a2a + 3 * t.fec + 3 * 7 for t in LAYERS)
    assert timeline(model(), bare, "deepspeed").total_ps == expected
    assert timeline(model(), LAYERS, "fastermoe").total_ps == expected + 2 * 63
    assert timeline(model(), bare, "pro-prophet").total_ps == expected


def test_block_wise_overlap_hides_what_fits_and_exposes_the_rest() -> None:
    made = timeline(model(), LAYERS, "pro-prophet")
    base = sum(4 * t.a2a + 3 * t.fec + 3 * 7 for t in LAYERS)
    forward = 3 + max(0, 20 - (5 + 7)) + max(0, 40 - (6 + 7))  # layer 0 has nothing before it
    backward = max(0, 40 - (14 + 12)) + max(0, 20 - (14 + 10)) + 3  # layer 0 has nothing after it
    assert made.total_ps == base + forward + backward
    assert busy_ps(made, "trans") == 63
    assert busy_ps(made, "agg") == 63
    assert (
        sum(e.operation == "trans" and e.layer == 1 for e in made.events) == 3
    )  # under FEC, under FNEC, exposed


def test_looking_further_ahead_never_takes_longer() -> None:
    late = [Terms(10, 50, 0, 0, 0, 0), Terms(10, 50, 0, 0, 0, 0), Terms(10, 5, 100, 0, 0, 1)]
    near, far = timeline(model(), late, "pro-prophet"), timeline(model(), late, "ours")
    assert far.total_ps == near.total_ps - 43
    rng = np.random.default_rng(0)
    for _ in range(50):
        layers = [Terms(*rng.integers(0, 60, 4).tolist(), 0, 0) for _ in range(5)]
        assert (
            timeline(model(), layers, "ours").total_ps
            <= timeline(model(), layers, "pro-prophet").total_ps
        )
        assert (
            timeline(model(), layers, "pro-prophet").total_ps
            <= timeline(model(), layers, "fastermoe").total_ps
        )


@pytest.mark.parametrize("style", STYLES)
def test_no_stream_does_two_things_at_once_and_all_work_is_done(style: str) -> None:
    made = timeline(model(), LAYERS, style)
    for stream in ("compute", "network"):
        events = [e for e in made.events if e.stream == stream]
        assert all(a.end_ps <= b.start_ps for a, b in pairwise(events))
    assert busy_ps(made, "a2a") == sum(4 * t.a2a for t in LAYERS)
    assert busy_ps(made, "fec") + busy_ps(made, "bec") == sum(3 * t.fec for t in LAYERS)
    assert busy_ps(made, "trans") == sum(t.trans for t in LAYERS)


def test_transfers_arrive_before_they_are_needed() -> None:
    for style in STYLES:
        made = timeline(model(), LAYERS, style)
        for layer in range(3):
            needed = min(
                e.start_ps for e in made.events if e.layer == layer and e.operation == "fec"
            )
            assert all(
                e.end_ps <= needed
                for e in made.events
                if e.layer == layer and e.operation == "trans"
            )
            ready = max(e.end_ps for e in made.events if e.layer == layer and e.operation == "bec")
            assert all(
                e.start_ps >= ready
                for e in made.events
                if e.layer == layer and e.operation == "agg"
            )


def test_unknown_styles_are_refused() -> None:
    with pytest.raises(InputError, match="known styles"):
        timeline(model(), LAYERS, "tutel")
    assert IterationTimeline("deepspeed", ()).total_ps == 0
