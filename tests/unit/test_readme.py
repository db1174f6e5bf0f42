"""What the README shows is what the code does.  `python -m tests.unit.test_readme` rewrites the
generated part.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
LIMIT = 8 * 1024  # bytes: one screen of claim, one script, one table, links


def region(page: Path, name: str) -> str:
    """The text between <!-- name:begin --> and <!-- name:end -->."""
    found = re.search(
        rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", page.read_text(), re.DOTALL
    )
    assert found, f"{page.name} has no region {name!r}"
    return found[1]


def replace(page: Path, name: str, text: str) -> None:
    whole = page.read_text()
    page.write_text(
        re.sub(
            rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)",
            lambda m: m[1] + text + m[2],
            whole,
            flags=re.DOTALL,
        )
    )


def fenced(text: str) -> str:
    found = re.search(r"```\w*\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


def printed_by_the_script() -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(fenced(region(README, "script")), "README.md", "exec"), {})
    return out.getvalue()


def test_the_readme_is_short() -> None:
    assert len(README.read_bytes()) <= LIMIT


def test_the_script_is_short_and_prints_what_the_readme_says() -> None:
    script = fenced(region(README, "script"))
    assert len([line for line in script.splitlines() if line.strip()]) <= 15
    assert printed_by_the_script() == fenced(region(README, "output"))


def test_the_readme_names_every_command_and_no_other() -> None:
    from railopt.cli.main import COMMANDS

    assert set(re.findall(r"`railopt ([a-z-]+)", README.read_text())) == set(COMMANDS)


def test_what_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#\s]+)", README.read_text())
    assert len(links) > 20
    assert [link for link in links if "//" not in link and not (ROOT / link).is_file()] == []


@pytest.mark.parametrize(
    "target",
    sorted(
        {
            target
            for page in [README, *(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"]
            for target in re.findall(r"`make ([a-z-]+)", page.read_text())
        }
    ),
)
def test_make_targets_that_pages_name_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


if __name__ == "__main__":
    replace(README, "output", f"```\n{printed_by_the_script()}```\n")
    sys.exit(0)
