"""The local solver against brute force: never a wrong value, never a wrong "proved", and every
proof checks.

RAILOPT_INSTANCES sets how many random instances are tried (`make test-brute-force`: 10,000).
Half of them have rails of different speeds, some of these dead.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections import Counter
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.base.kernels import kernel
from railopt.checker import Meter, Packing, cover
from railopt.evidence.certificate import Certificate
from railopt.solver.local.solve import solve_local
from railopt.solver.local.steps import BY_WEIGHTS, STEPS

INSTANCES = int(os.environ.get("RAILOPT_INSTANCES", "300"))
LARGE = max(100, INSTANCES // 10)


def brute_force(sizes: list[int], speeds: list[int]) -> Fraction:
    """The optimum over all assignments to live rails."""
    live = [speed for speed in speeds if speed]
    common = lcm(*live)
    return Fraction(
        int(least_time(np.array(sizes), np.array([common // speed for speed in live]))), common
    )


@kernel
def least_time(sizes: Any, slowness: Any) -> int:
    """The least max of load * slowness, by counting through all assignments."""
    rails, n, best = slowness.size, sizes.size, sizes.sum() * slowness.max()
    for code in range(rails**n):
        loads, rest = np.zeros(rails, np.int64), code
        for job in range(n):
            loads[rest % rails] += sizes[job]
            rest //= rails
        best = min(best, (loads * slowness).max())
    return best


def random_instance(rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Up to 8 sizes, up to 4 rails; half of the instances have rails of different speeds, some of
    them dead.
    """
    top, scale = int(rng.choice([2, 5, 12, 60, 1000, 10**6])), int(rng.choice([1, 1, 1, 8192]))
    sizes = (rng.integers(1, top + 1, int(rng.integers(1, 9))) * scale).tolist()
    rails = int(rng.integers(1, 5))
    speeds = (
        [1] * rails
        if rng.random() < 0.5
        else [int(rng.integers(1, 5)), *rng.integers(0, 5, rails - 1).tolist()]
    )
    return sizes, speeds


