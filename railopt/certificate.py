"""Certificates: the record of a lower bound, or of an optimality claim, that `check.py` re-checks
without a solver.

As canonical JSON (sorted keys, no spaces):

    {"railopt": "certificate", "version": 1,
     "problem":  {"kind": "local", "sizes": [...], "rails": N}                         equal rails,
                 bounds in bytes
               | {"kind": "local", "sizes": [...], "speeds": [bytes per second, ...]}  0 = dead,
               bounds in seconds | {"kind": "coupled", "nodes": M, "rails": N, "tx": [[...]], "rx":
               [[...]],
                  "chunks": {"src": [...], "dst": [...], "size": [...]}  or  "plan": {"file": name,
                  "digest": hex}}
               | {"kind": "fluid", "tx": [[...]], "rx": [[...]], "demand": [[...]]},
     "claim":    {"bound": "p/q", "value": "p/q" (optional), "proved": bool},
     "witness":  {"kind": ...}, why nothing is faster than the bound: see `check.py`,
     "assignment": [rail of each size or chunk]  or  "flow": {"unit": d, "src", "dst", "rail",
     "amount": [...]},
                 what attains the value (a certificate that names a plan has it there)}

A flow's amounts are bytes times `unit`.  A witness of kind "claimed" rests on a solver's word and
proves nothing.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from railopt.arrays import write_atomic
from railopt.bracket import Bracket
from railopt.check import Verdict, check_certificate
from railopt.chunks import Chunks
from railopt.errors import CheckFailed, FormatError, InputError
from railopt.fabric import Fabric
from railopt.plans import Plan

VERSION = 1
INLINE = 20_000  # chunks: beyond this a certificate names the plan's file instead of listing them


@dataclass(frozen=True)
class Certificate:
    """A problem, a bound with its witness, and optionally a value with what attains it (all as JSON
    values).
    """

    problem: Mapping[str, Any] = field(repr=False)
    bound: Fraction
    witness: Mapping[str, Any]
    value: Fraction | None = None
    attained: Mapping[str, Any] = field(default_factory=dict, repr=False)

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
        jobs, rates = (
            [int(size) for size in sizes],
            [1] * (rails or 0) if speeds is None else [int(v) for v in speeds],
        )
        problem = {
            "kind": "local",
            "sizes": jobs,
            **({"rails": rails} if speeds is None else {"speeds": rates}),
        }
        if assignment is None:
            return cls(problem, Fraction(bound), witness)
        loads = [0] * len(rates)
        for rail, size in zip(assignment, jobs, strict=True):
            loads[rail] += size
        value = max(
            (Fraction(load, v) for load, v in zip(loads, rates, strict=True) if load),
            default=Fraction(0),
        )
        return cls(
            problem,
            Fraction(bound),
            witness,
            value,
            {"assignment": [int(rail) for rail in assignment]},
        )

    @classmethod
    def coupled(
        cls,
        fabric: Fabric,
        chunks: Chunks,
        bound: Fraction,
        witness: Mapping[str, Any],
        *,
        value: Fraction | None = None,
        rail: Sequence[int] | None = None,
    ) -> Certificate:
        """All chunks at once, in full; `rail` attains `value`.  For many chunks use `of_plan`."""
        columns = {name: getattr(chunks, name).tolist() for name in ("src", "dst", "size")}
        attained = {} if rail is None else {"assignment": list(map(int, rail))}
        return cls({**_rates(fabric), "chunks": columns}, bound, witness, value, attained)

    @classmethod
    def of_plan(
        cls,
        fabric: Fabric,
        path: str | os.PathLike[str],
        bound: Fraction,
        witness: Mapping[str, Any],
        value: Fraction,
    ) -> Certificate:
        """The coupled problem of a saved plan, which attains `value`; the certificate belongs
        beside that file.
        """
        named = {"file": Path(path).name, "digest": plan_digest(path)}
        return cls({**_rates(fabric), "plan": named}, bound, witness, value)

    @property
    def claimed_by(self) -> str | None:
        """Whose word the bound rests on, or None where its witness is checked."""
        inner: Any = self.witness
        while isinstance(inner, Mapping) and inner.get("kind") == "node":
            inner = inner["witness"]
        return str(inner["by"]) if inner.get("kind") == "claimed" else None

    @property
    def proved(self) -> bool:
        """Whether it claims optimality: value == bound, and the bound rests on a witness."""
        return self.value == self.bound and self.claimed_by is None

    def record(self) -> dict[str, Any]:
        """As JSON values; `from_record` is the way back."""
        claim = {"bound": str(self.bound), "proved": self.proved}
        if self.value is not None:
            claim["value"] = str(self.value)
        return {
            "railopt": "certificate",
            "version": VERSION,
            "problem": dict(self.problem),
            "claim": claim,
            "witness": dict(self.witness),
            **self.attained,
        }

    @classmethod
    def from_record(cls, record: Any) -> Certificate:
        """The certificate in parsed JSON; its form is checked, its truth is not (see `check`)."""
        try:
            if record["railopt"] != "certificate" or record["version"] != VERSION:
                raise FormatError(
                    f"a {record['railopt']!r} of version {record['version']!r}, "
                    f"expected a certificate of version {VERSION}"
                )
            claim = record["claim"]
            attained = {key: record[key] for key in ("assignment", "flow") if key in record}
            value = Fraction(claim["value"]) if "value" in claim else None
            certificate = cls(
                record["problem"], Fraction(claim["bound"]), record["witness"], value, attained
            )
            if certificate.record() != record:
                raise FormatError(
                    "not the canonical form of a certificate: a field is unknown or contradicts "
                    "another"
                )
        except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as error:
            raise FormatError(f"not a certificate ({error!r})") from error
        return certificate

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, a newline at the end."""
        return json.dumps(self.record(), sort_keys=True, separators=(",", ":")) + "\n"

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the file whole or not at all; an existing one is replaced only with `force`."""
        write_atomic(path, self.to_json(), force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a saved certificate; its form is checked, its truth is not (see `check`)."""
        try:
            record = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{path}: not JSON ({error})") from error
        try:
            return cls.from_record(record)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error

    def check(self, directory: str | os.PathLike[str] | None = None) -> Verdict:
        """The trusted kernel's verdict; a plan that the certificate names is looked for in
        `directory`.
        """
        return check_certificate(self.record(), directory)

    def require(self, directory: str | os.PathLike[str] | None = None) -> Certificate:
        """Itself if the kernel accepts it; else CheckFailed."""
        verdict = self.check(directory)
        if not verdict.ok:
            raise CheckFailed(f"the certificate does not hold ({verdict.kind}): {verdict.message}")
        return self


