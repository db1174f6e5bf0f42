"""`python tests/lowest.py EXTRA...`: pip constraints that pin dependencies to lower bounds."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def constraints(extras: list[str]) -> list[str]:
    """Each `name>=version` of pyproject.toml's dependencies and extras, as `name==version`."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    asked, waiting = [*project["dependencies"]], [*extras]
    while waiting:
        for line in project["optional-dependencies"][waiting.pop()]:
            inner = re.fullmatch(r"railopt\[([a-z,]+)\]", line)
            waiting += inner[1].split(",") if inner else []
            asked.append(line)
    bounded = (re.match(r"([A-Za-z0-9_-]+)>=([0-9.]+)", line) for line in asked)
    return [f"{found[1]}=={found[2]}" for found in bounded if found]


if __name__ == "__main__":
    print("\n".join(constraints(sys.argv[1:])))
