"""Imports go down only and in no circle, `import railopt` stays light, its names are all there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import railopt
from tests.trees import ROOT, trees

# Bottom first.  A module imports only what stands on a lower line; names on one line never import
# each other.  "railopt" is `railopt/__init__.py`, which gathers what stands below it.
LAYERS = [
    "checker",
    "base",
    "files",
    "model",
    "evidence",
    "policies",
    "solver symbolic sim runtime schedule cuda",
    "answers moe",
    "torch",
    "railopt",
    "sweep",
    "report",
    "cli",
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}


def _modules() -> dict[str, Path]:
    """Every module of railopt by its dotted name; a package is its `__init__`."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["railopt", *path.relative_to(ROOT).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()
BLOCKS = ast.stmt, ast.excepthandler, ast.match_case  # what statements stand in; imports are some


def _statements(tree: ast.AST) -> list[ast.AST]:
    """The statements of a module at any depth, without what only a type checker runs."""
    found, left = [], [tree]
    while left:
        node = left.pop()
        found.append(node)
        if isinstance(node, ast.If) and (
            "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", ""))
        ):
            left += node.orelse
        else:
            inner = ast.iter_child_nodes(node)
            left += [n for n in inner if isinstance(n, BLOCKS)]
    return found


def imports(path: Path) -> set[str]:
    """The modules of railopt that a file imports, anywhere in it: `from a import b` is a.b where
    that is a module, else a.
    """
    found: set[str] = set()
    for node in _statements(trees()[path]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else str(node.module) for name in inside}
    return found & set(MODULES)


@cache
def all_imports() -> dict[str, set[str]]:
    """What every module of railopt imports of railopt."""
    return {name: imports(path) for name, path in MODULES.items()}


def _layer(module: str) -> str:
    """The name in LAYERS that a module belongs to."""
    return "cli" if module == "railopt.__main__" else [*module.split("."), "railopt"][1]


def test_the_drawing_of_the_layers_is_this_list() -> None:
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    drawn = re.search(r"<!-- layers:begin -->\n```text\n(.*?)```", page, re.DOTALL)
    assert drawn
    lines = [line.partition("  ")[0] for line in drawn[1].splitlines()]
    assert [set(line.split()) for line in reversed(lines)] == [set(x.split()) for x in LAYERS]


def test_imports_go_down_only() -> None:
    missing = {_layer(name) for name in MODULES} - set(LEVEL)
    assert not missing, "no layer: add it to LAYERS"
    assert [
        f"{name} imports {other}"
        for name, wanted in all_imports().items()
        for other in sorted(wanted)
        if _layer(other) != _layer(name) and LEVEL[_layer(other)] >= LEVEL[_layer(name)]
    ] == []


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A path along imports that ends where it began; [] if there is none."""
    done: set[str] = set()

    def walk(name: str, above: list[str]) -> list[str]:
        if name in above:
            return [*above[above.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if found := walk(other, [*above, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := walk(name, []))), [])


def test_no_circle_between_modules() -> None:
    assert " -> ".join(circle(all_imports())) == ""


def test_a_circle_would_be_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c", "b"]
    assert circle({"a": {"a"}}) == ["a", "a"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_runtime_never_imports_the_solver_and_the_checker_imports_nothing() -> None:
    for name, wanted in all_imports().items():
        if name.startswith("railopt.runtime"):
            assert not [other for other in wanted if other.startswith("railopt.solver")], name
    assert all_imports()["railopt.checker"] == set()


HEAVY = ("ortools", "sympy", "numba", "matplotlib", "scipy", "pulp", "dask", "rich", "torch")


@pytest.mark.slow
def test_help_and_import_load_nothing_heavy() -> None:
    said = f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    helped = (
        "import railopt.cli.main as m\ntry:\n    m.main(['--help'])\nexcept SystemExit:\n    pass"
    )
    script = f"import sys\nimport railopt\n{said}\n{helped}\n{said}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr.split() == ["[]", "[]"]


def test_all_is_sorted_and_names_what_is_there() -> None:
    shouting = [name for name in railopt.__all__ if name.isupper()]
    assert railopt.__all__ == [
        *sorted(shouting),
        *sorted(name for name in railopt.__all__ if name[0].isupper() and name not in shouting),
        *sorted(name for name in railopt.__all__ if name[0].islower()),
    ]
    assert len(set(railopt.__all__)) == len(railopt.__all__)
    assert {*railopt._LAZY, *railopt._ROOMS} <= set(railopt.__all__)
    assert dir(railopt) == sorted(railopt.__all__)
    public = {
        name
        for name, value in vars(railopt).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }
    assert public - {"Any"} <= set(railopt.__all__)


@pytest.mark.parametrize("name", railopt.__all__)
def test_every_public_name_resolves(name: str) -> None:
    value = getattr(railopt, name)
    assert value.__doc__
    folder = ROOT / name
    assert isinstance(value, ModuleType) == (
        folder.is_dir() or name in ("checker", "errors", "units", "workloads")
    )


@pytest.mark.slow
def test_without_pytorch_its_room_is_shown_and_its_names_say_what_they_need() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import inspect, pydoc, railopt.torch\n"
        "inspect.getmembers(railopt.torch); print(pydoc.render_doc(railopt.torch))\n"
        "from railopt.torch import RailAllToAll"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MoE dispatch and combine" in ran.stdout
    assert "railopt.torch.RailAllToAll needs PyTorch: pip install" in ran.stderr
    assert "BackendError" in ran.stderr.splitlines()[-1]


@pytest.mark.slow
def test_rooms_are_reached_from_a_plain_import() -> None:
    code = "import railopt; print(railopt.sim.simulate.__name__, railopt.solver.__name__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["simulate", "railopt.solver"]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = railopt.nothing
