"""The kernel-checked theorems: build ``proofs/coq``, audit it, compile one more source against it.

    build()      compiles what is stale, two files at a time
    audit()      every theorem and definition as Coq prints it, with the assumptions it rests on
    compare()    what differs from the committed ``statements.json``, what is admitted or assumed
    compile_text()  one generated source (the audit, a tie to Python) against the built theory

Only the standard library and Debian's ``coqc`` (package ``coq``, 8.16) are used.  Run as a program
it builds, audits and compares: ``python -m railopt.symbolic.coq`` (``--pin`` rewrites the
statements).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from railopt.base.errors import BackendError, CheckFailed

STATEMENTS = "statements.json"
FORBIDDEN = re.compile(
    r"\b(Admitted|admit|give_up|Axioms?|Parameters?|Conjectures?|bypass_check|type_in_type|native_compute"
    r"|(?:Guard|Positivity|Universe)\s+Checking)\b"
)
_DECLARED = re.compile(
    r"^\s*(Theorem|Definition|Fixpoint|Inductive|Record|Module|Section|End)\s+([A-Za-z_][\w']*)([^.]*)",
    re.M,
)
_REQUIRED = re.compile(r"From\s+Rails\s+Require\s+(?:Import|Export)?\s*([^.]*)\.")
_MARK = "@@ "
TIMEOUT_S = 300  # of one coqc


@dataclass(frozen=True)
class Statement:
    """One printed theorem or definition.

    name: ``Module.name``; text: Coq's print-out, blanks collapsed; axioms: what the proof assumes
    (empty: "Closed under the global context").
    """

    name: str
    text: str
    axioms: tuple[str, ...]


@dataclass(frozen=True)
class Compiled:
    """The outcome of one ``coqc`` run: ok, and its output (stdout then stderr)."""

    ok: bool
    output: str


def theory() -> Path:
    """The folder of the Coq sources: ``$RAILOPT_COQ``, or ``proofs/coq`` of the source tree."""
    given = os.environ.get("RAILOPT_COQ")
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "proofs" / "coq"
    if not (folder / "Sums.v").is_file():
        raise BackendError(
            f"no Coq sources in {folder}: the proofs live in the source tree, not in the wheel; "
            "run from a checkout or set RAILOPT_COQ to its proofs/coq"
        )
    return folder


def coqc() -> str:
    """The path of ``coqc``; raises BackendError with the remedy if there is none."""
    found = shutil.which("coqc")
    if found is None:
        raise BackendError(
            "coqc not found: install Debian's package coq 8.16 "
            "(apt-get install --no-install-recommends coq; without root: opam install coq.8.16.1, "
            "or ask for it)"
        )
    return found


def source_text(path: Path) -> str:
    """A source without its comments."""
    text, before = path.read_text(encoding="utf-8"), ""
    while text != before:  # comments nest
        before, text = text, re.sub(r"\(\*(?:(?!\(\*|\*\)).)*\*\)", " ", text, flags=re.S)
    return text


def dependencies(folder: Path) -> dict[str, tuple[str, ...]]:
    """Module -> the modules of the theory it requires, in an order that builds."""
    sources = {path.stem: source_text(path) for path in sorted(folder.glob("*.v"))}
    required = {name: " ".join(_REQUIRED.findall(text)).split() for name, text in sources.items()}
    # coqc itself complains of a module that is not there
    needs = {name: tuple(n for n in names if n in sources) for name, names in required.items()}
    try:
        return {name: needs[name] for name in TopologicalSorter(needs).static_order()}
    except CycleError as error:
        raise CheckFailed(f"the Coq sources require each other in a circle: {error}") from error


def run_coqc(path: Path, folder: Path, timeout_s: float) -> Compiled:
    """Compile one file against the theory in ``folder``."""
    options = ["-q", "-w", "+deprecated-hint-without-locality", "-Q", str(folder), "Rails"]
    command = [coqc(), *options, str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=path.parent
        )
    except subprocess.TimeoutExpired:
        return Compiled(False, f"coqc {path.name}: no answer within {timeout_s:g} s")
    return Compiled(done.returncode == 0, done.stdout + done.stderr)


def _stale(folder: Path, module: str, needs: Iterable[str]) -> bool:
    built = folder / f"{module}.vo"
    if not built.exists():
        return True
    stamp = built.stat().st_mtime_ns
    inputs = [folder / f"{module}.v", *(folder / f"{need}.vo" for need in needs)]
    return any(not path.exists() or path.stat().st_mtime_ns > stamp for path in inputs)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: two builds at once would read each other's half-written files."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def build(folder: Path) -> list[str]:
    """Compile the stale modules, and return them.  Raises CheckFailed on an error."""
    needs, built = dependencies(folder), list[str]()
    order = TopologicalSorter(needs)
    with _alone(folder), ThreadPoolExecutor(2) as pool:
        order.prepare()
        while ready := order.get_ready():
            work = [name for name in ready if _stale(folder, name, needs[name])]
            runs = pool.map(lambda name: run_coqc(folder / f"{name}.v", folder, TIMEOUT_S), work)
            for name, done in zip(work, runs, strict=True):
                if not done.ok:
                    raise CheckFailed(f"coqc {name}.v: {done.output.strip()}")
                built.append(name)
            order.done(*ready)
    return built


def declared(folder: Path, modules: Sequence[str]) -> list[tuple[str, str]]:
    """Every theorem and definition of the modules, in order: (``Module.name``, kind)."""
    found = []
    for module in modules:
        inner: list[str] = []  # open modules by name, sections as empty names
        for word, name, rest in _DECLARED.findall(source_text(folder / f"{module}.v")):
            if word == "End":
                inner.pop()
            elif word in ("Module", "Section"):
                inner += [] if ":=" in rest else [f"{name}." if word == "Module" else ""]
            else:
                found.append(
                    (
                        f"{module}.{''.join(inner)}{name}",
                        "theorem" if word == "Theorem" else "definition",
                    )
                )
    return found


def _audit_source(items: Sequence[tuple[str, str]], modules: Sequence[str], each: bool) -> str:
    """Print everything; the assumptions of each theorem, or (faster) of all of them as one
    tuple.
    """
    lines = [
        "From Coq Require Import QArith NArith ZArith Arith List Bool Sorted.",
        f"From Rails Require {' '.join(modules)}.",
        "Import ListNotations. Open Scope nat_scope. Set Printing Width 110. Set Printing Depth "
        "10000.",
    ]
    names = [name for name, kind in items if kind == "theorem"]
    for name, kind in items:
        lines.append(f'Goal True. idtac "{_MARK}{name}". Abort.')
        lines.append(f"Check @{name}." if kind == "theorem" else f"Print {name}.")
    for group in [[name] for name in names] if each else [names]:
        lines.append(f'Goal True. idtac "{_MARK}assumptions {" ".join(group)}". Abort.')
        lines.append(
            f"Definition railopt_audited_{len(lines)} := "
            f"({', '.join('@' + name for name in [*group, 'I'])})."
        )
        lines.append(f"Print Assumptions railopt_audited_{len(lines) - 1}.")
    return "\n".join(lines) + "\n"


def audit(folder: Path, modules: Sequence[str], *, each: bool = False) -> list[Statement]:
    """Print every theorem (with its assumptions) and definition of the built modules."""
    items = declared(folder, modules)
    done = compile_text(_audit_source(items, modules, each), folder=folder, timeout_s=TIMEOUT_S)
    if not done.ok:
        raise CheckFailed(f"the audit does not compile: {done.output.strip()[-600:]}")
    axioms: dict[str, tuple[str, ...]] = {}
    texts: dict[str, str] = {}
    for head, _, body in (block.partition("\n") for block in done.output.split(_MARK)[1:]):
        if not head.startswith("assumptions "):
            texts[head] = " ".join(body.split())
            continue
        closed = "Closed under the global context" in body
        if not closed and not each:
            return audit(folder, modules, each=True)  # name the culprits
        assumed = (
            () if closed else tuple(re.findall(r"^(\S+) :", body, re.M)) or ("something unnamed",)
        )
        axioms |= dict.fromkeys(head.split()[1:], assumed)
    return [Statement(name, texts[name], axioms.get(name, ())) for name, _ in items]


def forbidden(folder: Path, modules: Sequence[str]) -> list[str]:
    """Words that would weaken the kernel's guarantee, as ``file: word``."""
    return [
        f"{m}.v: {word}"
        for m in modules
        for word in FORBIDDEN.findall(source_text(folder / f"{m}.v"))
    ]


