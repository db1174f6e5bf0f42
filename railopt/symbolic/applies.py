"""Which theorems hold on a given fabric, which don't, and why.  Loads no SymPy: `railopt plan`
calls it for every plan.

applicability(fabric)         one line per theorem
warnings_for(fabric, policy)  what a policy relies on and this fabric breaks
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from railopt.model.fabric import Fabric

_WORDS = {
    Fraction(0): "dead",
    Fraction(1, 2): "at half speed",
    Fraction(1, 4): "at a quarter of its speed",
    Fraction(3, 4): "at three quarters of its speed",
}
Row = tuple[int, ...]


@dataclass(frozen=True)
class Applies:
    """Whether theorem `id` may be used on a fabric, and why (not)."""

    id: str
    applies: bool
    why: str


def _rows(fabric: Fabric) -> list[Row]:
    """Every node's rates, both directions: 2 M rows of N."""
    return [tuple(row) for rates in (fabric.tx, fabric.rx) for row in rates.tolist()]


def _commonest(rates: Iterable[int]) -> int:
    """The commonest rate of a living NIC; 0 if all are dead."""
    counts = Counter(rate for rate in rates if rate)
    return max(counts, key=lambda rate: (counts[rate], rate), default=0)


def odd_nics(fabric: Fabric, *, by_rail: bool = False) -> list[tuple[int, int, Fraction, Fraction]]:
    """(node, rail, send fraction, receive fraction) of every NIC that differs from the commonest
    rate of all NICs, or of those of its rail.
    """
    rows = _rows(fabric)
    base = [_commonest(rail) for rail in zip(*rows, strict=True)]
    if not by_rail:
        base = [_commonest(rate for row in rows for rate in row)] * fabric.rails
    tx, rx = fabric.tx.tolist(), fabric.rx.tolist()
    return [
        (k, n, Fraction(tx[k][n], base[n] or 1), Fraction(rx[k][n], base[n] or 1))
        for k in range(fabric.nodes)
        for n in range(fabric.rails)
        if (tx[k][n], rx[k][n]) != (base[n], base[n])
    ]


def describe(fabric: Fabric, nic: tuple[int, int, Fraction, Fraction]) -> str:
    """One NIC of the fabric in words."""
    node, rail, send, recv = nic
    named = fabric.hosts or fabric.devices
    where = fabric.nic_name(node, rail) if named else f"rail {rail} of node {node}"
    if send == recv:
        words = _WORDS.get(send, f"at {send} times the rate of the others")
        return f"{where} is {words}"
    return f"{where} sends at {send} and receives at {recv} times the rate of the others"


