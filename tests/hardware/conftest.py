"""The guest is booted once a session, for the scenarios that the selected tests name; what it
measured is printed at the end.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hardware import vm
from tests.hardware.world import SLOWEST

HERE = Path(__file__).parent
FIGURES: list[str] = []
GUEST_S = 900.0  # of all scenarios, in a guest as fast as the reference
FAULT_S = 30.0  # that a fault of the soak adds
OUT_OF_TIME = "out of time"


def said(out: Path) -> list[dict[str, Any]]:
    """Results of the scenarios that have ended."""
    results = out / "results"
    lines = results.read_text().splitlines(keepends=True) if results.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def limit_s(results: list[dict[str, Any]]) -> float:
    """Of the guest: budgets grow with its slowness, once that is measured."""
    pace = float(results[0]["nodes"][0]["slowness"]) if results else 1.0
    faults = int(os.environ.get("SOAK_FAULTS", "0"))
    return (GUEST_S + FAULT_S * faults) * min(max(1.0, pace), SLOWEST)


class Scenarios:
    """Results by scenario: what each node said. One that did not end well says so by its name."""

    def __init__(self, results: list[dict[str, Any]], words: str) -> None:
        self._results = {r["scenario"]: r["nodes"] for r in results}
        self._words = words

    def __getitem__(self, name: str) -> list[dict[str, Any]]:
        if name not in self._results:
            pytest.fail(f"scenario {name!r} was not reached in time\n{self._words}")
        nodes: list[dict[str, Any]] = self._results[name]
        for k, node in enumerate(nodes):
            if node.get("error") == OUT_OF_TIME:
                pytest.fail(f"scenario {name!r}: node {k} ran out of its {node['limit_s']:.0f} s")
            if node.get("error") == "scenario":
                pytest.fail(f"scenario {name!r}: {node['trace']}")
        return nodes

    @property
    def slowness(self) -> float:
        """How many times slower than the reference the guest is, at least 1."""
        return max(1.0, float(self._results["warm"][0]["slowness"]))


def wanted(items: list[pytest.Item]) -> list[str]:
    """The scenarios that tests name, by their parameters or by the marker `scenario`."""
    names: set[str] = set()
    for item in items:
        names.update(str(n) for mark in item.iter_markers("scenario") for n in mark.args)
        if "scenarios" in getattr(item, "fixturenames", ()) and hasattr(item, "callspec"):
            names.update(str(value) for value in item.callspec.params.values())
    return sorted(names)


@pytest.fixture(scope="session")
def scenarios(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Scenarios:
    """What the selected tests name, run in one guest."""
    out = tmp_path_factory.mktemp("guest")
    environment = {key: value for key, value in os.environ.items() if key.startswith("SOAK_")}
    names = wanted(request.session.items)
    subprocess.run(
        [sys.executable, str(HERE / "inside.py"), "plans", str(out), *names],
        check=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )
    guest = vm.boot(
        f"{sys.executable} {HERE / 'inside.py'} {shlex.join(names)}", out, environment=environment
    )
    ended = guest.ends_within(lambda: limit_s(said(out)))
    results = said(out)
    FIGURES.append(f"{guest.cpu_s:6.1f} s  of the host's CPUs in all")
    FIGURES.extend(f"{r['seconds']:6.1f} s  {r['scenario']}" for r in results)
    stopped = "" if ended is not None else f"stopped after {limit_s(results):.0f} s\n"
    words = stopped + guest.words()
    assert results, words
    assert ended is None or ended == 0, words
    found = Scenarios(results, words)
    FIGURES.append(f"{found.slowness:6.1f}    times slower than the reference")
    return found


@pytest.fixture
def figures() -> list[str]:
    """Lines for the end of the run."""
    return FIGURES


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section("the guest (emulated: correctness, not speed)")
    for line in FIGURES:
        terminalreporter.line(line)
