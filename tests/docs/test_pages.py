"""Every code block of the site runs, page by page, in the order in which it is read.

    python      run; one namespace a page
    console     lines that begin with `$ ` are typed, the others are output; a line that ends in
                `# exit code N` is to end with N
    # NAME      a block whose first line is a comment of a file's name is saved under it, before
                the page begins
    text        not run: output, and what needs a cluster, NICs or another program

No other language is allowed, so that nothing is shown that nobody runs.  A page's folder is empty
but for a link to experiments/, and on the operator's page what an operator has (`operator.py`).
"""

from __future__ import annotations

import contextlib
import glob
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from railopt.cli.main import main
from tests.docs.operator import save_counters, save_reports

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.name != "extending.md")  # test_extending
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.\w+)\n")


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of each fenced block."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def typed(line: str) -> None:
    """Run a line of a console block."""
    command, _, comment = line.removeprefix("$ ").partition("  # ")
    wanted = int(comment.removeprefix("exit code ")) if comment.startswith("exit code") else 0
    words = [
        name
        for word in shlex.split(command)
        for name in (sorted(glob.glob(word)) if "*" in word else [word])
    ]
    if words[0] == "railopt":
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main(words[1:])
    else:
        ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        code, out = ran.returncode, io.StringIO(ran.stdout + ran.stderr)
    assert code == wanted, f"{line}: exit code {code}\n{out.getvalue()}"


@pytest.mark.parametrize("page", PAGES, ids=[str(path.relative_to(DOCS)) for path in PAGES])
def test_its_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    if page.name == "operating.md":
        save_reports(tmp_path)
        save_counters(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for _, text in reversed(blocks(page)):  # of two of one name the first
        if name := FILE.match(text):
            (tmp_path / name[1]).write_text(text)
    for language, text in blocks(page):
        assert language in ("python", "console", "toml", "text"), f"a block of {language!r}"
        if name := FILE.match(text):
            (tmp_path / name[1]).write_text(text)
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(text, str(page), "exec"), names)
        elif language == "console":
            for line in text.splitlines():
                if line.startswith("$ "):
                    typed(line)
        else:
            assert language == "text", f"a block of {language} without a name for its file"


def test_a_block_that_fails_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="exit code 1"):
        typed("$ railopt plan nothing.txt")
    with pytest.raises(AssertionError, match="exit code 1"):
        typed("$ false")
    typed("$ railopt plan nothing.txt    # exit code 1")


def test_indented_code_names_only_commands_that_exist() -> None:
    from railopt.cli.main import COMMANDS

    for page in PAGES:
        for command in re.findall(r"^(?:\$ )?railopt ([a-z][a-z-]*)\b", _code(page), re.M):
            assert command in COMMANDS, f"{page.name}: railopt {command}"


def _code(page: Path) -> str:
    """All that a page shows as code."""
    text = page.read_text(encoding="utf-8")
    spans = re.findall(r"`(railopt [^`]+)`", text)
    return "\n".join(
        [*spans, *(block for _, block in blocks(page)), *re.findall(r"^ {4}(.*)", text, re.M)]
    )
