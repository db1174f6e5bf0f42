"""The Coq programs and the Python functions are the same functions: both compute random small
instances.
"""

import random
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from railopt.checker import Meter, Slots, check_certificate, shows
from railopt.evidence.bounds import local_bound, pigeonhole
from railopt.evidence.certificate import Certificate
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.policies import plan
from railopt.symbolic.coq import build as coq
from tests.proofs.terms import grouped, numbers, rooms_before, sides, table, witness_term

IMPORTS = (
    "From Coq Require Import NArith QArith List.\nFrom Rails Require Import Schedule Greedy "
    "Jobs Certificate Joint Fluid.\nFrom Rails Require Spare Program.\n"
)
PRINTING = (
    "Import ListNotations. Open Scope nat_scope. Set Printing Width 1000000. Set Printing "
    "Depth 1000000.\n"
)


def computed(theory: Path, term: str) -> str:
    """What Coq's virtual machine makes of a term."""
    done = coq.compile_text(
        f"{IMPORTS}{PRINTING}Eval vm_compute in {term}.\n", folder=theory, timeout_s=120
    )
    assert done.ok, done.output[-500:]
    return done.output.partition("=")[2].rpartition(":")[0]


def verdicts(theory: Path, terms: list[str]) -> list[bool]:
    return [
        word == "true"
        for word in re.findall(r"true|false", computed(theory, "[" + "; ".join(terms) + "]"))
    ]


def some_sizes(rng: random.Random, largest: int = 40, most: int = 14) -> list[int]:
    unit = rng.choice([1, 1, 1, 3, 4096])
    return sorted(
        (unit * rng.randint(1, largest) for _ in range(rng.randint(1, most))), reverse=True
    )


def test_lpt_is_the_proved_program(theory: Path) -> None:
    rng = random.Random(1)
    cases = [
        (
            rng.randint(1, 8),
            sorted((rng.randint(1, 60) for _ in range(rng.randint(1, 24))), reverse=True),
        )
        for _ in range(150)
    ]
    shown = computed(
        theory,
        "map (fun c => map snd (list_schedule (fst c) (snd c))) ["
        + "; ".join(f"({rails}, {numbers(sizes)})" for rails, sizes in cases)
        + "]",
    )
    theirs = [
        [int(word) for word in re.findall(r"\d+", part)]
        for part in re.findall(r"\[([^\[\]]*)\]", shown)
    ]
    ours = []
    for rails, sizes in cases:
        chunks = Chunks.from_arrays(
            src=np.zeros(len(sizes), int),
            dst=np.ones(len(sizes), int),
            size=np.array(sizes),
            nodes=2,
        )
        ours.append(plan(Fabric.uniform(nodes=2, rails=rails), chunks, "lpt").rail.tolist())
    assert ours == theirs


def test_pigeonhole_bound_holds_and_its_witness_shows_no_more(theory: Path) -> None:
    rng = random.Random(2)
    terms = []
    for _ in range(120):
        sizes, rails = some_sizes(rng), rng.randint(1, 5)
        bound, witness = pigeonhole(np.array(sizes), rails)
        for claimed in (bound, bound + 1):
            term = witness_term(witness, sizes, [claimed - 1] * rails)
            terms.append(f"check {term} (repeat ({claimed} - 1)%N {rails}) {numbers(sizes)}%N")
    assert verdicts(theory, terms) == [True, False] * 120


def random_witness(
    rng: random.Random, sizes: list[int], speeds: list[int], bound: Fraction
) -> dict[str, Any]:
    kind = rng.choice(["average", "pigeonhole", "count", "dual", "cover"])
    live = sum(1 for speed in speeds if speed)
    if kind == "pigeonhole":
        return {"kind": kind, "jobs": rng.randint(1, len(sizes)), "rails": rng.randint(1, live)}
    if kind == "count":
        return {"kind": kind, "jobs": rng.randint(1, len(sizes))}
    if kind == "dual":
        return {"kind": kind, "weights": [[size, rng.randint(0, 6)] for size in sorted(set(sizes))]}
    return {"kind": kind}


