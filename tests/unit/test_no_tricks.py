"""No private name of another package is used, and no hook of Python's is replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import pytest

from tests.trees import ROOT, nodes

PUBLIC = {"_asdict", "_fields", "_make", "_replace"}  # of named tuples, documented as such
PRIVATE_PACKAGES = ("numba.core", "llvmlite")
HOOKS = {"sys.excepthook", "sys.unraisablehook", "signal.set_wakeup_fd", "gc.freeze"}
HOOKS |= {"sys.settrace", "sys.setprofile", "threading.excepthook", "builtins.__import__"}


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in PUBLIC


def dotted(node: ast.expr) -> str:
    """`a.b.c` of such an expression; "" of any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (start := dotted(node.value)):
        return f"{start}.{node.attr}"
    return ""


def own_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Private names that are defined here: functions, classes, variables, fields, attributes of
    self.
    """
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and dotted(node.value) in ("self", "cls"):
            names |= {node.attr} if isinstance(node.ctx, ast.Store) else set()
    return names


def imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Local name -> what it stands for, of all imports at any depth."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                found[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def tricks(nodes: list[ast.AST], inherited: set[str]) -> Iterator[str]:
    """What a module of these nodes must not do.

    inherited   private names of this package: `self._name` may be one of them; `x._name` of another
                x is a name of the module itself, unless x is an import of another package
    """
    names, own = imported(nodes), own_names(nodes)
    for node in nodes:
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            foreign = not module.startswith(("railopt.", "__future__"))
            if module.startswith(PRIVATE_PACKAGES) or (
                foreign and any(map(private, module.split(".")))
            ):
                yield f"{node.lineno}: import of {module}"
        if isinstance(node, ast.Attribute):
            root = dotted(node).partition(".")[0]
            meant = dotted(node).replace(root, names.get(root, root), 1) if root else ""
            foreign = root in names and not names[root].startswith("railopt")
            if meant in HOOKS or meant.startswith(PRIVATE_PACKAGES):
                yield f"{node.lineno}: {meant}"
            ours = inherited if dotted(node.value) in ("self", "cls") else own
            if private(node.attr) and (foreign or node.attr not in ours):
                yield f"{node.lineno}: {dotted(node) or '...'}.{node.attr}".replace(
                    f".{node.attr}.{node.attr}", f".{node.attr}"
                )
        if isinstance(node, ast.Name) and names.get(node.id) in HOOKS:
            yield f"{node.lineno}: {names[node.id]}"
        if isinstance(node, ast.Call) and dotted(node.func) in ("getattr", "setattr", "delattr"):
            name = node.args[1] if len(node.args) > 1 else None
            if (
                isinstance(name, ast.Constant)
                and private(str(name.value))
                and name.value not in own
            ):
                yield f"{node.lineno}: {dotted(node.func)} of {name.value}"
            root = dotted(node.args[0]) if node.args else ""
            if isinstance(name, ast.Constant) and f"{names.get(root, root)}.{name.value}" in HOOKS:
                yield f"{node.lineno}: {dotted(node.func)} of {root}.{name.value}"
        if isinstance(node, ast.Call) and dotted(node.func).endswith(
            ("import_module", "__import__")
        ):
            for said in node.args:
                if isinstance(said, ast.Constant) and str(said.value).startswith(PRIVATE_PACKAGES):
                    yield f"{node.lineno}: import of {said.value}"


@pytest.mark.slow
def test_the_package_does_without() -> None:
    inherited = own_names(node for listed in nodes().values() for node in listed)
    wrong = [
        f"{path.relative_to(ROOT)}:{said}"
        for path, listed in nodes().items()
        for said in tricks(listed, inherited)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "bad",
    [
        "import torch.distributed as dist\nlen(dist.distributed_c10d._world.pg_names)",
        "import numba\nnumba._dispatcher",
        "import numba\nnumba.core.event.install_listener",
        "import sys\nsetattr(sys, 'excepthook', print)",
        "import importlib\nimportlib.import_module('numba.core.event')",
        "from numba.core import event",
        "import numba.core.event",
        "def f():\n    from llvmlite import ir",
        "from argparse import _SubParsersAction",
        "import _thread",
        "import sys\nsys.excepthook = print",
        "import sys as s\ns.unraisablehook = print",
        "from signal import set_wakeup_fd\nset_wakeup_fd(3)",
        "import gc\ngc.freeze()",
        "def f(parser):\n    return parser._actions",
        "def f(parser):\n    return getattr(parser, '_actions')",
        "import json\ndef _ours(): ...\njson._ours()",  # the name is ours, the module is not
        "def f(box):\n    return box._ours",  # a name of another module of ours
    ],
)
def test_what_is_bad_is_found(bad: str) -> None:
    assert list(tricks([*ast.walk(ast.parse(bad))], {"_ours"})), bad


@pytest.mark.parametrize(
    "good",
    [
        "class A:\n    def f(self):\n        return self._ours",
        "class A:\n    _mine: int\n    def f(self, other):\n        return other._mine",
        "from __future__ import annotations",
        "def f(row):\n    return row._replace(a=1), row.__dict__",
        "import sys\nsys.exit(1)",
    ],
)
def test_what_is_ours_or_public_is_not(good: str) -> None:
    assert list(tricks([*ast.walk(ast.parse(good))], {"_ours"})) == []
