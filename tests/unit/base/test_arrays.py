"""Files appear whole or not at all, through links, pipes and devices, whatever the system says."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from railopt.base import toml
from railopt.base.arrays import (
    atomic_file,
    by_key,
    check_targets,
    frozen,
    read_text,
    save_npz,
    total,
    whole_number,
    write_atomic,
)
from railopt.base.errors import InputError


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    with pytest.raises(InputError, match="exists"):
        write_atomic(link, "new")
    write_atomic(link, "new", force=True)
    assert link.is_symlink()
    assert real.read_text() == "new"
    real.unlink()
    write_atomic(link, "newer")
    assert link.is_symlink()
    assert real.read_text() == "newer"


def test_devices_are_written_through() -> None:
    before = os.stat("/dev/null")
    write_atomic("/dev/null", "gone")
    write_atomic("/dev/null", "gone", force=True)
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode)
    assert (before.st_ino, before.st_rdev) == (after.st_ino, after.st_rdev)


def test_a_full_device_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"/dev/full: can't be written: No space left"):
        write_atomic("/dev/full", "much" * 100_000, force=True)


def test_a_pipe_gets_the_bytes_if_someone_reads(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="can't be written"):
        write_atomic(pipe, "nobody listens", force=True)
    got: list[bytes] = []
    handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    held = os.open(pipe, os.O_WRONLY)  # so that the listener does not see the end before the begin
    os.set_blocking(handle, True)

    def listen() -> None:
        with os.fdopen(handle, "rb") as file:
            got.append(file.read())

    listener = threading.Thread(target=listen)
    write = threading.Thread(target=write_atomic, args=(pipe, "x" * 300_000))
    write.start()
    listener.start()
    write.join(10)
    os.close(held)
    listener.join(10)
    assert got == [b"x" * 300_000]
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


@pytest.mark.slow
def test_a_pipe_that_is_the_standard_output() -> None:
    """What /dev/stdout leads to has a name that can't be opened."""
    line = "from railopt.base.arrays import *; check_targets(OUT); write_atomic(OUT, 'bytes')"
    ran = subprocess.run(
        [sys.executable, "-c", f"OUT = '/dev/stdout'; {line}"], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "bytes", "")


def test_no_name_and_what_others_take_for_the_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("", "-"):
        for write in (check_targets, lambda path: write_atomic(path, "x")):
            with pytest.raises(InputError, match=f"'{name}': expected the name of a file"):
                write(name)
    write_atomic("./-", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["-"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "a folder"),
        ("no/such/folder/file", "does not exist"),
        ("x" * 300, "can't be written: File name too long"),
        ("a\0b", "not the name of a file"),
        ("file/in/file", "does not exist|Not a directory"),
    ],
)
def test_what_can_not_be_a_file_is_one_sentence(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "file").write_text("")
    for force in (False, True):
        with pytest.raises(InputError, match=complaint) as found:
            write_atomic(os.path.join(tmp_path, name), "text", force=force)
        assert str(found.value).isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_name_as_long_as_a_name_may_be(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("x" * 255), "text")
    assert (tmp_path / ("x" * 255)).read_text() == "text"


def test_nothing_is_left_behind_and_other_errors_pass(tmp_path: Path) -> None:
    def failing(error: BaseException) -> None:
        with atomic_file(tmp_path / "out") as file:
            file.write(b"half")
            raise error

    for error in (KeyboardInterrupt(), KeyError("x"), ValueError("null"), SystemExit(3)):
        with pytest.raises(type(error)):
            failing(error)
    with pytest.raises(FileNotFoundError):
        failing(FileNotFoundError(2, "No such file", "/another/file"))
    with pytest.raises(InputError, match="out: can't be written: No space left on device"):
        failing(OSError(28, "No space left on device"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """A limit on the size of files fails where a full disk does: in the middle of writing."""
    arguments = ["plan", "moe:tokens=64", "--chunk", "4KiB", "-o", str(tmp_path / "plan.npz")]
    ran = subprocess.run(
        [sys.executable, "-m", "railopt", *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        env={**os.environ, "RAILOPT_COMPILE": "never"},
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[-1].startswith("railopt: error: ")
    assert "File too large" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_those_of_a_plain_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_text_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for name, complaint in (
        ("latin", "not a text file"),
        ("missing", "No such file"),
        ("", "Is a directory"),
        ("a\0b", "not the name of a file"),
    ):
        with pytest.raises(InputError, match=complaint):
            read_text(os.path.join(tmp_path, name))
    with pytest.raises(InputError, match="more than 3 bytes"):
        read_text("/dev/zero", 3)


def test_the_mark_of_windows_before_a_text_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "matrix").write_bytes(b"\xef\xbb\xbf0 1\r\n1 0\r\n")
    assert read_text(tmp_path / "matrix") == "0 1\r\n1 0\r\n"
    (tmp_path / "table").write_bytes(b"\xef\xbb\xbfnodes = 2\r\n")
    assert toml.read(tmp_path / "table", dict) == {"nodes": 2}


def test_whole_numbers() -> None:
    assert whole_number(np.int32(5), "n", 1, 9) == 5
    for bad in (True, 0, 10, 2.0, "5", None, 10**40, np.float64(5)):
        with pytest.raises(InputError, match=r"^n = .*: expected a whole number from 1 to 9$"):
            whole_number(bad, "n", 1, 9)


def test_frozen_never_rounds_nor_wraps() -> None:
    assert frozen([1, 2], np.int16, "x", 1).dtype == np.int16
    for bad in ([1.5], [70000], [[1]], ["a"], [2**70], [None]):
        with pytest.raises(InputError, match="x"):
            frozen(bad, np.int16, "x", 1)
    assert total(np.full(8, 2**62)) == 2**65


def test_a_read_only_view_of_what_can_change_is_copied() -> None:
    buffer = np.zeros(4, np.int16)
    view = buffer.view()
    view.flags.writeable = False
    kept = frozen(view, np.int16, "rail", 1)
    buffer[:] = 7
    assert kept.tolist() == [0, 0, 0, 0]
    assert frozen(kept, np.int16, "rail", 1) is kept


@pytest.mark.parametrize("most", [0, 7, (1 << 16) - 1, 1 << 16, 1 << 40])
def test_keys_are_ordered_with_equal_ones_as_they_are(most: int) -> None:
    keys = np.random.default_rng(1).integers(0, most + 1, 1000)
    keys[500:600], keys[-1] = keys[:100], most
    np.testing.assert_array_equal(by_key(keys), sorted(range(1000), key=keys.tolist().__getitem__))
    assert by_key(keys[:0]).shape == (0,)


def test_the_same_content_saved_twice_is_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the day: an archive's members carry no date."""
    files = []
    for day in (1, 400):
        now = time.gmtime(86_400 * (365 * 20 + day))
        monkeypatch.setattr("time.localtime", lambda *_, now=now: now)
        files.append(tmp_path / f"{day}.npz")
        save_npz(files[-1], "plan", {"policy": "lpt"}, {"rail": np.arange(5)})
    assert files[0].read_bytes() == files[1].read_bytes()
