"""What every sender must do: all bytes of any plan, as planned, and an honest report."""

from __future__ import annotations

import gc
import io
import sys
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric, Plan, workloads
from railopt import plan as make_plan
from railopt.base.errors import BackendError, InputError
from railopt.policies import POLICIES
from railopt.runtime.adapt import shares
from railopt.runtime.carried import carry as carry_out
from railopt.runtime.payload.layout import Layout
from railopt.runtime.senders import SENDERS, SenderConfig
from railopt.runtime.senders.loopback import Loopback
from railopt.runtime.senders.record import Record, RecordRun
from railopt.runtime.senders.report import LinkFault, Report
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.verbs.engine import Engine, Link, LinkJob
from railopt.runtime.verbs.objects import Cq, Mr, Patience, Pd, Qp, open_device
from railopt.runtime.verbs.rails import Options
from railopt.runtime.verbs.work import Writes
from tests.contract.sender_world import World, carry, small_plan
from tests.doubles.null_verbs import NullLibrary


def staged(plan: Plan) -> Plan:
    stage = (np.arange(len(plan.chunks)) % 3).astype(np.int32)
    return Plan(plan.fabric, plan.chunks, plan.rail, plan.policy, stage)


@pytest.mark.parametrize("name", [name for name in SENDERS if name != "verbs"])
def test_every_sender_that_needs_no_other_rank_carries_a_plan_by_its_name(name: str) -> None:
    """verbs by its name: test_sender_cli.py, on two nodes."""
    plan = small_plan(3, 2)
    config = SenderConfig(room=Layout.packed(plan.chunks), rails=2, out=io.StringIO())
    carried = carry_out(plan, name, config, iters=2)
    assert [len(runs) for runs in carried.nodes] == [2]
    for report in carried.nodes[0]:
        assert (report.sender, report.bytes) == (name, plan.chunks.total)
        assert report.wrong == (0 if SENDERS[name].moves else None)
    assert carried.as_dict()["digest"] == plan.digest
    assert len(carried.rows()) == 2 + 1
    assert {len(row) for row in carried.rows(gbits=True)} == {len(carried.columns(gbits=True))}


def test_what_a_table_needs_does_not_grow_with_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan(3, 2)
    config = SenderConfig(room=Layout.packed(plan.chunks), rails=2)
    reports = [
        replace(
            Loopback().run(plan).wait(),
            seconds=float(run),
            wrong=run,
            faults=(LinkFault(0, 1 + run % 2, 0, f"run {run}", 0, 0.0),),
        )
        for run in range(1, 6)
    ]
    tables = []
    for every in (True, False):
        told = iter(reports)
        monkeypatch.setattr(Loopback, "run", lambda self, plan, told=told: RecordRun(next(told)))
        carried = carry_out(plan, "loopback", config, iters=5, every=every)
        tables.append((carried.rows(), carried.wrong))
    assert tables[0] == tables[1]
    assert tables[1][0][-1][-3:] == ["3000000.0", "0.000", "15"]
    assert len(carried.nodes[0]) == 1
    assert [fault.cause for fault in carried.nodes[0][0].faults] == ["run 4", "run 5"]


