"""A plan's copies inside nodes, carried out by the host: all bytes arrive, by other buffers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Plan, workloads
from railopt import plan as make_plan
from railopt.runtime.payload import pattern, verify
from railopt.runtime.payload.layout import Layout
from railopt.runtime.payload.staging import Staging
from railopt.runtime.senders.config import SenderConfig
from railopt.runtime.senders.loopback import Loopback
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.senders.verbs_carrier import VerbsCarrier
from tests.contract.sender_world import World, small_plan


def moving_plan(policy: str = "spill") -> Plan:
    fabric = Fabric.uniform(3, 4)
    return make_plan(fabric, workloads.zipf(fabric, mean="6KiB", seed=2).chunks("1KiB"), policy)


@pytest.mark.parametrize("policy", ["spill", "even-excess", "lpt", "own-nic"])
def test_what_is_copied_is_what_the_plan_moves(policy: str) -> None:
    plan = moving_plan(policy)
    staging, size = Staging.of(plan, Layout.packed(plan.chunks)), plan.chunks.size
    assert int(size[staging.before].sum()) == plan.staged
    assert int(size[staging.after].sum()) == plan.passed_on
    assert (policy == "own-nic") == (plan.staged == 0)


@pytest.mark.parametrize("policy", ["spill", "even-excess", "lpt"])
def test_loopback_stages_and_passes_on(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, copied, real = moving_plan(policy), [], pattern.copy_chunks

    def counted(source: Any, at: Any, target: Any, to: Any, size: Any) -> None:
        copied.append(int(size.sum()))
        real(source, at, target, to, size)

    monkeypatch.setattr(pattern, "copy_chunks", counted)
    assert Loopback(stage=True).run(plan).wait().wrong == 0
    assert sum(copied) == plan.chunks.total + plan.moved
    copied.clear()
    assert Loopback().run(plan).wait().wrong == 0
    assert sum(copied) == plan.chunks.total


@pytest.mark.parametrize("policy", ["spill", "even-excess"])
def test_verbs_stage_and_pass_on(policy: str) -> None:
    plan = moving_plan(policy)
    room = Layout.packed(plan.chunks)

    def work(sender: Verbs) -> tuple[int | None, int]:
        group, lib = sender.group, sender.wiring.rails[0].device.lib
        sender.close()
        rank = group.rank
        send, recv = (
            [np.zeros(int(side[rank, 0]), np.uint8) for _ in range(2)]
            for side in (room.send_bytes, room.recv_bytes)
        )
        rails = [f"null{rank}_{n}" for n in range(4)]
        with Verbs(group, rails, send, recv, lib=lib) as mine:
            carrier = VerbsCarrier(mine, SenderConfig(room=room, rails=4, stage=True))
            reports = [carrier.carry(plan) for _ in range(2)]
            wrong = len(verify.wrong(plan, room, rank, mine.recv, 2))
            group.allgather("done")
        return reports[-1].wrong, wrong

    assert World(3, 4).run(work) == [(0, 0)] * 3


def test_the_command_line(tmp_path: Path, railopt_cli: Callable[..., Any]) -> None:
    small_plan(2, 2, "spill").save(tmp_path / "plan.npz")
    assert railopt_cli("send", tmp_path / "plan.npz", "--stage").code == 0
    ran = railopt_cli("send", tmp_path / "plan.npz", "--stage", "--sender", "record")
    assert ran.code == 1
    assert "--stage can't do anything" in ran.err
