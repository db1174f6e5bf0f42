"""A node drawn: its GPUs, the NICs that each is near, and scale-up between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import whole_number
from railopt.base.errors import InputError
from railopt.base.units import format_rate
from railopt.model.fabric import Fabric
from railopt.model.inside import Inside
from railopt.report.style import INK, PAGE, blank, printed, set_title

MOST = 128  # GPUs or NICs of a figure
WORD, RATE = 0.5, 0.75  # inches that "rail 0" and a rate need
GPU, NIC, DEAD, LINE = "#4c72b0", "#55a868", "#c44e52", "#8c8c8c"


class GpuGroup(NamedTuple):
    """GPUs and rails that hang together: no GPU is near a rail of another group."""

    gpus: list[int]
    rails: list[int]


def groups(inside: Inside) -> list[GpuGroup]:
    """The groups of a node, by their first GPU."""
    found = []
    left = np.ones(len(inside.near), np.bool_)
    while left.any():
        gpus = np.zeros(len(left), np.bool_)
        gpus[left.argmax()] = True
        while True:
            rails = inside.near[gpus].any(axis=0)
            wider = inside.near[:, rails].any(axis=1)
            if np.array_equal(wider, gpus):
                break
            gpus = np.asarray(wider)
        left &= ~gpus
        found.append(GpuGroup(np.flatnonzero(gpus).tolist(), np.flatnonzero(rails).tolist()))
    return found


def node_lines(fabric: Fabric, node: int = 0) -> list[str]:
    """A node as text, one line per GPU or rail; "+" joins every GPU to every rail beside it."""
    whole_number(node, "node", 0, fabric.nodes - 1)
    return [
        f"scale-up: {_scaleup(fabric)}",
        *(line for group in groups(fabric.node) for line in _group(fabric, node, group)),
        *_far(fabric),
    ]


def _group(fabric: Fabric, node: int, group: GpuGroup) -> Iterator[str]:
    """The lines of a group: drawn where every GPU is near every rail, else one line per rail."""
    near = fabric.node.near
    width = len(f"GPU {fabric.gpus - 1}")
    names = [f" {name}" for name in fabric.devices] or [""] * fabric.rails
    rails = [f"rail {rail}{names[rail]}  {_rate(fabric, node, rail)}" for rail in group.rails]
    if not near[np.ix_(group.gpus, group.rails)].all():
        for rail, text in zip(group.rails, rails, strict=True):
            gpus = ", ".join(map(str, np.flatnonzero(near[:, rail])))
            yield f"  {f'GPU {gpus}':{width}} ----- {text}"
        return
    rows = max(len(group.gpus), len(group.rails))
    for row in range(rows):
        gpu = f"GPU {group.gpus[row]}" if row < len(group.gpus) else ""
        text = rails[row] if row < len(rails) else ""
        joint = "-" if rows == 1 else "+"
        wires = f"{'--' if gpu else '  '}{joint}{'-- ' if text else ''}"
        yield f"  {gpu:{width}} {wires}{text}"


def _rate(fabric: Fabric, node: int, rail: int) -> str:
    tx, rx = (format_rate(int(rates[node, rail])) for rates in (fabric.tx, fabric.rx))
    if not fabric.tx[node, rail] and not fabric.rx[node, rail]:
        return "dead"
    return tx if tx == rx else f"sends {tx}, receives {rx}"


def _scaleup(fabric: Fabric) -> str:
    pair = fabric.node.pair
    pairs = "any pair at that rate" if pair is None else f"a pair at most {pair / 10**9:g}GB/s"
    return f"{fabric.scaleup / 10**9:g}GB/s per GPU, {pairs}"


def _far(fabric: Fabric) -> Iterator[str]:
    """What is known of far NICs, and what plans do with them."""
    inside = fabric.node
    if inside.near.all():
        return
    if inside.far is not None:
        yield f"a far NIC, used directly: {format_rate(inside.far)} alone"
    if inside.far_together is not None:
        yield (
            f"a near and a far NIC of one GPU, used directly at once: "
            f"{format_rate(inside.far_together)} each, {format_rate(2 * inside.far_together)} "
            f"together"
        )
    yield "bytes for a far NIC are staged over scale-up at its first GPU, never put on it directly"


@printed
def node_figure(fabric: Fabric, node: int = 0, title: str = "", *, width: float = PAGE) -> Any:
    """A figure: scale-up above the GPUs, each with a line to every NIC that it is near."""
    whole_number(node, "node", 0, fabric.nodes - 1)
    most = max(fabric.gpus, fabric.rails)
    if most > MOST:
        raise InputError(
            f"{fabric.gpus} GPUs and {fabric.rails} rails per node: a figure has at most {MOST} of "
            f"each; the text has all"
        )
    figure, grid = blank(width, 2.6)
    axes = grid[0, 0]
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(-0.3, 3.3))
    gpus = [(g + 0.5) / fabric.gpus for g in range(fabric.gpus)]
    nics = [(n + 0.5) / fabric.rails for n in range(fabric.rails)]
    _box(axes, (0.5, 3), f"scale-up: {_scaleup(fabric)}", LINE, 0.99)
    room = width / most  # inches of a box
    between = " " if room >= WORD else "\n"
    for gpu, x in enumerate(gpus):
        axes.plot([x, x], [2, 3], color=LINE, zorder=1)
        for rail in np.flatnonzero(fabric.node.near[gpu]).tolist():
            axes.plot([x, nics[rail]], [2, 0.9], color=INK, zorder=1)
        _box(axes, (x, 2), f"GPU{between}{gpu}", GPU, 0.84 / most)
    for rail, x in enumerate(nics):
        dead = not (fabric.tx[node, rail] and fabric.rx[node, rail])
        _box(
            axes,
            (x, 0.9),
            f"rail{between}{rail}",
            DEAD if dead else NIC,
            0.84 / most,
        )
        text = _rate(fabric, node, rail).replace(", ", "\n")
        turn = 90 if width / fabric.rails < RATE else 0
        axes.text(x, 0.55, text, ha="center", va="top", rotation=turn)
    set_title(axes, title, width)
    return figure


def _box(axes: Any, centre: tuple[float, float], text: str, color: str, width: float) -> None:
    from matplotlib.patches import Rectangle

    x, y = centre
    corner, height = (x - width / 2, y - 0.22), 0.44
    axes.add_patch(Rectangle(corner, width, height, fc=color, ec="none", zorder=2))
    axes.text(x, y, text, ha="center", va="center", color="white", zorder=3)
