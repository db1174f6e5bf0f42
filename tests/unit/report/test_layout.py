"""Every kind of figure at both widths: no text outside the canvas, none on other text."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from railopt import Fabric, plan, simulate, workloads
from railopt.answers.blame import blame
from railopt.answers.candidates import Candidate
from railopt.answers.compare import changes_text, compare
from railopt.answers.frontier import frontier
from railopt.answers.gap import gap
from railopt.answers.size import Loss, Sized
from railopt.moe.hybrid import spec
from railopt.moe.hybrid.answer import answer
from railopt.moe.iteration.timeline import Event, IterationTimeline
from railopt.moe.weigh import Weighed, Worth
from railopt.policies import POLICIES
from railopt.report.comparison import comparison_figure
from railopt.report.figures import completion_times
from railopt.report.frontier import moved_against_time
from railopt.report.gantt import gantt
from railopt.report.gaps import gap_against, gap_against_chunk, gap_by_policy
from railopt.report.heatmap import NicLoads, blame_figure, load_maps, over
from railopt.report.hybrid_figure import latency_figure
from railopt.report.node import node_figure
from railopt.report.sizing import sizing_figure
from railopt.report.style import WIDTHS, rc
from railopt.report.swept import swept
from railopt.report.timeline_figure import timeline_figure
from railopt.report.waterfall import waterfall
from railopt.runtime.counters import Counted
from railopt.sim.assumptions import Fault

FABRIC = Fabric.uniform(4, 4)
SPEC = "moe:tokens=256,skew=0.8,seed=1"
ROOM = 1.0  # points that texts may share: glyphs do not fill their boxes


@cache
def chunks() -> Any:
    return workloads.moe(FABRIC, tokens=256, skew=0.8, seed=1).chunks("256KiB")


def overlapping(figure: Any) -> list[str]:
    """Texts that leave the canvas or lie on each other, in words."""
    with matplotlib.rc_context(rc(figure.get_figwidth())):
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()
    canvas, hidden = figure.bbox, _not_drawn(figure)
    texts = [
        (text.get_text(), text.get_window_extent())
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden
    ]
    room = ROOM * figure.dpi / 72
    found = [
        f"{words!r} leaves the canvas"
        for words, box in texts
        if box.x0 < canvas.x0 - room
        or box.y0 < canvas.y0 - room
        or box.x1 > canvas.x1 + room
        or box.y1 > canvas.y1 + room
    ]
    for (one, a), (two, b) in combinations(texts, 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        high = min(a.y1, b.y1) - max(a.y0, b.y0)
        if wide > room and high > room:
            found.append(f"{one!r} lies on {two!r}")
    return found


def _not_drawn(figure: Any) -> set[int]:
    """Ids of the labels of ticks that lie beyond the limits, or whose axes are not drawn."""
    found = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                inside = low <= tick.get_loc() <= high and axes.axison and axes.get_visible()
                found.update(
                    id(label)
                    for label in (tick.label1, tick.label2)
                    if not (inside and label.get_visible())
                )
    return found


def drawn_frontier(width: float) -> Any:
    found = frontier(FABRIC, chunks(), ("own-nic", "pxn", "lpt", "lpt-local", "spill"), limit_s=0)
    return moved_against_time(found, f"{SPEC}: time against bytes moved inside nodes", width=width)


def drawn_comparison(width: float) -> Any:
    slow = {(k, n): "0.7" for k in range(4) for n in range(0, 4, 2)}
    degraded = FABRIC.degraded(slow | {(3, 1): "0"})
    found = compare(FABRIC, degraded, chunks(), ("own-nic", "lpt", "equitable"))
    return comparison_figure(found, f"{SPEC}\n{changes_text(FABRIC, degraded, 2)}", width=width)


def drawn_every_policy(width: float) -> Any:
    """Every policy on 8 nodes of 8 rails."""
    return load_maps(every_policy(), "NIC time over the lower bound, by policy", width=width)


def drawn_loads(width: float) -> Any:
    """As a report draws a sweep with policies of others."""
    plans = [every_policy()[6], every_policy()[6]._replace(policy=OWN), every_policy()[9]]
    return load_maps(plans, width=width)


@cache
def every_policy() -> list[NicLoads]:
    fabric = Fabric.uniform(8, 8)
    cut = workloads.moe(fabric, tokens=512, skew=0.5, seed=1).chunks("1MiB")
    found = []
    for name in POLICIES:
        made = plan(fabric, cut, name)
        bound = gap(made, limit_s=0).bound
        sides = [over(loads, fabric.tx, bound) for loads in (made.send, made.recv)]
        found.append(NicLoads(name, *sides))
    return found


def drawn_blame(width: float) -> Any:
    planned = plan(FABRIC, chunks(), "own-nic")
    received = planned.recv.copy()
    received[2, 1] *= 3
    none = np.zeros_like(received)
    return blame_figure(blame(planned, Counted(planned.send, received, none)), width=width)


def drawn_timeline(width: float) -> Any:
    return timeline_figure(simulate(plan(FABRIC, chunks(), "lpt")), width=width)


def drawn_faults(width: float) -> Any:
    faults = [Fault(2 * 10**6, 3, 1, Fraction(1, 4)), Fault(4 * 10**6, 1, 2, Fraction(1, 2))]
    run = simulate(plan(FABRIC, chunks(), "lpt"), faults=faults)
    return timeline_figure(run, width=width)


def drawn_gantt(width: float) -> Any:
    kinds = (("a2a", "network"), ("trans", "network"), ("agg", "network"), ("fec", "compute"))
    kinds += (("fnec", "compute"), ("bec", "compute"))
    events = tuple(Event(0, *kinds[i % 6], 10**9 * i, 10**9 * (i + 1)) for i in range(24))
    lines = [IterationTimeline(style, events) for style in ("deepspeed", "ours")]
    names = ("before:\nnothing overlaps", "after: pro-prophet,\ncopies sent ahead")
    return gantt(lines, names, width=width)


def drawn_gaps(width: float) -> Any:
    lines = {name: [(1 << k, 0.1 * k) for k in range(12, 25)] for name in POLICIES}
    return gap_against_chunk(lines, SPEC, width=width)


def drawn_hybrid(width: float) -> Any:
    found = answer(spec.read(None))
    return latency_figure(found.stream, found.best, "four data centres", width=width)


def drawn_node(width: float) -> Any:
    slow = Fabric.uniform(2, 8).degraded({(0, 1): "0.37", (0, 5): "0"})
    return node_figure(slow, title="node 0: one NIC is slow and one is dead", width=width)


OWN = "a_module_of_mine:spread_by_size"


def rows(**grid: list[Any]) -> list[dict[str, Any]]:
    """Rows of a sweep under all policies and one of another's, with invented numbers."""
    full = {"chunk": ["1MiB"], "nodes": [4], "link": ["400Gb/s"], "degrade": [""]}
    full |= {"traffic": ["zipf"], "seed": [0, 1, 2], "policy": [*POLICIES, OWN]}
    points = [dict(zip(full, values, strict=True)) for values in product(*(full | grid).values())]
    return [
        {
            "instance": {"rails": 4, "gpus": 4, **point},
            "gap": str(Fraction(i * 37 % 101, 1 + i % 900)),
            "bound": "1/10000",
            "simulated": {
                "delivered_ps": [n * (100 + i % 7) * 25_000 for n in range(41)],
                "completion": f"{100 + i % 7}/1000000",
            },
        }
        for i, point in enumerate(points)
    ]


