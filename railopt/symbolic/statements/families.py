"""The families behind T2, T6 and T8 by running railopt's own policies, and the searches that
must rediscover them.
"""

from __future__ import annotations

from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.adversary import smallest_gap, worst_lpt, worst_receive
from railopt.symbolic.search.oracle import Instance, run_side_by_side
from railopt.symbolic.statements.scheduling import graham_family


def all_to_all(nodes: int) -> Instance:
    """One unit flow between every two nodes."""
    return tuple((k, f, 1) for k in range(nodes) for f in range(nodes) if f != k)


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
