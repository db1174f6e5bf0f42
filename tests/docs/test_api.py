"""Every page of the API has an example, which is shown as code; those that need no hardware and no
torch run and print what they show.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "cuda.planner": "a GPU",
    "moe.micro.device": "a GPU",
    "runtime.senders.one_node": "RDMA verbs, several processes",
    "torch.all_to_all": "torch, several processes",
    "torch.dispatcher": "torch, several processes",
    "torch.routes": "torch",
}
"""Modules whose examples can't run here, and what they need."""


def _rooms() -> dict[str, list[str]]:
    """ROOMS of docs/hooks.py, which itself needs MkDocs."""
    for node in ast.parse((ROOT / "docs" / "hooks.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS":
            rooms: dict[str, list[str]] = ast.literal_eval(node.value)
            return rooms
    raise AssertionError("docs/hooks.py has no ROOMS")


def _examples(module: str) -> list[str]:
    """Docstrings with examples among those that the module's page shows."""
    path = ROOT / "railopt" / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    shown: list[ast.Module | ast.ClassDef | ast.FunctionDef] = [ast.parse(path.read_text("utf-8"))]
    texts = []
    for node in shown:  # grows: what a public class holds is shown too
        texts.append(ast.get_docstring(node) or "")
        shown += [
            part
            for part in ([] if isinstance(node, ast.FunctionDef) else node.body)
            if isinstance(part, ast.ClassDef | ast.FunctionDef) and not part.name.startswith("_")
        ]
    return [text for text in texts if ">>> " in text]


ROOMS = _rooms()
WITH_EXAMPLES = {
    module: found for room in ROOMS.values() for module in room if (found := _examples(module))
}


@pytest.mark.parametrize("title", ROOMS)
def test_every_page_has_an_example(title: str) -> None:
    assert [module for module in ROOMS[title] if module in WITH_EXAMPLES]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_are_shown_as_code(module: str) -> None:
    """Markdown takes lines for code that are indented by four, after an empty one; `>>>` at a
    line's beginning is a quotation in a quotation.
    """
    for text in WITH_EXAMPLES[module]:
        for block in re.split(r"\n\n+", text):
            if ">>> " in block:
                assert all(line.startswith("    ") for line in block.splitlines()), block


@pytest.mark.parametrize("module", sorted(set(WITH_EXAMPLES) - set(ELSEWHERE)))
def test_examples_print_what_they_show(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing but their own imports, and without a file left behind."""
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestFinder().find(importlib.import_module(f"railopt.{module}"), globs={})
    said: list[str] = []
    ran = [doctest.DocTestRunner().run(test, out=said.append) for test in found]
    assert sum(each.failed for each in ran) == 0, "".join(said)
    assert sum(each.attempted for each in ran) >= 2
    assert list(tmp_path.iterdir()) == []


def test_examples_that_do_not_run_exist() -> None:
    assert set(ELSEWHERE) <= set(WITH_EXAMPLES)