def test_loopbacks_links_share_their_nics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every copied byte takes a nanosecond: each NIC shows a byte a nanosecond, however many peers
    it has.
    """
    from railopt.runtime.payload import pattern

    clock = [0.0]

    def copy(source: Any, at: Any, target: Any, to: Any, size: Any) -> None:
        clock[0] += int(size.sum()) / 1e9

    monkeypatch.setattr(pattern, "copy_chunks", copy)
    monkeypatch.setattr("railopt.runtime.senders.loopback.time.perf_counter", lambda: clock[0])
    fabric = Fabric.uniform(5, 1, "4GB/s")
    plan = make_plan(fabric, workloads.uniform(fabric, size="1MiB"), "lpt")
    report = Loopback(verify=False).run(plan).wait()
    shown = shares(fabric, report.links)
    assert shown == pytest.approx(np.full((2, 5, 1), 0.25), rel=1e-6)


def test_a_report_that_is_none_is_refused() -> None:
    report = Loopback().run(small_plan(2, 2)).wait()
    assert Report.from_dict(report.as_dict()) == report
    whole = report.as_dict()
    link, rail = whole["links"][0], whole["rails"][0]
    for broken in (
        *(
            None,
            [],
            {},
            {**whole, "more": 1},
            {**whole, "rails": 1},
            {**whole, "links": [link[1:]]},
        ),
        *({**whole, "links": [[*link[:4], bad, *link[5:]]]} for bad in (-1, True, "1", 1.5, None)),
        *({**whole, "links": [[*link[:6], bad, *link[7:]]]} for bad in (-0.5, "1", float("nan"))),
        {**whole, "rails": [{**rail, "alive": 1}]},
        {**whole, "readmissions": [{"node": 0}]},
    ):
        with pytest.raises(BackendError, match="does not understand"):
            Report.from_dict(broken)


def test_loopback_moves_every_policys_plan() -> None:
    sender = Loopback()
    for policy in POLICIES:
        plan = small_plan(3, 4, policy)
        for case in (plan, staged(plan)):
            report = sender.run(case).wait()
            assert (report.sender, report.policy, report.wrong) == ("loopback", policy, 0)
            assert (report.bytes, report.chunks) == (plan.chunks.total, len(plan.chunks))
            assert [r.bytes for r in report.rails] == plan.send.sum(axis=0).tolist()


def check_links(plan: Plan, reports: list[Report]) -> None:
    """Every link that the plan uses once, with its bytes and chunks, within the run's time."""
    links = [link for report in reports for link in report.links]
    place = list(zip(plan.chunks.src, plan.chunks.dst, plan.rail.tolist(), strict=True))
    assert sorted((link.node, link.peer, link.rail) for link in links) == sorted(set(place))
    for link in links:
        mine = [at == (link.node, link.peer, link.rail) for at in place]
        assert (link.bytes, link.chunks) == (int(plan.chunks.size[mine].sum()), sum(mine))
        assert 0 <= link.first_s < link.last_s <= max(report.seconds for report in reports)
        assert link.rate == link.bytes / (link.last_s - link.first_s)
        assert (link.retries, link.faults, link.replans, link.readmissions) == (0, 0, 0, 0)


@pytest.mark.parametrize("stages", [1, 3])
def test_every_sender_says_what_each_link_did(stages: int) -> None:
    plan = small_plan(3, 2) if stages == 1 else staged(small_plan(3, 2))
    check_links(plan, [Loopback().run(plan).wait()])
    results = World(3, 2).run(lambda sender: carry(sender, plan, 1))
    check_links(plan, [report for _, report in results])


def test_loopback_notices_wrong_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from railopt.runtime.payload import pattern

    plan, real = small_plan(2, 2), pattern.copy_chunks

    def lazy(source: Any, at: Any, target: Any, to: Any, size: Any) -> None:
        real(source, at[1:], target, to[1:], size[1:])

    monkeypatch.setattr(pattern, "copy_chunks", lazy)
    report = Loopback().run(plan).wait()
    assert report.wrong == len(report.links) == 4, "one chunk a link was not moved"


def test_loopback_refuses_what_memory_can_not_hold() -> None:
    chunks = Chunks.from_arrays(src=[0], dst=[1], size=[1 << 50], nodes=2)
    with pytest.raises(InputError, match="plan less traffic"):
        Loopback().run(make_plan(Fabric.uniform(2, 2), chunks, "lpt"))


