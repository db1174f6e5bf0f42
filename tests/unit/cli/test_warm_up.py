"""`railopt warm-up`: its runs are commands that succeed, and one that fails is named."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from railopt.base.errors import BackendError
from railopt.cli import main, warm_up


@pytest.mark.slow
@pytest.mark.parametrize("line", warm_up.RUNS)
def test_every_run_succeeds(line: str) -> None:
    assert main.main(line.split()) in (0, 2)


@pytest.mark.slow
def test_a_run_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "RUNS", ("plan no-such-file",))
    with pytest.raises(BackendError, match="railopt plan no-such-file: railopt: error"):
        warm_up.run(main.parsed(["warm-up"]))


@pytest.mark.slow
def test_a_cache_that_cant_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an image is built whose kernels are compiled anew in every container."""
    program = (
        "from railopt.base import errors, kernels\n"
        "with errors.on_stderr(): kernels.give_up_cache(OSError('read-only disk'))"
    )
    real = subprocess.run

    def said(line: list[str], **options: Any) -> Any:
        return real([line[0], "-c", program], **options)

    monkeypatch.setattr("railopt.cli.warm_up.subprocess.run", said)
    with pytest.raises(BackendError, match=r"nothing that is compiled stays: .* cache can't be"):
        warm_up.run(main.parsed(["warm-up"]))
