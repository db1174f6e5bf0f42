"""Prices of whole chunks against brute force: never more than the optimum, never less than the
fluid bound, and sometimes the optimum where nothing else shows it.
"""

from __future__ import annotations

import copy
import os
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric, solve
from railopt.checker import SUMS, Meter, Rejected, Sums, check_certificate, held, prove_whole_chunks
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import certify
from railopt.policies import plan
from railopt.solver.coupled import chunk_sums
from railopt.solver.coupled.search import Cells
from railopt.solver.fluid import least_time
from railopt.solver.local.deadline import Deadline
from tests.property.test_coupled_brute_force import changed, instance, optimum, still_true

INSTANCES = int(os.environ.get("RAILOPT_INSTANCES", "300")) // 2


def columns(chunks: Chunks) -> list[list[int]]:
    return [column.tolist() for column in (chunks.src, chunks.dst, chunks.size)]


def plain_sums(sizes: list[int], room: int) -> int:
    """The largest sum of some sizes within `room`, by looking at all of them."""
    sums = {0}
    for size in sizes:
        sums |= {size + sum_ for sum_ in sums}
    return max(sum_ for sum_ in sums if sum_ <= room)


def plain_held(fabric: Fabric, chunks: Chunks, bound: Fraction, side: int) -> list[list[int]]:
    """What NICs hold before `bound`, as T7k says it."""
    rates = (fabric.tx.tolist(), fabric.rx.tolist())
    rooms = [[[max(0, -(-bound * v // 1) - 1) for v in row] for row in one] for one in rates]
    unit, nodes = int(np.gcd.reduce(chunks.size)), range(fabric.nodes)
    ends = (chunks.src.tolist(), chunks.dst.tolist())
    between: dict[tuple[int, int], list[int]] = {(k, f): [] for k in nodes for f in nodes}
    for own, far, size in zip(ends[side], ends[1 - side], chunks.size.tolist(), strict=True):
        between[own, far].append(size)
    rows = []
    for k in nodes:
        row = []
        for n in range(fabric.rails):
            room, others = rooms[side][k][n], [rooms[1 - side][f][n] for f in nodes]
            live = [size for f in nodes if others[f] >= unit for size in between[k, f]]
            each = sum(plain_sums(between[k, f], min(room, others[f])) for f in nodes)
            row.append(min(plain_sums(live, room), each))
        rows.append(row)
    return rows


def test_what_nics_hold_is_what_all_sums_say() -> None:
    for seed in range(INSTANCES):
        rng = np.random.default_rng([11, seed])
        fabric, chunks = instance(rng)
        bound = optimum(fabric, chunks) * Fraction(int(rng.integers(1, 12)), 8)
        found = held(fabric.tx.tolist(), fabric.rx.tolist(), columns(chunks), bound, Meter(10**7))
        for side in (0, 1):
            assert found[side] == plain_held(fabric, chunks, bound, side), f"seed {seed}"


def test_never_above_the_optimum_and_never_below_the_fluid_bound() -> None:
    better = 0
    for seed in range(INSTANCES):
        fabric, chunks = instance(np.random.default_rng([12, seed]))
        best, fluid = optimum(fabric, chunks), least_time(fabric, chunks)
        cells, deadline = Cells(fabric, chunks), Deadline.after(600)
        assert chunk_sums.refute(cells, fluid, deadline) is not None, f"seed {seed}"
        assert chunk_sums.refute(cells, best + Fraction(1, 10**6), deadline) is None, f"seed {seed}"
        found = chunk_sums.last_refuted(cells, fluid, 2 * best, deadline)
        if found is not None:
            time, witness = found
            assert fluid < time <= best, f"seed {seed}"
            record = certificate(fabric, chunks, time, witness)
            assert check_certificate(record).ok, f"seed {seed}"
            better += 1
    assert better > INSTANCES // 4


def test_no_prices_show_more_than_the_optimum() -> None:
    for seed in range(INSTANCES):
        rng = np.random.default_rng([13, seed])
        fabric, chunks = instance(rng)
        above = optimum(fabric, chunks) + Fraction(1, 10**6)
        rates = fabric.tx.tolist(), fabric.rx.tolist()
        for most in (1, 2, 5):
            send, recv = rng.integers(0, most + 1, (2, *fabric.tx.shape)).tolist()
            witness = {"kind": "whole", "send": send, "recv": recv}
            with pytest.raises(Rejected):
                prove_whole_chunks(*rates, columns(chunks), above, witness, Meter(10**7))


def certificate(
    fabric: Fabric, chunks: Chunks, bound: Fraction, witness: dict[str, Any]
) -> dict[str, Any]:
    bracket = Bracket(None, bound, Status.OPEN, witness)
    return certify(plan(fabric, chunks, "lpt-global"), bracket).as_dict()


def test_a_changed_certificate_is_rejected_unless_it_is_still_true() -> None:
    rejected = 0
    for seed in range(INSTANCES):
        rng = np.random.default_rng([14, seed])
        fabric, chunks = instance(rng)
        bound = least_time(fabric, chunks)
        witness = chunk_sums.refute(Cells(fabric, chunks), bound, Deadline.after(600))
        assert witness is not None
        true = certificate(fabric, chunks, bound, witness)
        assert check_certificate(true).ok
        rejected += not still_true(changed(true, rng))
    assert rejected > INSTANCES // 4


def one_far_end() -> tuple[Fabric, Chunks]:
    """The third node sends nothing on rail 1, so that the first has to fill it alone: it has 6 or
    12 bytes for it, and 8 would be even.
    """
    rates = np.array([[2, 2], [2, 2], [2, 0]])
    src, size = [0, 0, 2, 2, 2, 2], [6, 6, 1, 1, 1, 1]
    chunks = Chunks.from_arrays(src=src, dst=[1] * 6, size=size, nodes=3)
    return Fabric(3, 2, 2, rates, rates), chunks


def test_sums_that_do_not_fill_a_rail_prove_an_optimum() -> None:
    fabric, chunks = one_far_end()
    assert (optimum(fabric, chunks), least_time(fabric, chunks)) == (
        Fraction(5),
        Fraction(4),
    )
    found = chunk_sums.last_refuted(
        Cells(fabric, chunks), Fraction(4), Fraction(5), Deadline.after(60)
    )
    assert found is not None
    assert found[0] == Fraction(5)
    record = certificate(fabric, chunks, *found)
    assert check_certificate(record).kind == "whole"
    for wrong in (
        {"send": [[0, 0]] * 3, "recv": [[0, 0]] * 3},
        {"send": [[0, 0]] * 2},
        {"recv": [[1, 1, 1]] * 3},
        {"recv": [[-1, 0]] * 3},
        {"recv": 1},
        {"kind": "fluid"},
        {"weights": []},
    ):
        bad = copy.deepcopy(record)
        bad["witness"].update(wrong)
        assert not check_certificate(bad).ok, wrong


def test_unbounded_work_is_refused_and_the_solver_stops_when_told() -> None:
    fabric, chunks = one_far_end()
    cells = Cells(fabric, chunks)
    assert chunk_sums.refute(cells, Fraction(5), Deadline.after(0)) is None
    witness = chunk_sums.refute(cells, Fraction(5), Deadline.after(60))
    record = certificate(fabric, chunks, Fraction(5), witness or {})
    assert "refused" in check_certificate(record, work=50).message


def test_sums_beyond_the_limit_are_rooms() -> None:
    few = Sums([3, 5], Meter(10**7))
    assert [few.within(room) for room in range(10)] == [0, 0, 0, 3, 3, 5, 5, 5, 8, 8]
    many = Sums([SUMS, 7], Meter(10**7))
    assert many.within(SUMS - 1) == 7
    assert many.within(SUMS) == SUMS
    assert many.within(SUMS + 1) == SUMS + 1  # no sum, but none is larger
    assert many.within(10**9) == SUMS + 7


def test_the_solver_proves_by_it() -> None:
    outcome = solve(*one_far_end(), limit_s=60)
    assert (outcome.optimal, outcome.value, outcome.bracket.witness["kind"]) == (True, 5, "whole")
    assert outcome.certificate is not None
    assert outcome.certificate.check().optimal
