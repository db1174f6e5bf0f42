"""Write `proofs/counterexamples/`: what the adversary finds, and the hand-made minimal ones.

python -m proofs.find            rewrite the folder; the same files every time
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any, NamedTuple

from railopt.base.arrays import write_atomic
from railopt.symbolic.registry import proofs_folder
from railopt.symbolic.search.adversary import WorstInstance, smallest_gap, worst_lpt, worst_receive
from railopt.symbolic.search.counterexamples import Record, policy_rails, replay
from railopt.symbolic.search.oracle import (
    Instance,
    best_coupled,
    best_local,
    greedy,
    run_side_by_side,
)
from railopt.symbolic.statements.fast import Hot
from railopt.symbolic.statements.scheduling import list_family


class Figures(NamedTuple):
    """What the refuted claim's plan costs, the best possible, and what the claim would allow."""

    value: int | Fraction
    optimum: int | Fraction
    at_most: int | Fraction


def record(
    theorem: str,
    claim: str,
    kind: str,
    best: Record,
    bad: Record,
    figures: Figures,
    where: Sequence[str] = (),
) -> Record:
    """One counterexample, as its file holds it (see counterexamples.py)."""
    return {
        "railopt": "counterexample",
        "version": 1,
        "theorem": theorem,
        "claim": claim,
        "kind": kind,
        "best": best,
        "bad": bad,
        "where": list(where),
        **{name: str(value) for name, value in figures._asdict().items()},
    }


def certificate(problem: Record, optimum: Any, witness: Record, **attained: Any) -> Record:
    """A proved certificate."""
    return {
        "railopt": "certificate",
        "version": 1,
        "problem": problem,
        "witness": witness,
        **attained,
        "claim": {"bound": str(optimum), "value": str(optimum), "proved": True},
    }


def coupled(
    instance: Instance,
    rails: int,
    assignment: Sequence[int],
    optimum: int,
    witness: Record | None = None,
) -> Record:
    """The certificate of unit-rate chunks; without a witness, their optimum is the average of a
    node.
    """
    nodes = 1 + max(end for chunk in instance for end in chunk[:2])
    ones = [[1] * rails for _ in range(nodes)]
    src, dst, size = ([chunk[i] for chunk in instance] for i in range(3))
    problem = {
        "kind": "coupled",
        "nodes": nodes,
        "rails": rails,
        "tx": ones,
        "rx": ones,
        "chunks": {"src": src, "dst": dst, "size": size},
    }
    loads = [
        (sum(c[2] for c in instance if c[side] == k), side, k)
        for side in (0, 1)
        for k in range(nodes)
    ]
    _, side, node = max(loads)
    by_node = {
        "kind": "node",
        "node": node,
        "side": ("send", "recv")[side],
        "witness": {"kind": "average"},
    }
    return certificate(problem, optimum, witness or by_node, assignment=list(assignment))


def local(sizes: Sequence[int], rails: int) -> Record:
    """The certificate of one sender's chunks on equal rails whose optimum is the average."""
    optimum = best_local(sizes, rails)
    return certificate(
        {"kind": "local", "sizes": list(sizes), "rails": rails},
        optimum,
        {"kind": "average"},
        assignment=_fill(list(sizes), rails, optimum),
    )


def _fill(sizes: list[int], rails: int, capacity: int) -> list[int]:
    """An assignment within the capacity, by backtracking."""
    room, chosen = [capacity] * rails, []

    def place(i: int) -> bool:
        if i == len(sizes):
            return True
        for rail in range(rails):
            if room[rail] >= sizes[i] and room[rail] not in room[:rail]:
                room[rail] -= sizes[i]
                chosen.append(rail)
                if place(i + 1):
                    return True
                chosen.pop()
                room[rail] += sizes[i]
        return False

    assert place(0)
    return chosen


def fluid(
    tx: list[list[int]], demand: list[list[int]], node: int, flow: Record, optimum: Fraction
) -> Record:
    """The certificate of divisible traffic whose optimum is what one node's NICs can receive or
    send: prices of 1 on them.
    """
    rails = len(tx[0])
    price, zero = [[int(k == node)] * rails for k in range(len(tx))], [[0] * rails for _ in tx]
    sends = Fraction(sum(demand[node]), sum(tx[node])) == optimum
    witness = {"kind": "fluid", "send": price if sends else zero, "recv": zero if sends else price}
    return certificate(
        {"kind": "fluid", "tx": tx, "rx": tx, "demand": demand}, optimum, witness, flow=flow
    )


