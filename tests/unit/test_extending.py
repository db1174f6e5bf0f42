"""Every block of docs/extending.md runs, in the order in which it is read."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from railopt.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w.-]+)\n")


def sections() -> list[tuple[str, list[tuple[str, str]]]]:
    """(title, its blocks as (language, text)) of each seam."""
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], BLOCK.findall(part)) for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize(("title", "blocks"), sections(), ids=[title for title, _ in sections()])
def test_its_blocks_run(
    title: str, blocks: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert blocks, f"{title}: a seam is shown by code"
    names: dict[str, object] = {"__name__": "__main__"}
    for language, text in blocks:
        name = FILE.match(text)
        if name:
            (tmp_path / name[1]).write_text(text)
            monkeypatch.delitem(sys.modules, name[1].removesuffix(".py"), raising=False)
        elif language == "python":
            exec(compile(text, str(PAGE), "exec"), names)
        else:
            assert language == "console", f"{title}: a block of {language!r}"
            for line in text.splitlines():
                assert line.startswith("$ railopt "), line
                assert main(shlex.split(line.removeprefix("$ railopt "))) == 0, line
