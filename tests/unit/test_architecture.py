"""Imports go down only, and `import railopt` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import railopt

ROOT = Path(railopt.__file__).parent

# Bottom first.  A module imports only what stands on a lower line; names on one line never import
# each other.
LAYERS = [
    "check errors",
    "units bracket",
    "archive",
    "arrays processes toml",
    "formats chunks",
    "fabric",
    "traffic",
    "plans",
    "workloads bounds_kernels certificate",
    "bounds",
    "policies",
    "solver symbolic sim runtime schedule",
    "gaps moe",
    "sweep",
    "report",
    "cli",
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}


def _railopt_imports(path: Path) -> set[str]:
    """The parts of railopt that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "railopt":
                found |= {f"railopt.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in found if name.startswith("railopt.")} & set(LEVEL)


def test_imports_go_down_only() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if own in ("__init__", "__main__"):
            continue
        assert own in LEVEL, f"{own} has no layer: add it to LAYERS and to the README"
        wrong += [
            f"{path.relative_to(ROOT)} imports {name}"
            for name in _railopt_imports(path)
            if name != own and LEVEL[name] >= LEVEL[own]
        ]
    assert not wrong


def test_runtime_never_imports_the_solver_nor_the_kernel_anything() -> None:
    for path in (ROOT / "runtime").rglob("*.py"):
        assert "solver" not in _railopt_imports(path), path
    assert not _railopt_imports(ROOT / "check.py")


HEAVY = ("ortools", "sympy", "numba", "matplotlib", "scipy", "pulp", "highspy", "dask", "torch")


def test_help_and_import_load_nothing_heavy() -> None:
    for code in (
        "import railopt",
        "import railopt.cli.main as m\ntry:\n    m.main(['--help'])\nexcept SystemExit:\n    pass",
    ):
        script = (
            f"import sys\n{code}\nprint([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert ran.stderr.strip() == "[]"


def test_public_names_exist() -> None:
    assert sorted(set(railopt.__all__)) == sorted(railopt.__all__, key=str)
    for name in {*railopt.__all__, *railopt._LAZY}:
        assert getattr(railopt, name) is not None
    assert set(railopt._LAZY) <= set(railopt.__all__)