def drawn_against(width: float, **grid: list[Any]) -> Any:
    given = rows(**grid)
    (parameter,) = swept(given)
    return gap_against(given, parameter, width=width, title="a sweep by name").drawing


def drawn_skews(width: float) -> Any:
    return drawn_against(width, traffic=[f"moe:skew={n / 10},tokens=64" for n in range(21)])


def drawn_chunks(width: float) -> Any:
    return drawn_against(width, chunk=["flow", *(f"{1 << n}KiB" for n in range(5, 12))])


def drawn_sizes(width: float) -> Any:
    return drawn_against(width, nodes=[2, 4, 8, 16, 32, 64, 100, 128])


def drawn_traffics(width: float) -> Any:
    return drawn_against(width, traffic=["a/long/name.csv", "uniform", "zipf", "permutation"])


def drawn_links(width: float) -> Any:
    return drawn_against(width, link=["100Gb/s", "400Gb/s"])


def drawn_boxes(width: float) -> Any:
    made = gap_by_policy(rows(), width=width, title="a sweep by name")
    assert made is not None
    return made.drawing


def drawn_completion(width: float) -> Any:
    made = completion_times(rows(seed=[0]), width=width, title="a sweep by name")
    assert made is not None
    return made.drawing


def drawn_waterfall(width: float) -> Any:
    added = ("", "rails", "stages", "placement", "splits", "experts")
    rows = tuple(
        Worth(
            name,
            4_000_000_000 - place * 500_000_000,
            9_000_000_000,
            1_500_000_000,
            5_000_000_000,
            "any rails",
            kept=place != 2,
            copies=0.0,
        )
        for place, name in enumerate(added)
    )
    found = Weighed(rows, 1_200_000_000, 8_000_000_000, 1_300_000_000, (8, 9), 2, False, "gpt")
    return waterfall(found, "a-trace-of-some-length.npz: what each mechanism is worth", width=width)


