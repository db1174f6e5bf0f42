"""`railopt warm-up`: its runs are commands that succeed, and one that fails is named."""

from __future__ import annotations

import pytest

from railopt.base.errors import BackendError
from railopt.cli import main, warm_up


@pytest.mark.slow
@pytest.mark.parametrize("line", warm_up.RUNS)
def test_every_run_succeeds(line: str) -> None:
    assert main.main(line.split()) in (0, 2)


def test_a_run_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "RUNS", ("plan no-such-file",))
    with pytest.raises(BackendError, match="railopt plan no-such-file: railopt: error"):
        warm_up.run(main._parsed(["warm-up"]))
