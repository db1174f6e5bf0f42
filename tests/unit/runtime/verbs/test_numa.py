"""CPUs near NICs, from a made-up sysfs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from railopt.runtime.verbs.numa import cpus_of, near


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    for node, cpus in enumerate(("0-3,8", "4-7\n", "", "x", "3-1", "0-99999999999")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cpus)
    return tmp_path


def test_lists_of_cpus(sysfs: Path) -> None:
    assert cpus_of([0], sysfs) == {0, 1, 2, 3, 8}
    assert cpus_of([0, 1], sysfs) == {*range(9)}
    for unknown in (-1, 2, 3, 4, 5, 77):
        assert cpus_of([unknown], sysfs) == set(), "no CPU, rather than a wrong one"
    assert cpus_of([0, -1], sysfs) == set()


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Eight CPUs, of which this process may use 2 to 7; what it asked for."""
    asked = [{2, 3, 4, 5, 6, 7}]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: asked[-1], raising=False)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda pid, cpus: asked.append(cpus), raising=False
    )
    return asked


def test_a_run_stays_near_its_nics_within_what_it_may_use(
    sysfs: Path, affinity: list[set[int]]
) -> None:
    with near({0}, sysfs) as cpus:
        assert cpus == {2, 3}
    assert affinity == [{2, 3, 4, 5, 6, 7}, {2, 3}, {2, 3, 4, 5, 6, 7}]


def test_nothing_changes_where_nothing_is_known_or_all_is_near(
    sysfs: Path, affinity: list[set[int]]
) -> None:
    for nodes in ({-1}, {0, 1}, set(), {2}):
        with near(nodes, sysfs) as cpus:
            assert cpus == set()
    assert len(affinity) == 1