def certify(plan: Plan, bracket: Bracket, best: Plan | None = None) -> Certificate:
    """The certificate of a plan's value and of a bound on every plan of its chunks, in full."""
    return Certificate.coupled(
        plan.fabric,
        plan.chunks,
        bracket.bound,
        _witness(bracket),
        value=plan.makespan,
        rail=plan.rail.tolist(),
    )


def save_certificate(
    plan: Plan,
    bracket: Bracket,
    path: str | os.PathLike[str],
    best: Plan | None = None,
    force: bool = False,
) -> list[Path]:
    """Write a certificate; one of more than `INLINE` chunks names a plan file that is written
    beside it.  The files written.
    """
    target = Path(path)
    if len(plan.chunks) <= INLINE:
        certify(plan, bracket, best).save(target, force=force)
        return [target]
    beside = target.with_suffix(".plan.npz")
    plan.save(beside, force=force)
    Certificate.of_plan(plan.fabric, beside, bracket.bound, _witness(bracket), plan.makespan).save(
        target, force=force
    )
    return [target, beside]


def _witness(bracket: Bracket) -> Mapping[str, Any]:
    """Why nothing beats the bound: what the kernel checks, or whose word it is."""
    return bracket.witness or {"kind": "claimed", "by": bracket.by}


def plan_digest(path: str | os.PathLike[str]) -> str:
    """The digest that a saved plan carries in its header."""
    try:
        with zipfile.ZipFile(path) as archive:
            return str(json.loads(archive.read("header.json"))["digest"])
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise FormatError(f"{path}: not a railopt .npz ({error!r})") from error


def _rates(fabric: Fabric) -> dict[str, Any]:
    return {
        "kind": "coupled",
        "nodes": fabric.nodes,
        "rails": fabric.rails,
        "tx": fabric.tx.tolist(),
        "rx": fabric.rx.tolist(),
    }
