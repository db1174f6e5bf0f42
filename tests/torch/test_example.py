"""The example trains: the same losses, and rails that are more even."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_model_trains_with_the_same_losses(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples/torch/train_moe.py"), "4"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "the same bits in all 4 steps" in ran.stdout
    losses = [text.split() for text in re.findall(r"loss (.* -> .*)", ran.stdout)]
    assert len(losses) == 3
    assert all(float(last) < float(first) for first, _, last in losses)
    own, even = map(float, re.findall(r"busiest (\S+) of the mean", ran.stdout))
    assert own > 1.3
    assert even < 1.1
