"""railopt.check: plans, schedules, certificates and counterexamples, also against their traffic.

    certificates        by the trusted checker (railopt/checker.py); or, with `verified`, by the
    and plans           checker that is proved in Coq (railopt/evidence/verified.py)
    stages of plans     that they are free of incast, here
    schedules           by their constructor: stages, peers and bytes
    counterexamples     replayed: by the checker, or by the exact evaluators of railopt.symbolic

The message of a verdict says by what.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from railopt.base.arrays import Ints, kind_of, require_type, say_large
from railopt.base.errors import CheckFailed, FormatError, InputError, about, printable
from railopt.base.extras import need
from railopt.checker import (
    MEMORY,
    Rejected,
    Verdict,
    check_certificate,
    completion,
    content_of,
    parsed,
)
from railopt.checker import check as check_file
from railopt.evidence.certificate import Certificate, between_nodes
from railopt.evidence.verified import NAME, installed
from railopt.evidence.verified import check as check_verified
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.model.traffic import Traffic
from railopt.model.workloads import traffic_from

if TYPE_CHECKING:
    from railopt.schedule import Schedule

COLUMNS = ("src", "dst", "size")  # of a certificate's chunks
_WITHOUT_BYTES = {  # kinds of certificates that no traffic can be held against
    "local": "one list of sizes",
    "split": "tokens on GPUs",
    "layer": "tokens and experts",
}
MOST_RANKS = 2048  # for which traffic is generated because a file that is checked says so
Checker = Callable[[Path], Verdict]
Given = Traffic | str | os.PathLike[str]  # traffic, its file or its spec


def check(
    what: str | os.PathLike[str] | Certificate | Plan | Schedule,
    traffic: Given | None = None,
    *,
    verified: bool = False,
) -> Verdict:
    """Check a file, or a value, and that it is about this traffic (a `Traffic`, a file or a spec).

    verified   by `railopt-verified` instead of the checker: certificates, plans and
               counterexamples in files

    Raises InputError for what can't be read, and for traffic that `what` can't be held against.
    """
    require_type(
        traffic, Traffic | str | os.PathLike | None, "traffic", "Traffic, a file's name or a spec"
    )
    if isinstance(what, str) and not what:
        raise InputError("an empty name: expected the name of a file")
    if verified and not isinstance(what, str | os.PathLike):
        raise InputError(f"{NAME} reads files: save this {type(what).__name__} and name its file")
    if isinstance(what, Certificate):
        return _certificate(what.check(), what, Path("."), traffic)
    if isinstance(what, Plan):
        return _plan(_computed(what), what, traffic)
    if isinstance(what, str | os.PathLike):
        return _file(Path(what), traffic, check_verified if verified else None)
    from railopt.schedule.value import Schedule

    if not isinstance(what, Schedule):
        raise InputError(f"a {type(what).__name__}: expected a file's name or a value of railopt")
    return _schedule(what, traffic)


def word(verdict: Verdict) -> str:
    """A verdict in one word."""
    return "optimal" if verdict.optimal else "ok" if verdict.ok else "FAILED"


class Checked(NamedTuple):
    """Verdicts on certificates, by file, and the name of the checker that gave them; as text, how
    many it accepted.
    """

    by: str
    verdicts: dict[str, Verdict]

    def __str__(self) -> str:
        ok = sum(verdict.ok for verdict in self.verdicts.values())
        return f"{ok} of {len(self.verdicts)} accepted by {self.by}"


def check_all(files: Iterable[str | os.PathLike[str]], *, verified: bool = True) -> Checked:
    """Certificates in files, all by one checker: `railopt-verified` where it is installed, unless
    they are of a kind that it does not know (`verified`): "leaves".
    """
    with_proof = verified and installed()
    by = NAME if with_proof else "railopt/checker.py"
    return Checked(by, {str(file): check(file, verified=with_proof) for file in files})


def _file(path: Path, traffic: Given | None, checker: Checker | None) -> Verdict:
    """`checker` is called in place of `check_certificate`."""
    name = printable(path)
    kind = kind_of(path)
    if kind is not None:
        say_large(path)
    if kind not in (None, "plan", "schedule"):
        raise InputError(
            f"{name} is a {kind}, which makes no claim to check: expected a plan, a schedule or a "
            f"certificate"
        )
    if kind is None and path.suffix == ".npy":
        raise InputError(
            f"{name} is an array of numbers, which makes no claim to check: expected a plan, a "
            f"schedule or a certificate"
        )
    if kind == "schedule":
        _refuse(checker, name, "a schedule")
        from railopt.schedule import Schedule

        try:
            made = Schedule.read(path)
        except (InputError, CheckFailed) as error:
            return Verdict(False, False, "schedule", printable(error))
        return _schedule(made, traffic)
    try:
        record, content = _json(path)
        if isinstance(record, Mapping) and record.get("railopt") == "counterexample":
            return _counterexample(path, record, content, traffic, checker)
        if checker is not None:
            _refuse_leaves(checker, name, record)
            verdict = checker(path)
        elif record is None:
            verdict = check_file(path)
        else:
            verdict = replace(check_certificate(record, path.parent), content=content)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except ValueError as error:
        raise FormatError(f"{name}: no certificate and no plan: {printable(error)}") from error
    if not verdict.ok:
        return verdict
    if record is None:
        held = _plan(verdict, Plan.read(path, verdict.content), traffic)
    else:
        _need_same(verdict, content, name)
        if traffic is None:
            return verdict
        with about(f"{name}: ", FormatError):
            certificate = Certificate.from_dict(record)
        held = _certificate(verdict, certificate, path.parent, traffic)
    if checker is not None and held != verdict:
        return replace(held, message=f"{held.message} (this by Python)")
    return held


def _refuse_leaves(checker: Checker | None, name: str, certificate: Any) -> None:
    problem = certificate.get("problem") if isinstance(certificate, Mapping) else None
    if isinstance(problem, Mapping) and problem.get("kind") == "leaves":
        _refuse(checker, name, "links above leaves")


def _refuse(checker: Checker | None, name: str, what: str) -> None:
    """Refuse `verified` for what only the checker and Python can check."""
    if checker is not None:
        raise InputError(f"{name}: {NAME} does not know {what}: check it without --verified")


def _json(path: Path) -> tuple[Any, str]:
    """The JSON value in a file and the digest of its bytes; (None, "") if the file is a zip."""
    with open(path, "rb") as file:
        start = file.read(2)
        if start == b"PK":
            return None, ""
        data = start + file.read(MEMORY)
    try:
        return parsed(data), content_of(data)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _need_same(verdict: Verdict, content: str, name: str) -> None:
    """Refuse a verdict on bytes other than those that were read here."""
    if verdict.content != content:
        raise InputError(f"{name}: the file was changed while it was checked")


# ---------------------------------------------------------------- plans and schedules


def _computed(plan: Plan) -> Verdict:
    """The checker's verdict on a plan in memory."""
    fabric, chunks = plan.fabric, plan.chunks
    columns = [column.tolist() for column in (chunks.src, chunks.dst, chunks.size, plan.rail)]
    try:
        value, _ = completion(fabric.tx.tolist(), fabric.rx.tolist(), *columns)
    except Rejected as error:
        return Verdict(False, False, "plan", printable(error))
    return Verdict(
        True, False, "plan", f"{len(chunks)} chunks on live rails", value=value, best=value
    )


