"""The README leads each of four readers to a first answer with at most three commands, and they
run: with the reports, the fabric and the traces that such a reader has.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.operator import save_reports
from tests.docs.test_pages import ROOT, blocks, typed

README = ROOT / "README.md"
WAYS = [
    [line for line in text.splitlines() if line.startswith("$ ")]
    for language, text in blocks(README)
    if language == "console"
]
NAMES = ["paper", "train", "serve", "network"]


def test_there_are_four_ways_on_the_first_screen() -> None:
    assert len(WAYS) == len(NAMES)
    text = README.read_text(encoding="utf-8")
    assert text.index(WAYS[-1][-1]) < 2500  # characters


@pytest.mark.parametrize("commands", WAYS, ids=NAMES)
def test_a_first_answer_takes_at_most_three_commands(
    commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 1 <= len(commands) <= 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    save_reports(tmp_path)
    for command in commands:
        typed(command)
