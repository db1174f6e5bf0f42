"""The package's syntax trees, for the tests that read its code: parsed and walked once
per process.
"""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

import railopt

ROOT = Path(railopt.__file__).parent


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file of railopt, parsed.  Half a million nodes that stay: the garbage collector would
    look through them again and again, for longer than parsing takes.
    """
    gc.disable()
    found = {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    gc.freeze()
    gc.enable()
    return found


@cache
def nodes() -> dict[Path, list[ast.AST]]:
    """Every node of every file, of which walking takes longer than looking at them."""
    return {path: list(ast.walk(tree)) for path, tree in trees().items()}
