"""Completion is made from the parsers; bash's is run in bash."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from railopt.cli import completion
from railopt.cli.main import COMMANDS
from railopt.model.workloads import WORKLOADS
from railopt.policies import POLICIES

Cli = Callable[..., object]


def test_the_shell_gets_every_command(railopt_cli: Cli) -> None:
    ran = railopt_cli("completion", "bash")
    assert ran.code == 0
    words = [*COMMANDS, *POLICIES, *WORKLOADS, "--policy", "--chunk", "-o", "--format", "--nodes"]
    assert all(name in ran.out for name in words)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What bash is given, made once."""
    path = tmp_path_factory.mktemp("completion") / "railopt.bash"
    path.write_text(completion.bash())
    return path


def _completed(script: Path, folder: Path, *words: str) -> list[str]:
    """What bash offers after these words, the last of which is being typed."""
    typed = " ".join(f"'{word}'" for word in ("railopt", *words))
    line = (
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _railopt; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    ran = subprocess.run(
        ["bash", "--norc", "-c", line], cwd=folder, capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    return [word for word in ran.stdout.splitlines() if word]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["pl"], ["plan", "place"]),
        (["plan", "mo"], ["moe"]),
        (["plan", "moe", "--pol"], ["--policy"]),
        (["plan", "moe", "--policy", "lpt-"], ["lpt-local", "lpt-dealt", "lpt-global"]),
        (["gap", "moe", "--format", "ma"], ["markdown"]),
        (["schedule", "moe", "--kind", "com"], ["compact"]),
        (["plan", "my"], ["my bytes.csv"]),
        (["plan", "moe", "--fabric", "my"], ["my bytes.csv"]),
        (["plan", "moe", "--policy", "=", "lpt-"], ["lpt-local", "lpt-dealt", "lpt-global"]),
        (["plan", "moe", "--format", "="], ["text", "csv", "latex", "markdown", "json"]),
        (["plan", "moe", "--fabric", "=", "my"], ["my bytes.csv"]),
        (
            ["gap", "moe", "--policy", "pxn,lpt-"],
            ["pxn,lpt-local", "pxn,lpt-dealt", "pxn,lpt-global"],
        ),
        (["solve", "moe", "--backend", "n"], ["native"]),
        (["completion", ""], ["bash"]),
        (["nonsense", ""], []),
    ],
)
def test_bash_completes(script: Path, tmp_path: Path, words: list[str], offered: list[str]) -> None:
    assert shutil.which("bash"), "bash runs this project's tests"
    (tmp_path / "my bytes.csv").touch()
    assert sorted(_completed(script, tmp_path, *words)) == sorted(offered)
