"""The example trains: the same losses, with copies of experts too, and rails that are more even."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def example(folder: Path, argument: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples/torch/train_moe.py"), argument],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.mark.parametrize(
    ("argument", "code", "says"),
    [
        ("--help", 0, "usage: train_moe.py"),
        ("0", 2, "expected at least 1"),
        ("x", 2, "invalid int"),
    ],
)
def test_its_command_line(tmp_path: Path, argument: str, code: int, says: str) -> None:
    ran = example(tmp_path, argument)
    assert ran.returncode == code
    assert says in ran.stdout + ran.stderr


def test_a_model_trains_with_the_same_losses(tmp_path: Path) -> None:
    ran = example(tmp_path, "4")
    assert ran.returncode == 0, ran.stderr
    assert "the same bits in all 4 steps" in ran.stdout
    losses = [text.split() for text in re.findall(r"loss (\S+ -> \S+)", ran.stdout)]
    assert len(losses) == 4
    assert float(re.findall(r"with copies at most (\S+) apart", ran.stdout)[0]) < 1e-5
    assert all(float(last) < float(first) for first, _, last in losses)
    own, even, copied = map(float, re.findall(r"busiest (\S+) of the mean", ran.stdout))
    assert own > 1.2
    assert max(even, copied) < 1.1