@pytest.mark.parametrize(("nodes", "rails"), [(2, 4), (4, 2)])
def test_verbs_carry_every_policy_in_one_session(nodes: int, rails: int) -> None:
    plans = [small_plan(nodes, rails, policy, seed=i) for i, policy in enumerate(POLICIES)]
    plans.append(staged(plans[0]))

    def work(sender: Verbs) -> list[tuple[int, int]]:
        return [
            (wrong, report.bytes)
            for wrong, report in (carry(sender, plan, i) for i, plan in enumerate(plans))
        ]

    world = World(nodes, rails)
    for node, result in enumerate(world.run(work)):
        assert result == [
            (0, int((plan.chunks.size[plan.chunks.src == node]).sum())) for plan in plans
        ], result
    assert world.lib.calls.count("ibv_dereg_mr") == nodes * rails * 2, (
        "memory is registered once a rail"
    )
    assert world.lib.calls.count("ibv_destroy_qp") == nodes * rails * (nodes - 1), (
        "one queue pair a (peer, rail)"
    )


def test_chunks_above_the_largest_message_are_split() -> None:
    plan = small_plan(2, 2, mean="9KiB")
    assert [
        r[0] for r in World(2, 2, max_message=100).run(lambda sender: carry(sender, plan, 1))
    ] == [0, 0]


def test_silent_nodes_and_one_way_traffic() -> None:
    fabric = Fabric.uniform(4, 2)
    chunks = Chunks.from_arrays(
        src=[0, 0, 2, 2], dst=[1, 1, 1, 0], size=[5000, 1, 700, 80], nodes=4
    )
    plan = make_plan(fabric, chunks, "lpt")

    def work(sender: Verbs) -> list[int]:
        return [carry(sender, plan, i)[0] for i in range(4)]

    assert World(4, 2).run(work) == [[0] * 4] * 4


def test_one_buffer_a_gpu() -> None:
    fabric = Fabric.uniform(2, 2, gpus=2)
    plan = make_plan(fabric, workloads.uniform(fabric, size="3KiB").chunks("1KiB"), "lpt")
    layout = Layout.packed(plan.chunks, per_gpu=True)

    def work(sender: Verbs) -> bool:
        group, rank = sender.group, sender.group.rank
        sender.close()
        send = [
            np.full(int(n), 10 * rank + g, np.uint8) for g, n in enumerate(layout.send_bytes[rank])
        ]
        recv = [np.zeros(int(n), np.uint8) for n in layout.recv_bytes[rank]]
        with Verbs(
            group,
            [f"null{rank}_{n}" for n in range(2)],
            send,
            recv,
            lib=sender.wiring.rails[0].device.lib,
        ) as mine:
            mine.run(plan).wait()
            group.allgather("done")
        other = 1 - rank
        return all(
            buffer.tolist() == [10 * other] * 3072 + [10 * other + 1] * 3072 for buffer in recv
        )

    assert World(2, 2).run(work) == [True, True]


def test_a_plan_that_does_not_fit_is_refused_before_any_byte_moves() -> None:
    wrong_world, wrong_rails, too_large = (
        small_plan(3, 2),
        small_plan(2, 3),
        small_plan(2, 2, mean="900KiB"),
    )

    def work(sender: Verbs) -> list[str]:
        found = []
        for plan in (wrong_world, wrong_rails, too_large):
            with pytest.raises(InputError) as error:
                sender.run(plan)
            found.append(str(error.value))
        sender.group.allgather("done")
        assert not sender.recv[0].keep.any()
        return found

    for found in World(2, 2).run(work):
        assert "the plan is for 3 nodes, this run has 2 ranks" in found[0]
        assert "the plan is for 3 rails, this node has 2" in found[1]
        assert "the plan needs" in found[2]


def test_ranks_with_different_plans_are_refused() -> None:
    plans = [small_plan(2, 2, seed=1), small_plan(2, 2, seed=2)]
    results = World(2, 2).run(lambda sender: sender.run(plans[sender.group.rank]).wait())
    assert any("another plan" in str(result) for result in results)
    assert all(isinstance(result, Exception) for result in results)


def test_a_second_run_waits_for_the_first() -> None:
    plan = small_plan(2, 2)

    def work(sender: Verbs) -> str:
        run = sender.run(plan)
        with pytest.raises(InputError, match="not done"):
            sender.run(plan)
        while not run.poll():
            pass
        return run.wait().sender

    assert World(2, 2).run(work) == ["verbs", "verbs"]