def one_profile(fabric: Fabric) -> bool:
    """All nodes have the same rates rail by rail, up to a factor per node and direction (what
    T9 needs); a rail may be dead everywhere.
    """
    rows = _rows(fabric)
    return all(map(any, rows)) and len({tuple(r // gcd(*row) for r in row) for row in rows}) == 1


def remedy(fabric: Fabric) -> str:
    """What T9 and its parts give on a fabric whose NICs differ."""
    nics, rails = odd_nics(fabric), fabric.rails
    if one_profile(fabric):
        return "T9 gives the optimum: split every pair in proportion to its rails' rates"
    if len(nics) == 1 and nics[0][2] == nics[0][3] <= 1 and rails >= 2:
        share = nics[0][2]
        return f"{'T9b' if share else 'T9c'} gives {Fraction(rails) / (rails - 1 + share)}"
    least, most = (sum(map(of, zip(*_rows(fabric), strict=True))) for of in (min, max))
    if not least:
        return "T9a gives nothing here: no rail lives at every node; use lpt-global or solve"
    healed = "with all NICs of a rail as fast as its fastest"
    return f"T9a gives at most {Fraction(most, least)} of the time {healed}"


def _difference(fabric: Fabric, *, by_rail: bool = False) -> str:
    """The first of `odd_nics` in words, and how many more there are; "" where there is none."""
    nics = odd_nics(fabric, by_rail=by_rail)
    more = f" (and {len(nics) - 1} more NICs differ)" if len(nics) > 1 else ""
    return describe(fabric, nics[0]) + more if nics else ""


def applicability(fabric: Fabric) -> list[Applies]:
    """Every theorem whose hypotheses a fabric can break, in the registry's order."""
    uniform, M, N = fabric.is_uniform, fabric.nodes, fabric.rails

    def equal_rates(name: str) -> Applies:
        return Applies(
            name,
            uniform,
            f"all {M} x {N} NICs run at one rate"
            if uniform
            else f"{_difference(fabric)}: {name} does not apply; {remedy(fabric)}",
        )

    t0 = "every node's bytes over its rates bound any plan"
    if fabric.spine is not None:
        t0 += (
            "; the fabric has a spine: all theorems count bytes of NICs, "
            "uplinks and their hashing are outside them"
        )
    return [
        Applies("T0", True, t0),
        equal_rates("T1"),
        _t2(fabric) if uniform else equal_rates("T2a"),
        equal_rates("T3"),
        equal_rates("T4"),
        *_local(fabric),
        Applies("T7", True, "a certificate carries the rates it was issued for"),
        equal_rates("T8"),
        *_t9(fabric),
        *_scale_up(fabric),
        *_inside(fabric),
        *_leaves(fabric),
    ]


def _leaves(fabric: Fabric) -> list[Applies]:
    """T17 and its parts, of a fabric whose rails span leaves."""
    leaves = fabric.leaves
    if leaves is None:
        return []
    starts = range(0, fabric.rails, leaves.rails)
    below = max(
        int(rates[k : k + leaves.nodes, n : n + leaves.rails].sum())
        for rates in (fabric.tx, fabric.rx)
        for k in range(0, fabric.nodes, leaves.nodes)
        for n in starts
    )
    sprayed, wide = leaves.way == "spray", leaves.capacity >= below
    narrow = f"a leaf's links carry {leaves.capacity} B/s, the NICs below one {below} B/s"
    hashed = f"{leaves.way}: a flow takes one link, and flows may meet on it (T17d)"
    even = sprayed and fabric.is_uniform and leaves.rails == 1
    why = hashed if not sprayed else "needs equal rates and leaves of one rail"
    fit = f"{narrow}: plans wait for NICs alone"
    return [
        Applies("T17", True, "links above each group's leaves bound any plan"),
        Applies("T17a", even, "an even split is even above leaves, too" if even else why),
        Applies("T17b", sprayed and wide, hashed if not sprayed else fit if wide else narrow),
    ]


def _t2(fabric: Fabric) -> Applies:
    """T2a where all rates are equal."""
    M, N = fabric.nodes, fabric.rails
    small = M <= 2 or N == 1
    why = (
        "with at most two nodes or one rail, balanced sending is balanced receiving"
        if small
        else f"{M} nodes and {N} rails: balanced sending does not balance receiving; a NIC may "
        f"receive {min(N, M - 1)} times its share (T3)"
    )
    return Applies("T2a", small, why)


def _local(fabric: Fabric) -> list[Applies]:
    uneven = [k for k, row in enumerate(fabric.tx.tolist()) if len(set(row)) > 1]
    slow = int(fabric.rx.min()) < int(fabric.tx.max())
    why = "every sender's own rails are equal, and no NIC receives more slowly"
    if uneven:
        more = f" (and of {len(uneven) - 1} more nodes)" if len(uneven) > 1 else ""
        why = (
            f"the NICs of node {uneven[0]} send at different rates{more}: the bound is for equal "
            f"rails"
        )
    elif slow:
        why = "a NIC receives more slowly than another sends: lpt then goes by the far end too"
    return [Applies(name, not uneven and not slow, why) for name in ("T5", "T6")]


def _t9(fabric: Fabric) -> list[Applies]:
    nics, profile = odd_nics(fabric), one_profile(fabric)
    least = sum(map(min, zip(*_rows(fabric), strict=True)))
    slow = len(nics) == 1 and nics[0][2] == nics[0][3] < 1
    N, share = fabric.rails, nics[0][2] if slow else Fraction(1)
    one, dead = slow and N - 1 + share > 0, slow and share == 0
    factor = "needs one slow NIC, the same both ways, and one rate of all others"
    if one:
        factor = f"{describe(fabric, nics[0])}: at most {N / (N - 1 + share)} of the healthy time"
    apart = _difference(fabric, by_rail=True) or "a node without a living NIC"
    return [
        Applies(
            "T9",
            profile,
            "every node has the same profile of rates"
            if profile
            else f"{apart}: the profiles differ",
        ),
        Applies("T9a", least > 0, f"the least rates of the rails add up to {least} B/s"),
        Applies("T9b", one and not dead, "the NIC is dead, see T9c" if dead else factor),
        Applies(
            "T9c",
            one and dead,
            factor if one and dead else "needs one dead NIC, one rate of all others and two rails",
        ),
    ]


def _scale_up(fabric: Fabric) -> list[Applies]:
    N, G, R1, R2 = fabric.rails, fabric.gpus, fabric.scaleup, max(map(max, _rows(fabric)))
    enough, reached = R1 >= (N - 1) * R2, R2 + min(R1, (N - 1) * R2)
    ratio = Fraction(N * R2, reached) if reached else Fraction(1)
    why = (
        f"scale-up {R1} B/s >= (N-1) x {R2} B/s: one hot GPU can fill all {N} rails"
        if enough
        else f"scale-up {R1} B/s < (N-1) x {R2} B/s: one hot GPU reaches {reached} of {N * R2} "
        f"B/s, {ratio} times slower than T1 says"
    )
    hides = R1 >= (G - 1) * R2 and G == N and fabric.is_uniform
    bound = 1 + Fraction(R2, R1) * (2 * (G - 1) + Fraction(G, fabric.nodes))
    staged = (
        f"stages within {bound} of the optimum (T10c)"
        if hides
        else "needs B1 >= (m-1) B2, one NIC per GPU and equal rates"
    )
    return [
        Applies("T10a", enough, why),
        Applies("T10d", hides, staged),
        Applies("T10e", hides, staged),
    ]


def _inside(fabric: Fabric) -> list[Applies]:
    near, alive = fabric.node.near, not any(0 in row for row in _rows(fabric))
    own = near.shape[0] == near.shape[1] and bool((near.sum(axis=0) == 1).all())
    if not own:
        why = "not every GPU has one NIC of its own"
    elif not alive:
        why = "a NIC is dead: what its GPU sends is staged (T14c)"
    else:
        why = "one NIC per GPU: no plan moves fewer bytes inside nodes than own NICs"
    return [
        Applies("T14", own, why if not own else "one NIC per GPU: the excess makes a pair even"),
        Applies("T14a", True, "prices bound what plans of any fabric move inside nodes"),
        Applies("T14b", own and alive, why),
    ]


# ---------------------------------------------------------------- what a policy relies on
def warnings_for(fabric: Fabric, policy: str) -> list[str]:
    """One line for each theorem that the policy relies on and the fabric breaks; empty if there is
    none.
    """
    M, N = fabric.nodes, fabric.rails
    found = [f"rails span leaves: {one.why}" for one in _leaves(fabric)[2:] if not one.applies]
    if policy == "lpt" and M > 2 and N > 1:
        factor = f": a NIC may get up to {min(N, M - 1)} times its share (T3)"
        found.append(
            f"lpt balances what each node sends; with {M} nodes and {N} rails that does not "
            f"balance what they receive (T2){factor if fabric.is_uniform else ''}; lpt-local and "
            f"equitable look at both sides"
        )
    if fabric.is_uniform:
        return found
    where = _difference(fabric)
    if policy in ("round-robin", "rotate"):
        found.append(f"{where}: T1 and T4 do not apply; {remedy(fabric)}")
    elif policy == "equitable" and _falls_back(fabric):
        found.append(
            f"{where}: T8 does not apply and equitable falls back to lpt-global; {remedy(fabric)}"
        )
    elif policy in ("lpt", "lpt-local") and not _local(fabric)[0].applies:
        found.append(f"{where}: T6's 4/3 - 1/(3N) does not apply; {remedy(fabric)}")
    return found


def _falls_back(fabric: Fabric) -> bool:
    """Whether `equitable` has no fair round of this fabric's rails."""
    from railopt.policies.common import rail_turns

    return rail_turns(fabric) is None
