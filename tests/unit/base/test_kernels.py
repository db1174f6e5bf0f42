"""Parts of kernels are called by kernels alone; whoever wants to know hears of compilations."""

from __future__ import annotations

import ast
import fcntl
import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

import railopt
from railopt.base.kernels import TRIED

ROOT = Path(railopt.__file__).parent.parent
FOLDERS = ("railopt", "tests", "experiments", "examples", "proofs")
COMPILED = ("njit", "kernel_part", "overload", "intrinsic", "cfunc")


def _texts() -> dict[str, str]:
    """Every file by its dotted name."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text() for path in files
    }


def _decorators(node: ast.AST) -> list[str]:
    """The names of a function's decorators, without their arguments."""
    return [ast.unparse(d).partition("(")[0] for d in getattr(node, "decorator_list", ())]


def _parts(texts: dict[str, str]) -> set[str]:
    """The dotted names of all parts."""
    return {
        f"{module}.{node.name}"
        for module, text in texts.items()
        if "@kernel_part" in text
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and "kernel_part" in _decorators(node)
    }


def _imported(tree: ast.Module) -> dict[str, str]:
    """What each imported name of a file stands for."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _used_by_python(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """The names and the attributes that are read outside compiled functions."""
    if set(_decorators(node)) & set(COMPILED):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield (node.id,)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield node.value.id, node.attr
    for child in ast.iter_child_nodes(node):
        yield from _used_by_python(child)


def _wrong_uses(module: str, text: str, parts: set[str]) -> set[str]:
    """The parts that Python code of a file uses."""
    tree = ast.parse(text)
    names = _imported(tree)
    return parts.intersection(
        ".".join((names.get(first, f"{module}.{first}"), *rest))
        for first, *rest in _used_by_python(tree)
    )


def test_python_calls_no_part() -> None:
    texts = _texts()
    parts = _parts(texts)
    files = "|".join({part.split(".")[-2] for part in parts})
    imports = re.compile(rf"^\s*(from|import) .*\b({files})\b|^\s+({files})( as \w+)?,$", re.M)
    near = {m: text for m, text in texts.items() if "@kernel_part" in text or imports.search(text)}
    wrong = {module: _wrong_uses(module, text, parts) for module, text in near.items()}
    assert parts
    assert {module: uses for module, uses in wrong.items() if uses} == {}


def test_a_call_from_python_is_seen() -> None:
    text = (
        "from a import b\nfrom a.b import f\n\n@kernel_part()\ndef g():\n    f()\n\n"
        "def h():\n    b.e()\n    g()\n"
    )
    assert _wrong_uses("c", text, {"a.b.e", "a.b.f", "c.g"}) == {"a.b.e", "c.g"}


TOLD = """
import gc, sys
from railopt.base import kernels as compiled
assert "numba" not in sys.modules
heard = []

@compiled.kernel_part()
def inner(a):
    return a + 1

@compiled.njit()
def outer(a):
    return inner(a)

with compiled.told(lambda: heard.append(gc.isenabled())):
    assert outer(1) == 2 and outer(1.5) == 2.5
assert heard == [False] and gc.isenabled(), heard
with compiled.told(lambda: heard.append("compiled again")):
    assert outer(2) == 3
assert outer(2j) == 1 + 2j and len(heard) == 1, heard
"""


def test_a_compilation_is_told_once_and_collects_no_garbage() -> None:
    assert gc.isenabled()
    subprocess.run([sys.executable, "-c", TOLD], check=True)


LINKED = """
import sys
import numpy as np
from railopt.base import kernels as compiled
if sys.argv[1] == "as numba does":
    compiled.TRIED = 0, 0

@compiled.kernel_part()
def inmost(a, k):
    a[k] += k

@compiled.kernel_part()
def inner(a):
    for k in range(len(a)):
        inmost(a, k)
    return a.sum()

@compiled.njit()
def outer(a):
    return inner(a) + inner(a[::2])

