"""Links that come back: probed, tested, admitted at both ends in one run; and links that flap."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from railopt import Plan
from railopt.base.errors import BackendError
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.verbs import structs as s
from railopt.runtime.verbs.rails import Damping, Options
from railopt.runtime.verbs.trial import TrialCard
from tests.contract.sender_world import World, carry, small_plan

QUICK = Options(batch=4, depth=16, stall_s=20, damping=Damping(0.01, 0.05, 0.0))


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railopt.runtime.senders.rounds.NEWS_S", 0.5)


def probes() -> int:
    """Threads that probe."""
    return sum(thread.name == "railopt-probe" for thread in threading.enumerate())


def until_back(sender: Verbs, plan: Any, first: int, limit_s: float = 10.0) -> list[Any]:
    """Run after run until all nodes have every link again: reports; every byte is compared."""
    reports, deadline = [], time.monotonic() + limit_s
    while time.monotonic() < deadline:
        wrong, report = carry(sender, plan, first + len(reports))
        assert wrong == 0
        reports.append(report)
        alive = all(link.alive for link in report.links)
        if all(sender.group.allgather(alive)):
            return reports
        time.sleep(0.01)
    raise AssertionError("no return")


def broken(world: World, sender: Verbs, peer: int, rail: int, after: int) -> None:
    link = sender.wiring.by_place[peer, rail]
    world.lib.inject(link.qp.pointer, s.IBV_WC_RETRY_EXC_ERR, after)


@pytest.mark.parametrize("caller", [0, 1])
def test_a_dead_link_comes_back_at_both_ends_in_one_run(caller: int) -> None:
    world, plan = World(2, 3, options=QUICK), small_plan(2, 3)

    def work(sender: Verbs) -> list[Any]:
        def inject() -> None:
            if sender.group.rank == caller:
                broken(world, sender, 1 - caller, 0, after=5)

        wrong, first = carry(sender, plan, 0, inject)
        assert wrong == 0
        assert [rail.alive for rail in first.rails] == [False, True, True]
        return [first, *until_back(sender, plan, 1)]

    first, second = world.run(work)
    backs = [
        [i for i, report in enumerate(node) if report.readmissions] for node in (first, second)
    ]
    assert backs[0] == backs[1], "both ends change over in the same run"
    assert len(backs[0]) == 1
    for node, reports in enumerate((first, second)):
        last = reports[-1]
        (back,) = last.readmissions
        assert (back.node, back.peer, back.rail) == (node, 1 - node, 0)
        assert back.probes >= 1
        assert 0 < back.down_s < 10
        assert last.rails[0].bytes > 0, "the plan's own rails are used again"
        assert [link.readmissions for link in last.links if link.rail == 0] == [1]
    assert probes() == 0


def test_a_port_that_is_down_is_waited_for() -> None:
    world, plan = World(2, 2, options=QUICK), small_plan(2, 2)

    def work(sender: Verbs) -> float:
        def inject() -> None:
            if sender.group.rank == 0:
                world.lib.down.add("null1_0")
                broken(world, sender, 1, 0, after=2)

        carry(sender, plan, 0, inject)
        for i in range(1, 20):
            _, report = carry(sender, plan, i)
            assert not report.rails[0].alive
            time.sleep(0.01)
        sender.group.allgather("up")
        world.lib.down.clear()
        began = time.monotonic()
        last = until_back(sender, plan, 20)[-1]
        assert last.readmissions[0].probes > 1
        return time.monotonic() - began

    assert max(world.run(work)) < 2.0


@pytest.mark.slow
def test_a_page_that_arrives_wrong_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from railopt.runtime.verbs import trial

    world, plan, real = World(2, 2, options=QUICK), small_plan(2, 2), trial.pattern
    lies = iter((1000, 2000, 3000))
    monkeypatch.setattr(trial, "pattern", lambda seed: real(seed + next(lies, 0)))

    def work(sender: Verbs) -> int:
        carry(sender, plan, 0, lambda: broken(world, sender, 1 - sender.group.rank, 0, 3))
        return until_back(sender, plan, 1)[-1].readmissions[0].probes

    assert max(world.run(work)) > 1


def test_a_link_that_flaps_waits_longer_each_time() -> None:
    damping = Damping(first_s=0.1, most_s=0.8, window_s=30, longest_s=60)
    assert [damping.first_wait_s(n) for n in range(6)] == [0.1, 0.4, 1.6, 6.4, 25.6, 60]
    world = World(2, 2, options=Options(batch=4, depth=16, damping=Damping(0.02, 0.02, 60)))
    plan = small_plan(2, 2)

    def work(sender: Verbs) -> list[float]:
        down = []
        for turn in range(3):
            carry(
                sender,
                plan,
                1000 * turn,
                lambda: broken(world, sender, 1 - sender.group.rank, 0, 3),
            )
            down.append(until_back(sender, plan, 1000 * turn + 1)[-1].readmissions[0].down_s)
        return down

    for first, second, third in world.run(work):
        assert first >= 0.02
        assert second >= 0.08
        assert third >= 0.32


def test_a_trial_may_take_longer_after_others_in_vain() -> None:
    found = [Damping(trial_s=3.0).limit_s(probes) for probes in (1, 3, 4, 7, 8, 12, 100)]
    assert found == [3, 3, 6, 6, 12, 24, 24]


def trial_passed(world: World, sender: Verbs, plan: Plan) -> Any:
    """Both ends have lost a link, tried it anew and found it right, but not admitted it yet."""
    back = sender.failback
    carry(sender, plan, 0, lambda: broken(world, sender, 1 - sender.group.rank, 0, 3))
    while not all(sender.group.allgather([a.tested for a in back.absent.values()] == [True])):
        time.sleep(0.01)
    return back


def test_a_link_that_fails_between_the_question_and_the_answer_is_dead_at_both_ends() -> None:
    world, plan = World(2, 2, options=QUICK), small_plan(2, 2)

    def work(sender: Verbs) -> list[Any]:
        rank, back = sender.group.rank, trial_passed(world, sender, plan)
        if rank == 0:
            send = sender.group.send

            def asks_and_fails(peer: int, body: dict[str, Any]) -> None:
                send(peer, body)
                if "admit" in body:
                    sender.group.send = send  # type: ignore[method-assign]
                    back.spoil(back.absent[peer, 0].renewed)

            sender.group.send = asks_and_fails  # type: ignore[method-assign]
        sender.group.allgather("ready")
        if rank == 1:
            time.sleep(0.2)  # the other end asks first
        return until_back(sender, plan, 1)

    for reports in world.run(work):
        assert isinstance(reports, list), reports
        assert reports[-1].rails[0].bytes > 0


@pytest.mark.parametrize("loser", [0, 1])
def test_a_trial_that_one_end_gave_up_is_made_again(loser: int) -> None:
    """As when one end's time is up before the other's word that both pages were right comes."""
    world, plan = World(2, 2, options=QUICK), small_plan(2, 2)

    def work(sender: Verbs) -> list[Any]:
        rank, back = sender.group.rank, trial_passed(world, sender, plan)
        if rank == loser:
            with sender.rounds.lock:
                back.fail(back.absent[1 - rank, 0])
        return until_back(sender, plan, 1)

    for reports in world.run(work):
        assert isinstance(reports, list), reports
        assert reports[-1].rails[0].bytes > 0


@pytest.mark.parametrize(
    "body",
    [
        {"nonsense": 1},
        {"probe": 0, "tested": 0},
        {"probe": 0, "try": -1, "card": None},
        {"admit": 0, "round": "1"},
        {"answer": [], "try": 1},
    ],
)
def test_a_word_that_is_none_ends_the_run_with_one_sentence(body: dict[str, Any]) -> None:
    plan = small_plan(2, 2)

    def work(sender: Verbs) -> Any:
        if sender.group.rank == 0:
            sender.group.send(1, body)
        sender.group.allgather("sent")
        return [carry(sender, plan, i) for i in range(2)]

    _, second = World(2, 2).run(work)
    assert isinstance(second, BackendError), second
    assert "run the same version on all nodes" in str(second)


@pytest.mark.parametrize("card", [None, [], [[], [], [], []], [[1] * 5, [1, 2], [1, 2], [1, 2]]])
def test_a_card_that_is_none_is_refused(card: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        TrialCard.from_list(card)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "faults"), [(1, 12)])
def test_a_soak_of_random_faults_loses_nothing(seed: int, faults: int) -> None:
    """Any path status, at any place of any link, in one or two links at once, run after run."""
    world, plan = World(3, 3, options=QUICK), small_plan(3, 3)
    statuses = [s.IBV_WC_RETRY_EXC_ERR, s.IBV_WC_LOC_QP_OP_ERR, s.IBV_WC_RNR_RETRY_EXC_ERR]

    def work(sender: Verbs) -> tuple[int, int]:
        dice, seen, back = random.Random(seed), 0, 0
        for turn in range(faults):
            node, peer = dice.sample(range(3), 2)
            rail, after, status = dice.randrange(3), dice.randrange(12), dice.choice(statuses)

            def inject(node=node, peer=peer, rail=rail, after=after, status=status) -> None:  # type: ignore[no-untyped-def]
                link = sender.wiring.by_place[peer, rail] if sender.group.rank == node else None
                if link is not None and link.alive:
                    world.lib.inject(link.qp.pointer, status, after)

            wrong, report = carry(sender, plan, 1000 * turn, inject)
            assert wrong == 0
            reports = [report]
            if dice.random() < 0.7:  # else the next fault meets a world that lacks a link
                reports += until_back(sender, plan, 1000 * turn + 1)
            seen += sum(len(report.faults) for report in reports)
            back += sum(len(report.readmissions) for report in reports)
        return seen, back

    results = world.run(work)
    assert all(isinstance(result, tuple) for result in results), results
    assert sum(seen for seen, _ in results) >= faults
    assert sum(back for _, back in results) >= faults * 0.5
    assert probes() == 0
