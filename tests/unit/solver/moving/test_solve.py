"""Both aims for whole units: by hand, by every back-end, and with back-ends that fail."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from railopt import Chunks, Fabric, Plan, plan
from railopt.base.errors import InputError
from railopt.model.moves import rail_costs
from railopt.solver.moving import solve as moving
from railopt.solver.moving.bound import least_moved
from railopt.solver.moving.solve import Best, MovingOutcome, solve_moving
from railopt.solver.program.backends import BACKENDS
from railopt.solver.program.process import run
from railopt.solver.program.program import build_moved

FABRIC = Fabric.uniform(3, 4, gpus=4, link=4)


def units(count: int, seed: int) -> Chunks:
    rng = np.random.default_rng(seed)
    src_gpu = rng.integers(0, 12, count)
    dst = (src_gpu // 4 + rng.integers(1, 3, count)) % 3
    needed = rng.random((count, 4)) < 0.4
    size = rng.integers(1, 50, count)
    return Chunks.from_units(FABRIC, src_gpu=src_gpu, dst=dst, size=size, targets=needed)


def test_by_hand() -> None:
    """One GPU has units of 3, 3 and 2 bytes: alone on three NICs, the largest own NIC's."""
    chunks = Chunks.from_units(FABRIC, src_gpu=[0, 0, 0], dst=[1, 1, 1], size=[3, 3, 2])
    found = solve_moving(FABRIC, chunks, 2.0)
    assert found.proved
    assert found.time.value == Fraction(3, 4)
    assert found.moved.value == 5
    assert found.certificate.check().proved
    assert found.certificate.value == 5


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_back_end_finds_what_moves_least(backend: str) -> None:
    """Within a time that leaves a choice; where one can't run here it says what to install."""
    chunks = units(9, 0)
    start = plan(FABRIC, chunks, "lpt")
    best = Best(start, least_moved(FABRIC, chunks, start.makespan))
    problem = build_moved(FABRIC, chunks, rail_costs(FABRIC, chunks), start.makespan, start.rail)
    done = run(BACKENDS[backend], problem.program, 60)
    if done.failure and "can't run here" in done.failure:
        assert "pip install" in done.failure
        return
    assert done.failure is None
    assert done.answers[-1].optimal
    asked = Best(start, least_moved(FABRIC, chunks, start.makespan))
    assert asked.ask(backend, 60) == []
    best.search()
    assert best.bracket().proved
    assert asked.claim or asked.bracket().proved
    assert asked.plan.moved == best.plan.moved < start.moved
    assert asked.plan.makespan <= start.makespan


def test_a_claim_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "STEPS", 3)
    chunks = units(14, 3)
    found = solve_moving(FABRIC, chunks, 10.0, backend="highs")
    verdict = found.certificate.check()
    assert verdict.ok
    assert verdict.proved == found.moved.proved
    assert str(found.moved.status) in ("proved", "claimed", "open")
    if found.moved.status == "claimed":
        assert "highs" in found.moved.by


def test_a_claim_loses_no_bound_that_has_a_witness() -> None:
    chunks = units(9, 0)
    start = plan(FABRIC, chunks, "lpt")
    best = Best(start, least_moved(FABRIC, chunks, start.makespan))
    best.claim = "a solver"
    known = best.bracket()
    assert (known.status, known.bound, known.certified_bound) == (
        "claimed",
        start.moved,
        best.lower,
    )
    verdict = MovingOutcome(start, known, known, 0.0).certificate.check()
    assert (verdict.ok, verdict.optimum, verdict.bound) == (True, "open", best.lower)
    assert best.lower < start.moved


def test_a_search_that_does_not_end_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "STEPS", 1)
    monkeypatch.setattr(moving, "ILP_VARIABLES", 0)
    for seed in range(5):
        chunks = units(12, seed)
        found = solve_moving(FABRIC, chunks, 0.3)
        assert found.moved.bound <= found.plan.moved == found.moved.value
        assert found.certificate.check().ok


def test_odd_asks() -> None:
    chunks = units(5, 0)
    with pytest.raises(InputError, match="unknown back-end"):
        solve_moving(FABRIC, chunks, backend="magic")
    dead = np.full((3, 4), 4)
    dead[0] = 0
    with pytest.raises(InputError, match="no plan exists"):
        solve_moving(Fabric(3, 4, 4, dead, dead), chunks)
    start = Plan(FABRIC, chunks, np.zeros(5, np.int16))
    assert solve_moving(FABRIC, chunks, 0.5, start=start).plan.makespan <= start.makespan


def test_a_limit_or_back_end_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="expected seconds, a number"):
        solve_moving(FABRIC, units(3, 0), "10s")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown back-end"):
        solve_moving(FABRIC, units(3, 0), backend=[])  # type: ignore[arg-type]