assert outer(np.arange(4)) == 12 + 5
libraries = {part.overloads[part.signatures[0]].library for part in (inmost, inner)}
print(*{type(library).__name__ for library in libraries})
"""


@pytest.mark.parametrize(
    ("how", "kept"), [("for linking", "Linked"), ("as numba does", "JITCodeLibrary")]
)
def test_parts_are_linked_into_kernels_and_have_no_code_of_their_own(how: str, kept: str) -> None:
    """Whatever numba of later makes of it, kernels compute the same; with ours, it is less work."""
    done = subprocess.run(
        [sys.executable, "-c", LINKED, how], check=True, capture_output=True, text=True
    )
    tried = numba.version_info.short <= TRIED
    assert done.stdout.strip() == (kept if tried else "JITCodeLibrary")


FOREIGN = """
import numba
import numpy as np
from railopt.base import kernels as compiled

@compiled.njit()
def ours(a):
    return a + 1

@numba.njit(no_cpython_wrapper=True)
def inner(a):
    return a * np.zeros(2).size

@numba.njit
def foreign(a):
    return inner(a)

assert (ours(1), foreign(3)) == (2, 6)
print(type(inner.overloads[inner.signatures[0]].library).__name__)
"""


def test_kernels_of_others_are_compiled_as_numba_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "JITCodeLibrary"


ASKED = """
import sys
import numba
from numba.core.types.functions import BaseFunction
from railopt.base import kernels as compiled
if sys.argv[1] == "as numba does":
    compiled.TRIED = 0, 0
asks, ask = [], BaseFunction.get_call_type

def counted(function, context, args, kws):
    asks.append((str(function.typing_key), args))
    return ask(function, context, args, kws)

BaseFunction.get_call_type = counted

@compiled.njit()
def ours(a, b):
    return a * b + a * b - a * b

@compiled.njit()
def wrong(a):
    return a * (a, "c")

@numba.njit
def foreign(a, b):
    return a * b + b * a

assert ours(2, 3) == 6 and ours(0.5, 3.0) == 1.5
print(len(asks) - len(set(asks)))
try:
    wrong(0.5)
except numba.errors.TypingError:
    pass
assert BaseFunction.get_call_type is counted
asks.clear()
assert foreign(2, 3) == 12 and len(asks) > len(set(asks))
"""


@pytest.mark.parametrize("how", ["remembered", "as numba does"])
def test_numba_asks_once_what_a_call_gives(how: str) -> None:
    """In a kernel of ours; those of others, and one that can't be compiled, leave numba as it
    was.
    """
    done = subprocess.run(
        [sys.executable, "-c", ASKED, how], check=True, capture_output=True, text=True
    )
    once = how == "remembered" and numba.version_info.short <= TRIED
    assert (int(done.stdout) == 0) == once


KERNELS = """
from railopt.base import kernels as compiled

@compiled.njit(cache=True)
def inner(a):
    return a + 1

@compiled.njit(cache=True)
def outer(a):
    return inner(a) * 2
"""
RANK = """
import sys
from railopt.base import kernels as compiled
compiled.PATIENCE_S = float(sys.argv[1])
import kernels
with compiled.told(lambda: print("waits or compiles", flush=True)):
    assert kernels.outer(1) == 4
print(sum(kernels.outer.stats.cache_hits.values()), compiled._held)
"""


def _ranks(folder: Path, patience_s: float, count: int) -> list[subprocess.Popen[str]]:
    """Processes that call a kernel for the first time."""
    (folder / "kernels.py").write_text(KERNELS)
    paths = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "cache")}
    line = [sys.executable, "-c", RANK, str(patience_s)]
    return [
        subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(count)
    ]


def test_one_process_compiles_and_the_others_load_that(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").touch()
    with (tmp_path / "kernels.py").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ranks = _ranks(tmp_path, 600, 3)
        assert [rank.stdout and rank.stdout.readline() for rank in ranks] == [
            "waits or compiles\n"
        ] * 3
    said = sorted(rank.communicate()[0].strip() for rank in ranks)
    assert said == ["0 []", "1 []", "1 []"]


def test_a_process_that_compiles_for_too_long_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").touch()
    with (tmp_path / "kernels.py").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (rank,) = _ranks(tmp_path, 0.1, 1)
        assert rank.communicate()[0] == "waits or compiles\n0 []\n"