def drawn_candidates(width: float) -> Any:
    lost = (Loss(Fraction(1, 7), Fraction(1, 9)),) * 2
    found = []
    for rails, rate, kind in product((2, 4, 8), (200, 400), ("rail-only", "spine", "fat-tree")):
        name = f"{rails} x {rate}Gb/s {kind}"
        time = Fraction(1, 20 * rails * rate) * (1 + Fraction(len(kind), 20))
        found.append(
            Sized(
                Candidate(name, rails, f"{rate}Gb/s", kind=kind),
                (time,),
                "spill",
                time * 2,
                (time * Fraction(9, 10),),
                10**6,
                "NICs",
                lost,
                lost,
                cost=Fraction(rails * rate * 10**10),
                front=kind == "rail-only",
            )
        )
    return sizing_figure(found, "moe:skew=0.8,seed=1 on 8 nodes of 8 GPUs", width=width)


KINDS: dict[str, Callable[[float], Any]] = {
    "waterfall": drawn_waterfall,
    "size": drawn_candidates,
    "frontier": drawn_frontier,
    "compare": drawn_comparison,
    "every policy": drawn_every_policy,
    "loads": drawn_loads,
    "blame": drawn_blame,
    "timeline": drawn_timeline,
    "faults": drawn_faults,
    "gantt": drawn_gantt,
    "gap": drawn_gaps,
    "hybrid": drawn_hybrid,
    "node": drawn_node,
    "swept numbers": drawn_skews,
    "swept chunks": drawn_chunks,
    "swept sizes": drawn_sizes,
    "swept traffic": drawn_traffics,
    "swept links": drawn_links,
    "gap by policy": drawn_boxes,
    "completion times": drawn_completion,
}


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_text_is_on_the_canvas_and_on_no_other_text(kind: str, width: str) -> None:
    assert overlapping(KINDS[kind](WIDTHS[width])) == []


def test_text_in_the_way_is_found() -> None:
    figure = Canvas(figsize=(3, 2))
    figure.text(0.5, 0.5, "one")
    figure.text(0.51, 0.52, "two")
    figure.text(0.9, 0.1, "a long line that leaves")
    assert overlapping(figure) == [
        "'a long line that leaves' leaves the canvas",
        "'one' lies on 'two'",
    ]