def _plan(verdict: Verdict, plan: Plan, traffic: Given | None) -> Verdict:
    """The verdict on a plan; of one that holds, given what it has to send, and that stages of a
    schedule are free of incast.
    """
    if not verdict.ok:
        return verdict
    from railopt.schedule import KINDS, conflicts

    said, wrong = [verdict.message], []
    if plan.stage is not None and plan.policy in KINDS and KINDS[plan.policy].barriers:
        wrong += conflicts(plan)
        said += wrong or ["in each stage every NIC has one peer"]
    if traffic is not None:
        missed = plan.misses(_traffic(traffic, plan.fabric))
        wrong += [missed] if missed else []
        said.append(missed or f"sends every byte of {_name(traffic)} once")
    return replace(verdict, ok=not wrong, message="; ".join(said))


def _schedule(made: Schedule, traffic: Given | None) -> Verdict:
    """A schedule is validated by its own constructor: stages, peers and bytes."""
    said = f"{made.kind}, {made.stages} stages: one peer per GPU and stage, every byte arrives"
    if traffic is None:
        return Verdict(True, False, "schedule", said)
    given = between_nodes(_traffic(traffic, made.fabric))
    if between_nodes(made.traffic) != given:
        return Verdict(
            False, False, "schedule", f"a schedule of other bytes than {_name(traffic)} has"
        )
    return Verdict(True, False, "schedule", f"{said}; its bytes are those of {_name(traffic)}")


# ---------------------------------------------------------------- certificates


