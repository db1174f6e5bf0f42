"""The families behind T2, T3, T6 and T8 by running railopt's own policies, and the searches that
must rediscover them.
"""

from __future__ import annotations

from itertools import product

from railopt.checker import completion
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.adversary import smallest_gap, worst_lpt, worst_receive
from railopt.symbolic.search.oracle import Instance, run_side_by_side
from railopt.symbolic.statements.scheduling import graham_family


def all_to_all(nodes: int) -> Instance:
    """One unit flow between every two nodes."""
    return tuple((k, f, 1) for k in range(nodes) for f in range(nodes) if f != k)


def uniform_all_to_all(quick: bool = False, *, shift: bool = False) -> Result:
    """T2c: on M = N + 1 nodes the j-th flow of every sender on rail j; with `shift` the orders are
    turned and nothing bad happens.
    """
    most, failures = 8 if quick else 24, []
    for rails in range(2, most + 1):
        instance = all_to_all(rails + 1)
        chosen = [(f - k - 1) % (rails + 1) if shift else f - (f > k) for k, f, _ in instance]
        send, recv = _loads(instance, rails, chosen)
        if set(send) != {1} or max(recv) != rails:
            failures.append(f"N = {rails}: sends {sorted(set(send))}, worst receive {max(recv)}")
        if _loads(instance, rails, [(f - k - 1) % (rails + 1) for k, f, _ in instance])[1] != [
            1
        ] * len(recv):
            failures.append(f"N = {rails}: the turned order is not perfect")
    return verdict("exhaustive", f"N = 2..{most}", failures, ("M = N + 1", "unit flows"))


def _loads(instance: Instance, rails: int, chosen: list[int]) -> tuple[list[int], list[int]]:
    nodes = 1 + max(end for chunk in instance for end in chunk[:2])
    ones = [[1] * rails] * nodes
    src, dst, size = ([chunk[i] for chunk in instance] for i in range(3))
    _, (send, recv) = completion(ones, ones, src, dst, size, chosen)
    return send, recv


def lpt_factor(quick: bool = False, *, policy: str = "lpt") -> Result:
    """T2d: railopt's `lpt` on whole flows is N times the optimum on the receive side, and perfect
    on the send side.
    """
    most, failures = 8 if quick else 32, []
    for rails in range(2, most + 1):
        made = run_side_by_side([all_to_all(rails + 1)], rails + 1, rails, policy)
        if made.send.max() != 1 or made.recv.max() != rails:
            failures.append(
                f"N = {rails}: {policy} sends {made.send.max()}, receives {made.recv.max()}"
            )
    return verdict("exhaustive", f"N = 2..{most}", failures, ("M = N + 1", "ties by index"))


def receive_factor(quick: bool = False, *, uniform_sends: bool = True) -> Result:
    """T3 for every matrix of 0..2 bytes between 3 nodes on 2 rails and every split in whole bytes
    that sends uniformly.
    """
    pairs, failures, count = [(k, f) for k in range(3) for f in range(3) if f != k], [], 0
    for demand in product(range(2 if quick else 3), repeat=len(pairs)):
        rows = [
            sum(d for (k, _), d in zip(pairs, demand, strict=True) if k == node)
            for node in range(3)
        ]
        columns = [
            sum(d for (_, f), d in zip(pairs, demand, strict=True) if f == node)
            for node in range(3)
        ]
        for first in product(*(range(d + 1) for d in demand)):  # bytes of each pair on rail 0
            sent = [
                sum(x for (k, _), x in zip(pairs, first, strict=True) if k == node)
                for node in range(3)
            ]
            if uniform_sends and any(2 * s != r for s, r in zip(sent, rows, strict=True)):
                continue
            count += 1
            for node in range(3):
                senders = sum(d > 0 for (_, f), d in zip(pairs, demand, strict=True) if f == node)
                got = sum(x for (_, f), x in zip(pairs, first, strict=True) if f == node)
                if 2 * max(got, columns[node] - got) > min(2, senders) * max(*rows, *columns):
                    failures.append(
                        f"D = {demand}, rail 0 = {first}: node {node} receives "
                        f"{max(got, columns[node] - got)}"
                    )
    return verdict(
        "exhaustive",
        f"M = 3, N = 2, 0..{1 if quick else 2} bytes per pair ({count} splits)",
        failures,
        ("uniform sending",),
    )


def factor_attained(quick: bool = False, *, turned: bool = False) -> Result:
    """T3a by running: s senders, N unit flows each in the same order; the first receiver gets
    min(N, s) times L/N on rail 0.
    """
    most, failures = 4 if quick else 8, []
    for rails, senders in product(range(2, most + 1), range(1, most + 1)):
        instance: Instance = tuple(
            (k, senders + j, 1) for k in range(senders) for j in range(rails)
        )
        send, recv = _loads(
            instance,
            rails,
            [(j + k) % rails if turned else j for k in range(senders) for j in range(rails)],
        )
        if max(send) != 1 or recv[senders * rails] * rails != min(rails, senders) * max(
            rails, senders
        ):
            failures.append(f"N = {rails}, s = {senders}: {recv[senders * rails]}")
    return verdict("exhaustive", f"N, s <= {most}", failures, ("M = s + N",))


# ---------------------------------------------------------------- the adversary must find them
def adversary_lpt(quick: bool = False, *, largest: int | None = None) -> Result:
    """T6a: the search, which knows no family, ends at Graham's for every N it is run for; `largest`
    forbids the sizes it needs.
    """
    failures, found = [], []
    for rails in (2, 3) if quick else (2, 3, 4):
        worst = worst_lpt(rails, largest=largest)
        found.append(f"N = {rails}: {worst.ratio}")
        if worst.instance != graham_family(rails):
            failures.append(
                f"N = {rails}: found {worst.instance} with {worst.ratio}, not "
                f"{graham_family(rails)}"
            )
    return verdict(
        "exhaustive",
        f"N = 2..{3 if quick else 4}, up to 2N + 1 chunks of up to 2N - 1",
        failures,
        (),
        ", ".join(found),
    )


def adversary_receive(quick: bool = False, *, policy: str = "lpt") -> Result:
    """T2d: the search for late receivers under perfect sending ends at the factor N; against
    `equitable` it can't.
    """
    failures, found = [], []
    for rails in (2, 3) if quick else (2, 3, 4, 5, 6):
        worst = worst_receive(rails, policy=policy)
        found.append(f"N = {rails}: {worst.ratio}")
        if worst.ratio != rails or len(worst.instance) != rails * rails:
            failures.append(f"N = {rails}: found {worst.ratio} with {len(worst.instance)} flows")
    return verdict(
        "search",
        f"N = 2..{3 if quick else 6}, N + 2 nodes, climbing",
        failures,
        ("uniform sending", "unit flows"),
        ", ".join(found),
    )


def smallest_coupled_gap(quick: bool = False, *, largest: int = 3) -> Result:
    """T8b: the smallest instance whose coupled optimum is above every node's own; none with unit
    chunks (`largest=1`).
    """
    found = smallest_gap(most_chunks=5, largest=largest)
    failures = [] if found else [f"no instance with up to 5 chunks of up to {largest}"]
    return verdict(
        "exhaustive",
        f"M = 3, N = 2, up to 5 chunks of 1..{largest}",
        failures,
        (),
        f"{found.instance}: {found.value} against {found.best}" if found else "",
    )