def flow(unit: int, moves: dict[tuple[int, int], Sequence[int]]) -> Record:
    """(src, dst) -> amount on each rail, in 1/unit bytes."""
    rows = [
        (k, f, n, amount)
        for (k, f), amounts in moves.items()
        for n, amount in enumerate(amounts)
        if amount
    ]
    return {
        "unit": unit,
        **{key: [row[i] for row in rows] for i, key in enumerate(("src", "dst", "rail", "amount"))},
    }


# ---------------------------------------------------------------- the files
def build() -> Iterator[tuple[str, Record]]:
    """(file name, counterexample)."""
    yield from _t2()
    yield from _t4()
    yield from _t5()
    yield from _t6()
    yield from _t8()
    yield from _t9()
    yield from _t10()
    yield from _t17()
    yield from _t18()


def _t2() -> Iterator[tuple[str, Record]]:
    uniform: Instance = tuple((k, f, 1) for k in range(3) for f in range(3) if f != k)
    bad, good = [0, 1, 0, 1, 0, 1], list(best_coupled(uniform, 2)[1])
    yield (
        "T2-uniform-sending-m3-n2.json",
        record(
            "T2",
            "aggregate-uniform sending makes receiving uniform",
            "plan",
            coupled(uniform, 2, good, 1),
            {"assignment": bad},
            Figures(2, 1, 1),
            ["aggregate-uniform sending", "equal chunks"],
        ),
    )
    for rails in (2, 3, 4):
        yield f"T2-lpt-receive-n{rails}.json", _received(worst_receive(rails))


def _received(found: WorstInstance) -> Record:
    instance: Any = found.instance
    good = run_side_by_side(
        [instance], 1 + max(end for c in instance for end in c[:2]), found.rails, "equitable"
    ).rail.tolist()
    best = coupled(instance, found.rails, good, found.best)
    return record(
        "T2",
        "a sender that balances its rails with LPT leaves its receivers balanced",
        "plan",
        best,
        {"policy": "lpt", "assignment": policy_rails(best["problem"], "lpt")},
        Figures(found.value, found.best, found.best),
        ["aggregate-uniform sending", "equal chunks"],
    )


def _t4() -> Iterator[tuple[str, Record]]:
    sizes: Instance = tuple((0, 1, size) for size in (3, 1, 3, 1))
    best = coupled(sizes, 2, [0, 0, 1, 1], 4)
    yield (
        "T4-round-robin-unequal.json",
        record(
            "T4e",
            "round robin keeps T4's bound for chunks of different sizes",
            "plan",
            best,
            {"policy": "round-robin", "assignment": policy_rails(best["problem"], "round-robin")},
            Figures(6, 4, Fraction(8 + 3, 2)),
        ),
    )


def _t5() -> Iterator[tuple[str, Record]]:
    order = list_family(2)
    yield (
        "T5-list-order-n2.json",
        record(
            "T5a",
            "list scheduling keeps LPT's ratio in any order",
            "plan",
            local(order, 2),
            {"assignment": [0, 1, 0]},
            Figures(greedy(order, 2), 2, 2 * Fraction(7, 6)),
            ["each chunk to the least loaded rail"],
        ),
    )


def _t6() -> Iterator[tuple[str, Record]]:
    for rails in (2, 3, 4):
        found = worst_lpt(rails)
        best = local(found.instance, rails)  # type: ignore[arg-type]
        yield (
            f"T6-graham-n{rails}.json",
            record(
                "T6a",
                "LPT is within (4N - 2)/(3N) of the optimum",
                "plan",
                best,
                {"policy": "lpt", "assignment": policy_rails(best["problem"], "lpt")},
                Figures(found.value, found.best, found.best * Fraction(4 * rails - 2, 3 * rails)),
            ),
        )


