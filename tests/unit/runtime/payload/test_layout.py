"""Where chunks lie and what a node posts, against a brute-force oracle."""

from __future__ import annotations

import io

import numpy as np
import pytest

from railopt import Chunks, Fabric, Plan, workloads
from railopt.base.errors import InputError
from railopt.runtime.payload.layout import Layout, rows_of, stages, write_list
from railopt.runtime.senders.record import Record
from railopt.runtime.verbs.rails import Options


def case(seed: int, nodes: int = 4, rails: int = 3, shuffle: bool = True) -> Plan:
    fabric = Fabric.uniform(nodes, rails, gpus=2)
    chunks = workloads.sparse(fabric, mean="3KiB", zeros=0.4, seed=seed).chunks("1KiB")
    rng = np.random.default_rng(seed)
    if shuffle:
        chunks = chunks.take(rng.permutation(len(chunks)))
    return Plan(fabric, chunks, rng.integers(0, rails, len(chunks)).astype(np.int16))


@pytest.mark.parametrize("per_gpu", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_packed_memory_is_that_of_an_alltoallv(seed: int, per_gpu: bool) -> None:
    chunks = case(seed, shuffle=seed > 0).chunks
    layout = Layout.packed(chunks, per_gpu=per_gpu)
    for side, mine, other, buffer, offset, total in (
        (
            "src",
            chunks.src_gpu,
            chunks.dst_gpu,
            layout.send_buffer,
            layout.send_offset,
            layout.send_bytes,
        ),
        (
            "dst",
            chunks.dst_gpu,
            chunks.src_gpu,
            layout.recv_buffer,
            layout.recv_offset,
            layout.recv_bytes,
        ),
    ):
        ends: dict[tuple[int, int], int] = {}
        order = sorted(range(len(chunks)), key=lambda c: (mine[c], other[c], c))
        for c in order:
            place = int(getattr(chunks, side)[c]), int(mine[c] % chunks.gpus) if per_gpu else 0
            assert (buffer[c], offset[c]) == (place[1], ends.get(place, 0))
            ends[place] = ends.get(place, 0) + int(chunks.size[c])
        for (node, number), end in ends.items():
            assert total[node, number] == end


@pytest.mark.parametrize("limit", [1 << 30, 1000, 7])
def test_a_write_list_covers_each_chunk_once(limit: int) -> None:
    plan = case(3)
    layout = Layout.packed(plan.chunks)
    for node in range(4):
        work = write_list(plan, layout, rows_of(plan, node), max_message=limit)
        assert work.length.max() <= limit
        covered: dict[int, list[tuple[int, int]]] = {}
        for link in range(len(work.peer)):
            for row in range(int(work.starts[link]), int(work.starts[link + 1])):
                c = int(work.chunk[row])
                assert (plan.chunks.dst[c], plan.rail[c]) == (work.peer[link], work.rail[link])
                skip = int(work.local_offset[row] - layout.send_offset[c])
                assert work.remote_offset[row] - layout.recv_offset[c] == skip
                covered.setdefault(c, []).append((skip, int(work.length[row])))
        assert sorted(covered) == rows_of(plan, node).tolist()
        for c, parts in covered.items():
            ends = np.cumsum([n for _, n in parts])
            assert [skip for skip, _ in parts] == [0, *ends[:-1].tolist()]
            assert ends[-1] == plan.chunks.size[c]


def test_the_order_within_a_link_is_the_plans() -> None:
    plan = case(1)
    work = write_list(plan, Layout.packed(plan.chunks), rows_of(plan, 0))
    for link in range(len(work.peer)):
        rows = work.chunk[work.starts[link] : work.starts[link + 1]]
        assert np.all(np.diff(rows) > 0)


def test_stages() -> None:
    plan = case(2)
    assert stages(plan) == [None]
    staged = Plan(
        plan.fabric,
        plan.chunks,
        plan.rail,
        stage=(np.arange(len(plan.chunks)) % 3 * 2).astype(np.int32),
    )
    assert stages(staged) == [0, 2, 4]
    both = np.concatenate([rows_of(staged, 1, stage, side="recv") for stage in stages(staged)])
    assert sorted(both.tolist()) == rows_of(plan, 1, side="recv").tolist()


def test_an_empty_plan_places_nothing() -> None:
    chunks = Chunks.from_arrays(
        src=np.zeros(0, int), dst=np.zeros(0, int), size=np.zeros(0, int), nodes=3
    )
    layout = Layout.packed(chunks)
    assert layout.send_bytes.tolist() == [[0]] * 3
    plan = Plan(Fabric.uniform(3, 2), chunks, np.zeros(0, np.int16))
    assert len(write_list(plan, layout, rows_of(plan, 0))) == 0


def test_record_writes_what_would_be_posted() -> None:
    plan = case(4)
    text = io.StringIO()
    report = Record(text, options=Options(batch=4, max_message=512)).run(plan).wait()
    header, *lines = [line.split("\t") for line in text.getvalue().splitlines()]
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    assert {row["sender"] for row in rows} == {"record"}
    writes = [row for row in rows if row["opcode"] == "RDMA_WRITE"]
    assert sum(int(row["length"]) for row in writes) == plan.chunks.total == report.bytes
    links = {(row["node"], row["peer"], row["rail"]) for row in writes}
    ends = [
        (row["node"], row["peer"], row["rail"])
        for row in rows
        if row["opcode"] == "RDMA_WRITE_WITH_IMM"
    ]
    assert sorted(ends) == sorted(links), "one immediate a link"
    for link in links:
        mine = [row for row in rows if (row["node"], row["peer"], row["rail"]) == link]
        assert mine[-1]["opcode"] == "RDMA_WRITE_WITH_IMM"
        assert mine[-2]["signaled"] == "1"
        assert [row["signaled"] for row in mine[3:-1:4]] == ["1"] * len(mine[3:-1:4])
    sizes = np.zeros(len(plan.chunks), np.int64)
    np.add.at(sizes, [int(row["chunk"]) for row in writes], [int(row["length"]) for row in writes])
    assert np.array_equal(sizes, plan.chunks.size)
    with pytest.raises(InputError, match="node 9"):
        Record(io.StringIO(), nodes=[9]).run(plan)
