"""Certificates: the record of a lower bound, or of an optimality claim, that `checker.py` re-checks
without a solver.

As canonical JSON (sorted keys, no spaces), version 2:

    railopt, version   "certificate", 2
    problem     {"kind": "local", "sizes": [...], "rails": N}              bounds in bytes
                {"kind": "local", "sizes": [...], "speeds": [v, ...]}      bytes per second, 0 dead
                {"kind": "coupled", "nodes": M, "rails": N, "tx": [[...]], "rx": [[...]],
                 "chunks": {"src": [...], "dst": [...], "size": [...]}}
                {"kind": "coupled", ..., "plan": {"file": name, "digest": hex}}
                {"kind": "fluid", "tx": [[...]], "rx": [[...]], "demand": [[...]]}
                {"kind": "moved", "time": "p/q", "tx": [[...]], "rx": [[...]], "gpus": G,
                 "near": [[GPUs of a rail], ...],
                 "units": {"src_gpu": [...], "dst": [...], "size": [...], "targets": [[...]]}}
                {"kind": "moved", ..., "plan": {"file": name, "digest": hex}}
                {"kind": "staged", "demand": [[bytes from server to server]]}    lengths in bytes
                {"kind": "split", "counts": [tokens of an expert, ...], "holds": [[experts of a
                 GPU], ...], "spare": [slots of a GPU, ...]}, and "node": [node of a GPU, ...]
                 where copies stay on nodes that hold their expert; bounds in tokens
                {"kind": "layer", "tokens": [[of each node], ...], of each expert, "slots": [...],
                 "tx": [...], "rx": [...], of each node, "token_bytes": b}, perhaps "holds": [[0 or
                 1 of each node], ...], of each expert: copies there already, beside the slots
                {"kind": "leaves", "tx": [[...]], "rx": [[...]], "leaf": {"nodes": m, "rails": r,
                 "uplinks": u, "rate": v}, "chunks": {...}}
                and, but beside a plan, perhaps "traffic": hex, the digest of the `Traffic` between
                nodes that the chunks were cut from
    claim       "bound"     "p/q": nothing is faster; or, of kind "moved", nothing within "time"
                            moves fewer bytes inside nodes; or, of kind "split", the fullest GPU
                            has as many tokens whatever is copied
                "value"     "p/q": what this plan takes, or moves; left out where there is none
                "optimal"   whether this plan meets the bound, by a witness
                "best"      "p/q": what the best plan known takes, where that is another
                "optimum"   of the problem: "proved", "claimed" or "open"
    witness     {"kind": ...}: why nothing is faster than the bound, see `checker.py`
    assignment  [rail of each size or chunk], of kind "leaves" perhaps [[rail, link], ...], of kind
                "split" [[expert, GPU, tokens], ...], or
    flow        {"unit": d, "src", "dst", "rail", "amount": [...]}: what takes the value; a
                certificate that names a plan has it there
    stages      [[[server, server, bytes], ...], ...]: what takes the value of a staged problem
    best        {"assignment": [...]} or {"file": name, "digest": hex}: what takes the best value,
                where that is another plan

A flow's amounts are bytes times `unit`.  A witness of kind "claimed" rests on a solver's word and
proves nothing.  Version 1, which is still read, has one word "proved" in its claim for both facts
and no best plan.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base import archive
from railopt.base.arrays import Ints, check_targets, whole_number, write_atomic
from railopt.base.errors import CheckFailed, FormatError, InputError, printable
from railopt.base.units import quoted
from railopt.checker import MEMORY, Rejected, Verdict, check_certificate, fraction, parsed
from railopt.evidence.bounds import LeafCut
from railopt.evidence.bracket import Bracket, Status
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan, needed_by
from railopt.model.traffic import Traffic

VERSION = 2
ATTAINED = ("assignment", "flow", "stages")  # what can take a value, by its name in the record
INLINE = 20_000  # chunks: beyond this a certificate names the plan's file instead of listing them
MAX_RAILS = 1 << 20  # of a local problem, that the checker checks
NAMED = 4096  # GPUs: up to so many a certificate names its traffic, whose matrix it takes to do so


@dataclass(frozen=True)
class Certificate:
    """A problem, a bound with its witness, and the best values known (all as JSON values).

    value, attained        this plan, assignment or flow, if there is one
    best, best_attained    the best one known, where that is another
    """

    problem: Mapping[str, Any] = field(repr=False)
    bound: Fraction
    witness: Mapping[str, Any]
    value: Fraction | None = None
    attained: Mapping[str, Any] = field(default_factory=dict, repr=False)
    best: Fraction | None = None
    best_attained: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def local(
        cls,
        sizes: Sequence[int],
        bound: int | Fraction,
        witness: Mapping[str, Any],
        *,
        rails: int | None = None,
        speeds: Sequence[int] | None = None,
        assignment: Sequence[int] | None = None,
    ) -> Certificate:
        """One list of sizes on `rails` equal rails (bytes) or rails of these `speeds` (seconds)."""
        if (rails is None) == (speeds is None):
            raise InputError("a local problem has either rails or speeds")
        jobs = _integers(sizes, "sizes")
        if speeds is None:
            rates = [1] * whole_number(rails, "rails", 1, MAX_RAILS)
        else:
            rates = _integers(speeds, "speeds")
        problem = {
            "kind": "local",
            "sizes": jobs,
            **({"rails": len(rates)} if speeds is None else {"speeds": rates}),
        }
        if assignment is None:
            return cls(problem, Fraction(bound), witness)
        chosen, live = _integers(assignment, "assignment"), [n for n, v in enumerate(rates) if v]
        if len(chosen) != len(jobs) or not set(chosen) <= set(live):
            raise InputError(
                f"assignment = {quoted(chosen)}: expected one living rail per size, "
                f"{len(jobs)} in all"
            )
        loads = [0] * len(rates)
        for rail, size in zip(chosen, jobs, strict=True):
            loads[rail] += size
        value = max((Fraction(loads[n], rates[n]) for n in live), default=Fraction(0))
        return cls(problem, Fraction(bound), witness, value, {"assignment": chosen})

    @classmethod
    def fluid(
        cls, fabric: Fabric, demand: Ints, bracket: Bracket, flow: Mapping[str, Any]
    ) -> Certificate:
        """Divisible traffic, `demand` bytes [node, node]; `flow` attains the bracket's value: lists
        src, dst, rail and amount, in bytes times `unit`.
        """
        problem = {
            "kind": "fluid",
            "tx": fabric.tx.tolist(),
            "rx": fabric.rx.tolist(),
            "demand": demand.tolist(),
        }
        return cls(problem, bracket.bound, bracket.witness, bracket.value, {"flow": dict(flow)})

    @classmethod
    def moved(
        cls, plan: Plan, time: Fraction, bound: int, witness: Mapping[str, Any]
    ) -> Certificate:
        """What a plan of at most `time` seconds moves inside nodes, in full; no such plan moves
        fewer bytes than `bound`.
        """
        chunks = plan.chunks
        needed = needed_by(plan.fabric, chunks)
        units = {
            **{name: getattr(chunks, name).tolist() for name in ("src_gpu", "dst", "size")},
            "targets": [np.flatnonzero(row).tolist() for row in needed],
        }
        attained = {"assignment": plan.rail.tolist()}
        problem = {**_inside(plan.fabric, time), "units": units}
        return cls(problem, Fraction(bound), witness, Fraction(plan.moved), attained)

    @classmethod
    def leaves(cls, plan: Plan, cut: LeafCut) -> Certificate:
        """What a plan takes, spread over all links above its leaves, and the cut that no plan
        beats; chunks of one sender, receiver and rail as one.
        """
        fabric, chunks = plan.fabric, plan.chunks
        if fabric.leaves is None:
            raise InputError("a fabric without leaves has no uplinks to certify")
        rail = plan.rail.astype(np.int64)
        key = (chunks.src * np.int64(fabric.nodes) + chunks.dst) * fabric.rails + rail
        _, head, joint = np.unique(key, return_index=True, return_inverse=True)
        size = np.zeros(len(head), np.int64)
        np.add.at(size, joint, chunks.size)
        src, dst = chunks.src[head].tolist(), chunks.dst[head].tolist()
        leaf = {name: value for name, value in asdict(fabric.leaves).items() if name != "way"}
        problem = {
            "kind": "leaves",
            "tx": fabric.tx.tolist(),
            "rx": fabric.rx.tolist(),
            "leaf": leaf,
            "chunks": {"src": src, "dst": dst, "size": size.tolist()},
        }
        value = max(plan.makespan, plan.uplink_time)
        return cls(problem, cut.value, cut.witness, value, {"assignment": rail[head].tolist()})

    @property
    def claimed_by(self) -> str | None:
        """Whose word the bound rests on, or None where its witness is checked."""
        inner: Any = self.witness
        while isinstance(inner, Mapping) and inner.get("kind") == "node":
            inner = inner.get("witness")
        claimed = isinstance(inner, Mapping) and inner.get("kind") == "claimed"
        return str(inner.get("by")) if claimed else None

    @property
    def optimal(self) -> bool:
        """Whether it claims that this plan is optimal: value == bound, by a witness."""
        return self.value == self.bound and self.claimed_by is None

    @property
    def optimum(self) -> Status:
        """What it claims of the optimum of its problem, by the best that it holds."""
        known = self.value if self.best is None else self.best
        if known != self.bound:
            return Status.OPEN
        return Status.KNOWN if self.claimed_by is None else Status.CLAIMED

    @property
    def traffic(self) -> str | None:
        """The digest of the traffic between nodes that its chunks were cut from, if it says."""
        return self.problem.get("traffic")

    def as_dict(self) -> dict[str, Any]:
        """As JSON values; `from_dict` is the way back."""
        claim: dict[str, Any] = {
            "bound": str(self.bound),
            "optimal": self.optimal,
            "optimum": "proved" if self.optimum is Status.KNOWN else str(self.optimum),
        }
        if self.value is not None:
            claim["value"] = str(self.value)
        if self.best is not None:
            claim["best"] = str(self.best)
        best = {"best": dict(self.best_attained)} if self.best is not None else {}
        return {
            "railopt": "certificate",
            "version": VERSION,
            "problem": dict(self.problem),
            "claim": claim,
            "witness": dict(self.witness),
            **self.attained,
            **best,
        }

    @classmethod
    def from_dict(cls, record: Any) -> Certificate:
        """The certificate in parsed JSON, of version 1 or 2; its form is checked, its truth is not
        (see `check`).
        """
        try:
            if record["railopt"] != "certificate" or record["version"] not in (1, VERSION):
                raise FormatError(
                    f"a {printable(record['railopt'])!r} of version "
                    f"{printable(record['version'])!r}, expected a certificate of version 1 or 2"
                )
            claim = record["claim"]
            bound, value, best = (
                fraction(claim[name], name) if name in claim else None
                for name in ("bound", "value", "best")
            )
            if bound is None:
                raise FormatError("a claim without a bound")
            attained = {key: record[key] for key in ATTAINED if key in record}
            other = record.get("best", {})
            made = cls(record["problem"], bound, record["witness"], value, attained, best, other)
            if record != (made.as_dict() if record["version"] == VERSION else _version_1(made)):
                raise FormatError(
                    "not the canonical form of a certificate: a field is unknown or contradicts "
                    "another"
                )
        except (KeyError, TypeError, AttributeError, ValueError, InputError, Rejected) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"not a certificate ({printable(repr(error))})") from error
        return made

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, a newline at the end."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":")) + "\n"

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the file whole or not at all; an existing one is replaced only with `force`."""
        write_atomic(path, self.to_json(), force=force)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a saved certificate; its form is checked, its truth is not (see `check`)."""
        name = printable(path)
        try:
            with open(path, "rb") as file:
                record = parsed(file.read(MEMORY))
        except OSError as error:
            raise InputError(f"{name}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{name}: not JSON ({printable(error)})") from error
        try:
            return cls.from_dict(record)
        except FormatError as error:
            raise FormatError(f"{name}: {error}") from error

    def check(self, directory: str | os.PathLike[str] | None = None) -> Verdict:
        """The trusted checker's verdict; a plan that the certificate names is looked for in
        `directory`.
        """
        return check_certificate(self.as_dict(), directory)

    def require(self) -> Certificate:
        """Itself if the checker accepts it; else CheckFailed."""
        verdict = self.check()
        if not verdict.ok:
            raise CheckFailed(f"the certificate does not hold ({verdict.kind}): {verdict.message}")
        return self


def _version_1(made: Certificate) -> dict[str, Any]:
    """The same certificate as version 1 writes it."""
    record = made.as_dict()
    claim = {name: record["claim"][name] for name in ("bound", "value") if name in record["claim"]}
    return {**record, "version": 1, "claim": {**claim, "proved": made.optimal}}


def _integers(values: Sequence[int], name: str) -> list[int]:
    try:
        return [index(value) for value in values]
    except TypeError as error:
        raise InputError(f"{name} = {quoted(values)}: expected whole numbers") from error


def certify(plan: Plan, bracket: Bracket, best: Plan | None = None) -> Certificate:
    """The certificate of a plan and of what is known of the optimum of its chunks, in full; `best`
    is the best plan known, where that is another.
    """
    better = _better(plan, best)
    return Certificate(
        {**_problem(plan), **_cut_from(plan), "chunks": _columns(plan.chunks)},
        *witnessed(bracket),
        plan.makespan,
        {"assignment": plan.rail.tolist()},
        None if better is None else better.makespan,
        {} if better is None else {"assignment": better.rail.tolist()},
    )


def save_certificate(
    plan: Plan,
    bracket: Bracket,
    path: str | os.PathLike[str],
    best: Plan | None = None,
    force: bool = False,
) -> list[Path]:
    """Write a certificate; one of more than `INLINE` chunks names the plan's file beside it, and
    that of the best plan where it is another (see `_beside`).  The certificate's file and those.
    """
    if len(plan.chunks) <= INLINE:
        certify(plan, bracket, best).save(path, force=force)
        return [Path(path)]
    better = _better(plan, best)
    files, (here, *others) = _beside(path, [plan, *([] if better is None else [better])], force)
    Certificate(
        {**_problem(plan), "plan": here},
        *witnessed(bracket),
        plan.makespan,
        {},
        None if better is None else better.makespan,
        others[0] if others else {},
    ).save(path, force=force)
    return [Path(path), *files]


def save_moved(
    plan: Plan,
    time: Fraction,
    bound: int,
    witness: Mapping[str, Any],
    path: str | os.PathLike[str],
    force: bool = False,
) -> list[Path]:
    """Write a certificate of what a plan moves (see `Certificate.moved`); one of more than `INLINE`
    chunks names the plan's file beside it (see `_beside`).  The certificate's file and that.
    """
    if len(plan.chunks) <= INLINE:
        Certificate.moved(plan, time, bound, witness).save(path, force=force)
        return [Path(path)]
    files, (here,) = _beside(path, [plan], force)
    problem = {**_inside(plan.fabric, time), "plan": here}
    Certificate(problem, Fraction(bound), witness, Fraction(plan.moved)).save(path, force=force)
    return [Path(path), *files]


def _beside(
    certificate: str | os.PathLike[str], plans: Sequence[Plan], force: bool
) -> tuple[list[Path], list[dict[str, str]]]:
    """The files of plans beside a certificate, DIGEST.plan.npz, so that certificates of one folder
    that share a plan share its file, and how a certificate names them.  One that is there is
    written again only with `force`, or where it is another plan's or damaged.
    """
    check_targets(certificate, force=force)
    files, named = [], []
    for plan in plans:
        digest = plan.saved_digest
        file = Path(certificate).with_name(f"{digest}.plan.npz")
        try:
            there = file.exists() and plan_digest(file) == digest
        except InputError:
            there = False
        if force or not there:
            plan.save(file, force=True)
        files.append(file)
        named.append({"file": file.name, "digest": digest})
    return files, named


def _better(plan: Plan, best: Plan | None) -> Plan | None:
    """`best`, if it is a better plan of the same problem."""
    if best is None or best.makespan >= plan.makespan:
        return None
    if best.fabric.digest != plan.fabric.digest or best.chunks.digest != plan.chunks.digest:
        raise InputError("the best plan is one of another fabric or of other chunks")
    return best


def witnessed(bracket: Bracket) -> tuple[Fraction, Mapping[str, Any]]:
    """The bound, and why nothing beats it: beside a claim the one that the checker checks, else
    whose word it is.
    """
    word = {"kind": "claimed", "by": bracket.by}
    return bracket.certified or (bracket.bound, bracket.witness or word)


def _problem(plan: Plan) -> dict[str, Any]:
    """Nodes, rails and their rates."""
    fabric = plan.fabric
    return {
        "kind": "coupled",
        "nodes": fabric.nodes,
        "rails": fabric.rails,
        "tx": fabric.tx.tolist(),
        "rx": fabric.rx.tolist(),
    }


def _cut_from(plan: Plan) -> dict[str, str]:
    """The traffic by name if the chunks are all of one traffic between nodes."""
    chunks = plan.chunks
    if chunks.nodes * chunks.gpus > NAMED:
        return {}
    traffic = Traffic.from_chunks(chunks)
    return {} if plan.misses(traffic) else {"traffic": traffic.digest}


def between_nodes(traffic: Traffic) -> Traffic:
    """The traffic without what stays inside a node, as chunks and certificates know it."""
    node = np.arange(len(traffic.bytes)) // traffic.gpus
    return Traffic(np.where(node[:, None] == node, 0, traffic.bytes), traffic.nodes)


def plan_digest(path: str | os.PathLike[str]) -> str:
    """The digest that a saved plan carries in its header."""
    with archive.opened(path) as members:
        try:
            return str(json.loads(members.text("header.json"))["digest"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise FormatError("not a railopt .npz") from error


def _columns(chunks: Chunks) -> dict[str, list[int]]:
    return {name: getattr(chunks, name).tolist() for name in ("src", "dst", "size")}


def _inside(fabric: Fabric, time: Fraction) -> dict[str, Any]:
    return {
        "kind": "moved",
        "time": str(time),
        "tx": fabric.tx.tolist(),
        "rx": fabric.rx.tolist(),
        "gpus": fabric.gpus,
        "near": fabric.node.as_dict()["near"],
    }