def _t8() -> Iterator[tuple[str, Record]]:
    gap = smallest_gap(most_chunks=5, largest=3)
    assert gap is not None
    instance: Any = gap.instance
    value, rails = best_coupled(instance, 2)
    sides = {"send": sorted({c[0] for c in instance}), "recv": sorted({c[1] for c in instance})}
    yield (
        "T8-unequal-sizes.json",
        record(
            "T8b",
            "some plan attains the optimum of every node alone, whatever the sizes",
            "plan",
            coupled(instance, 2, rails, value, {"kind": "joint", **sides}),
            {"assignment": list(rails)},
            Figures(value, value, gap.best),
        ),
    )


def _t9() -> Iterator[tuple[str, Record]]:
    for rails in (2, 8):
        tx, demand = [[1, *[2] * (rails - 1)], [2] * rails], [[0, 1], [1, 0]]
        split = [1, *[2] * (rails - 1)]
        pairs = [(0, 1), (1, 0)]
        optimum = Fraction(1, 2 * rails - 1)
        yield (
            f"T9-slow-nic-n{rails}.json",
            record(
                "T9b",
                "the uniform split stays optimal when one NIC runs at half speed",
                "plan",
                fluid(tx, demand, 0, flow(2 * rails - 1, dict.fromkeys(pairs, split)), optimum),
                {"flow": flow(rails, dict.fromkeys(pairs, [1] * rails))},
                Figures(Fraction(1, rails), optimum, optimum),
                ["uniform over the rails alive at both ends", "the uniform split costs 1/phi"],
            ),
        )
    # node 0 has lost rail 0; nodes 0 and 2 send one byte each to node 1, which is the bottleneck
    tx, demand = [[0, 1], [1, 1], [1, 1]], [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    yield (
        "T9-dead-rail-elsewhere.json",
        record(
            "T9d",
            "uniform over the rails alive at both ends is optimal",
            "plan",
            fluid(tx, demand, 1, flow(1, {(0, 1): [0, 1], (2, 1): [1, 0]}), Fraction(1)),
            {"flow": flow(2, {(0, 1): [0, 2], (2, 1): [1, 1]})},
            Figures(Fraction(3, 2), 1, 1),
            ["uniform over the rails alive at both ends"],
        ),
    )
    # node 0 and 2 have two rails, node 1 has one; node 0 sends one byte to each
    tx, demand = [[1, 1], [1, 0], [1, 1]], [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    yield (
        "T9-different-rails.json",
        record(
            "T9e",
            "nodes with different numbers of rails: spreading each pair evenly keeps the sender "
            "uniform and optimal",
            "plan",
            fluid(tx, demand, 0, flow(1, {(0, 1): [1, 0], (0, 2): [0, 1]}), Fraction(1)),
            {"flow": flow(2, {(0, 1): [2, 0], (0, 2): [1, 1]})},
            Figures(Fraction(3, 2), 1, 1),
            ["uniform over the rails alive at both ends"],
        ),
    )


def _t10() -> Iterator[tuple[str, Record]]:
    yield (
        "T10-hot-gpu-n3.json",
        record(
            "T10",
            "R1 > R2 gives a node N channels of R2 to another, also from one GPU",
            "flow",
            {"rails": 3, "scale_up": 3, "nic": 2},
            {"direct": "2", "through_peers": ["3/2", "3/2"]},
            Figures(Fraction(1, 5), Fraction(1, 6), Fraction(1, 6)),
            ["R1 > R2"],
        ),
    )
    for name, hot in (
        ("n3-m3", Hot(3, 3, 2, 1, (1, 5), 2)),
        ("n2-m5", Hot(2, 5, 4, 1, (5,))),
        ("n4-m8", Hot(4, 8, 9, 1, (8,))),
    ):
        yield (
            f"T10-fast-theorem3-{name}.json",
            record(
                "T10b",
                "FAST is within 1 + (B2/B1)(m + m/n) of the optimum",
                "fast",
                _fields(hot),
                {},
                Figures(hot.time, hot.best, hot.printed() * hot.best),
                ["B1 >= (m-1) B2 and S_i <= row_i/n"],
            ),
        )
    down = Hot(3, 2, 1, 1, (4, 2))
    # balance + wire + the last redistribution only
    hidden = Fraction(2 - 1, 2) * 6 + down.best + Fraction(2 - 1, 2) * 2
    yield (
        "T10-fast-descending.json",
        record(
            "T10d",
            "in descending order every redistribution but the last is hidden",
            "fast",
            _fields(down),
            {},
            Figures(down.time, down.best, hidden),
            ["B1 >= (m-1) B2 and S_i <= row_i/n"],
        ),
    )


def _t17() -> Iterator[tuple[str, Record]]:
    """Four nodes under two leaves a rail: hashed flows that meet, and uplinks of one rail alone."""
    uniform = ["uniform sending and receiving", "equal chunks"]
    across = ((0, 2), (1, 3), (2, 0), (3, 1))
    yield (
        "T17-hashed-m4-n1.json",
        record(
            "T17d",
            "with as many uplinks as NICs and as fast, hashed flows wait for NICs alone",
            "plan",
            leaves(across, (1, 2), [[0, 0], [0, 1], [0, 0], [0, 1]]),
            {"assignment": [[0, 0], [0, 0], [0, 0], [0, 1]]},
            Figures(2, 1, 1),
            uniform,
        ),
    )
    both = (*across, (0, 1), (1, 0), (2, 3), (3, 2))
    yield (
        "T17-uneven-uplinks-m4-n2.json",
        record(
            "T17c",
            "uniform sending and receiving make the uplinks of a group even",
            "plan",
            leaves(both, (2, 1), [0, 1, 1, 0, 1, 0, 0, 1]),
            {"assignment": [0, 0, 0, 0, 1, 1, 1, 1]},
            Figures(2, 1, 1),
            uniform,
        ),
    )


def leaves(
    flows: Sequence[tuple[int, int]], shape: tuple[int, int], assignment: Sequence[Any]
) -> Record:
    """The certificate of unit chunks at unit rates between four nodes, two below a leaf, whose
    optimum is the cut of the first two; `shape` is (rails, uplinks of a leaf).
    """
    rails, uplinks = shape
    src, dst = ([pair[i] for pair in flows] for i in (0, 1))
    ones = [[1] * rails for _ in range(4)]
    problem = {
        "kind": "leaves",
        "tx": ones,
        "rx": ones,
        "leaf": {"nodes": 2, "rails": 1, "uplinks": uplinks, "rate": 1},
        "chunks": {"src": src, "dst": dst, "size": [1] * len(src)},
    }
    witness = {"kind": "leaf", "group": 0, "side": "send"}
    return certificate(problem, 1, witness, assignment=list(assignment))


def _t18() -> Iterator[tuple[str, Record]]:
    """N senders of one chunk each that meet on a rail of the last node: the first of all sets."""
    for policy, rails in product(("rotate", "lpt-local"), (2, 3)):
        last = rails * (rails - 1) + 1
        for senders in combinations(range(last), rails):
            best = coupled(tuple((k, last, 1) for k in senders), rails, range(rails), 1)
            bad = policy_rails(best["problem"], policy)
            if len(set(bad)) == 1:
                yield (
                    f"T18-{policy}-n{rails}.json",
                    record(
                        "T18a",
                        "a policy that sees its own row stays within N - 1 of the optimum",
                        "plan",
                        best,
                        {"policy": policy, "assignment": bad},
                        Figures(rails, 1, rails - 1),
                        ["equal chunks"],
                    ),
                )
                break


def _fields(hot: Hot) -> Record:
    return {
        "servers": hot.servers,
        "gpus": hot.gpus,
        "scale_up": hot.scale_up,
        "scale_out": hot.scale_out,
        "stages": list(hot.stages),
        "local": hot.local,
    }


def main() -> int:
    """Write every counterexample that replays; 4 if one does not."""
    folder, code = proofs_folder() / "counterexamples", 0
    for name, content in build():
        problems = replay(content)
        print(
            f"{name}: {content['value']} against "
            f"{content['optimum']}{'; ' + '; '.join(problems) if problems else ''}"
        )
        if problems:
            code = 4
        else:
            write_atomic(folder / name, json.dumps(content, indent=1) + "\n", force=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
