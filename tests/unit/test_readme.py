"""What the README shows is what the code does.  `python -m tests.unit.test_readme` rewrites the
generated parts.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def region(name: str) -> str:
    """The text between <!-- name:begin --> and <!-- name:end -->."""
    found = re.search(
        rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", README.read_text(), re.DOTALL
    )
    assert found, f"README.md has no region {name!r}"
    return found[1]


def replace(name: str, text: str) -> None:
    whole = README.read_text()
    README.write_text(
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
        exec(compile(fenced(region("script")), "README.md", "exec"), {})
    return out.getvalue()


def printed_by_the_demo(folder: Path) -> str:
    """The first table and the counterexample of `railopt demo`."""
    from railopt.cli.main import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert main(["demo", "-o", str(folder / "demo.svg")]) == 0
    table, counterexample = re.search(
        r"(Every policy.*?)\n\n.*?(\"Uniform sending.*?)\n\n", out.getvalue(), re.DOTALL
    ).groups()  # type: ignore[union-attr]
    return f"```\n{table}\n\n{counterexample}\n```\n"


def test_the_script_is_short_and_prints_what_the_readme_says() -> None:
    assert len([line for line in fenced(region("script")).splitlines() if line.strip()]) <= 15
    assert printed_by_the_script() == fenced(region("output"))


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_says(tmp_path: Path) -> None:
    assert printed_by_the_demo(tmp_path) == region("demo")


def test_commands_named_in_the_readme_exist() -> None:
    from railopt.cli.main import COMMANDS

    named = set(re.findall(r"`railopt ([a-z-]+)", README.read_text()))
    assert named <= set(COMMANDS)


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"`?make ([a-z-]+)", README.read_text())) - {"a", "sure"})
)
def test_make_targets_named_in_the_readme_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (README.parent / "Makefile").read_text(), re.MULTILINE)


if __name__ == "__main__":
    import tempfile

    replace("output", f"```\n{printed_by_the_script()}```\n")
    with tempfile.TemporaryDirectory() as folder:
        replace("demo", printed_by_the_demo(Path(folder)))
    sys.exit(0)
