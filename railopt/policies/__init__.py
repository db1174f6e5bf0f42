"""Policies: pure functions `(fabric, chunks) -> Plan`, with a keyword `seed` where they draw.

A dict is the whole registry, and `policy_named` reads it; `"module:function"` names a policy that
railopt does not know.
"""

from __future__ import annotations

from collections.abc import Callable

from railopt.base.arrays import require_type
from railopt.base.errors import InputError, did_you_mean
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.model.tokens import Tokens
from railopt.model.traffic import Traffic
from railopt.policies import outside
from railopt.policies.colouring import equitable
from railopt.policies.excess import even_excess
from railopt.policies.fixed import hashed, own_nic, pxn, random, rotate, round_robin
from railopt.policies.longest_first import lpt, lpt_dealt, lpt_global, lpt_local
from railopt.policies.spilling import check_scale_up, spill

__all__ = ["KNOWN", "POLICIES", "Policy", "plan", "policy_code", "policy_named", "policy_names"]

Policy = Callable[..., Plan]

POLICIES: dict[str, Policy] = {
    "own-nic": own_nic,
    "pxn": pxn,
    "hash": hashed,
    "random": random,
    "round-robin": round_robin,
    "rotate": rotate,
    "lpt": lpt,
    "lpt-local": lpt_local,
    "lpt-dealt": lpt_dealt,
    "lpt-global": lpt_global,
    "equitable": equitable,
    "even-excess": even_excess,
    "spill": spill,
}
KNOWN = f"{', '.join(POLICIES)}, or your own as module:function"
"""The names that a `--policy` takes, in words."""


def policy_named(text: str) -> Policy:
    """The policy of that name, or the function that `"module:function"` names."""
    if text in POLICIES:
        return POLICIES[text]
    if ":" in text:
        return outside.loaded(text)
    raise InputError(
        f"unknown policy {text!r}; known policies: {KNOWN}{did_you_mean(text, POLICIES)}"
    )


def policy_names(text: str) -> list[str]:
    """`"lpt, mine:spread"` -> the names in it, each looked up."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"no policy in {text!r}; known policies: {KNOWN}")
    for name in names:
        policy_named(name)
    return names


def policy_code(text: str) -> str:
    """A digest of the code behind a policy from outside; empty for railopt's own."""
    return "" if text in POLICIES else outside.code_of(text)


def plan(
    fabric: Fabric,
    chunks: Chunks | Traffic | Tokens,
    policy: str | Policy = "lpt",
    *,
    chunk: str | int | None = None,
    seed: int | None = None,
    scale_up: str = "beside",
) -> Plan:
    """Put every chunk on a rail, by a policy's name, `"module:function"`, or the function itself.

    Traffic and tokens are cut into chunks of at most `chunk` ("256KiB", bytes, or "flow"; default
    "1MiB").  `seed` draws the ties of `lpt` and the dice of `hash` and `random`; a policy that does
    not draw takes none.  `scale_up="in-time"` tells policies that can heed it (`spill`) that
    scale-up ports count in the time, as in `Plan.time_with_scaleup`.
    """
    require_type(fabric, Fabric, "fabric", "a Fabric")
    require_type(
        chunks,
        Chunks | Traffic | Tokens,
        "chunks",
        "Chunks, Traffic (Traffic.from_matrix makes it of a matrix) or Tokens",
    )
    require_type(policy, str | Callable, "policy", "a name or a function")
    if isinstance(chunks, Traffic | Tokens):
        chunks = chunks.chunks("1MiB" if chunk is None else chunk)
    elif chunk is not None:
        raise InputError(f"chunk = {chunk!r} with chunks that are cut already: leave it out")
    chosen = policy_named(policy) if isinstance(policy, str) else _function(policy)
    check_scale_up(scale_up)
    options: dict[str, object] = {"scale_up": scale_up} if chosen is spill else {}
    if seed is not None:
        if not outside.takes_seed(chosen):
            raise InputError(f"policy {policy!r} does not draw: it takes no seed")
        options["seed"] = seed
    return chosen(fabric, chunks, **options)


def policy_of(plan: Plan) -> str:
    """By which policy a plan is made again: its own, or LPT where that is none of railopt's.  A
    name in a file never imports code.
    """
    return plan.policy if plan.policy in POLICIES else "lpt"


def _function(policy: Policy) -> Policy:
    if policy in POLICIES.values():
        return policy
    module = getattr(policy, "__module__", None) or type(policy).__module__
    return outside.checked_policy(
        policy, f"{module}:{getattr(policy, '__qualname__', repr(policy))}"
    )
