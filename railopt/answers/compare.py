"""One traffic on two fabrics, one of them degraded: what dead and slow NICs cost each policy.

Times are seconds, exact; a bound is a closed form with a witness: no plan of the chunks is faster
on that fabric.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.base.errors import Infeasible, InputError
from railopt.base.units import exact
from railopt.evidence.bounds import Bound, lower_bound
from railopt.evidence.bracket import gap_between
from railopt.model.chunks import Chunks
from railopt.model.fabric import SIDES, Fabric
from railopt.model.plan import Plan
from railopt.policies import POLICIES, policy_named
from railopt.policies import plan as make_plan


class Cost(NamedTuple):
    """What a policy makes of both fabrics.

    healthy   time of its plan for the healthy fabric
    degraded  time of its plan for the degraded one; None where it has none, `why` says so
    kept      time of the healthy plan if it is carried out on the degraded fabric; None: never,
              bytes of it wait for a dead NIC
    """

    policy: str
    healthy: Fraction | None
    degraded: Fraction | None
    kept: Fraction | None
    why: str = ""

    @property
    def cost(self) -> Fraction | None:
        """degraded / healthy - 1, each by its own plan."""
        if self.healthy is None or self.degraded is None:
            return None
        return gap_between(self.degraded, self.healthy)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: times and ratios as "p/q"."""
        return exact({**self._asdict(), "cost": self.cost})


class Comparison(NamedTuple):
    """Policies on both fabrics, against the bounds of each.

    healthy, degraded   None where a node has bytes and no living NIC: no time is enough
    nics                (node, rail) of the NICs that differ, of rails that both fabrics have: those
                        that lost most first
    rails               how many rails each fabric has
    names               of `nics`, where the fabrics have names for them: `gpu10 mlx5_5`
    """

    healthy: Bound | None
    degraded: Bound | None
    nics: list[tuple[int, int]]
    costs: list[Cost]
    rails: tuple[int, int]
    names: tuple[str, ...] = ()

    @property
    def limits(self) -> Cost:
        """Both bounds, as if a policy attained them."""
        healthy, degraded = (
            None if bound is None else bound.value for bound in (self.healthy, self.degraded)
        )
        return Cost("bound", healthy, degraded, None)

    @property
    def least_cost(self) -> Fraction | None:
        """The degraded bound over the healthy one, minus 1."""
        return self.limits.cost

    def best(self, name: str) -> Cost | None:
        """As `fastest`."""
        return fastest(self.costs, name)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: times and ratios as "p/q"."""
        best = {name: self.best(name) for name in ("healthy", "degraded")}
        return exact(
            {
                "nics": self.nics,
                "names": self.names,
                "rails": self.rails,
                "healthy_bound": self.limits.healthy,
                "degraded_bound": self.limits.degraded,
                "least_cost": self.least_cost,
                "best": {name: cost and cost.policy for name, cost in best.items()},
                "policies": [cost.as_dict() for cost in self.costs],
            }
        )


def compare(
    healthy: Fabric, degraded: Fabric, chunks: Chunks, policies: Sequence[str] = tuple(POLICIES)
) -> Comparison:
    """Every policy, each once, on both fabrics, which differ in rails and NIC rates alone."""
    insides = healthy.node.as_dict() == degraded.node.as_dict()
    same = {
        "nodes": healthy.nodes == degraded.nodes,
        "GPUs per node": healthy.gpus == degraded.gpus,
        "the rate of scale-up": healthy.scaleup == degraded.scaleup,
        "latency": healthy.latency_ps == degraded.latency_ps,
        "the spine": healthy.spine == degraded.spine,
        "the leaves": healthy.leaves == degraded.leaves,
        "which NICs are near which GPU": insides or healthy.rails != degraded.rails,
    }
    for what, alike in same.items():
        if not alike:
            raise InputError(f"the fabrics differ in {what}: expected other rails or NIC rates")
    for policy in policies:
        policy_named(policy)  # an unknown one is no policy that can't plan
    nics, named = _changed(healthy, degraded), _with_names(healthy, degraded)
    return Comparison(
        _bound(healthy, chunks),
        _bound(degraded, chunks),
        nics,
        [_cost(healthy, degraded, chunks, policy) for policy in dict.fromkeys(policies)],
        (healthy.rails, degraded.rails),
        tuple(named.nic_name(*nic) for nic in nics) if named.hosts or named.devices else (),
    )


def added_up(found: Sequence[Comparison]) -> tuple[list[Cost], Cost]:
    """The policies' times, and the bounds, added up over several traffics on the same fabrics, one
    after the other; None where one of them is.
    """
    policies = zip(*(one.costs for one in found), strict=True)
    return [_sum(costs) for costs in policies], _sum([one.limits for one in found])


def _sum(costs: Sequence[Cost]) -> Cost:
    healthy, degraded, kept = [
        None if None in each else sum((time for time in each if time is not None), Fraction(0))
        for each in zip(*((cost.healthy, cost.degraded, cost.kept) for cost in costs), strict=True)
    ]
    return Cost(costs[0].policy, healthy, degraded, kept)


def fastest(costs: Sequence[Cost], name: str) -> Cost | None:
    """The policy that is fastest on a fabric, "healthy" or "degraded"; the first of several."""
    known = [cost for cost in costs if getattr(cost, name) is not None]
    return min(known, key=lambda cost: getattr(cost, name), default=None)


def _with_names(healthy: Fabric, degraded: Fabric) -> Fabric:
    """The fabric that names NICs, the degraded one first."""
    return degraded if degraded.hosts or degraded.devices else healthy


def _changed(healthy: Fabric, degraded: Fabric) -> list[tuple[int, int]]:
    """(node, rail) of the NICs whose rates differ, by the share that is left of the slower side."""
    both = min(healthy.rails, degraded.rails)
    left: dict[tuple[int, int], Fraction] = {}
    for side in SIDES:
        before, after = (fabric.rates(side)[:, :both] for fabric in (healthy, degraded))
        for node, rail in np.argwhere(before != after).tolist():
            was, now = int(before[node, rail]), int(after[node, rail])
            share = Fraction(now, was) if was else Fraction(2)  # a new NIC has lost nothing
            left[node, rail] = min(share, left.get((node, rail), share))
    return sorted(left, key=lambda nic: (left[nic], nic))


def _bound(fabric: Fabric, chunks: Chunks) -> Bound | None:
    try:
        return lower_bound(fabric, chunks)
    except Infeasible:
        return None


def _cost(healthy: Fabric, degraded: Fabric, chunks: Chunks, policy: str) -> Cost:
    """A policy that can't plan for one of them says why."""
    made: list[Plan | None] = []
    why = []
    for name, fabric in (("healthy", healthy), ("degraded", degraded)):
        try:
            made.append(make_plan(fabric, chunks, policy))
        except InputError as error:
            made.append(None)
            why.append(f"{name}: {error}")
    before, after = made
    return Cost(
        policy,
        None if before is None else before.makespan,
        None if after is None else after.makespan,
        None if before is None else time_on(degraded, before),
        "; ".join(why),
    )


