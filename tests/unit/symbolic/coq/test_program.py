"""`python -m railopt.symbolic.coq` where no coqc is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_without_coqc_it_says_what_to_install(tmp_path: Path) -> None:
    """From sources of which nothing is built, so that coqc is asked for."""
    (tmp_path / "Sums.v").write_text("Lemma a : True.\n")
    ran = subprocess.run(
        [sys.executable, "-m", "railopt.symbolic.coq"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path), "RAILOPT_COQ": str(tmp_path)},
        cwd=Path(__file__).parents[4],
    )
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "coqc" in ran.stderr
    assert "install" in ran.stderr
    assert "Traceback" not in ran.stderr
