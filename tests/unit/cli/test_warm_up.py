"""`railopt warm-up`: its runs are commands, and what one compiles the next finds compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from railopt.base.errors import BackendError
from railopt.cli import main, warm_up

COUNTED = """
import sys
from numba.core import event
from railopt.cli.main import main
with event.install_recorder("numba:compile") as compiled:
    main(sys.argv[1:])
print([str(e.data["dispatcher"]) for _, e in compiled.buffer if e.is_start], file=sys.stderr)
"""


@pytest.mark.parametrize("line", warm_up.RUNS)
def test_every_run_is_a_command_line(line: str) -> None:
    assert main._parsed(line.split()).command == line.split()[0]


@pytest.mark.slow
@pytest.mark.parametrize("line", [warm_up.RUNS[0], warm_up.RUNS[3], warm_up.RUNS[7]])
def test_a_second_run_compiles_nothing(line: str, tmp_path: Path) -> None:
    np.save(tmp_path / "load.npy", np.arange(64).reshape(2, 2, 16) % 7 + 1)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", COUNTED, *line.split()],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "[]"


# that only kernels call in this room: they are loaded with these
PARTS = {
    "cover.popcount",
    "dual.product_at_most",
    "dual.smallest_from",
    "subsets.best_subset",
    "subsets.shuffle",
}
UNTOUCHED = """
import importlib, pkgutil
import railopt.solver.local as local
for found in pkgutil.iter_modules(local.__path__):
    module = importlib.import_module(f"{local.__name__}.{found.name}")
    for name, value in vars(module).items():
        options = getattr(value, "targetoptions", {})
        own = getattr(value, "__module__", "") == module.__name__
        if own and "no_cfunc_wrapper" in options and "no_cpython_wrapper" not in options:
            if not value.signatures:
                print(f"{found.name}.{name}")
"""


@pytest.mark.slow
def test_the_solver_of_one_node_is_compiled_whole() -> None:
    at_leisure = warm_up.LOCAL.replace("limit_s=1)", "limit_s=5)")  # however busy the machine is
    assert at_leisure != warm_up.LOCAL
    done = subprocess.run(
        [sys.executable, "-c", at_leisure + UNTOUCHED],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert set(done.stdout.split()) <= PARTS


def test_a_run_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "RUNS", ("plan no-such-file",))
    monkeypatch.setattr(warm_up, "LOCAL", "")
    monkeypatch.setattr(warm_up, "LATER", {})
    with pytest.raises(BackendError, match="railopt plan no-such-file: railopt: error"):
        warm_up.run(main._parsed(["warm-up"]))
