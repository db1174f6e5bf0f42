"""Planning speed, memory and start-up of the foundations: 8 rails, one thread."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from railopt import Chunks, Fabric, Plan, Planner, plan
from railopt.evidence.bounds import lower_bound
from railopt.model.workloads import moe
from tests.bench import Row, best, heapq_lpt, in_turns, judged, ratio

MIB = 1 << 20


def one_sender(sizes: np.ndarray) -> Chunks:
    return Chunks.from_arrays(
        src=np.zeros(len(sizes), np.int32), dst=np.ones(len(sizes), np.int32), size=sizes, nodes=2
    )


def all_to_all(nodes: int, each: int, equal: bool) -> Chunks:
    """`each` chunks a sender, to random receivers; sizes equal, or random below 1 MiB."""
    rng = np.random.default_rng(1)
    src = np.repeat(np.arange(nodes), each)
    dst = (src + rng.integers(1, nodes, len(src))) % nodes
    return Chunks.from_arrays(
        src=src,
        dst=dst,
        size=np.full(len(src), MIB) if equal else rng.integers(1, MIB, len(src)),
        nodes=nodes,
    )


def rows() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    two, many = Fabric.uniform(2, 8), Fabric.uniform(128, 8)
    for count, goal in ((1 << 16, 25), (1 << 20, 30)):
        sizes = rng.integers(1, MIB, count)
        chunks, listed = one_sender(sizes), sizes.tolist()
        ours, plain, sort = in_turns(
            [
                partial(plan, two, chunks, "lpt"),
                partial(heapq_lpt, listed, 8),
                partial(np.sort, sizes),
            ]
        ).T
        yield Row(
            f"lpt, one sender, {count} chunks: heapq LPT / railopt",
            ratio(plain, ours),
            "x",
            at_least=goal,
        )
        if count == 1 << 20:
            yield Row(
                "lpt, one sender, 1M random sizes: railopt / np.sort alone",
                ratio(ours, sort),
                "x",
                at_most=1.2,
            )
            cut = np.where(rng.random(count) < 0.9, MIB, sizes)
            cut_chunks = one_sender(cut)
            ours, sort = in_turns([partial(plan, two, cut_chunks, "lpt"), partial(np.sort, cut)]).T
            yield Row(
                "lpt, one sender, 1M chunks, 90 % of the cap: per chunk",
                ours.min() / count * 1e9,
                "ns",
            )
            yield Row("lpt, the same: railopt / np.sort alone", ratio(ours, sort), "x")
    mixed, equal = all_to_all(128, 8192, equal=False), all_to_all(128, 6250, equal=True)
    each = mixed.size.reshape(128, -1).tolist()
    lpt, local, everywhere, plain = in_turns(
        [
            *(partial(plan, many, mixed, policy) for policy in ("lpt", "lpt-local", "lpt-global")),
            lambda: [heapq_lpt(sizes, 8) for sizes in each],
        ]
    ).T
    name = "lpt, 128 nodes x 8k chunks: heapq LPT / railopt"
    yield Row(name, ratio(plain, lpt), "x", at_least=20)
    yield Row("lpt, the same: per chunk", lpt.min() / len(mixed) * 1e9, "ns")
    yield Row("lpt-local, the same: over lpt", ratio(local, lpt), "x", at_most=2.5)
    yield Row("lpt-global, the same: over lpt", ratio(everywhere, lpt), "x", at_most=3)
    even = plan(many, equal, "equitable")
    optimal = even.makespan == lower_bound(many, equal).value
    coloured, cycled = in_turns(
        [partial(plan, many, equal, policy) for policy in ("equitable", "lpt")], 15
    ).T
    yield Row(
        "equitable, 800k equal chunks, 128 nodes: over lpt",
        ratio(coloured, cycled),
        "x",
        at_most=2,
        note="equals the ceiling bound" if optimal else "NOT OPTIMAL",
    )
    yield Row("equitable, the same: per chunk", coloured.min() / len(equal) * 1e9, "ns")
    yield Row("lpt, the same: per chunk", cycled.min() / len(equal) * 1e9, "ns")
    yield from _training_loop()
    yield from _files(mixed, many)
    help_ = [sys.executable, "-m", "railopt", "--help"]
    yield Row(
        "railopt --help, wall",
        best(lambda: subprocess.run(help_, check=True, capture_output=True), 3) * 1e3,
        "ms",
    )


def _training_loop() -> Iterator[Row]:
    fabric = Fabric.uniform(8, 8)
    traffic = moe(fabric, tokens=4096, skew=0.5, seed=1)
    row = np.ascontiguousarray(traffic.bytes[:8])
    for policy in ("lpt", "lpt-local"):
        planner = Planner(fabric, 0, "128KiB", policy)
        chunks = len(planner.plan(row).rail)
        flows = np.count_nonzero(row[:, 8:])
        name = f"Planner {policy}, one node of 8x8, {flows} flows, {chunks} chunks"
        yield from judged(name, [partial(planner.plan, row)], "us", 100e-6, repeats=300)


def _files(chunks: Chunks, fabric: Fabric) -> Iterator[Row]:
    made = plan(fabric, chunks, "lpt")
    held = sum(column.nbytes for column in chunks.columns().values()) + made.rail.nbytes
    yield Row(
        f"plan of {len(chunks)} chunks in memory: per chunk",
        held / len(chunks),
        "bytes",
        at_most=64,
    )
    with tempfile.TemporaryDirectory() as folder:
        path, plain = Path(folder) / "plan.npz", Path(folder) / "plain.npz"
        saved, loaded, peer = in_turns(
            [
                lambda: made.save(path, force=True),
                lambda: Plan.read(path),
                partial(_numpys_own, chunks.columns() | {"rail": made.rail}, plain),
            ]
        ).T
    took = saved + loaded
    yield Row(f"plan of {len(chunks)} chunks: saved and loaded", took.min(), "s")
    yield Row(
        "  the same over np.savez, np.load and a blake2b each way",
        ratio(took, peer),
        "x",
        at_most=2,
        note="as long again for checks, and a file that appears whole",
    )


def _numpys_own(columns: dict[str, np.ndarray], path: Path) -> None:
    """Columns written and read by numpy, and hashed both times."""
    np.savez(path, **columns)
    with np.load(path) as read:
        for found in (columns, read):
            hashed = hashlib.blake2b()
            for name in columns:
                hashed.update(np.ascontiguousarray(found[name]))