def _certificate(
    verdict: Verdict, certificate: Certificate, folder: Path, traffic: Given | None
) -> Verdict:
    """The verdict on a certificate, held against traffic."""
    if traffic is None or not verdict.ok:
        return verdict
    problem = certificate.problem
    if "plan" in problem:
        plan = Plan.read(folder / problem["plan"]["file"], problem["plan"]["digest"])
        missed = plan.misses(_traffic(traffic, plan.fabric))
        return _held(verdict, missed, f"its plan sends every byte of {_name(traffic)} once")
    if what := _WITHOUT_BYTES.get(problem["kind"]):
        raise InputError(
            f"a certificate of {what} knows no bytes between nodes: it can't be held against "
            f"{_name(traffic)}"
        )
    if problem["kind"] == "staged" and not isinstance(traffic, Traffic):
        raise InputError(
            f"a certificate of stages does not say how many GPUs a server has: hold its schedule "
            f"against {_name(traffic)}"
        )
    if problem["kind"] == "moved":
        whole = _sized_traffic(traffic, problem)
        said = f"its bytes between GPUs are those of {_name(traffic)}"
        return _held(verdict, _other_units(problem, between_nodes(whole)), said)
    whole = _sized_traffic(traffic, problem)
    missed = _other_traffic(certificate, between_nodes(whole), traffic)
    if missed and isinstance(traffic, str) and not os.path.exists(traffic):
        raise InputError(
            f"the certificate does not say how many GPUs a node has, and it is not about "
            f"{_name(traffic)} for a GPU per rail: hold it against a file of the traffic (railopt "
            f"convert writes one), or check its plan"
        )
    said = f"its bytes between nodes are those of {_name(traffic)}"
    if problem["kind"] == "coupled":
        said = f"it names {_name(traffic)} and has its bytes between nodes"
    return _held(verdict, missed, said)


def _held(verdict: Verdict, missed: str, said: str) -> Verdict:
    if missed:
        message = printable(missed)
        return replace(verdict, ok=False, optimal=False, optimum="open", message=message)
    return replace(verdict, message=f"{verdict.message}; {said}")


def _other_traffic(certificate: Certificate, between: Traffic, given: Given) -> str:
    """What shows that a certificate is about other traffic than the one `given`, of which
    `between` is what goes between nodes, in words; "" if nothing.
    """
    problem = certificate.problem
    missed = _other_bytes(problem, between.node_matrix)
    if missed or problem["kind"] in ("fluid", "staged", "leaves"):
        return missed or _other_name(certificate, between, given)
    if not certificate.traffic:
        raise InputError(
            f"the certificate does not say which traffic its chunks were cut from: it can't be "
            f"held against {_name(given)}"
        )
    return _other_name(certificate, between, given) or _uncut(problem, between)


def _other_name(certificate: Certificate, between: Traffic, given: Given) -> str:
    """That a certificate names another traffic, in words; "" if it names this one or none."""
    if not certificate.traffic or certificate.traffic == between.digest:
        return ""
    return f"it names another traffic than {_name(given)}: {certificate.traffic}"


def _uncut(problem: Mapping[str, Any], given: Traffic) -> str:
    """Why the chunks between some pair of nodes are not cut from its flows, in words; "" if they
    may be: none is larger than the largest flow, and they are as many as the flows or more.
    """
    flows = given.bytes.reshape(given.nodes, given.gpus, given.nodes, given.gpus)
    largest, many = flows.max(axis=(1, 3)), np.count_nonzero(flows, axis=(1, 3))
    for src, dst, size in zip(*(problem["chunks"][name] for name in COLUMNS), strict=True):
        if size > largest[src, dst]:
            return (
                f"a chunk from node {src} to node {dst} has {size} bytes, the largest flow there "
                f"{largest[src, dst]}"
            )
        many[src, dst] -= 1
    if (many <= 0).all():
        return ""
    src, dst = np.argwhere(many > 0)[0]
    return f"node {src} sends node {dst} more flows than chunks"


def demand_of(problem: Mapping[str, Any]) -> Ints:
    """Bytes from node to node, int64 [nodes, nodes]."""
    if "demand" in problem:
        demand = np.array(problem["demand"], dtype=object)
        np.fill_diagonal(demand, 0)
        return demand
    demand = np.zeros((len(problem["tx"]), len(problem["tx"])), dtype=object)
    columns = (problem["chunks"][name] for name in COLUMNS)
    for src, dst, size in zip(*columns, strict=True):
        demand[src, dst] += size
    return demand


def _other_units(problem: Mapping[str, Any], given: Traffic) -> str:
    """As `_other_bytes`, of units, each with one target, from GPU to GPU."""
    units, gpus = problem["units"], problem["gpus"]
    if any(len(targets) != 1 for targets in units["targets"]):
        return "units: what several GPUs need is sent once, a traffic has it each time"
    if (len(problem["tx"]), gpus) != (given.nodes, given.gpus):
        return f"it is about {len(problem['tx'])} x {gpus} GPUs, the traffic is not"
    sent = np.zeros(given.bytes.shape, dtype=object)
    for src, dst, size, (gpu,) in zip(
        *(units[name] for name in ("src_gpu", "dst", "size", "targets")), strict=True
    ):
        sent[src, dst * gpus + gpu] += size
    differ = np.argwhere(sent != given.bytes)
    if not len(differ):
        return ""
    i, j = differ[0]
    return f"GPU {i} sends GPU {j} {sent[i, j]} bytes, the traffic has {given.bytes[i, j]}"


