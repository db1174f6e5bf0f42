"""Rails of a node that its far ends can hardly fill."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from railopt import Chunks, Fabric, workloads
from railopt.solver.coupled import nodes
from railopt.solver.coupled import solve as coupled
from railopt.solver.coupled.alike import relieve
from railopt.solver.coupled.scarce import reachable, settled
from railopt.solver.coupled.search import SIDE, Cells, anchor

RAILS = 5


def slow_and_dead() -> Cells:
    """Four nodes of five rails of 4 bytes a second.  Rail 4 is dead at sender 0 and at a quarter
    and half of its speed at senders 1 and 2, so that node 3 can receive three quarters there.
    """
    rates = np.full((4, RAILS), 4)
    rates[:3, 4] = 0, 1, 2
    rng = np.random.default_rng(3)
    src = np.repeat([0, 1, 2], 20)
    chunks = Chunks.from_arrays(src=src, dst=[3] * 60, size=rng.integers(30, 100, 60), nodes=4)
    return Cells(Fabric(4, RAILS, RAILS, rates, np.full((4, RAILS), 4)), chunks)


def test_whole_units_and_far_ends_lift_the_time() -> None:
    """19 bytes a second: four rails of 4, and one that the senders fill with 1 and 2."""
    cells = slow_and_dead()
    total, fluid = cells.chunks.total, Fraction(cells.chunks.total, 19)
    time = reachable(cells, Fraction(total, 20))
    assert fluid <= time <= fluid + Fraction(1, 2)
    held = [4 * time // 1] * 4 + [1 * time // 1, 2 * time // 1]
    assert sum(held) >= total
    just_before = time - Fraction(1, 1000)
    assert sum(just_before * rate // 1 for rate in (4, 4, 4, 4, 1, 2)) < total
    assert reachable(cells, time) == time
    uniform = Cells(Fabric.uniform(4, RAILS), cells.chunks)
    assert reachable(uniform, Fraction(1, 10**9)) == Fraction(1, 10**9)


def test_scarce_rails_are_filled_to_the_last_byte() -> None:
    cells = slow_and_dead()
    time = reachable(cells, Fraction(cells.chunks.total, 20))
    assert cells.scarce("recv", 3, time).tolist() == [False] * 4 + [True]
    assert not cells.scarce("recv", 3, 2 * time).any()  # the others hold all there is
    capacity, found = cells.whole(time), set()
    rows = cells.node_chunks("recv", 3)
    spare = int(capacity[1, 3, :4].sum() + capacity[0, 1:3, 4].sum()) - cells.chunks.total
    for seed in range(10):
        local = settled(cells, "recv", 3, time, seed)
        assert local is not None
        assert set(local.tolist()) == {-1, 4}
        carried = np.bincount(
            cells.chunks.src[rows[local == 4]], cells.chunks.size[rows[local == 4]], 3
        )
        assert carried[0] == 0
        room = capacity[0, :3, 4] - carried
        assert room.min() >= 0
        assert room[1:].sum() <= spare
        found.add(tuple(local.tolist()))
    assert len(found) > 1
    assert settled(cells, "recv", 3, time / 2, 0) is None


def test_a_plan_leaves_chunks_on_scarce_rails_and_open_ones_to_the_search() -> None:
    cells = slow_and_dead()
    time = reachable(cells, Fraction(cells.chunks.total, 20))
    local = settled(cells, "recv", 3, time, 1)
    assert local is not None
    rail, fixed = anchor(cells, time, "recv", {3: local}, 1)
    rows = cells.node_chunks("recv", 3)
    assert fixed[rows].tolist() == (local == 4).tolist()
    assert (rail[rows[local == 4]] == 4).all()


def test_equal_chunks_do_not_change_places_on_scarce_rails() -> None:
    """All chunks are alike, but three of sender 1 and six of sender 2 fill rail 4."""
    cells = slow_and_dead()
    alike = Chunks.from_arrays(src=cells.chunks.src[:57], dst=[3] * 57, size=[40] * 57, nodes=4)
    cells, time = Cells(cells.fabric, alike), Fraction(120)
    rows = cells.node_chunks("recv", 3)
    assert cells.scarce("recv", 3, time).tolist() == [False] * 4 + [True]
    local = settled(cells, "recv", 3, time, 0)
    assert local is not None
    assert np.bincount(alike.src[rows[local == 4]], minlength=3).tolist() == [0, 3, 6]
    local[local < 0] = np.arange(np.count_nonzero(local < 0)) % 4
    for seed in range(10):
        rail, fixed = anchor(cells, time, "recv", {3: local}, seed)
        assert fixed.all()
        assert (rail[rows[local == 4]] == 4).all()
        other = nodes.exchanged(cells, "recv", 3, time, local, seed)
        assert ((other == 4) == (local == 4)).all()


def test_chunks_of_one_size_change_places_where_a_far_end_is_slow() -> None:
    """Node 0 sends four chunks on each of three rails.  Receiver 1 takes one of them on rail 2,
    where receiver 3 is dead; receiver 2 can take any.
    """
    rates = np.full((4, 3), 4)
    rates[1, 2], rates[3, 2] = 1, 0
    dst = np.repeat([1, 2, 3], 4)
    chunks = Chunks.from_arrays(src=[0] * 12, dst=dst, size=[10] * 12, nodes=4)
    cells = Cells(Fabric(4, 3, 3, np.full((4, 3), 4), rates), chunks)
    rail = np.array([2, 2, 2, 2, 0, 0, 0, 1, 0, 1, 1, 1], np.int16)
    before, time = cells.loads(rail), Fraction(10)
    assert cells.value(before) == 40
    relieve(cells, time, SIDE["send"], np.arange(12, dtype=np.int32), rail)
    after = cells.loads(rail)
    assert cells.value(after) == time
    assert after[0].tolist() == before[0].tolist()
    assert (rail[dst == 3] < 2).all()
    again = rail.copy()
    relieve(cells, time, SIDE["send"], np.arange(12, dtype=np.int32), again)
    assert again.tolist() == rail.tolist()  # nothing is overloaded any more


def test_slow_senders_that_add_up_to_one_rail_are_proved() -> None:
    """Matrices of bytes: rail 6 of the fullest receiver takes all that three senders can send."""
    fabric = Fabric.uniform(4, 8).degraded(
        {(0, 6): "0.5", (1, 6): "0.25", (2, 6): "0.25", (3, 2): "0", (2, 0): "0"}
    )
    chunks = workloads.zipf(fabric, seed=1066721963).chunks("4MiB")
    solved = coupled.solve(fabric, chunks, 20)
    assert solved.proved
    assert solved.certificate.check().proved
