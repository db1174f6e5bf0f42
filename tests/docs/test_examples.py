"""Every script of examples/ runs, in an empty folder, and its notebook is up to date and does what
it does.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MAKER = runpy.run_path(str(EXAMPLES / "notebook.py"))
PAIRS = MAKER["pairs"]()
SCRIPTS = [script for script, _ in PAIRS]
CELLS = """
import json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv.pop(1), encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), "cell", "exec"), names)
"""


def _ran(folder: Path, *words: str) -> str:
    """What a Python prints; it sees this checkout."""
    folder.mkdir()
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("pair", PAIRS, ids=[path.stem for path in SCRIPTS])
def test_script_and_notebook_print_the_same(pair: tuple[Path, Path], tmp_path: Path) -> None:
    script, notebook = pair
    printed = [
        _ran(tmp_path / "script", str(script)),
        _ran(tmp_path / "notebook", "-c", CELLS, str(notebook)),
    ]
    assert printed[0]
    timeless = [re.sub(r"[0-9.]+ ?m?s\b", "", text) for text in printed]
    assert timeless[0] == timeless[1]


@pytest.mark.parametrize("pair", PAIRS, ids=[path.stem for path in SCRIPTS])
def test_its_notebook_is_up_to_date(pair: tuple[Path, Path]) -> None:
    script, notebook = pair
    text = notebook.read_text(encoding="utf-8")
    fresh = MAKER["notebook"](script.read_text(encoding="utf-8"))
    assert text == fresh, "run python examples/notebook.py"
    made = json.loads(text)
    assert made["cells"][0]["cell_type"] == "markdown"
    assert sum(cell["cell_type"] == "code" for cell in made["cells"]) >= 2


def test_there_is_no_other_notebook() -> None:
    found = {path for path in (EXAMPLES / "notebooks").iterdir() if path.suffix == ".ipynb"}
    assert found == {notebook for _, notebook in PAIRS}


def test_the_readme_lists_every_script() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in SCRIPTS if f"]({path.name})" not in text] == []
