"""Every script of examples/ runs, in an empty folder, and becomes the same notebook twice."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "notebook.py")


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_it_runs(script: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_it_becomes_a_notebook(script: Path) -> None:
    notebook = runpy.run_path(str(EXAMPLES / "notebook.py"))["notebook"]
    text = script.read_text(encoding="utf-8")
    made = json.loads(notebook(text))
    assert notebook(text) == notebook(text)
    assert made["cells"][0]["cell_type"] == "markdown"
    code = ["".join(c["source"]) for c in made["cells"] if c["cell_type"] == "code"]
    assert len(code) >= 2
    for cell in code:
        compile(cell, script.name, "exec")


def test_the_readme_lists_every_script() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in SCRIPTS if f"]({path.name})" not in text] == []
