"""The simulator against packet-level figures: 5 % inside the rails, 10 % for spraying, 15 % for
per-flow ECMP.
"""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "experiments" / "rails_packet_level"


@pytest.mark.slow
def test_every_row_lies_within_its_tolerance() -> None:
    spec = importlib.util.spec_from_file_location("rails_packet_level_run", FOLDER / "run.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.measure(
        {**tomllib.loads((FOLDER / "spec.toml").read_text())["fixed"], "seeds": 7}
    )
    expected = json.loads((FOLDER / "expected.json").read_text())
    own = [module.reproduced(expected, name, value) for name, value in rows.items()]
    assert len(own) == len(expected["own"]) == 15
    assert [row["name"] for row in own if row["verdict"] not in ("reproduced", "fitted")] == []
    for row in own:
        tolerance = (
            0.15
            if "ECMP" in row["name"]
            else 0.10
            if "spray" in row["name"] or "REPS" in row["name"]
            else 0.05
        )
        assert row["tolerance"] == tolerance
