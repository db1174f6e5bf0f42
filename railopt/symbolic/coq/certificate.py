"""One certificate (JSON) as a theorem about its instance, checked by Coq's kernel.

    certificate_theorem(record)   the Coq source: the instance, `bound`, perhaps `value`, and
                                  `certified`: both
    check_certificate(path)       compiles it against `proofs/coq` and says what was proved

The numbers are copied, nothing is decided here: the check that the kernel runs (`vm_compute`) and
its soundness are in `proofs/coq`.  What one trusts is the kernel, the printed statement and that it
speaks of the
                  instance meant.

    witness        theorem used        what the kernel computes
    average        T7_local...         all bytes against all rooms
    pigeonhole                         some k rails carry many of the l largest
    count                              how many of the j largest each rail takes
    dual                               a knapsack on undominated (bytes, weight) pairs
    subset                             attainable sums as the bits of one number
    cover                              every way to fill the rails, to its dead end
    node           T7_node             the same for what one node sends or receives
    joint          T7_joint_sound      every way to put the chunks of some sides on rails
    fluid          T7_fluid            prices of all bytes against what all NICs earn
    whole          T7_whole            such prices against sums of whole chunks
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, groupby
from math import ceil, gcd
from pathlib import Path
from typing import Any

from railopt.base.arrays import read_text
from railopt.base.errors import CheckFailed, FormatError, InputError, NotProved, printable
from railopt.base.units import parse_number, shown
from railopt.symbolic.coq import build as coq

Record = Mapping[str, Any]
HEADER = """\
From Coq Require Import NArith QArith List.
From Rails Require Import Jobs Certificate Joint Fluid.
From Rails Require Program.
Import ListNotations.
Open Scope nat_scope.
"""


UNRUN = {
    "moved": "moved bytes (its theorem, T14a",
    "split": "spare slots (its theorem, T15b",
    "staged": "schedules (its theorem, T13a",
}


@dataclass(frozen=True)
class Proved:
    """What the kernel accepted.

    kind: the witness; statement: the theorem as Coq prints it; optimal: value and bound meet, both
    proved; seconds: of coqc, loading included.
    """

    kind: str
    statement: str
    optimal: bool
    seconds: float


@dataclass(frozen=True)
class _Claim:
    """A statement and the theorem application (a boolean check is left to the kernel) that proves
    it.
    """

    statement: str
    proof: str


def check_certificate(path: str | os.PathLike[str], *, timeout_s: float = 120) -> Proved:
    """Turn the certificate in a file into a theorem and have Coq's kernel check it.

    Raises InputError (unreadable), NotProved (a solver's word, a bound of 0, no time left),
    CheckFailed (the kernel rejects it) or BackendError (no coqc).
    """
    try:
        record = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{printable(path)}: not JSON ({printable(error)})") from error
    try:
        return prove(record, directory=Path(path).parent, timeout_s=timeout_s)
    except FormatError as error:
        raise FormatError(f"{printable(path)}: {error}") from error


def prove(record: Record, *, directory: Path = Path("."), timeout_s: float = 120) -> Proved:
    """`check_certificate` for parsed JSON; a plan that it names is looked for in `directory`."""
    text = certificate_theorem(record, directory=directory)
    folder = coq.theory()
    coq.build(folder)
    text += "Check certified.\nPrint Assumptions certified.\n"
    done = coq.compile_text(text, folder=folder, timeout_s=timeout_s)
    if done.timed_out:
        kind = witness_kind(record["witness"])
        raise NotProved(f"Coq's kernel needs more than {timeout_s:g} s for this {kind} witness")
    if not done.ok:
        reason = " ".join(done.output.partition("Error:")[2].split()) or done.output
        raise CheckFailed(f"Coq's kernel does not accept the certificate: {reason[:400]}")
    statement, closed, _ = done.output.rpartition("Closed under the global context")
    if not closed:
        raise CheckFailed(f"the theorem rests on assumptions: {done.output.strip()[-400:]}")
    claim = record["claim"]
    return Proved(
        witness_kind(record["witness"]),
        " ".join(statement.split()),
        "value" in claim and exact(claim["value"]) == exact(claim["bound"]),
        done.seconds,
    )


def certificate_theorem(record: Record, *, directory: Path = Path(".")) -> str:
    """The Coq source for one certificate: definitions of the instance, then `bound`, `value` and
    `certified`.
    """
    try:
        if record["railopt"] != "certificate" or record["version"] not in (1, 2):
            raise FormatError("expected a railopt certificate of version 1 or 2")
        if exact(record["claim"]["bound"]) <= 0:
            raise NotProved("a bound of 0 says nothing: there is nothing to prove")
        kind = record["problem"]["kind"]
        if unrun := UNRUN.get(kind):
            raise NotProved(
                f"Coq's kernel runs no check of {unrun}, is proved): railopt check re-checks this "
                f"certificate"
            )
        if kind not in _PROBLEMS:
            raise FormatError(f"a problem of unknown kind {shown(kind)}")
        definitions, claims = _PROBLEMS[kind](record, directory)
    except KeyError as error:
        raise FormatError(f"not a certificate: {shown(error.args[0])} is missing") from error
    except (TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise FormatError(f"not a certificate ({shown(error)})") from error
    lines = [HEADER, *definitions]
    for name, claim in claims.items():
        lines.append(f"Theorem {name} :\n  {claim.statement}.")
        lines.append(f"Proof. apply ({claim.proof}). vm_cast_no_check (eq_refl true). Qed.")
    both = " /\\ ".join(f"({claim.statement})" for claim in claims.values())
    proof = f"(conj {' '.join(claims)})" if len(claims) > 1 else "bound"
    lines.append(f"Theorem certified :\n  {both}.\nProof. exact {proof}. Qed.")
    return "\n".join(lines) + "\n"


def witness_kind(witness: Any) -> str:
    """``node pigeonhole`` for a lifted one."""
    kind = str(witness["kind"])
    return f"node {witness_kind(witness['witness'])}" if kind == "node" else kind


def exact(value: Any) -> Fraction:
    """A rational of a certificate: "p/q", or a whole number."""
    try:
        return parse_number(value, "rational number")
    except InputError as error:
        raise FormatError(str(error)) from error


# ---------------------------------------------------------------- terms
def numbers(values: Iterable[int]) -> str:
    """A list of whole numbers; negative ones are refused, they would be read as zero nowhere."""
    return "[" + "; ".join(str(natural(value)) for value in values) + "]"


def natural(value: Any) -> int:
    """`value` if it is a whole number, not below zero and not a boolean."""
    if type(value) is not int or value < 0:
        raise FormatError(f"{str(value)[:40]!r} is not a whole number")
    return value


def table(rows: Iterable[Iterable[int]]) -> str:
    """A list of lists of whole numbers."""
    return "[" + "; ".join(numbers(row) for row in rows) + "]"


def tuples(*columns: Sequence[int]) -> str:
    """Columns of one length as a list of tuples."""
    rows = zip(*columns, strict=True)
    return (
        "["
        + "; ".join("(" + ", ".join(str(natural(value)) for value in row) + ")" for row in rows)
        + "]"
    )


def grouped(columns: Sequence[Sequence[int]], rail: Sequence[int]) -> tuple[str, str]:
    """Chunks (src, dst, size) pair by pair, and their rails in that order: far fewer numbers for
    Coq to read.

    Equal chunks are written once with their number, and a pair's other chunks in the order of their
    rails; which of two equal chunks takes which rail is no matter, nor is the order of the chunks.
    """
    rails = rail or [0] * len(columns[0])
    by_pair: dict[tuple[int, int], dict[int, list[int]]] = {}
    for s, d, size, n in zip(*columns, rails, strict=True):
        by_pair.setdefault((s, d), {}).setdefault(natural(size), []).append(natural(n))
    groups, order = [], []
    for (s, d), sizes in sorted(by_pair.items()):
        often = {size: sorted(used) for size, used in sizes.items() if len(used) > 1}
        singles = sorted((used[0], size) for size, used in sizes.items() if len(used) == 1)
        runs = tuples(list(often), [len(used) for used in often.values()])
        groups.append(
            f"({natural(s)}, {natural(d)}, {runs}, {numbers(size for _, size in singles)})"
        )
        order += [*chain.from_iterable(often.values()), *(n for n, _ in singles)]
    spread = [(n, len(list(run))) for n, run in groupby(order)]
    return "[" + ";\n   ".join(groups) + "]", tuples(
        [n for n, _ in spread], [count for _, count in spread]
    )


def witness_term(witness: Record, sizes: Sequence[int], rooms: Sequence[int]) -> str:
    """A witness about `sizes` on rails that have these rooms (bytes), in Coq's syntax."""
    unit, kind = gcd(*sizes) or 1, str(witness["kind"])
    if not any(room // unit for room in rooms):
        return "Average"  # no rail has room for a single job: whatever the witness, this is why
    if kind == "pigeonhole":
        return f"(Pigeonhole {natural(witness['jobs'])} {natural(witness['rails'])})"
    if kind == "count":
        return f"(Count {natural(witness['jobs'])})"
    if kind == "dual":
        weights = sorted(
            ((size // unit, weight) for size, weight in witness["weights"]), reverse=True
        )
        return (
            f"(Dual "
            f"{tuples([s for s, _ in weights], [w for _, w in weights]) if weights else '[]'}%N)"
        )
    if kind == "subset":
        below = [natural(witness["from"]) - 1] * len(rooms)
        return f"(Subset {witness_term(witness['base'], sizes, below)})"
    if kind == "claimed":
        raise NotProved(f"claimed by {witness['by']}: a solver's word is no proof")
    if kind in ("average", "cover"):
        return kind.capitalize()
    raise FormatError(f"a witness of kind {kind[:40]!r}")


def rooms_before(bound: Fraction, speeds: Iterable[int]) -> list[int]:
    """What a time short of `bound` leaves on rails of these speeds."""
    return [max(0, ceil(bound * speed) - 1) for speed in speeds]


# ---------------------------------------------------------------- problems
def _local(record: Record, directory: Path) -> tuple[list[str], dict[str, _Claim]]:
    problem, claim, bound = record["problem"], record["claim"], exact(record["claim"]["bound"])
    sizes = problem["sizes"]
    definitions = [f"Definition sizes : list N := {numbers(sizes)}%N."]
    rails = f"(rails_of {numbers(record['assignment'])}%N)" if "assignment" in record else ""
    if "rails" in problem:
        count, least = natural(problem["rails"]), ceil(bound)
        witness = witness_term(record["witness"], sizes, [least - 1] * count)
        claims = {
            "bound": _Claim(
                f"forall a, placed {count} sizes a -> ({least} <= makespan {count} sizes a)%N",
                f"T7_local {witness} {count} sizes {least}%N",
            )
        }
        if "value" in claim:
            most = natural(int(claim["value"]))
            claims["value"] = _Claim(
                f"exists a, placed {count} sizes a /\\ (makespan {count} sizes a <= {most})%N",
                f"T7_attained {count} sizes {rails} {most}%N",
            )
        return definitions, claims
    speeds = problem["speeds"]
    definitions.append(f"Definition speeds : list N := {numbers(speeds)}%N.")
    witness = witness_term(record["witness"], sizes, rooms_before(bound, speeds))
    live = "placed (length speeds) sizes a"
    claims = {
        "bound": _Claim(
            f"forall a t, {live} -> finishes speeds sizes a t -> ({_time(bound)} <= t)%Q",
            f"T7_local_time {witness} speeds sizes {_ratio(bound)}",
        )
    }
    if "value" in claim:
        value = exact(claim["value"])
        claims["value"] = _Claim(
            f"exists a, {live} /\\ finishes speeds sizes a ({_time(value)})",
            f"T7_attained_time speeds sizes {rails} {_ratio(value)}",
        )
    return definitions, claims


def _coupled(record: Record, directory: Path) -> tuple[list[str], dict[str, _Claim]]:
    problem, bound = record["problem"], exact(record["claim"]["bound"])
    columns, rail = _chunks(record, directory)
    nodes, rails = natural(problem["nodes"]), natural(problem["rails"])
    chunks, spread = grouped(columns, rail)
    definitions = [*_rates(problem), f"Definition chunks : list chunk := chunks_of\n  {chunks}%N."]
    fabric = f"{nodes} {rails} tx rx"
    timely = f"is_plan {rails} chunks plan -> on_time {fabric} chunks plan t"
    witness = record["witness"]
    if witness["kind"] == "node":
        node, send = natural(witness["node"]), witness["side"] == "send"
        ends, speeds = columns[0 if send else 1], problem["tx" if send else "rx"][node]
        sizes = [size for end, size in zip(ends, columns[2], strict=True) if end == node]
        inner = witness_term(witness["witness"], sizes, rooms_before(bound, speeds))
        side = "Send" if send else "Receive"
        proof = f"T7_node {inner} {side} {node} {fabric} chunks {_ratio(bound)}"
    elif witness["kind"] == "joint":
        proof = (
            f"T7_joint_sound {_sides(problem, columns, bound, witness)} {fabric} chunks "
            f"{_ratio(bound)}"
        )
    else:
        prices, definitions = _prices(witness, definitions, "fluid", "whole", "node", "joint")
        theorem = "T7_coupled_fluid" if witness["kind"] == "fluid" else "Program.T7_whole"
        proof = f"{theorem} {fabric} {prices} chunks {_ratio(bound)}"
    claims = {"bound": _Claim(f"forall plan t, {timely} -> ({_time(bound)} <= t)%Q", proof)}
    if "value" in record["claim"]:
        value = exact(record["claim"]["value"])
        claims["value"] = _Claim(
            f"exists plan, is_plan {rails} chunks plan /\\ on_time {fabric} chunks plan "
            f"({_time(value)})",
            f"T7_plan {fabric} chunks (runs_of {spread}%N) {_ratio(value)}",
        )
    return definitions, claims


def _fluid(record: Record, directory: Path) -> tuple[list[str], dict[str, _Claim]]:
    problem, bound = record["problem"], exact(record["claim"]["bound"])
    nodes, rails = len(problem["tx"]), len(problem["tx"][0])
    definitions = [
        *_rates(problem),
        f"Definition demand : list (list N) := {table(problem['demand'])}%N.",
    ]
    prices, definitions = _prices(record["witness"], definitions, "fluid")
    amounts = f"split {nodes} {rails} (nq2 (off_diagonal demand)) x"
    timely = f"in_time {nodes} {rails} (nq2 (rate tx)) (nq2 (rate rx)) x"
    claims = {
        "bound": _Claim(
            f"forall x t, {amounts} -> {timely} t -> ({_time(bound)} <= t)%Q",
            f"T7_fluid {nodes} {rails} tx rx {prices} (off_diagonal demand) {_ratio(bound)}",
        )
    }
    if "value" in record["claim"]:
        value, flow = exact(record["claim"]["value"]), record["flow"]
        parcels = (
            f"(parcels_of {tuples(*(flow[name] for name in ('src', 'dst', 'rail', 'amount')))}%N)"
        )
        claims["value"] = _Claim(
            f"exists x, {amounts} /\\ {timely} ({_time(value)})",
            f"T7_flow {nodes} {rails} tx rx (off_diagonal demand) {natural(flow['unit'])} "
            f"{parcels} {_ratio(value)}",
        )
    return definitions, claims


_PROBLEMS = {"local": _local, "coupled": _coupled, "fluid": _fluid}


def _rates(problem: Record) -> list[str]:
    return [
        f"Definition {side} : list (list N) := {table(problem[side])}%N." for side in ("tx", "rx")
    ]


def _sides(
    problem: Record, columns: Sequence[Sequence[int]], bound: Fraction, witness: Record
) -> str:
    """The sides that a joint witness names, the one with the least room to spare first: the order
    decides how soon ways end.
    """
    spare = []
    for name, ends, rates, term in (
        ("send", columns[0], problem["tx"], "Send"),
        ("recv", columns[1], problem["rx"], "Receive"),
    ):
        for node in witness[name]:
            if natural(node) >= len(rates):
                raise FormatError(f"a joint witness about node {node} of {len(rates)}")
            needed = sum(size for end, size in zip(ends, columns[2], strict=True) if end == node)
            spare.append(
                (
                    sum(min(room, needed) for room in rooms_before(bound, rates[node])) - needed,
                    f"({term}, {node})",
                )
            )
    return "[" + "; ".join(side for _, side in sorted(spare, key=lambda side: side[0])) + "]"


def _prices(witness: Record, definitions: list[str], *kinds: str) -> tuple[str, list[str]]:
    if witness["kind"] == "claimed":
        raise NotProved(f"claimed by {witness['by']}: a solver's word is no proof")
    if witness["kind"] not in kinds:
        raise FormatError(
            f"a witness of kind {str(witness['kind'])[:40]!r}, expected {', '.join(kinds)} or "
            f"claimed"
        )
    added = [
        f"Definition {side}_price : list (list N) := {table(witness[side])}%N."
        for side in ("send", "recv")
    ]
    return "send_price recv_price", definitions + added


def _chunks(record: Record, directory: Path) -> tuple[list[list[int]], list[int]]:
    """(src, dst, size of the chunks, their rails or nothing) from the record or from the plan that
    it names.
    """
    problem = record["problem"]
    if "chunks" in problem:
        return [problem["chunks"][name] for name in ("src", "dst", "size")], record.get(
            "assignment", []
        )
    from railopt.evidence.certificate import plan_digest
    from railopt.model.plan import Plan

    named = problem["plan"]
    path = directory / Path(named["file"]).name
    plan = Plan.load(path)
    if plan_digest(path) != named["digest"]:
        raise CheckFailed(f"{named['file']} is not the plan that the certificate names")
    if plan.fabric.tx.tolist() != problem["tx"] or plan.fabric.rx.tolist() != problem["rx"]:
        raise CheckFailed(f"{named['file']} has other rates than the certificate")
    columns = [getattr(plan.chunks, name).tolist() for name in ("src", "dst", "size")]
    return columns, plan.rail.tolist()


def _ratio(value: Fraction) -> str:
    """A fraction as two arguments: its numerator (N) and its denominator (positive)."""
    return f"{natural(value.numerator)}%N {value.denominator}%positive"


def _time(value: Fraction) -> str:
    return f"Z.of_N {natural(value.numerator)} # {value.denominator}"