def near(rng: random.Random, sizes: list[int], speeds: list[int]) -> Fraction:
    """A bound around the ones that can be shown."""
    bound, _ = local_bound(np.array(sizes), speeds)
    return max(
        Fraction(1, 7),
        bound
        + Fraction(rng.randint(-6, 8), rng.choice([1, 2, 3])) * rng.choice([0, 1, 1, sizes[-1]]),
    )


def test_local_verdicts_are_those_of_the_python_kernel(theory: Path) -> None:
    rng = random.Random(3)
    terms, expected = [], []
    while len(terms) < 500:
        sizes, rails, equal = some_sizes(rng), rng.randint(1, 4), rng.random() < 0.6
        speeds = [1] * rails if equal else [rng.choice([0, 1, 2, 3, 3]) for _ in range(rails)]
        if not any(speeds):
            continue
        bound = near(rng, sizes, speeds)
        bound = Fraction(-(-bound.numerator // bound.denominator)) if equal else bound
        rooms = rooms_before(bound, speeds)
        if not any(room // gcd(*sizes) for room in rooms):
            # no rail has room for a job: true whatever the witness, the Python kernel looks at it
            # all the same
            continue
        witness = random_witness(rng, sizes, speeds, bound)
        live = {speed for speed in speeds if speed}
        if witness["kind"] == "pigeonhole" and len(live) > 1:
            continue  # those speak of rails of one speed: the Python kernel refuses them
        certificate = Certificate.local(
            sizes, bound, witness, **({"rails": rails} if equal else {"speeds": speeds})
        )
        expected.append(check_certificate(certificate.as_dict()).ok)
        terms.append(
            f"check {witness_term(witness, sizes, rooms)} "
            f"(map (room {bound.numerator} {bound.denominator}) {numbers(speeds)}%N) "
            f"{numbers(sizes)}%N"
        )
    assert 100 < sum(expected) < 400
    found = verdicts(theory, terms)
    assert [
        term for term, ours, theirs in zip(terms, expected, found, strict=True) if ours != theirs
    ] == []


def test_fluid_verdicts_are_those_of_the_python_kernel(theory: Path) -> None:
    rng = random.Random(4)
    terms, expected = [], []
    for _ in range(120):
        nodes, rails = rng.randint(2, 3), rng.randint(1, 3)
        tx, rx, a, b = (
            [[rng.randint(low, 3) for _ in range(rails)] for _ in range(nodes)]
            for low in (1, 1, 0, 0)
        )
        tx[0][0] = rng.choice([0, 2]) if rails > 1 else 2
        demand = [[0 if s == d else rng.randint(0, 9) for d in range(nodes)] for s in range(nodes)]
        bound = Fraction(rng.randint(1, 30), rng.randint(1, 10))
        record = {
            "railopt": "certificate",
            "version": 1,
            "problem": {"kind": "fluid", "tx": tx, "rx": rx, "demand": demand},
            "claim": {"bound": str(bound), "proved": False},
            "witness": {"kind": "fluid", "send": a, "recv": b},
        }
        expected.append(check_certificate(record).ok)
        terms.append(
            f"check_prices {nodes} {rails} {table(tx)}%N {table(rx)}%N {table(a)}%N {table(b)}%N "
            f"(off_diagonal {table(demand)}%N) {bound.numerator} {bound.denominator}"
        )
    assert 20 < sum(expected) < 100
    assert verdicts(theory, terms) == expected


def joint_record(rng: random.Random) -> dict[str, Any]:
    """Some sides of a small fabric, perhaps with slow and dead NICs and sizes in units, and a bound
    near what can be shown.
    """
    nodes, rails, unit = rng.randint(2, 4), rng.randint(1, 4), rng.choice([1, 1, 3, 4096, 10**5])
    low = rng.choice([0, 1, 2])
    tx, rx = ([[rng.randint(low, 2) for _ in range(rails)] for _ in range(nodes)] for _ in range(2))
    src = [rng.randrange(nodes) for _ in range(rng.randint(1, 10))]
    dst = [(s + rng.randint(1, nodes - 1)) % nodes for s in src]
    extra = (
        rng.choice([0, 0, 1]) if unit > 1 else 0
    )  # with 10^5 bytes and one there are more sums than Coq keeps
    size = [unit * rng.randint(1, 9) + extra for _ in src]
    send, recv = (rng.sample(range(nodes), rng.randint(0, nodes)) for _ in range(2))
    loads = [
        (sum(z for e, z in zip(ends, size, strict=True) if e == k), sum(rates[k]))
        for chosen, ends, rates in ((send, src, tx), (recv, dst, rx))
        for k in chosen
    ]
    share = max((Fraction(load, rate) for load, rate in loads if rate), default=Fraction(0))
    bound = max(Fraction(1, 3), share + Fraction(rng.randint(-3, 8) * unit, rng.choice([1, 2, 3])))
    return {
        "railopt": "certificate",
        "version": 1,
        "claim": {"bound": str(bound), "proved": False},
        "problem": {
            "kind": "coupled",
            "nodes": nodes,
            "rails": rails,
            "tx": tx,
            "rx": rx,
            "chunks": {"src": src, "dst": dst, "size": size},
        },
        "witness": {"kind": "joint", "send": send, "recv": recv},
    }


def compared(
    theory: Path, records: Iterable[dict[str, Any]], check: Callable[[dict[str, Any]], str]
) -> int:
    """How many of some coupled certificates the Python kernel accepts, which Coq's check, as begun
    by `check`, does with the same.
    """
    terms, expected = [], []
    for record in records:
        verdict = check_certificate(record)
        assert "refused" not in verdict.message
        problem, bound = record["problem"], Fraction(record["claim"]["bound"])
        rows, _ = grouped([problem["chunks"][name] for name in ("src", "dst", "size")], [])
        expected.append(verdict.ok)
        terms.append(
            f"{check(record)} (chunks_of {rows}%N) {bound.numerator}%N {bound.denominator}%positive"
        )
    found = verdicts(theory, terms)
    assert [
        term for term, ours, theirs in zip(terms, expected, found, strict=True) if ours != theirs
    ] == []
    return sum(expected)


def fabric_term(problem: dict[str, Any]) -> str:
    return (
        f"{problem['nodes']} {problem['rails']} {table(problem['tx'])}%N {table(problem['rx'])}%N"
    )


def test_joint_verdicts_are_those_of_the_python_kernel(theory: Path) -> None:
    def check(record: dict[str, Any]) -> str:
        return f"check_joint {sides(record)} {fabric_term(record['problem'])}"

    rng = random.Random(6)
    assert 75 < compared(theory, (joint_record(rng) for _ in range(300)), check) < 225


def whole_record(rng: random.Random) -> dict[str, Any]:
    """A joint record's fabric and chunks with prices of whole chunks, of one side's NICs or of
    both.
    """
    record = joint_record(rng)
    problem = record["problem"]
    shape, paid = range(problem["nodes"]), rng.choice([(1, 0), (0, 1), (1, 1)])
    send, recv = (
        [[most * rng.choice([0, 1, 1, 2]) for _ in range(problem["rails"])] for _ in shape]
        for most in paid
    )
    return {**record, "witness": {"kind": "whole", "send": send, "recv": recv}}


def test_whole_verdicts_are_those_of_the_python_kernel(theory: Path) -> None:
    def check(record: dict[str, Any]) -> str:
        prices = " ".join(f"{table(record['witness'][side])}%N" for side in ("send", "recv"))
        return f"Program.check_whole {fabric_term(record['problem'])} {prices}"

    rng = random.Random(7)
    assert 60 < compared(theory, (whole_record(rng) for _ in range(300)), check) < 240


def test_plan_is_on_time_at_its_makespan_and_not_before(theory: Path) -> None:
    rng = np.random.default_rng(5)
    terms = []
    for _ in range(25):
        nodes, rails = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        src = rng.integers(0, nodes, 12)
        chunks = Chunks.from_arrays(
            src=src,
            dst=(src + rng.integers(1, nodes, 12)) % nodes,
            size=rng.integers(1, 1 << 20, 12),
            nodes=nodes,
        )
        made = plan(Fabric.uniform(nodes=nodes, rails=rails), chunks, "lpt-global")
        tx, rx = table(made.fabric.tx.tolist()), table(made.fabric.rx.tolist())
        rows, rail = grouped(
            [getattr(chunks, name).tolist() for name in ("src", "dst", "size")], made.rail.tolist()
        )
        instance = f"{nodes} {rails} {tx}%N {rx}%N (chunks_of {rows}%N) (runs_of {rail}%N)"
        terms += [
            f"check_plan {instance} {time.numerator}%N {time.denominator}%positive"
            for time in (made.makespan, made.makespan - Fraction(1, 10**15))
        ]
    assert verdicts(theory, terms) == [True, False] * 25


def some_slots(rng: random.Random) -> Slots:
    """Up to three GPUs and four experts, each held somewhere, some copies barred."""
    ranks, experts = rng.randint(2, 3), rng.randint(2, 4)
    holds: list[set[int]] = [set() for _ in range(ranks)]
    for expert in range(experts):
        holds[rng.randrange(ranks)].add(expert)
    barred = {(r, e) for r in range(ranks) for e in range(experts) if rng.random() < 0.2}
    return Slots(
        [rng.randint(0, 9) for _ in range(experts)],
        holds,
        [rng.randint(0, 2) for _ in range(ranks)],
        None,
        [{0} for _ in range(experts)],
        barred,
    )


def some_witness(rng: random.Random, slots: Slots, cases: int) -> tuple[dict[str, Any], str]:
    """For the kernel, and as a Coq term."""
    free = [
        (e, r)
        for r, held in enumerate(slots.holds)
        for e in range(len(slots.counts))
        if slots.spare[r] and e not in held and (r, e) not in slots.barred
    ]
    if cases and free:
        expert, gpu = rng.choice(free)
        holds = [held | {expert} if r == gpu else held for r, held in enumerate(slots.holds)]
        spare = [left - (r == gpu) for r, left in enumerate(slots.spare)]
        there = some_witness(rng, slots._replace(holds=holds, spare=spare), cases - 1)
        absent = some_witness(rng, slots._replace(barred=slots.barred | {(gpu, expert)}), cases - 1)
        return (
            {"kind": "cases", "copy": [expert, gpu], "with": there[0], "without": absent[0]},
            f"(Spare.Cases {expert} {gpu} {there[1]} {absent[1]})",
        )
    chosen = [e for e in range(len(slots.counts)) if rng.random() < 0.8]
    falling = sorted(chosen, key=lambda e: -slots.counts[e])
    return {"kind": "room", "experts": chosen}, f"(Spare.Room [{'; '.join(map(str, falling))}])"


def _lookup(rows: list[list[bool]]) -> str:
    text = "; ".join("[" + "; ".join(str(x).lower() for x in row) + "]" for row in rows)
    return f"(fun r e => nth e (nth r [{text}] []) false)"


def test_witnesses_of_spare_slots(theory: Path) -> None:
    rng, terms, said = random.Random(15), [], []
    for _ in range(60):
        slots = some_slots(rng)
        ranks, experts = len(slots.holds), len(slots.counts)
        witness, term = some_witness(rng, slots, rng.randint(0, 2))
        holds = [[e in held for e in range(experts)] for held in slots.holds]
        may = [[(r, e) not in slots.barred for e in range(experts)] for r in range(ranks)]
        counts, spare = ("; ".join(map(str, row)) for row in (slots.counts, slots.spare))
        most = rng.randint(0, 12)
        terms.append(
            f"Spare.shows {ranks} {experts} (fun e => nth e [{counts}] 0) "
            f"(Spare.Slots {_lookup(holds)} {_lookup(may)} (fun r => nth r [{spare}] 0)) "
            f"{most} {term}"
        )
        said.append(shows(slots, witness, most, Meter(10**6)))
    assert 10 < sum(said) < 50
    assert verdicts(theory, terms) == said
