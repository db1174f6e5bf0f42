"""The engine against a driver that injects every completion status, at every place, and peers that
vanish.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Fabric, workloads
from railopt.base.errors import BackendError
from railopt.model.inside import Inside
from railopt.policies import POLICIES
from railopt.runtime.carried import Carried
from railopt.runtime.payload import verify
from railopt.runtime.payload.layout import Layout
from railopt.runtime.rendezvous.wire import PeerLost
from railopt.runtime.senders.replan import replan
from railopt.runtime.senders.report import LinkFault
from railopt.runtime.senders.rounds import ROUNDS, full_round, immediate
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.senders.verbs_run import VerbsRun
from railopt.runtime.verbs import structs as s
from railopt.runtime.verbs.engine import PROTECTION
from railopt.runtime.verbs.objects import Device, Qp
from railopt.runtime.verbs.rails import Damping, Options
from tests.contract.sender_world import STAYS_DEAD, World, carry, small_plan

BAD = sorted(set(s.WC_STATUS) - {s.IBV_WC_SUCCESS})
PATH = [status for status in BAD if status not in PROTECTION]


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railopt.runtime.senders.rounds.NEWS_S", 0.5)


def with_fault(world: World, plan: Any, status: int, after: int, rounds: int = 2) -> list[Any]:
    """Run `plan` `rounds` times; in the first, node 0's link to node 1 on rail 0 fails with
    `status`.
    """

    def work(sender: Verbs) -> list[tuple[int, Any]]:
        def inject() -> None:
            if sender.group.rank == 0:
                world.lib.inject(sender.wiring.by_place[1, 0].qp.pointer, status, after)

        reports = [carry(sender, plan, i, inject if i == 0 else None) for i in range(rounds)]
        sender.group.allgather("end")  # one that leaves before takes its links along
        return reports

    return world.run(work)


@pytest.mark.parametrize("status", PATH)
def test_any_status_of_a_broken_path_moves_its_chunks(status: int) -> None:
    plan = small_plan(2, 3)
    results = with_fault(World(2, 3), plan, status, after=5)
    for node, rounds in enumerate(results):
        assert [wrong for wrong, _ in rounds] == [0, 0], rounds
        first, second = rounds[0][1], rounds[1][1]
        assert [(f.peer, f.rail) for f in first.faults] == [(1 - node, 0)]
        assert [r.alive for r in first.rails] == [False, True, True]
        assert second.faults == ()
        assert second.rails[0].bytes == 0, "the next run leaves the dead rail alone"
        assert sum(r.bytes for r in second.rails) == second.bytes
    assert s.WC_STATUS[status] in results[0][0][1].faults[0].cause
    assert results[0][0][1].faults[0].moved > 0
    dead = results[0][0][1].links[0]
    assert (dead.node, dead.peer, dead.rail) == (0, 1, 0)
    assert (dead.faults, dead.replans, dead.retries) == (1, 1, results[0][0][1].faults[0].moved)


@pytest.mark.parametrize("status", sorted(PROTECTION))
def test_a_request_that_is_wrong_ends_the_run_everywhere(status: int) -> None:
    results = with_fault(World(3, 2), small_plan(3, 2), status, after=3)
    assert isinstance(results[0], BackendError)
    assert s.WC_STATUS[status] in str(results[0])
    for other in results[1:]:
        assert isinstance(other, BackendError), other
        assert "node 0" in str(other)


@pytest.mark.parametrize("after", range(14))
def test_wherever_the_link_breaks_all_bytes_arrive(after: int) -> None:
    """Before, between and behind the lists, on the ready and on the done immediates, in this run or
    the next.
    """
    plan = small_plan(3, 2)
    for rounds in with_fault(World(3, 2), plan, s.IBV_WC_RETRY_EXC_ERR, after, rounds=3):
        assert isinstance(rounds, list), rounds
        assert [wrong for wrong, _ in rounds] == [0, 0, 0], rounds


@pytest.mark.parametrize("after", range(0, 14, 3))
def test_several_queue_pairs_a_link_and_one_of_them_breaks(after: int) -> None:
    """The others of the same rail go on; the report knows one link a (peer, rail)."""
    options = Options(batch=4, depth=16, stall_s=20, queue_pairs=3, damping=Damping(0.02, 0.05, 0))
    plan, world = small_plan(3, 2), World(3, 2, options=options)
    results = with_fault(world, plan, s.IBV_WC_RETRY_EXC_ERR, after, rounds=6)
    for node, rounds in enumerate(results):
        assert isinstance(rounds, list), rounds
        assert [wrong for wrong, _ in rounds] == [0] * 6, rounds
        for _, report in rounds:
            places = [(link.peer, link.rail) for link in report.links]
            assert places == [(k, n) for k in range(3) if k != node for n in range(2)]
            assert all(link.alive for link in report.links), "two of three queue pairs live"
            assert sum(link.bytes for link in report.links) == report.bytes
    assert sum(len(report.faults) for _, report in results[0]) <= 1


def test_all_ranks_must_have_as_many_queue_pairs() -> None:
    world = World(2, 2, options_of={0: Options(queue_pairs=2)})
    results = world.run(lambda sender: None)
    assert any("give all ranks the same --qp" in str(result) for result in results), results


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kill", [Qp.close, Qp.retire])
def test_a_queue_pair_that_takes_its_completions_along_is_asked_after(
    kill: Callable[[Qp], None], late: bool
) -> None:
    """From the begin, or from when its peer was ready until that was done: nobody is told of what
    was posted, acknowledged and received on it.
    """
    plan, done = small_plan(2, 3), threading.Event()
    whole = replace(STAYS_DEAD, batch=64, depth=512)  # all of a link is posted at once
    world = World(2, 3, options=whole)

    def work(sender: Verbs) -> list[Any]:
        layout, node, cq = Layout.packed(plan.chunks), sender.group.rank, sender.wiring.rails[0].cq
        link = sender.wiring.by_place[1 - node, 0]

        def hurt(run: VerbsRun) -> None:
            while late and not link.open:
                run.poll()
            poll = cq.poll
            cq.poll = lambda: 0 * poll()  # type: ignore[method-assign]
            while late and not done.is_set():
                run.poll()
            kill(link.qp)

        verify.fill(plan, layout, node, sender.send, 1)
        sender.group.allgather("start")
        run = sender.run(plan)
        if node == 0:
            hurt(run)
        report = run.wait()
        done.set()
        wrong = len(verify.wrong(plan, layout, node, sender.recv, 1))
        return [(wrong, report), carry(sender, plan, 2)]

    first, second = world.run(work)
    assert [wrong for wrong, _ in (*first, *second)] == [0] * 4
    assert [fault.rail for _, report in first for fault in report.faults] == [0]
    assert [fault.rail for _, report in second for fault in report.faults] == [0]
    if late:
        assert first[0][1].faults[0].cause.startswith("its queue pair is "), first
        assert first[0][1].faults[0].after_s < 20, "not given up after the stall time"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_plans_again_over_the_living(policy: str) -> None:
    plan = small_plan(2, 4, policy)
    for rounds in with_fault(World(2, 4), plan, s.IBV_WC_RETRY_EXC_ERR, after=2):
        assert [wrong for wrong, _ in rounds] == [0, 0]


def test_rail_after_rail_may_die_while_one_lives() -> None:
    plan = small_plan(3, 4, mean="12KiB")
    world = World(3, 4)

    def work(sender: Verbs) -> list[int]:
        def inject(i: int) -> None:
            rank = sender.group.rank
            if i < 3 and rank != i:
                world.lib.inject(
                    sender.wiring.by_place[i, i].qp.pointer, s.IBV_WC_RETRY_EXC_ERR, 3 + rank
                )

        return [carry(sender, plan, i, lambda i=i: inject(i))[0] for i in range(5)]

    assert world.run(work) == [[0] * 5] * 3


def test_without_a_living_rail_the_run_ends_and_names_the_peer() -> None:
    world = World(2, 2)

    def work(sender: Verbs) -> Any:
        def inject() -> None:
            if sender.group.rank == 0:
                for rail in range(2):
                    world.lib.inject(
                        sender.wiring.by_place[1, rail].qp.pointer, s.IBV_WC_RETRY_EXC_ERR, 2
                    )

        return carry(sender, small_plan(2, 2), 0, inject)

    first, second = world.run(work)
    assert isinstance(first, PeerLost)
    assert "no living rail is left to node" in str(first)  # by whichever node saw it first
    assert str(first).endswith("(rail 0, 1: RETRY_EXC_ERR)")
    assert isinstance(second, BackendError)


def test_links_that_die_when_nothing_is_owed_fail_nothing() -> None:
    """As where a peer is done and closes them; here they come back."""
    world, plan = World(2, 2, options=Options(damping=Damping(0.01, 0.05, 0))), small_plan(2, 2)

    def work(sender: Verbs) -> Any:
        rounds, group = sender.rounds, sender.group
        first = carry(sender, plan, 1)[0]
        group.allgather("done")
        if group.rank == 1:
            with rounds.lock:
                for link in list(sender.wiring.by_place.values()):
                    sender.failover.fail(link, "late")
        deadline, absent = time.monotonic() + 20, sender.failback.absent
        while time.monotonic() < deadline and not _tested(absent):
            time.sleep(0.01)
        group.allgather("back")
        return first, carry(sender, plan, 2)[0], rounds.failure

    assert world.run(work) == [(0, 0, None)] * 2


def _tested(absent: dict[Any, Any]) -> bool:
    return len(absent) == 2 and all(one.tested for one in absent.values())


def test_staged_plans_survive_too() -> None:
    from tests.contract.test_sender_contract import staged

    for rounds in with_fault(
        World(3, 2), staged(small_plan(3, 2)), s.IBV_WC_RETRY_EXC_ERR, after=6, rounds=3
    ):
        assert [wrong for wrong, _ in rounds] == [0, 0, 0]


def test_a_peer_that_dies_ends_the_run_on_all_ranks() -> None:
    plan, world = small_plan(4, 2), World(4, 2)

    def work(sender: Verbs) -> Any:
        if sender.group.rank == 2:
            world.vanish(2)
            raise RuntimeError("dead")
        return sender.run(plan).wait()

    began = time.monotonic()
    results = world.run(work)
    assert time.monotonic() - began < 20
    for rank in (0, 1, 3):
        assert isinstance(results[rank], PeerLost), results[rank]
        assert "node 2" in str(results[rank])
        assert results[rank].exit_code == 3


def test_the_death_of_rank_0_is_noticed_too() -> None:
    plan, world = small_plan(3, 2), World(3, 2)

    def work(sender: Verbs) -> Any:
        if sender.group.rank == 0:
            world.vanish(0)
            raise RuntimeError("dead")
        return sender.run(plan).wait()

    for result in world.run(work)[1:]:
        assert isinstance(result, PeerLost)
        assert "node 0" in str(result)


def _waited(run: VerbsRun) -> None:
    run.wait()


def _waited_in_turns(run: VerbsRun) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            run.wait(timeout_s=0.1)


def _polled(run: VerbsRun) -> None:
    while not run.poll():
        time.sleep(0.01)


@pytest.mark.parametrize("how", [_waited, _waited_in_turns, _polled])
def test_a_silent_peer_is_given_up_after_the_stall_time(how: Callable[[VerbsRun], None]) -> None:
    over = threading.Event()

    def work(sender: Verbs) -> Any:
        if sender.group.rank == 1:
            over.wait(20)  # alive, but never runs the plan
            return None
        try:
            how(sender.run(small_plan(2, 2)))
        finally:
            over.set()

    began = time.monotonic()
    first, _ = World(2, 2, options=Options(stall_s=0.5)).run(work)
    assert isinstance(first, PeerLost)
    assert "waiting for node 1" in str(first)
    assert time.monotonic() - began < 10


def test_while_nobody_looks_a_run_does_not_stall() -> None:
    """Both ends compute for twice the stall time, one a little longer."""

    def work(sender: Verbs) -> Any:
        if sender.group.rank == 1:
            time.sleep(1.2)
        run = sender.run(small_plan(2, 2))
        run.poll()
        time.sleep(1.0 * (sender.group.rank == 0))
        return run.wait().sender

    assert World(2, 2, options=Options(stall_s=0.5)).run(work) == ["verbs", "verbs"]


def test_wait_may_time_out_and_go_on() -> None:
    go = threading.Event()

    def work(sender: Verbs) -> Any:
        if sender.group.rank == 1:
            go.wait(20)
        run = sender.run(small_plan(2, 2))
        if sender.group.rank == 0:
            with pytest.raises(TimeoutError):
                run.wait(timeout_s=0.1)
            go.set()
        return run.wait().sender

    assert World(2, 2).run(work) == ["verbs", "verbs"]


def test_an_interrupt_is_passed_on() -> None:
    def work(sender: Verbs) -> Any:
        run = sender.run(small_plan(2, 2))
        if sender.group.rank == 0:
            raise InterruptedError("Ctrl-C")
        return run.wait()

    _, second = World(2, 2).run(work)
    assert isinstance(second, PeerLost)
    assert "node 0" in str(second)
    assert "Ctrl-C" in str(second)


def test_replanning_keeps_to_rails_that_the_fabric_has_at_both_ends() -> None:
    from railopt import plan as make_plan

    plan = small_plan(2, 4)
    lame = plan.fabric.degraded({(1, 2): "0"})
    again = make_plan(lame, plan.chunks, "lpt")
    rows = (again.chunks.src == 0).nonzero()[0]
    rails, policy = replan(again, rows, 0, 1, alive=[1, 2, 3])
    assert set(rails.tolist()) <= {1, 3}
    assert policy == "lpt"
    assert set(replan(again, rows, 0, 1, alive=[2])[0].tolist()) == {2}, "its links live"


def test_a_rail_that_came_back_carries_what_the_plan_had_for_others() -> None:
    """The plan is for a fabric without it, as --adapt makes one after it died."""
    fabric = Fabric.uniform(2, 2).degraded({(0, 1): "0"})
    chunks = workloads.zipf(fabric, mean="6KiB", seed=0).chunks("1KiB")
    plan = railopt.plan(fabric, chunks, "lpt")
    for rounds in with_fault(World(2, 2), plan, s.IBV_WC_RETRY_EXC_ERR, after=3, rounds=1):
        assert isinstance(rounds, list), rounds
        assert rounds[0][0] == 0
        assert [rail.alive for rail in rounds[0][1].rails] == [False, True]


@pytest.mark.parametrize("broken", [False, True])
def test_what_a_device_says_of_itself_never_hides_the_fault(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor is above those that select() takes; or it can't be asked."""
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD, 1500)
    plan, world = small_plan(2, 2), World(2, 2)

    def work(sender: Verbs) -> Any:
        for rail in sender.wiring.rails:
            place = s.LAYOUTS["ibv_context"][1]["async_fd"][1]
            ctypes.c_int.from_address(rail.device.pointer + place).value = high
        if sender.group.rank == 0:
            world.lib.inject(sender.wiring.by_place[1, 0].qp.pointer, s.IBV_WC_RETRY_EXC_ERR, 1)
        return carry(sender, plan, 1)

    if broken:
        monkeypatch.setattr(Device, "events", lambda self: 1 // 0)
    for result in world.run(work):
        assert isinstance(result, tuple), result
        wrong, report = result
        assert wrong == 0
        assert "RETRY_EXC_ERR" in report.faults[0].cause
        assert ("events can't be read (integer division" in report.faults[0].cause) == broken
    for fd in (read, write, high):
        os.close(fd)


def test_a_rail_is_dead_where_all_its_links_are() -> None:
    plan = small_plan(3, 2)
    results = with_fault(World(3, 2), plan, s.IBV_WC_RETRY_EXC_ERR, after=1, rounds=1)
    reports = tuple((rounds[0][1],) for rounds in results)
    assert all(rail.alive for (report,) in reports for rail in report.rails)
    states = [row[4] for row in Carried("verbs", plan, reports).rows() if row[2] == "0"]
    assert [state.partition(":")[0] for state in states] == ["dead to 1", "dead to 0", "ok"]
    told = replace(
        reports[0][0], faults=(*reports[0][0].faults, LinkFault(0, 1, 0, "again", 0, 0.0))
    )
    assert Carried("verbs", plan, ((told,),)).rows()[0][4] == "dead to 1: again"
    hosts = replace(plan, fabric=replace(plan.fabric, hosts=("a", "b", "c")))
    first = Carried("verbs", hosts, ((told,),)).rows()[0]
    assert (first[1], first[4]) == ("a", "dead to b: again")


@pytest.mark.parametrize("policy", list(POLICIES))
@pytest.mark.parametrize("nics", [1, 2])  # a GPU; one that loses its only one is near others
def test_replanning_where_the_inside_of_nodes_is_known(policy: str, nics: int) -> None:
    near = np.repeat(np.eye(4 // nics, dtype=bool), nics, axis=1)
    fabric = replace(Fabric.uniform(3, 4, gpus=4 // nics), inside=Inside(near))
    chunks = workloads.moe(fabric, tokens=64).chunks("64KiB")
    made = railopt.plan(fabric, chunks, policy)
    rows = ((chunks.src == 0) & (chunks.dst == 1)).nonzero()[0]
    rails, used = replan(made, rows, 0, 1, alive=[0, 2, 3])
    assert set(rails.tolist()) <= {0, 2, 3}
    assert used == policy


def test_immediates_carry_the_round() -> None:
    for round_ in (0, 1, 127, ROUNDS - 1, ROUNDS, ROUNDS + 5, 10 * ROUNDS - 1):
        value = immediate(0, round_, "abcd" + "0" * 28)
        assert value & 0xFFFF == 0xABCD
        for near in (round_ - 3, round_, round_ + 3):
            assert full_round(value, near) == round_
        assert immediate(2, round_, "abcd" + "0" * 28) >> 30 == 2
