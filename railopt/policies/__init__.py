"""Policies: pure functions `(fabric, chunks) -> Plan`.  A dict is the whole registry."""

from __future__ import annotations

from collections.abc import Callable

from railopt.chunks import Chunks
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.plans import Plan
from railopt.policies.equitable import equitable
from railopt.policies.fixed import hashed, own_nic, pxn, random, rotate, round_robin
from railopt.policies.lpt import lpt, lpt_global, lpt_local

POLICIES: dict[str, Callable[..., Plan]] = {
    "own-nic": own_nic,
    "pxn": pxn,
    "hash": hashed,
    "random": random,
    "round-robin": round_robin,
    "rotate": rotate,
    "lpt": lpt,
    "lpt-local": lpt_local,
    "lpt-global": lpt_global,
    "equitable": equitable,
}


def plan(fabric: Fabric, chunks: Chunks, policy: str = "lpt", *, seed: int | None = None) -> Plan:
    """Put every chunk on a rail.  `seed` draws the ties of `lpt` and the dice of `hash` and
    `random`.
    """
    if policy not in POLICIES:
        raise InputError(f"unknown policy {policy!r}; known policies: {', '.join(POLICIES)}")
    return (
        POLICIES[policy](fabric, chunks)
        if seed is None
        else POLICIES[policy](fabric, chunks, seed=seed)
    )
