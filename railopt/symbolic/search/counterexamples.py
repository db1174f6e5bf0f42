"""Counterexamples: an instance, what a claim's plan makes of it, and the best possible, re-checked
by the trusted checker.

A file `proofs/counterexamples/*.json` holds

    claim, theorem      what it refutes, in words, and the registry's id
    kind                "plan"   chunks or flows on a fabric; value and optimum by `checker.py`
                        "flow"   one hot GPU: a flow and a cut of the same size (T10)
                        "fast"   FAST's phases on one hot tile (T10b, T10d)
    best                a certificate whose optimality `checker.py` proves ("plan"), or the instance
                        ("flow", "fast")
    bad                 the refuted claim's assignment or flow, and the policy that makes it, if one
                        does
    where               hypotheses of the claim that the bad plan meets, by name; replayed as well
                        (what the claim would allow is computed anew, of claims that railopt knows)
    value, optimum, at_most   what the bad plan costs, the best possible, and what the claim would
                              allow: value > at_most
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from heapq import heapreplace
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.errors import FormatError, InputError, printable
from railopt.checker import (
    Rejected,
    check_certificate,
    completion,
    fields,
    fraction,
    integer,
    parsed,
    slowest,
)
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.policies import POLICIES, plan
from railopt.symbolic.registry import proofs_folder
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.claims import ALLOWED, hot_of

Record = dict[str, Any]
MOST_STAGES = 100_000  # that a replay takes
KEYS = {
    "railopt",
    "version",
    "theorem",
    "claim",
    "kind",
    "best",
    "bad",
    "where",
    "value",
    "optimum",
    "at_most",
}


def files() -> list[Path]:
    """The committed counterexamples."""
    return sorted((proofs_folder() / "counterexamples").glob("*.json"))


def read(path: Path) -> Record:
    """One counterexample; unknown or missing keys are errors."""
    try:
        record = parsed(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(
            f"{printable(path)}: not a readable counterexample ({printable(error)})"
        ) from error
    return validated(record, path)


def known(record: Record) -> bool:
    """Whether a committed counterexample has the same claim, by the same theorem, under the same
    hypotheses and of the same policy.
    """
    return any(_same(one, record) for one in map(read, files()))


def _same(one: Record, other: Record) -> bool:
    policies = [record["bad"].get("policy") for record in (one, other)]
    alike = ("theorem", "claim", "kind", "where")
    return policies[0] == policies[1] and all(one[name] == other[name] for name in alike)


def validated(record: Any, path: Path) -> Record:
    """The record of a counterexample, if it has the form of one and is small enough to replay."""
    name = printable(path)
    if (
        not isinstance(record, dict)
        or set(record) != KEYS
        or (record["railopt"], record["version"]) != ("counterexample", 1)
    ):
        raise FormatError(
            f"{name}: expected a counterexample of version 1 with the keys "
            f"{', '.join(sorted(KEYS))}"
        )
    if not isinstance(record["bad"], dict):
        raise FormatError(f"{name}: bad {printable(record['bad'])}: expected what the claim makes")
    if not isinstance(record["theorem"], str):
        raise FormatError(f"{name}: theorem {printable(record['theorem'])}: expected a text")
    if not isinstance(record["kind"], str) or record["kind"] not in REPLAY:
        raise FormatError(
            f"{name}: kind {printable(record['kind'])!r}, expected one of {', '.join(REPLAY)}"
        )
    try:
        for number in ("value", "optimum", "at_most"):
            fraction(record[number], number)
        where = record["where"]
        known = set(where) <= set(WHERE) and len(set(where)) == len(where)
        if not known or not _small(record):
            raise FormatError(
                f"{name}: more than {MOST_STAGES} stages, or hypotheses other than "
                f"{', '.join(WHERE)}, each once"
            )
    except (KeyError, TypeError, AttributeError, Rejected) as error:
        raise FormatError(f"{name}: not a counterexample ({printable(error)})") from error
    return record


def _small(record: Record) -> bool:
    """Whether an instance has the figures of its kind, and few enough stages to replay."""
    if record["kind"] == "flow":
        return bool(fields(record["best"], "best", "rails scale_up nic"))
    return record["kind"] == "plan" or len(record["best"]["stages"]) <= MOST_STAGES


def replay(record: Record) -> list[str]:
    """What is wrong with a counterexample; empty if it refutes its claim."""
    try:
        return _wrong(record)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return [f"it can't be replayed ({printable(repr(error))})"]
    except (InputError, Rejected) as error:
        return [f"it can't be replayed: {printable(error)}"]


def _wrong(record: Record) -> list[str]:
    value, optimum, problems = REPLAY[record["kind"]](record)
    if problems:  # what it says of an instance that was found wanting is asked no further
        return problems
    for name, stated, found in (
        ("value", record["value"], value),
        ("optimum", record["optimum"], optimum),
    ):
        if Fraction(stated) != found:
            problems.append(f"{name} {stated}, found {found}")
    if known(record):
        if Fraction(record["at_most"]) != (allowed := ALLOWED[record["claim"]](record, optimum)):
            problems.append(f"at_most {record['at_most']}, the claim allows {allowed}")
    elif record["claim"] in ALLOWED:  # of which the file's word on what it allows is not taken
        problems.append("the claim is railopt's, but not with this theorem, hypotheses or policy")
    if value <= Fraction(record["at_most"]):
        problems.append(
            f"the value {value} does not exceed the {record['at_most']} that the claim allows"
        )
    if problems:  # hypotheses are of plans that the checker has looked at
        return problems
    return [f"{name}: not so" for name in record["where"] if not WHERE[name](record)]


def replay_file(name: str) -> Result:
    """Replay `proofs/counterexamples/<name>`."""
    record = read(proofs_folder() / "counterexamples" / name)
    found = f"{record['value']} against {record['optimum']}"
    return verdict(
        "replay",
        name,
        [f"{name}: {problem}" for problem in replay(record)],
        tuple(record["where"]),
        found,
    )


# ---------------------------------------------------------------- the kinds
_NO = Fraction(-1)  # the figure of a plan that does not hold


def _replay_plan(record: Record) -> tuple[Fraction, Fraction, list[str]]:
    best, bad = record["best"], record["bad"]
    good = check_certificate(best)
    if not (good.ok and good.optimal):
        return _NO, _NO, [f"the checker does not prove the optimum: {good.message}"]
    attained = {key: bad[key] for key in ("assignment", "flow") if key in bad}
    worse = {
        **{k: v for k, v in best.items() if k not in ("assignment", "flow", "best")},
        **attained,
        "version": 1,
        "claim": {"bound": best["claim"]["bound"], "value": record["value"], "proved": False},
    }
    shown = check_certificate(worse)
    if not shown.ok or shown.value is None or good.bound is None:
        return _NO, _NO, [f"the checker does not find the value: {shown.message}"]
    if "policy" in bad and policy_rails(best["problem"], bad["policy"]) != bad["assignment"]:
        return _NO, _NO, [f"{bad['policy']} does not make this assignment"]
    return shown.value, good.bound, []


def policy_rails(problem: Record, policy: str) -> list[int]:
    """What railopt's policy does with the chunks; a local problem is one sender to one receiver.
    A name in a file never imports code: only railopt's own policies are replayed.
    """
    if not isinstance(policy, str) or policy not in POLICIES:
        raise InputError(f"policy {printable(policy)}: expected one of railopt's own")
    if problem["kind"] == "local":
        size = problem["sizes"]
        chunks = Chunks.from_arrays(src=[0] * len(size), dst=[1] * len(size), size=size)
        fabric = Fabric.uniform(2, problem["rails"], "1B/s")
    else:
        chunks = Chunks.from_arrays(
            **{key: problem["chunks"][key] for key in ("src", "dst", "size")},
            nodes=problem["nodes"],
        )
        tx, rx = (np.array(problem[side], np.int64) for side in ("tx", "rx"))
        fabric = Fabric(problem["nodes"], problem["rails"], problem["rails"], tx, rx)
    rails: list[int] = plan(fabric, chunks, policy).rail.tolist()
    return rails


def _replay_flow(record: Record) -> tuple[Fraction, Fraction, list[str]]:
    """Time of one byte: 1/flow.  The flow respects every capacity; what the sending GPU's two ports
    carry together, or all its node's NICs, shows that there is no larger one.
    """
    best, bad = record["best"], record["bad"]
    for name in best:
        integer(best[name], name, 1)
    direct = fraction(bad["direct"], "direct")
    peers = [fraction(amount, "through_peers") for amount in bad["through_peers"]]
    flow, problems = direct + sum(peers), []
    if (
        max(direct, *peers) > best["nic"]
        or sum(peers) > best["scale_up"]
        or len(peers) != best["rails"] - 1
    ):
        problems.append("the flow exceeds a capacity")
    least = min(best["scale_up"] + best["nic"], best["rails"] * best["nic"])
    if least != flow:
        problems.append(f"the flow is {flow}, the least cut {least}")
    return 1 / flow, Fraction(1, best["rails"] * best["nic"]), problems


def _replay_fast(record: Record) -> tuple[Fraction, Fraction, list[str]]:
    hot = hot_of(record)
    return hot.time, hot.best, []


REPLAY: dict[str, Callable[[Record], tuple[Fraction, Fraction, list[str]]]] = {
    "plan": _replay_plan,
    "flow": _replay_flow,
    "fast": _replay_fast,
}


# ---------------------------------------------------------------- hypotheses that a bad plan meets
def _loads(record: Record) -> tuple[list[list[int]], list[list[int]]]:
    """(send, recv) of the bad plan, [node][rail]; for a flow in its own unit."""
    problem, bad = record["best"]["problem"], record["bad"]
    nodes, rails = len(problem["tx"]), len(problem["tx"][0])
    columns = (
        [bad["flow"][key] for key in ("src", "dst", "amount", "rail")]
        if "flow" in bad
        else [*(problem["chunks"][key] for key in ("src", "dst", "size")), rails_of(bad)]
    )
    _, flat = completion(problem["tx"], problem["rx"], *columns)
    send, recv = ([side[i * rails : (i + 1) * rails] for i in range(nodes)] for side in flat)
    return send, recv


def rails_of(bad: Record) -> list[int]:
    """The rail of each chunk, with or without a link above leaves in its entry."""
    return [place[0] if isinstance(place, list) else place for place in bad["assignment"]]


def _uniform_nics(record: Record) -> bool:
    return all(len(set(row)) == 1 for side in _loads(record) for row in side)


def _aggregate_uniform(record: Record) -> bool:
    return all(len(set(row)) == 1 for row in _loads(record)[0])


def _equal_chunks(record: Record) -> bool:
    problem = record["best"].get("problem", record["best"])
    return len(set(problem["chunks"]["size"])) == 1


def _uniform_over_living(record: Record) -> bool:
    """Every pair's bytes are spread evenly over the rails that are alive at both ends."""
    problem, flow = record["best"]["problem"], record["bad"]["flow"]
    amounts: dict[tuple[int, int], dict[int, int]] = {}
    for src, dst, rail, amount in zip(
        flow["src"], flow["dst"], flow["rail"], flow["amount"], strict=True
    ):
        each = amounts.setdefault((src, dst), {})
        each[rail] = each.get(rail, 0) + amount  # a rail may carry a flow in several rows
    return all(
        set(rails)
        == {
            n
            for n, (t, r) in enumerate(zip(problem["tx"][k], problem["rx"][f], strict=True))
            if t and r
        }
        and len(set(rails.values())) == 1
        for (k, f), rails in amounts.items()
    )