def test_record_and_verbs_agree_on_what_is_posted() -> None:
    plan = small_plan(2, 2)
    text = io.StringIO()
    Record(text, options=Options(batch=4)).run(plan).wait()
    rows = [line.split("\t") for line in text.getvalue().splitlines()]
    lists = sum(row[6:8] == ["RDMA_WRITE", "1"] for row in rows)
    posted = []

    def work(sender: Verbs) -> None:
        for link in sender.wiring.links:
            real = link.writes.post
            link.writes.post = lambda *args, real=real: (posted.append(1), real(*args))[1]  # type: ignore[method-assign]
        carry(sender, plan, 0)

    World(2, 2, options=Options(batch=4, depth=8)).run(work)
    assert len(posted) == lists


class _Nobody:
    def on_immediate(self, link: Link, value: int) -> None: ...

    def on_fault(self, link: Link, status: int, error: int) -> None:
        raise AssertionError((status, error))


def test_posting_and_polling_allocate_nothing_in_the_steady_state() -> None:
    """8 rails x 7 peers, lists of 64: what is allocated while jobs are posted and polled is free
    again afterwards.
    """
    lib = NullLibrary([f"n{i}" for i in range(8)] + [f"p{i}" for i in range(8)], copy=False)
    memory = np.zeros(4096, np.uint8)
    cqs, links = [], []
    for rail in range(8):
        here, there = open_device(lib, f"n{rail}"), open_device(lib, f"p{rail}")
        cq, sink = Cq(here, 8192), Cq(there, 65536)
        pd, far = Pd(here), Pd(there)
        key = Mr(far, memory.ctypes.data, 4096).rkey
        cqs.append(cq)
        for peer in range(7):
            qp, other = Qp(pd, cq, 512, 32), Qp(far, sink, 512, 32)
            qp.connect(other.number, other.psn, here.address(), there.address(), Patience())
            other.connect(qp.number, qp.psn, there.address(), here.address(), Patience())
            lib.word(other.pointer, 5).value = 1 << 40  # receives without end
            links.append(
                Link(
                    len(links),
                    peer,
                    rail,
                    qp,
                    depth=256,
                    batch=64,
                    remote=memory.ctypes.data,
                    rkey=key,
                )
            )
            links[-1].open = True
    engine = Engine(cqs, _Nobody())
    engine.links = links
    column, keys = np.full(256, memory.ctypes.data, np.uint64), np.zeros(256, np.uint32)
    writes = Writes(column, column, keys, keys, keys)
    rows = np.zeros(256, np.int64)

    def round_() -> None:
        for link in links:
            engine.give(link, LinkJob(writes, rows, 0))
        while any(link.unfinished for link in links):
            engine.sweep()

    tracemalloc.start()
    try:
        for _ in range(3):
            round_()
        gc.collect()
        before, blocks = tracemalloc.get_traced_memory()[0], sys.getallocatedblocks()
        for _ in range(5):
            round_()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < 4096, (
        f"{after - before} bytes stay allocated after 5 rounds of {len(links) * 256} requests"
    )
    assert sys.getallocatedblocks() - blocks < 200


def test_loopback_takes_a_rail_without_chunks() -> None:
    fabric = Fabric.uniform(2, 3)
    chunks = Chunks.from_arrays(src=[0], dst=[1], size=[100])
    report = Loopback().run(make_plan(fabric, chunks, "lpt")).wait()
    assert [(link.node, link.peer, link.bytes) for link in report.links] == [(0, 1, 100)]


def test_loopback_says_what_went_wrong_on_a_rail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("no such memory")

    monkeypatch.setattr("railopt.runtime.payload.pattern.copy_chunks", fails)
    with pytest.raises(OSError, match="no such memory"):
        Loopback().run(small_plan(2, 2)).wait()
