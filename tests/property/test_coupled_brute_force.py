"""Coupled solver against brute force: never a wrong "proved", never a bound above the optimum.

RAILOPT_INSTANCES sets how many random instances are tried (`make test-brute-force`: 10,000).
"""

from __future__ import annotations

import copy
import os
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric
from railopt.answers.gap import gap
from railopt.checker import check_certificate
from railopt.policies import plan
from railopt.solver.coupled.solve import solve

INSTANCES = int(os.environ.get("RAILOPT_INSTANCES", "300"))
MOST = 40_000  # assignments that brute force looks at


def instance(rng: np.random.Generator) -> tuple[Fabric, Chunks]:
    """A tiny fabric and chunks of which brute force sees every assignment.  NICs are equal in a
    quarter of them; in the others some are slow or dead: each on its own, or alike in sending and
    receiving, or a few of them.
    """
    nodes, rails = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    rates = rng.choice([0, 1, 2, 3, 4], (2, nodes, rails), p=[0.15, 0.1, 0.2, 0.2, 0.35])
    kind = int(rng.integers(4))
    if kind == 0:
        rates[:] = 4
    elif kind == 1:
        rates[1] = rates[0]
    elif kind == 2:
        rates[rng.random(rates.shape) < 0.75] = 4
    rates[:, :, 0] = np.maximum(rates[:, :, 0], 1)
    count = int(rng.integers(1, 1 + int(np.log(MOST) / np.log(max(rails, 2)))))
    src = rng.integers(0, nodes, min(count, 12))
    dst = (src + rng.integers(1, nodes, len(src))) % nodes
    size = rng.integers(1, int(rng.choice([2, 4, 10, 100])), len(src)) * int(rng.choice([1, 6]))
    return Fabric(nodes, rails, rails, rates[0], rates[1]), Chunks.from_arrays(
        src=src, dst=dst, size=size, nodes=nodes
    )


def optimum(fabric: Fabric, chunks: Chunks) -> Fraction:
    """The least makespan of all assignments to living rails, all at once in integers."""
    rails, count = fabric.rails, len(chunks)
    codes = np.arange(rails**count)
    chosen = [(codes // rails**c) % rails for c in range(count)]
    scale = int(np.lcm.reduce(np.concatenate([fabric.tx[fabric.tx > 0], fabric.rx[fabric.rx > 0]])))
    worst, alive = np.zeros(len(codes), np.int64), np.ones(len(codes), bool)
    for ends, rates in ((chunks.src, fabric.tx), (chunks.dst, fabric.rx)):
        for node in set(ends.tolist()):
            for rail in range(rails):
                load = sum(
                    np.where(chosen[c] == rail, chunks.size[c], 0)
                    for c in np.flatnonzero(ends == node)
                )
                if rates[node, rail]:
                    worst = np.maximum(worst, load * (scale // rates[node, rail]))
                else:
                    alive &= load == 0
    return Fraction(int(worst[alive].min()), scale)


@pytest.mark.parametrize("part", range(4))
def test_never_a_wrong_proof(part: int) -> None:
    proved = total = 0
    for seed in range(part, INSTANCES, 4):
        fabric, chunks = instance(np.random.default_rng([7, seed]))
        best = optimum(fabric, chunks)
        # CP-SAT starts after a quarter of the limit: short, so that hundreds of instances need no
        # process each
        outcome = solve(fabric, chunks, 0.05, seed=seed)
        assert outcome.value is not None
        assert outcome.plan is not None
        assert outcome.bound <= best <= outcome.value == outcome.plan.makespan, f"seed {seed}"
        assert (
            outcome.optimal == (outcome.bound == outcome.value) or outcome.optimum == "claimed"
        ), f"seed {seed}"
        assert outcome.notes == (), f"seed {seed}"
        assert outcome.certificate is not None
        verdict = outcome.certificate.check()
        assert (verdict.ok, verdict.optimal) == (True, outcome.optimal), f"seed {seed}: {verdict}"
        total, proved = total + 1, proved + outcome.optimal
    assert proved > total / 3  # far more where nobody else wants the processor


@pytest.mark.parametrize("less", [0, 1])
def test_never_a_wrong_proof_on_large_multiples(less: int) -> None:
    """Sizes x 2**40, and with a chunk less a byte, so that no common divisor makes them small."""
    proved = total = 0
    for seed in range(INSTANCES // 8):
        fabric, chunks = instance(np.random.default_rng([9, seed]))
        small, size = optimum(fabric, chunks), chunks.size * (1 << 40)
        size[seed % len(size)] -= less
        given = Chunks.from_arrays(src=chunks.src, dst=chunks.dst, size=size, nodes=chunks.nodes)
        best = optimum(fabric, given)
        assert small * (1 << 40) - less <= best <= small * (1 << 40)
        outcome = solve(fabric, given, 0.05, seed=seed)
        assert outcome.value is not None
        assert outcome.bound <= best <= outcome.value, f"seed {seed}"
        assert outcome.notes == (), f"seed {seed}"
        assert outcome.certificate is not None
        verdict = outcome.certificate.check()
        assert (verdict.ok, verdict.optimal) == (True, outcome.optimal), f"seed {seed}: {verdict}"
        total, proved = total + 1, proved + outcome.optimal
    assert proved > total / 4


def changed(record: Any, rng: np.random.Generator) -> Any:
    """A copy with one number or side, somewhere inside, changed a little."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(value, dict | list):
                walk(value)
            elif (
                isinstance(value, int)
                or value in ("send", "recv")
                or key in ("bound", "value", "time")
            ):
                places.append((node, key))

    fresh = copy.deepcopy(record)
    walk(fresh)
    node, key = places[int(rng.integers(len(places)))]
    old = node[key]
    if isinstance(old, bool):
        node[key] = not old
    elif old in ("send", "recv"):
        node[key] = "recv" if old == "send" else "send"
    elif isinstance(old, str):
        node[key] = str(Fraction(old) * Fraction(int(rng.choice([99, 101])), 100) or 1)
    else:
        node[key] = old + (1 if rng.random() < 0.5 or old == 0 else -1)
    return fresh


def still_true(record: dict[str, Any]) -> bool:
    """Whether the checker accepts a certificate; if it does, brute force must find all that it says
    to be so.
    """
    verdict = check_certificate(record)
    if not verdict.ok:
        return False
    problem = record["problem"]
    other = Fabric(
        problem["nodes"],
        problem["rails"],
        problem["rails"],
        np.array(problem["tx"]),
        np.array(problem["rx"]),
    )
    best = optimum(
        other,
        Chunks.from_arrays(
            **{k: np.array(v) for k, v in problem["chunks"].items()}, nodes=problem["nodes"]
        ),
    )
    assert verdict.bound is not None
    assert verdict.value is not None
    assert verdict.bound <= best <= verdict.value, record
    assert verdict.optimal == (verdict.bound == verdict.value), record
    return True


def test_a_changed_certificate_is_rejected_unless_it_is_still_true() -> None:
    rejected = 0
    for seed in range(INSTANCES // 4):
        rng = np.random.default_rng([8, seed])
        fabric, chunks = instance(rng)
        record = changed(
            gap(plan(fabric, chunks, "lpt-global"), limit_s=0).certificate.as_dict(), rng
        )
        rejected += not still_true(record)
    assert rejected > INSTANCES // 20