def _other_bytes(problem: Mapping[str, Any], given: Ints) -> str:
    """The first pair of nodes whose bytes differ, in words; "" if none does."""
    nodes = len(problem["tx" if "chunks" in problem else "demand"])
    if nodes != len(given):  # asked before room is made for all pairs
        return f"it is about {nodes} nodes, the traffic has {len(given)}"
    found = demand_of(problem)
    differ = np.argwhere(found != given)
    if not len(differ):
        return ""
    k, f = differ[0]
    return f"node {k} sends node {f} {found[k, f]} bytes, the traffic has {given[k, f]}"


# ---------------------------------------------------------------- traffic


def _name(traffic: Given) -> str:
    return f"traffic {traffic.digest}" if isinstance(traffic, Traffic) else printable(traffic)


def _traffic(traffic: Given, fabric: Fabric) -> Traffic:
    if isinstance(traffic, Traffic):
        return traffic
    ranks = fabric.nodes * fabric.gpus
    if ranks > MOST_RANKS and not os.path.exists(traffic):
        raise InputError(
            f"{_name(traffic)} of {ranks} GPUs: expected a file for more than {MOST_RANKS}; "
            f"railopt convert writes one"
        )
    return traffic_from(os.fspath(traffic), fabric)


def _sized_traffic(traffic: Given, problem: Mapping[str, Any]) -> Traffic:
    """Traffic for a certificate; what is generated, of the problem's GPUs per node, or of a GPU per
    rail.
    """
    if isinstance(traffic, Traffic):
        return traffic
    text, nodes, rails = os.fspath(traffic), len(problem["tx"]), len(problem["tx"][0])
    if os.path.exists(text):
        return Traffic.read_sized(text, nodes, rails)
    return _traffic(text, Fabric.uniform(nodes, rails, gpus=problem.get("gpus", rails)))


# ---------------------------------------------------------------- counterexamples

BY = {
    "plan": "value and optimum by the checker",
    "flow": "by a flow and a cut of one size, exactly evaluated",
    "fast": "by FAST's phases, exactly evaluated",
}


def _counterexample(
    path: Path, record: Any, content: str, traffic: Given | None, checker: Checker | None
) -> Verdict:
    """Replay a counterexample: its bad plan costs more than the claim allows.  `checker` is
    called in place of `check_certificate`; that the plan meets the claim's hypotheses is replayed
    here.
    """
    need("sympy", "a counterexample's replay")
    from railopt.symbolic.search import counterexamples

    if traffic is not None:
        raise InputError(f"{printable(path)}: a counterexample can't be held against traffic")
    counterexamples.validated(record, path)
    known = counterexamples.known(record)
    kind = f"counterexample to {_refuted(printable(record['theorem']), known)}"
    wrong = counterexamples.replay(record)
    if wrong:
        return Verdict(False, False, kind, printable("; ".join(wrong)))
    value, optimum = Fraction(record["value"]), Fraction(record["optimum"])
    allows = "the claim allows" if known else "the file says to allow"
    said = f"{value} where {allows} {record['at_most']}"
    if checker is not None:
        _refuse_leaves(checker, printable(path), record["best"])
        verdict = checker(path)
        if verdict.ok:
            _need_same(verdict, content, printable(path))
        said = f"{said}; by {NAME}" if verdict.ok else verdict.message
        return replace(
            verdict, kind=kind, message=f"{said}; the claim's hypotheses replayed in Python"
        )
    said = f"{said}; replayed: {BY[record['kind']]}"
    if record["kind"] == "plan":
        return Verdict(True, False, kind, said, optimum, value, optimum, "known", content)
    if record["kind"] == "flow":  # its cut is a bound that it meets
        return Verdict(True, False, kind, said, value, value, value, "known", content)
    return Verdict(True, False, kind, said, optimum, value, value, content=content)


def _refuted(name: str, known: bool) -> str:
    """What a counterexample to a theorem refutes: a statement of the registry, or a claim beyond
    one that is proved, or nothing of railopt's.
    """
    from railopt.symbolic import registry

    if not known:
        return f"a claim that railopt does not make, called {name}"
    refuted = registry.get(name).status == "refuted"
    return name if refuted else f"a claim that {name} rules out"
