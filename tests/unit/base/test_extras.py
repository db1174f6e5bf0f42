"""Which extra brings what, and the sentence where it is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import railopt
from railopt.base.errors import BackendError
from railopt.base.extras import PACKAGES, installed, need

ROOT = Path(railopt.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CAPPED = {"mkdocs"}  # `make docs` shows why


def names(lines: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!]", line)[0] for line in lines}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_extra_that_is_named_brings_the_package(package: str) -> None:
    extra = PACKAGES[package].extra
    brought = names(EXTRAS[extra] if extra else PROJECT["dependencies"])
    assert brought & {package, f"{package}-bindings"}


def test_all_is_what_users_need_and_no_version_is_pinned() -> None:
    everything = set(re.findall(r"[a-z]+", EXTRAS["all"][0])) - {"railopt"}
    assert everything == {package.extra for package in PACKAGES.values()} - {""}
    lines = [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
    assert {name for line in lines if re.search("==|<|~=|!=", line) for name in names([line])} == (
        CAPPED
    )
    assert "<" not in PROJECT["requires-python"]


def test_what_is_missing_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed("numpy")
    need("numpy", "everything")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not installed("matplotlib")
    with pytest.raises(BackendError) as said:
        need("matplotlib", "a figure", ", or print a table")
    wanted = "a figure needs Matplotlib: pip install 'railopt[plot]', or print a table"
    assert str(said.value) == wanted


@pytest.mark.parametrize(
    ("package", "line", "sentence"),
    [
        ("matplotlib", ["demo"], "a figure needs Matplotlib: pip install 'railopt[plot]'"),
        (
            "ortools",
            ["solve", "moe:tokens=64", "--nodes", "2", "--rails", "2", "--backend", "cpsat"],
            "the back-end cpsat needs OR-Tools: pip install 'railopt[solve]'",
        ),
        (
            "scipy",
            ["solve", "moe:tokens=64", "--nodes", "2", "--rails", "2", "--backend", "scipy"],
            "the back-end scipy needs SciPy: pip install scipy",
        ),
    ],
)
def test_a_command_whose_extra_is_missing(
    package: str,
    line: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    railopt_cli: Callable[..., Any],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    ran = railopt_cli(*line)
    assert ran.code == 3, ran.err
    assert sentence in ran.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_prove_without_sympy() -> None:
    """In a process of its own, which has not loaded it before."""
    code = (
        "import sys; sys.modules['sympy'] = None\n"
        "from railopt.cli.main import main; sys.exit(main(['prove', '--quick']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stderr
    assert "railopt prove needs SymPy: pip install 'railopt[prove]'" in ran.stderr
    assert "Traceback" not in ran.stderr
