"""Joint witnesses against brute force: over all sides the search is exact, over some it never
refutes what can be done.
"""

from __future__ import annotations

import copy
import os
from fractions import Fraction
from typing import Any

import numpy as np

from railopt import Chunks, Fabric, solve
from railopt.checker import Verdict, check_certificate
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import certify
from railopt.policies import plan
from railopt.solver.coupled import joint
from railopt.solver.coupled.search import Cells
from railopt.solver.local.deadline import Deadline
from tests.property.test_coupled_brute_force import changed, instance, optimum, still_true

INSTANCES = int(os.environ.get("RAILOPT_INSTANCES", "300")) // 2


def verdict_on(
    fabric: Fabric, chunks: Chunks, bound: Fraction, send: list[int], recv: list[int], **more: Any
) -> Verdict:
    """What the checker says of these sides ruling out every plan faster than `bound`."""
    witness = {"kind": "joint", "send": send, "recv": recv}
    record = certify(
        plan(fabric, chunks, "lpt-global"), Bracket(None, bound, Status.OPEN, witness)
    ).as_dict()
    del record["assignment"], record["claim"]["value"]
    record["claim"].update(optimal=False, optimum="open")
    return check_certificate(record, **more)


def test_all_sides_together_are_exact_and_some_are_sound() -> None:
    more_than_nodes = 0
    for seed in range(INSTANCES):
        rng = np.random.default_rng([9, seed])
        fabric, chunks = instance(rng)
        best, all_nodes = optimum(fabric, chunks), list(range(fabric.nodes))
        above = best + Fraction(1, 10**6)
        assert verdict_on(fabric, chunks, best, all_nodes, all_nodes).ok, f"seed {seed}"
        assert not verdict_on(fabric, chunks, above, all_nodes, all_nodes).ok, f"seed {seed}"
        some = [
            rng.permutation(fabric.nodes)[: int(rng.integers(0, fabric.nodes + 1))].tolist()
            for _ in range(2)
        ]
        assert not verdict_on(fabric, chunks, above, *some).ok, f"seed {seed}: {some}"
        more_than_nodes += not any(
            verdict_on(fabric, chunks, best, *one).ok
            for k in all_nodes
            for one in (([k], []), ([], [k]))
        )
    assert more_than_nodes > INSTANCES // 100  # some optima need more than one node


def coupled_gap() -> tuple[Fabric, Chunks]:
    """Four nodes, four rails and four chunks a pair: every node alone could be done in 168 bytes a
    rail, all together in 169.
    """
    src, dst = (np.repeat(ends, 4) for ends in np.nonzero(~np.eye(4, dtype=bool)))
    size = np.random.default_rng([0, 4, 4, 4, False]).integers(1, 101, len(src))
    return Fabric(
        4, 4, 4, np.ones((4, 4), np.int64), np.ones((4, 4), np.int64)
    ), Chunks.from_arrays(src=src, dst=dst, size=size, nodes=4)


def test_an_optimum_above_every_node_is_proved() -> None:
    outcome = solve(*coupled_gap(), limit_s=60)
    assert (outcome.optimum, outcome.value, outcome.bracket.witness["kind"]) == (
        "known",
        169,
        "joint",
    )
    assert outcome.certificate is not None
    verdict = outcome.certificate.check()
    assert (verdict.ok, verdict.optimal, verdict.kind) == (True, True, "joint"), verdict
    assert (outcome.bracket.witness["send"], outcome.bracket.witness["recv"]) == ([1], [2])


def test_what_a_joint_certificate_names_is_checked() -> None:
    fabric, chunks = coupled_gap()
    outcome = solve(fabric, chunks, limit_s=60)
    assert outcome.certificate is not None
    record = outcome.certificate.as_dict()
    witness = record["witness"]
    for wrong in (
        {"send": [], "recv": []},
        {"send": witness["send"], "recv": []},
        {"send": [0], "recv": [1]},
        {"send": [4], "recv": [2]},
        {"send": [-1], "recv": [2]},
        {"send": 1, "recv": [2]},
        {"send": ["1"], "recv": [2]},
        {"send": [1]},
        {"capacity": 168},
    ):
        assert not check_certificate({**record, "witness": {"kind": "joint", **wrong}}).ok, wrong
    larger = copy.deepcopy(record)
    larger["claim"].update(bound="170", value="170")
    assert not check_certificate(larger).ok
    assert not check_certificate(
        {**record, "problem": {**record["problem"], "tx": [[2] * 4] * 4, "rx": [[2] * 4] * 4}}
    ).ok
    weaker = copy.deepcopy(
        record
    )  # a lower bound by the same sides is true, but no longer meets the value
    weaker["claim"].update(bound="168", optimal=False, optimum="open")
    assert (check_certificate(weaker).ok, check_certificate(weaker).optimal) == (True, False)
    more = {**record, "witness": {"kind": "joint", "send": [0, 1], "recv": [2, 2]}}
    assert check_certificate(more).optimal


def test_a_changed_certificate_is_rejected_unless_it_is_still_true() -> None:
    rejected = 0
    for seed in range(INSTANCES):
        rng = np.random.default_rng([10, seed])
        fabric, chunks = instance(rng)
        nodes = list(range(fabric.nodes))
        witness = {"kind": "joint", "send": nodes, "recv": nodes}
        bracket = Bracket(None, optimum(fabric, chunks), Status.OPEN, witness)
        true = certify(plan(fabric, chunks, "lpt-global"), bracket).as_dict()
        assert check_certificate(true).ok
        rejected += not still_true(changed(true, rng))
    assert rejected > INSTANCES // 4


def test_unbounded_work_is_refused() -> None:
    rng = np.random.default_rng(3)
    src, dst = (np.repeat(ends, 4) for ends in np.nonzero(~np.eye(8, dtype=bool)))
    chunks = Chunks.from_arrays(src=src, dst=dst, size=rng.integers(1, 10**6, len(src)), nodes=8)
    fabric, nodes = Fabric.uniform(8, 8), list(range(8))
    for bound, sizes in ((Fraction(1), chunks.size), (Fraction(10**50), chunks.size * 10**9 + 1)):
        problem = Chunks.from_arrays(src=src, dst=dst, size=sizes, nodes=8)
        verdict = verdict_on(fabric, problem, bound, nodes, nodes, work=1_000_000)
        assert not verdict.ok
        assert "refused" in verdict.message, verdict


def test_the_solver_offers_tight_sides_and_stops_when_told() -> None:
    fabric, chunks = coupled_gap()
    cells, deadline = Cells(fabric, chunks), Deadline.after(60)
    assert joint.refute(cells, Fraction(169), 0, 250_000, deadline) is None
    assert joint.refute(cells, Fraction(169), 100, 250_000, deadline) == {
        "kind": "joint",
        "send": [1],
        "recv": [2],
    }
    assert joint.refute(cells, Fraction(169), 100, 0, deadline) is None
    assert joint.refute(cells, Fraction(170), 100, 250_000, deadline) is None
    assert joint.refute(cells, Fraction(169), 100, 250_000, Deadline.after(0)) is None