def least_time_of_few_sizes(sizes: list[int], speeds: list[int]) -> Fraction:
    """The optimum of many jobs with a small sum: all loads that all rails but the last can have
    together.
    """
    total, common = sum(sizes), lcm(*speeds)
    reached = np.zeros((total + 1,) * (len(speeds) - 1), np.bool_)
    reached.flat[0] = True
    for size in sizes:
        before = reached.copy()
        for rail in range(reached.ndim):
            reached.swapaxes(0, rail)[size:] |= before.swapaxes(0, rail)[:-size]
    loads = np.argwhere(reached)
    times = np.column_stack([loads, total - loads.sum(axis=1)]) * (common // np.array(speeds))
    return Fraction(int(times.max(axis=1).min()), common)


def test_never_wrong_on_mostly_caps() -> None:
    """Many jobs of few sizes, by the steps that a node of cut traffic is given and by all steps."""
    rng, closed, slanted = np.random.default_rng(21), 0, 0
    for _ in range(max(40, INSTANCES // 10)):
        rails, cap = int(rng.integers(2, 4)), int(rng.integers(2, 7))
        n = 12 * rails + int(rng.integers(1, 6))
        others = rng.integers(1, cap, int(rng.integers(1, 8)))
        sizes = [*[cap] * (n - len(others)), *others.tolist()]
        speeds = rng.integers(1, 4, rails).tolist()
        optimum = least_time_of_few_sizes(sizes, speeds)
        for chosen in (BY_WEIGHTS, STEPS):
            found = solve_local(sizes, speeds=speeds, limit_s=60, chosen=chosen)
            assert found.bound <= optimum <= found.value, (sizes, speeds)
            assert found.checkable, (sizes, speeds, found.searched.by)
            closed += found.closed
            assert found.closed or chosen is BY_WEIGHTS, (sizes, speeds)
        slanted += len(set(speeds)) > 1
    assert slanted > 10
    assert closed > 40


def test_never_wrong_against_brute_force() -> None:
    rng, kinds = np.random.default_rng(2026), Counter[str]()
    for _ in range(INSTANCES):
        sizes, speeds = random_instance(rng)
        shape: dict[str, Any] = {"rails": len(speeds)} if set(speeds) == {1} else {"speeds": speeds}
        outcome = solve_local(sizes, **shape, limit_s=60)
        assert outcome.value == brute_force(sizes, speeds), (sizes, shape)
        assert outcome.optimal, (sizes, shape)
        assert outcome.notes == (), (sizes, shape)
        verdict = outcome.certificate().check()
        assert verdict.ok, (sizes, shape, verdict)
        assert verdict.optimal
        kinds[verdict.kind] += 1
    assert {"pigeonhole", "average", "count", "cover"} <= set(kinds), kinds


def test_never_wrong_on_large_multiples() -> None:
    """Sizes x 2**40, and the same less a few bytes, so that no common divisor makes them small: at
    most that much below the multiple of the small optimum.
    """
    rng, odd, large = np.random.default_rng(40), 0, 1 << 40
    for _ in range(LARGE):
        sizes, speeds = random_instance(rng)
        sizes = [size % 1000 + 1 for size in sizes]
        shape: dict[str, Any] = {"rails": len(speeds)} if set(speeds) == {1} else {"speeds": speeds}
        best = brute_force(sizes, speeds)
        whole = solve_local([size * large for size in sizes], **shape, limit_s=60)
        assert (whole.value, whole.optimal, whole.notes) == (best * large, True, ()), (sizes, shape)
        less = rng.integers(0, 100, len(sizes)).tolist()
        given = [size * large - off for size, off in zip(sizes, less, strict=True)]
        near = solve_local(given, **shape, limit_s=1)
        exact = brute_force(given, speeds)
        assert near.bound <= exact <= near.value, (given, shape)
        assert best * large - sum(less) <= exact <= best * large
        assert near.closed <= (near.value == exact)
        assert near.notes == ()
        odd += near.closed
        verdict = near.certificate().check()
        assert verdict.ok, (given, shape, verdict)
    assert odd > LARGE // 2


def test_the_kernels_cover_decides_as_brute_force_does() -> None:
    """Alone, with any weights in any order, it accepts exactly what can't be carried."""
    rng, accepted, total = np.random.default_rng(11), 0, 0
    for _ in range(INSTANCES):
        sizes, speeds = random_instance(rng)
        live = [speed for speed in speeds if speed]
        sizes, goal = (
            sorted(sizes, reverse=True),
            brute_force(sizes, speeds) + Fraction(int(rng.integers(-1, 1)), lcm(*live)),
        )
        capacities = [int(goal * speed) for speed in live]
        weights = [
            [int(size), int(rng.integers(0, 2 * size))]
            for size in rng.permutation(sorted(set(sizes)))
        ]
        refuted = (
            cover(
                Packing(sizes, capacities, 1),
                {"weights": weights} if rng.random() < 0.5 else {},
                Meter(10**9),
            )
            if max(capacities)
            else True
        )
        assert refuted == (goal < brute_force(sizes, speeds)), (sizes, capacities, weights)
        accepted, total = accepted + refuted, total + 1
    assert 0.3 < accepted / total < 0.7


def medium_instances() -> list[tuple[str, list[int], int]]:
    """Instances that between them need every kind of witness."""
    rng = np.random.default_rng(7)
    uniform = [
        np.sort(rng.integers(1, top + 1, n))[::-1].tolist()
        for top, n in ((100, 12), (10**4, 20), (10**4, 24), (10**6, 16))
    ]
    return [
        (f"{len(sizes)} jobs", sizes, rails)
        for sizes, rails in zip(uniform, (4, 8, 8, 4), strict=True)
    ] + [
        ("dual", [6, 6, 6, 4, 4], 2),
        ("sums", [9, 9, 9, 2], 2),
        ("perfect", list(range(40, 0, -1)), 4),
    ]


def mutations(record: Any) -> list[Any]:
    """Every copy with one number or string changed, one key dropped, or one list element
    dropped.
    """
    found: list[Any] = []

    def visit(path: tuple[Any, ...], value: Any) -> None:
        if isinstance(value, dict):
            for key in value:
                found.append(("drop", (*path, key)))
                visit((*path, key), value[key])
        elif isinstance(value, list):
            for index in sorted({0, len(value) // 2, len(value) - 1}) if value else ():
                found.append(("drop", (*path, index)))
                visit((*path, index), value[index])
        else:
            found.append(("change", path))

    visit((), record)
    changed = []
    for action, path in found:
        for step in (1, -1) if action == "change" else (0,):
            other = copy.deepcopy(record)
            parent = other
            for key in path[:-1]:
                parent = parent[key]
            if action == "drop":
                del parent[path[-1]]
            elif isinstance(parent[path[-1]], bool):
                parent[path[-1]] = not parent[path[-1]]
            elif isinstance(parent[path[-1]], int):
                parent[path[-1]] += step
            else:
                text = parent[path[-1]]
                parent[path[-1]] = str(Fraction(text) + step) if text.isdigit() else text + "x"
            changed.append(other)
    return changed


@pytest.mark.parametrize(
    ("name", "sizes", "rails"),
    medium_instances(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_changed_certificate_is_rejected_unless_still_true(
    name: str, sizes: list[int], rails: int
) -> None:
    outcome = solve_local(sizes, rails, limit_s=60)
    assert outcome.optimal
    record = outcome.certificate().as_dict()
    assert Certificate.from_dict(json.loads(json.dumps(record))).check().optimal
    from railopt.checker import check_certificate

    accepted = 0
    for other in mutations(record):
        verdict = check_certificate(other)
        if not verdict.ok:
            continue
        accepted += 1
        problem = other["problem"]
        truth = solve_local(problem["sizes"], problem["rails"], limit_s=60)
        assert truth.optimal
        assert verdict.bound is not None
        assert verdict.bound <= truth.value, (name, other)
        assert verdict.value is None or verdict.value >= truth.value
        assert not verdict.optimal or verdict.value == truth.value
    assert accepted < len(mutations(record)) / 2


def test_the_time_limit_holds_and_the_best_known_survives() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 10**6, 80)
    solve_local(sizes, 16, limit_s=0.5)  # compiles what is not compiled yet
    start = time.perf_counter()
    outcome = solve_local(sizes, 16, limit_s=0.3)
    assert time.perf_counter() - start < 30  # a hang, not a slow machine
    assert not outcome.optimal
    assert outcome.bound < outcome.value < outcome.bound * Fraction(101, 100)
    assert outcome.certificate().check().ok


def test_equal_seeds_give_equal_answers() -> None:
    sizes = np.random.default_rng(3).integers(1, 10**4, 80)
    first, second = (solve_local(sizes, 16, limit_s=60, seed=5) for _ in range(2))
    assert first.optimal
    assert first.assignment.tolist() == second.assignment.tolist()
    assert first.witness == second.witness


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ([], {"rails": 3}),
        ([], {"speeds": [0, 2]}),
        ([5], {"rails": 3}),
        ([5], {"speeds": [0, 2]}),
        ([3, 3], {"rails": 1}),
        ([2**40] * 5, {"rails": 2}),
    ],
)
def test_edges(sizes: list[int], shape: dict[str, Any]) -> None:
    outcome = solve_local(sizes, **shape)
    assert outcome.optimal
    assert outcome.certificate().check().optimal


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ([0, 1], {"rails": 2}),
        ([-1], {"rails": 2}),
        ([1], {"rails": 0}),
        ([1], {}),
        ([1.5], {"rails": 2}),
        ([1], {"rails": 1, "speeds": [1]}),
        ([1], {"speeds": [0]}),
        ([1], {"speeds": [-1]}),
    ],
)
def test_bad_input_is_refused(sizes: list[Any], shape: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        solve_local(sizes, **shape)


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ({"speeds": [0.5, 1.0]}, r"= 0.5: expected a whole number"),
        ({"speeds": [float("nan")]}, r"= nan: expected a whole number"),
        ({"speeds": ["x"]}, r"= 'x': expected a whole number"),
        ({"rails": 1.5}, r"rails = 1.5: expected a whole number"),
        ({"rails": 10**9}, r"expected a whole number from 1 to 1048576"),
        ({"rails": 2, "limit_s": float("nan")}, "a time limit of nan: expected seconds"),
    ],
)
def test_what_is_no_whole_number_is_refused(shape: dict[str, Any], complaint: str) -> None:
    """Cut to whole numbers, a proof would be about other rails."""
    with pytest.raises(InputError, match=complaint):
        solve_local([2, 1], **shape)
