"""The README leads each of four readers to a first answer with at most three commands, and they
run: with the reports, the fabric and the traces that such a reader has.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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


def _measured(folder: Path) -> None:
    """perftest's reports of 4 x 4 NICs: one at half its rate, one that did not answer."""
    for host in range(1, 5):
        for device in range(4):
            rate = 196.0 if (host, device) == (2, 1) else 392.0
            messages = rate * 1e9 / 8 / 65536 / 1e6
            report = f"{{results: {{MsgSize: 65536, BW_average: {rate}, MsgRate: {messages:.6f}}}}}"
            text = "no route" if (host, device) == (4, 3) else report
            (folder / f"gpu{host:02}-mlx5_{device}.json").write_text(text)


@pytest.mark.parametrize("commands", WAYS, ids=NAMES)
def test_a_first_answer_takes_at_most_three_commands(
    commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 1 <= len(commands) <= 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    _measured(tmp_path)
    for command in commands:
        typed(command)