def time_on(fabric: Fabric, plan: Plan) -> Fraction | None:
    """Seconds that a plan takes with the NICs of another fabric; None where a dead one, or one that
    is not there, has bytes to carry.
    """
    longest = Fraction(0)
    both = min(fabric.rails, plan.fabric.rails)
    for side in SIDES:
        loads, rates = plan.loads(side)[:, :both], fabric.rates(side)[:, :both]
        if plan.loads(side)[:, both:].any():
            return None
        if np.any((loads > 0) & (rates == 0)):
            return None
        for rate in np.unique(rates[loads > 0]).tolist():
            longest = max(longest, Fraction(int(loads[rates == rate].max()), rate))
    return longest


def nic_text(healthy: Fabric, degraded: Fabric, nic: tuple[int, int]) -> str:
    """What became of a NIC, in words: `node 3 rail 5 dead`, `gpu01 mlx5_1 at 50%`."""
    return f"{_with_names(healthy, degraded).nic_name(*nic)} {_became(healthy, degraded, nic)}"


def _became(healthy: Fabric, degraded: Fabric, nic: tuple[int, int]) -> str:
    shares = []
    for side in SIDES:
        before, after = (int(fabric.rates(side)[nic]) for fabric in (healthy, degraded))
        shares.append(
            "dead" if not after else f"at {after / before * 100:.3g}%" if before else "new"
        )
    same = shares[0] == shares[1]
    return shares[0] if same else f"sends {shares[0]}, receives {shares[1]}"


def changes_text(healthy: Fabric, degraded: Fabric, most: int) -> str:
    """What differs between the fabrics, in words: at most so many NICs by name, those that lost
    most first.
    """
    nics = _changed(healthy, degraded)
    rails = f"{healthy.rails} rails become {degraded.rails}"
    said = [rails] if healthy.rails != degraded.rails else []
    all_of_them = len(nics) == healthy.nodes * min(healthy.rails, degraded.rails)
    if all_of_them and len({_became(healthy, degraded, nic) for nic in nics}) == 1:
        said.append(f"every NIC {_became(healthy, degraded, nics[0])}")
    else:
        said += [nic_text(healthy, degraded, nic) for nic in nics[:most]]
        if len(nics) > most:
            said[-1] += f" and {len(nics) - most} more"
    return ", ".join(said) or "no NIC differs"