def compare(folder: Path, modules: Sequence[str] | None = None) -> list[str]:
    """Everything wrong with the built theory, or with these modules of it: admitted, assumed, or
    different from ``statements.json``.
    """
    modules = list(modules or dependencies(folder))
    found = {s.name: s for s in audit(folder, modules)}
    pinned: dict[str, str] = json.loads((folder / STATEMENTS).read_text(encoding="utf-8"))
    expected = {name: text for name, text in pinned.items() if name.split(".")[0] in modules}
    problems = [f"{word} in the sources" for word in forbidden(folder, modules)]
    problems += [f"{s.name} assumes {', '.join(s.axioms)}" for s in found.values() if s.axioms]
    problems += [
        f"{name}: in {STATEMENTS}, not in the sources" for name in expected if name not in found
    ]
    problems += [f"{name}: not in {STATEMENTS}" for name in found if name not in expected]
    problems += [
        f"{name}: printed as\n    {found[name].text}\n  expected\n    {text}"
        for name, text in expected.items()
        if name in found and found[name].text != text
    ]
    return problems


def pin(folder: Path) -> int:
    """Write ``statements.json`` from what Coq prints now; the number of entries."""
    texts = {s.name: s.text for s in audit(folder, list(dependencies(folder)))}
    (folder / STATEMENTS).write_text(
        json.dumps(texts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return len(texts)


def theorems(folder: Path) -> dict[str, list[str]]:
    """Id (``T1`` ... ) -> the names of its theorems, ``Module.name``, from the sources alone (no
    coqc).
    """
    named: dict[str, list[str]] = {}
    for name, kind in declared(folder, list(dependencies(folder))):
        match = re.match(r"\w+\.(T\d+)_", name)
        if kind == "theorem" and match:
            named.setdefault(match[1], []).append(name)
    return dict(sorted(named.items(), key=lambda item: int(item[0][1:])))


def compile_text(text: str, *, folder: Path, timeout_s: float) -> Compiled:
    """Compile one generated source against the built theory, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="railopt-coq-") as scratch:
        path = Path(scratch) / "Generated.v"
        path.write_text(text, encoding="utf-8")
        return run_coqc(path, folder, timeout_s)


def main() -> int:
    """Build, audit, compare; 0 if the theory is exactly what ``statements.json`` says, 4 if not."""
    parser = argparse.ArgumentParser(
        prog="python -m railopt.symbolic.coq", description=main.__doc__
    )
    parser.add_argument(
        "--pin", action="store_true", help="rewrite statements.json from what Coq prints"
    )
    parser.add_argument("--build", action="store_true", help="build, and compare nothing")
    args = parser.parse_args()
    start = time.monotonic()
    folder = theory()
    built, every = build(folder), dependencies(folder)
    took = time.monotonic() - start
    print(f"built {len(built)} of {len(every)} files in {took:.1f} s", file=sys.stderr)
    if args.build:
        return 0
    if args.pin:
        print(
            f"pinned {pin(folder)} statements and definitions in {folder / STATEMENTS}",
            file=sys.stderr,
        )
    problems = compare(folder)
    for problem in problems:
        print(f"  {problem}", file=sys.stderr)
    for name, names in theorems(folder).items():
        print(f"{name:4} {' '.join(n.split('.')[1] for n in names)}")
    count = len(json.loads((folder / STATEMENTS).read_text(encoding="utf-8")))
    verdict = (
        f"{len(problems)} problems"
        if problems
        else "no axioms, nothing admitted, statements as pinned"
    )
    print(f"{count} theorems and definitions: {verdict} ({time.monotonic() - start:.1f} s)")
    return 4 if problems else 0


def entry() -> None:
    """The program: `main`, with railopt's errors as one line and their exit codes."""
    try:
        sys.exit(main())
    except (BackendError, CheckFailed) as error:
        print(f"railopt.symbolic.coq: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
