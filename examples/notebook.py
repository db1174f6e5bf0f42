"""A script whose cells begin with `# %%` (text: `# %% [markdown]`) as a notebook, the same bytes
every time:

    python examples/notebook.py                                     examples/notebooks, all of them
    python examples/notebook.py own_matrix.py own_matrix.ipynb      one
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any


def notebook(script: str) -> str:
    """The notebook's JSON; cells have no output."""
    cells = []
    for i, part in enumerate(re.split(r"^# %%", script, flags=re.MULTILINE)[1:]):
        kind, _, body = part.partition("\n")
        text = "markdown" in kind
        body = re.sub(r"^# ?", "", body, flags=re.MULTILINE) if text else body
        cell: dict[str, Any] = {
            "cell_type": "markdown" if text else "code",
            "id": f"cell-{i}",
            "metadata": {},
            "source": body.strip().splitlines(keepends=True),
        }
        cells.append(cell if text else {**cell, "execution_count": None, "outputs": []})
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    whole = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def pairs() -> list[tuple[Path, Path]]:
    """(script, notebook) of every example."""
    folder = Path(__file__).parent
    scripts = sorted(path for path in folder.glob("*.py") if path.name != Path(__file__).name)
    return [(path, folder / "notebooks" / f"{path.stem}.ipynb") for path in scripts]


if __name__ == "__main__":
    given = [(Path(sys.argv[1]), Path(sys.argv[2]))] if len(sys.argv) == 3 else pairs()
    for source, target in given:
        target.write_text(notebook(source.read_text(encoding="utf-8")), encoding="utf-8")
