"""The experiments' comparisons: rows are had as they are labelled, none is left out of a verdict,
and only a paper's figures are called a paper's.
"""

from __future__ import annotations

import json
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from experiments.common import reproduced
from experiments.fast_ablation.run import ablation_claims, bandwidth_claims
from experiments.fast_synthesis.run import compared
from experiments.hybridep_scale.run import speedup, stream

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


def expected_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXPERIMENTS / name / "expected.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("centres", [10, 50, 100, 1000])
def test_a_ratio_of_data_sent_saves_no_more_than_the_rest(centres: int) -> None:
    spec = tomllib.loads((EXPERIMENTS / "hybridep_scale" / "spec.toml").read_text("utf-8"))["fixed"]
    block = stream(spec, centres, 10)
    for ratio in map(Fraction, spec["ratio"]):
        found = speedup(block, (1 - ratio) * centres)
        assert found is None or not ratio or 1 < found <= 1 / ratio


@pytest.mark.parametrize(("centres", "size"), [(1000, 750), (10, 50), (10, Fraction(5, 2))])
def test_domains_that_the_data_centres_cannot_have_have_no_speed_up(
    centres: int, size: int | Fraction
) -> None:
    spec = tomllib.loads((EXPERIMENTS / "hybridep_scale" / "spec.toml").read_text("utf-8"))["fixed"]
    assert speedup(stream(spec, centres, 10), size) is None


def test_every_number_of_servers_counts_for_fasts_distance_from_the_bound() -> None:
    rows = [{"servers": 2, "fast ratio": 1.25}, {"servers": 40, "fast ratio": 1.05}]
    *_, last = compared(rows, expected_of("fast_synthesis"))
    assert (last["ours"], last["verdict"]) == ([1.25, 1.05], "partly")


def test_every_measured_figure_of_fasts_ablation_is_compared() -> None:
    rates = {"FAST": 3.0, "ablation": 2.0, "SpreadOut": 1.0}
    row = {**rates, "FAST wire": 1.06, "ablation wire": 1.0}
    sizes, expected = [8, 33, 130, 520, 2080], expected_of("fast_ablation")
    by_size, by_skew = dict.fromkeys(sizes, row), dict.fromkeys((0.1, 0.5, 0.9), row)
    claims = bandwidth_claims(expected, by_size, by_skew)
    claims += ablation_claims(expected, sizes, by_size, by_skew)
    assert {claim["name"] for claim in claims} == set(expected["figures"])
    longer = next(claim for claim in claims if claim["name"].startswith("stages lengthen"))
    assert longer["ours"] == pytest.approx([6.0] * 5)


@pytest.mark.parametrize("name", ["rails_chunk_size", "rails_faults", "rails_packet_level"])
def test_what_no_paper_says_is_not_called_a_papers(name: str) -> None:
    expected = expected_of(name)
    assert "figures" not in expected
    assert expected["own"]


def test_a_row_that_a_parameter_was_fitted_to_is_not_reproduced() -> None:
    entry = {"expected": 2.0, "tolerance": 0.1, "source": "a run"}
    own = {"own": {"fitted": {**entry, "fitted": True}, "free": entry}}
    assert [reproduced(own, name, 2.1)["verdict"] for name in own["own"]] == [
        "fitted",
        "reproduced",
    ]