def _healthy_share(record: Record) -> bool:
    """The value is what the healthy fabric would take over the slow NIC's fraction: the uniform
    split's own cost.
    """
    problem = record["best"]["problem"]
    fastest = max(map(max, problem["tx"]))
    rows = [sum(row) for row in problem["demand"]]
    least = min(rate for row in problem["tx"] for rate in row if rate)
    return Fraction(record["value"]) == Fraction(
        max(rows), len(problem["tx"][0]) * fastest
    ) * Fraction(fastest, least)


WHERE: dict[str, Callable[[Record], bool]] = {
    "aggregate-uniform sending": _aggregate_uniform,
    "uniform sending and receiving": _uniform_nics,
    "equal chunks": _equal_chunks,
    "uniform over the rails alive at both ends": _uniform_over_living,
    "the uniform split costs 1/phi": _healthy_share,
    "R1 > R2": lambda record: record["best"]["scale_up"] > record["best"]["nic"],
    "B1 >= (m-1) B2 and S_i <= row_i/n": lambda record: hot_of(record).hides,
    "each chunk to the least loaded rail": lambda record: _is_greedy(record),
}


def _is_greedy(record: Record) -> bool:
    problem, rails = record["best"]["problem"], record["bad"]["assignment"]
    loads = [0] * problem["rails"]
    least = loads.copy()  # a heap
    for rail, size in zip(rails, problem["sizes"], strict=True):
        if loads[rail] != least[0]:
            return False
        loads[rail] += size
        heapreplace(least, loads[rail])
    return slowest(loads, [1] * problem["rails"]) == Fraction(record["value"])
