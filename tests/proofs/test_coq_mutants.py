"""A proof checker that can't fail proves nothing: every planted fault must be caught."""

import shutil
import tomllib
from pathlib import Path

import pytest

from railopt.symbolic import coq

MUTANTS = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8"))["mutant"]


def caught(theory: Path, scratch: Path, mutant: dict[str, str]) -> str:
    """Why the mutated theory is refused ('' if it is not): only the mutated file needs compiling."""
    shutil.copytree(theory, scratch, dirs_exist_ok=True)
    path = scratch / f"{mutant['file']}.v"
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant["old"]) >= 1, "the mutant does not apply: adapt it to the source"
    path.write_text(text.replace(mutant["old"], mutant["new"], 1), encoding="utf-8")
    done = coq.run_coqc(path, scratch, 120)
    if not done.ok:
        return done.output
    return "; ".join(coq.compare(scratch, [mutant["file"]]))


@pytest.mark.parametrize("mutant", MUTANTS, ids=[m["name"].replace(" ", "-") for m in MUTANTS])
def test_mutant_is_caught(theory: Path, tmp_path: Path, mutant: dict[str, str]) -> None:
    assert caught(theory, tmp_path, mutant)


def test_unmutated_theory_is_accepted(theory: Path, tmp_path: Path) -> None:
    for module in ("Sums", "Model", "Schedule"):
        nothing = {"file": module, "old": "From Coq", "new": "From Coq"}
        assert caught(theory, tmp_path, nothing) == ""
