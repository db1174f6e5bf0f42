"""A proof checker that can't fail proves nothing: every planted fault must be caught."""

import os
import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from railopt.symbolic.coq import build as coq

EVERY = int(os.environ.get("RAILOPT_MUTANTS", "1"))  # 3: a third of them
MUTANTS = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8"))[
    "mutant"
][::EVERY]
NOTHING = [
    {"name": f"nothing in {module}", "file": module, "old": "From Coq", "new": "From Coq"}
    for module in ("Sums", "Jobs")
]


def caught(theory: Path, scratch: Path, mutant: dict[str, str]) -> str:
    """Why the mutated theory is refused ('' if it is not): only the mutated file needs
    compiling.
    """
    shutil.copytree(theory, scratch, dirs_exist_ok=True)
    path = scratch / f"{mutant['file']}.v"
    text = path.read_text(encoding="utf-8")
    if mutant["old"] not in text:
        return ""  # it does not apply any more: adapt it to the source
    path.write_text(text.replace(mutant["old"], mutant["new"], 1), encoding="utf-8")
    done = coq.run_coqc(path, scratch, 120)
    return "; ".join(coq.compare(scratch, [mutant["file"]])) if done.ok else done.output


@pytest.fixture(scope="module")
def reasons(theory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Mutant -> why it is refused; two at a time, coqc is where the time goes."""
    every = MUTANTS + NOTHING
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(
            lambda mutant: caught(theory, tmp_path_factory.mktemp("mutant"), mutant), every
        )
        return {mutant["name"]: reason for mutant, reason in zip(every, found, strict=True)}


@pytest.mark.parametrize("name", [mutant["name"] for mutant in MUTANTS])
def test_mutant_is_caught(reasons: dict[str, str], name: str) -> None:
    assert reasons[name]


@pytest.mark.parametrize("name", [mutant["name"] for mutant in NOTHING])
def test_unmutated_theory_is_accepted(reasons: dict[str, str], name: str) -> None:
    assert reasons[name] == ""
