"""The certificate of a schedule's optimum."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from railopt import Fabric, Traffic, check
from railopt.model.workloads import zipf
from railopt.schedule import KINDS, certificate, synthesise


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_is_certified(kind: str, tmp_path: Path) -> None:
    fabric = Fabric.uniform(5, 4)
    for traffic in (
        zipf(fabric, skew=0.9, seed=4),
        Traffic.from_matrix(np.zeros((20, 20), np.int64), fabric),
    ):
        schedule = synthesise(fabric, traffic, kind)
        made = certificate(schedule)
        assert made.bound == made.value == schedule.bound.value
        assert made.check().optimal
        path = tmp_path / f"{len(schedule.pieces()[0])}.json"
        made.save(path)
        assert check(path).optimal


def test_a_better_claim_fails() -> None:
    fabric = Fabric.uniform(5, 4)
    made = certificate(synthesise(fabric, zipf(fabric, skew=0.9, seed=4)))
    assert not replace(made, bound=made.bound * Fraction(101, 100)).check().ok
    assert not replace(made, value=made.bound * Fraction(99, 100)).check().ok
    record = json.loads(made.to_json())
    record["problem"]["demand"][0][1] += 1
    assert not replace(made, problem=record["problem"]).check().ok


@pytest.mark.parametrize("kind", KINDS)
def test_senders_carry_it_out_and_the_kernel_accepts_it(kind: str, tmp_path: Path) -> None:
    from railopt.runtime.senders.loopback import Loopback

    fabric = Fabric.uniform(3, 2)
    plan = synthesise(fabric, zipf(fabric, mean="20KB", skew=0.9, seed=4), kind).plan()
    assert Loopback(verify=True).run(plan).wait().wrong == 0
    plan.save(tmp_path / "plan.npz")
    assert check(tmp_path / "plan.npz").ok
