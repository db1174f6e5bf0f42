"""All output of all commands on a terminal of 100 columns, a pseudo-terminal that stdout and stderr
are connected to: no line is longer.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from railopt.cli.main import COMMANDS
from tests.unit.cli.test_formats import LONG, SMALL, TABLES, save_inputs
from tests.unit.runtime.test_perftest import OLD

COLUMNS = 100
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours and cursor moves, which take no place
REPORTS = [f"node{k}_rail{n}.json" for k in range(2) for n in range(8)]
RUN = {
    **TABLES,
    **LONG,
    "weigh": TABLES["weigh"][:-2],  # every mechanism
    "demo": ["demo"],
    "devices": ["devices"],
    "fabric": ["fabric", "show", "fabric.toml", "--figure", "node.svg"],
    "convert": ["convert", "plan.npz", "plan.cm"],
    "refused by a policy": [
        "sweep",
        "spec.toml",
        "-o",
        "swept",
        "--shard",
        "0/1",
        "--workers",
        "1",
    ],
    "failed": ["results", "swept", "--failed"],
    "plot": ["results", "results", "--plot", "gap.svg"],
    "report": ["report", "results", "-o", "page.html"],
    "perftest": ["fabric-from-perftest", *REPORTS, "-o", "made.toml"],
    "refused reports": ["fabric-from-perftest", "none.json", "-o", "made.toml"],
    "certificates": [*TABLES["gap"], "--certificate", "certs", "--figure", "figure.svg"],
    "refused certificate": ["check", "certs/lpt-1MiB.json", "fabric.toml"],
    "faults": ["simulate", *SMALL, "--fault", "1ns:0:1=0", "--replan", "--timeline", "run.svg"],
    "refused to wait": ["simulate", *SMALL, "--fault", "1ns:0:1=0"],
    "export": ["results", "results", "--export", "all.csv"],
    "refused policy": ["gap", *SMALL, "--policy", "lptt"],
    "refused size": ["plan", *SMALL, "--chunk", "1M"],
    "refused file": ["plan", "a-file-of-traffic-that-is-not-there.csv"],
    "refused option": ["gap", *SMALL, "--certificates", "certs"],
    "refused choice": ["gap", *SMALL, "--format", "word"],
    "refused column": ["results", "results", "--where", "colour=red"],
    "refused in vain": ["gap", "plan.npz", "--policy", "lpt", "--nodes", "4"],
    "version": ["--version"],
    "help": ["--help"],
    **{f"help of {command}": [command, "--help"] for command in COMMANDS},
}
NOT_RUN = {"warm-up", "completion"}  # all kernels; a program for a shell, like JSON for others
DRIVER = """
import json, sys
from railopt.cli.main import main
for name, words in json.load(open("commands.json")).items():
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    print(f"\\0{name}={code}\\0", flush=True)
"""


def output(master: int) -> Iterator[bytes]:
    """What is written to the terminal until its last writer ends."""
    while True:
        try:
            read = os.read(master, 1 << 16)
        except OSError:  # EIO: nobody has the terminal open any more
            return
        if not read:
            return
        yield read


def too_long(text: str) -> list[str]:
    """Lines, or what a carriage return leaves of them, with more columns than the terminal."""
    plain = ESCAPE.sub("", text)
    return [line for line in re.split(r"[\r\n]+", plain) if len(line.expandtabs()) > COLUMNS]


def on_terminal(words: list[str], folder: Path) -> str:
    """What a program writes to a terminal of COLUMNS columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    told = {"COLUMNS", "LINES"}
    environment = {name: value for name, value in os.environ.items() if name not in told}
    environment |= {"TERM": "xterm", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        words, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=environment
    ) as process:
        os.close(slave)
        text = b"".join(output(master)).decode()
        os.close(master)
        assert process.wait() == 0, text
    return text


def test_every_command_is_run() -> None:
    assert {words[0] for words in RUN.values() if "--help" not in words} >= set(COMMANDS) - NOT_RUN


@pytest.mark.slow
def test_all_output_fits_a_terminal_of_100_columns(tmp_path: Path) -> None:
    save_inputs(tmp_path)
    (tmp_path / "spec.toml").write_text(
        'name = "chunks of two sizes of a policy of railopt and of one that breaks"\n'
        '[grid]\nnodes = [2]\nrails = [2]\ntraffic = ["uniform:size=1KiB", "zipf:skew=0.5"]\n'
        'chunk = ["1KiB", "flow"]\npolicy = ["lpt", "mine:broken"]\n'
    )
    (tmp_path / "mine.py").write_text(
        f"def broken(fabric, chunks):\n    raise ValueError('{'so ' * 60}')\n"
    )
    for i, name in enumerate(REPORTS):
        rate = 290.0 if i % 7 == 3 else 390.0
        (tmp_path / name).write_text(OLD % (rate, rate, f"{rate / 8 / 65536 * 1000:.6f}"))
    (tmp_path / "commands.json").write_text(json.dumps(RUN))
    text = on_terminal([sys.executable, "-c", DRIVER], tmp_path)
    parts = text.split("\0")
    names, codes = zip(*(part.split("=") for part in parts[1::2]), strict=True)
    assert list(names) == list(RUN)
    failed = {name for name, code in zip(names, codes, strict=True) if code not in ("0", "None")}
    assert failed - {"devices"} == {name for name in RUN if name.startswith("refused")}
    said = dict(zip(names, parts[::2], strict=False))
    found = {name: too_long(text) for name, text in said.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert_demo(said["demo"], tmp_path)


def assert_demo(said: str, folder: Path) -> None:
    """The demo without options has saved its figure, and has a row per number of nodes."""
    assert (folder / "railopt-demo.svg").read_text().startswith("<?xml")
    assert "saved railopt-demo.svg" in said
    rows = [line.split() for line in ESCAPE.sub("", said).splitlines()]
    assert [row[3] for row in rows if row[:1] in (["2"], ["4"], ["8"])] == ["2", "4", "8"]


def test_a_line_that_is_too_long_is_found(tmp_path: Path) -> None:
    program = "print('a' * 100); print('\\x1b[31m' + 'b' * 101 + '\\x1b[0m\\rc', end='')"
    assert too_long(on_terminal([sys.executable, "-c", program], tmp_path)) == ["b" * 101]
    size = "import shutil; print(shutil.get_terminal_size())"
    assert "columns=100" in on_terminal([sys.executable, "-c", size], tmp_path)
