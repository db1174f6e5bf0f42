"""Kernels: the same results interpreted and compiled, compiled when it pays, and their draws."""

from __future__ import annotations

import builtins
import errno
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from railopt.base import errors, kernels
from railopt.base.errors import InputError, on_stderr
from railopt.base.kernels import (
    SearchLimit,
    below,
    compile_mode,
    interruptible,
    kernel,
    part,
    seeded,
    shuffle,
)

MODULE = """
import sys
import numpy as np
from railopt.base.kernels import compiling_s, kernel, part

@part
def larger(a, b):
    return a if a > b else b

@kernel
def most(values):
    found = values[0]
    for i in range(values.size):
        found = larger(found, values[i])
    return found

@kernel(nogil=True)
def most_of_two(values, others):
    if values.size == 0:
        raise ValueError("nothing to compare")
    return larger(most(values), most(others))
"""

CALL = """
import loops
values = np.arange({size})
for _ in range({times}):
    assert loops.most_of_two(values, values[::-1].copy()) == {size} - 1
print("numba" in sys.modules)
"""


START = """import logging, sys
import numpy as np
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
"""


def ran(
    folder: Path, code: str, mode: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A process that imports `loops` from a folder, where numba keeps its cache too."""
    if not (folder / "loops.py").exists():
        (folder / "loops.py").write_text(MODULE)
    root = str(Path(__file__).resolve().parents[3])
    given = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{root}"}
    given.pop("NUMBA_CACHE_DIR", None)
    given.pop("RAILOPT_COMPILE", None)
    given.update(environment)
    if mode is not None:
        given["RAILOPT_COMPILE"] = mode
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", START + code],
        env=given,
        capture_output=True,
        text=True,
        check=False,
    )


def loaded(folder: Path, name: str = "loops") -> Any:
    """`loops`, or another module, of a folder in this process, as one that starts now has it."""
    if name == "loops" and not (folder / "loops.py").exists():
        (folder / "loops.py").write_text(MODULE)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cached(folder: Path) -> list[Path]:
    return sorted((folder / "__pycache__").glob("loops.*.nb[ic]"))


def call(size: int = 10, times: int = 1) -> str:
    return CALL.format(size=size, times=times)


MOST = "import loops\nassert loops.most(np.arange(10)) == 9"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose cache has `most`, of ten numbers, as RAILOPT_COMPILE asks."""
    from numba import config

    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAILOPT_COMPILE", "always")
        patched.setattr(config, "CACHE_DIR", "")
        compile_mode.cache_clear()
        assert loaded(folder).most(np.arange(10)) == 9
    compile_mode.cache_clear()
    assert len(cached(folder)) == 2
    return folder


@pytest.mark.slow
def test_small_work_is_interpreted_and_loads_no_numba(tmp_path: Path) -> None:
    assert ran(tmp_path, call()).stdout.strip() == "False"
    assert cached(tmp_path) == []


@pytest.fixture
def auto(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where nothing was interpreted before and nobody says when to compile."""
    monkeypatch.setattr(kernels, "compile_mode", lambda: "auto")
    monkeypatch.setitem(kernels._totals, "interpreted", 0.0)


def compiles(called: Any, size: int, times: int = 1) -> bool:
    """Whether something is compiled or loaded when a kernel is called with so many numbers."""
    before = kernels.compiling_s()
    for _ in range(times):
        assert called(np.arange(size)) == size - 1
    return kernels.compiling_s() > before


@pytest.mark.slow
@pytest.mark.usefixtures("auto")
def test_large_arrays_are_compiled_at_once(tmp_path: Path) -> None:
    assert compiles(loaded(tmp_path).most, 200_000)
    assert cached(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("auto")
def test_what_was_interpreted_for_long_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "COMPILE_S", 0.02)
    monkeypatch.setattr(kernels, "LOAD_S", 0.02)
    most = loaded(tmp_path).most
    assert not compiles(most, 100)
    assert compiles(most, 100, times=2000)


@pytest.mark.slow
@pytest.mark.usefixtures("auto")
def test_what_is_in_the_cache_is_used_sooner(compiled: Path, tmp_path: Path) -> None:
    most = loaded(compiled).most
    assert not compiles(most, 100)
    assert compiles(most, 10_000)
    assert not compiles(loaded(tmp_path).most, 10_000)


@pytest.mark.usefixtures("auto")
def test_importing_numba_to_look_into_the_cache_is_compiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "_loaded", cache(lambda: time.sleep(0.05)))
    before = kernels.compiling_s()
    assert kernel(element_s=0.6)(odd)(np.arange(1)) is not None
    assert kernels.compiling_s() - before >= 0.05


def test_the_variable_decides(compiled: Path, tmp_path: Path) -> None:
    """`always` of ten numbers is `compiled`; `never` of many is interpreted."""
    assert cached(compiled)
    done = ran(tmp_path, call(size=50_000), "never")
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_another_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAILOPT_COMPILE", "maybe")
    compile_mode.cache_clear()
    with pytest.raises(InputError, match="RAILOPT_COMPILE=maybe: expected one of auto, always, n"):
        kernel(first_of)(np.arange(3))
    compile_mode.cache_clear()


@pytest.fixture(params=["always", "auto"])
def anew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """RAILOPT_COMPILE, in this process, which has said, interpreted and given up nothing yet."""
    mode = str(request.param)
    monkeypatch.setattr(kernels, "compile_mode", lambda: mode)
    nothing = {"interpreted": 0.0, "cache": True, "failed": False}
    monkeypatch.setattr(kernels, "_totals", {**kernels._totals, **nothing})
    monkeypatch.setattr(errors, "_said", set())
    return mode


always = pytest.mark.parametrize("anew", ["always"], indirect=True)


@pytest.mark.slow
@always
def test_a_cache_folder_that_cannot_be_made_is_one_line(
    anew: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from numba import config

    asked = str(tmp_path / "loops.py" / "cache")
    monkeypatch.setenv("NUMBA_CACHE_DIR", asked)
    monkeypatch.setattr(config, "CACHE_DIR", asked)
    with on_stderr():
        assert loaded(tmp_path).most(np.arange(10)) == 9
    expected = f"railopt: NUMBA_CACHE_DIR={asked} can't be used: numba keeps kernels elsewhere"
    assert capsys.readouterr().err.splitlines() == [expected]


# one kernel each: which of its two files, and what stands in it instead; None: its half; 1: what
# differs in a bit of its machine code
DAMAGE: dict[str, tuple[str, bytes | int | None]] = {
    "first": ("nbi", b"no index at all"),
    "second": ("nbi", None),
    "third": ("nbc", b""),
    "fourth": ("nbc", None),
    "fifth": ("nbc", 1),
}


@pytest.mark.slow
def test_damaged_files_in_the_cache_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = [f"@kernel\ndef {name}(values):\n    return values[0]\n" for name in DAMAGE]
    (tmp_path / "loops.py").write_text(
        "from railopt.base.kernels import kernel\n" + "\n".join(text)
    )
    monkeypatch.setattr(kernels, "compile_mode", lambda: "always")

    def said() -> str:
        monkeypatch.setattr(errors, "_said", set())
        module = loaded(tmp_path)
        with errors.on_stderr():
            assert {getattr(module, name)(np.arange(3, 5)) for name in DAMAGE} == {3}
        return capsys.readouterr().err

    assert said() == ""
    for name, (suffix, damage) in DAMAGE.items():
        (file,) = (tmp_path / "__pycache__").glob(f"loops.{name}-*.{suffix}")
        whole = file.read_bytes()
        if isinstance(damage, int):
            at = whole.index(b"ELF") + 0x100
            damage = whole[:at] + bytes([whole[at] ^ damage]) + whole[at + 1 :]
        file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert said() == "railopt: files in numba's cache that can't be read are replaced\n"
    assert said() == ""


@pytest.mark.slow
@always
def test_a_cache_of_another_version_is_replaced(
    anew: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A type that a cached kernel was compiled for has another name now."""
    (tmp_path / "users.py").write_text(
        "from railopt.base.kernels import kernel\n@kernel\ndef first(x):\n    return x.a\n"
    )
    said = []
    for kind in ("Old", "Renamed"):
        text = f"import typing\nclass {kind}(typing.NamedTuple):\n    a: int\n"
        (tmp_path / "kinds.py").write_text(text)
        kinds = loaded(tmp_path, "kinds")
        monkeypatch.setitem(sys.modules, "kinds", kinds)
        with on_stderr():
            assert loaded(tmp_path, "users").first(getattr(kinds, kind)(7)) == 7
        said.append(capsys.readouterr().err)
    assert said == ["", "railopt: files in numba's cache that can't be read are replaced\n"]


@pytest.mark.slow
@always
def test_a_cache_that_cannot_be_written_is_one_line(
    anew: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """numba compiles, and fails when it saves."""
    plain = builtins.open

    def full(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
        if "__pycache__" in str(file) and "w" in mode:
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain(file, mode, *more, **named)

    called = loaded(tmp_path).most_of_two
    monkeypatch.setattr(builtins, "open", full)
    with on_stderr():
        assert called(np.arange(10), np.arange(9)) == 9
    monkeypatch.setattr(builtins, "open", plain)
    (line,) = capsys.readouterr().err.splitlines()
    assert "numba's cache can't be used (OSError" in line
    assert "No space left" in line


@pytest.mark.slow
def test_without_numba_everything_is_interpreted(tmp_path: Path) -> None:
    done = ran(tmp_path, "sys.modules['numba'] = None\n" + call(size=200_000))
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("railopt: kernels are interpreted, which is slower: no numba")


@pytest.mark.slow
@always
def test_without_numba_modules_that_come_later_have_kernels_too(
    anew: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(kernels, "_loaded", cache(kernels._loaded.__wrapped__))
    monkeypatch.setattr(kernels, "_parts", [])
    with on_stderr():
        for _ in range(2):
            assert loaded(tmp_path).most(np.arange(10)) == 9
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("railopt: kernels are interpreted, which is slower: no numba")


@pytest.mark.slow
def test_a_numba_that_refuses_functions_is_one_line(
    anew: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numba

    def njit(*_: Any, **__: Any) -> Any:
        raise TypeError("no such option")

    monkeypatch.setattr(numba, "njit", njit)
    values = np.arange(200_000)
    with on_stderr():
        assert loaded(tmp_path).most_of_two(values, values[::-1].copy()) == 199_999
        assert loaded(tmp_path).most(np.arange(5)) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "no such option" in line


@pytest.mark.slow
def test_a_numba_that_breaks_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "numba"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise OSError('libllvmlite.so: cannot open')")
    code = f"sys.path.insert(0, {str(broken.parent)!r})\n"
    done = ran(tmp_path, code + call(), "always")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "no numba (libllvmlite.so: cannot open)" in line


@pytest.fixture(params=["always", "never"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """RAILOPT_COMPILE, of kernels that are called for the first time, in this process."""
    monkeypatch.setenv("RAILOPT_COMPILE", request.param)
    compile_mode.cache_clear()
    yield request.param
    compile_mode.cache_clear()


def odd(values: Any) -> Any:
    return {str(value): [value, None] for value in values}


@pytest.mark.slow
def test_a_kernel_that_numba_does_not_compile_is_interpreted(
    mode: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    tried = kernel(odd)
    with on_stderr():
        assert tried(np.arange(2)) == {"0": [0, None], "1": [1, None]}
    assert caplog.text == ""
    assert tried(np.arange(1)) == {"0": [0, None]}
    said = capsys.readouterr().err.splitlines()
    assert len(said) == (mode == "always")
    for line in said:
        assert line.startswith(f"railopt: {__name__}.odd is interpreted, which is slower: numba")


def first_of(values: Any) -> Any:
    if values.size == 0:
        raise ValueError("nothing to compare")
    return values[0]


@pytest.mark.slow
@pytest.mark.usefixtures("mode")
def test_what_a_kernel_raises_is_raised() -> None:
    tried = kernel(nogil=True)(first_of)
    with pytest.raises(ValueError, match=r"^nothing to compare$"):
        tried(np.arange(0))
    assert tried(np.arange(3, 5)) == 3


def doubled(values: Any) -> Any:
    return values + values


@pytest.mark.slow
def test_arguments_that_numba_does_not_take_leave_the_compiled_form(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAILOPT_COMPILE", "always")
    compile_mode.cache_clear()
    tried = kernel(doubled)
    assert tried(np.arange(3)).tolist() == [0, 2, 4]
    with on_stderr():
        assert tried(np.array(["a", None][:1], object)).tolist() == ["aa"]
    assert "\x1b" not in capsys.readouterr().err
    state = next(
        each.cell_contents for each in tried.__closure__ if hasattr(each.cell_contents, "compiled")
    )
    assert state.compiled.signatures
    compile_mode.cache_clear()


STRUCK = """
import os, signal, threading
import loops
signal.signal(signal.SIGINT, signal.default_int_handler)
striker = threading.Timer({after_s}, os.kill, (os.getpid(), signal.SIGINT))
striker.start()
try:
    loops.most(np.arange(9))
    threading.Event().wait(60)
except KeyboardInterrupt:
    striker.join()
    print("heard", threading.active_count())
"""


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.05, 0.7])
def test_ctrl_c_is_handled_while_numba_is_loaded_and_compiles(
    tmp_path: Path, after_s: float
) -> None:
    done = ran(tmp_path, STRUCK.format(after_s=after_s), "always")
    assert (done.stdout, done.stderr) == ("heard 1\n", "")


class Pair(NamedTuple):
    a: int
    b: bool


def pair(x: Any) -> Any:
    return Pair(x[0], x[0] > 1), x[1] * 0.5, x


@pytest.mark.slow
@pytest.mark.usefixtures("mode")
def test_numbers_are_returned_as_pythons() -> None:
    (a, b), half, x = kernel(pair)(np.arange(3))
    assert (a, b, half, x.tolist()) == (0, False, 0.5, [0, 1, 2])
    assert [type(value).__name__ for value in (a, b, half, x)] == [
        "int",
        "bool",
        "float",
        "ndarray",
    ]


def test_a_part_is_itself_for_python() -> None:
    def one(a: int) -> int:
        return a + 1

    assert part(one) is one
    assert part(error_model="numpy")(one) is one
    assert kernel(one).plain is one
    assert kernel(nogil=True)(one)(np.int64(2)) == 3


def test_python_may_run_something_else() -> None:
    def one(a: int) -> int:
        return a + 1

    def other(a: int) -> int:
        return -a

    assert part(numpy=other)(one) is other
    assert part(numpy=other)(one).plain is one
    assert kernel(numpy=other)(one)(np.int64(2)) == -2


def zeros(count: int) -> Any:
    return np.zeros(count, np.int64)


@pytest.mark.slow
@pytest.mark.usefixtures("auto")
def test_a_kernel_that_writes_far_more_than_it_reads_is_compiled_at_once() -> None:
    made = kernel(element_s=1e-5, writes=lambda count: count)(zeros)
    compiled_s = kernels.compiling_s()
    assert len(made(10)) == 10
    assert kernels.compiling_s() == compiled_s
    assert len(made(10**6)) == 10**6
    assert kernels.compiling_s() > compiled_s


def divisor(number: int, most: int) -> tuple[int, bool]:
    """(the least divisor above 1 up to `most`, or 0; whether that settles it)."""
    for k in range(2, most + 1):
        if number % k == 0:
            return k, True
    return 0, most * most >= number


@pytest.mark.slow
@pytest.mark.usefixtures("auto")
def test_a_search_is_compiled_once_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kernel(search=SearchLimit(1, 100, lambda result: not result[1]))(divisor)
    prime, compiled_s = 1_000_003, kernels.compiling_s()
    assert found(prime * 97, 2000) == (97, True)
    assert found(prime, 90) == (0, False)
    assert kernels.compiling_s() == compiled_s
    monkeypatch.setattr(kernels, "compile_mode", lambda: "never")
    assert found(prime, 2000) == (0, True)
    assert kernels.compiling_s() == compiled_s
    monkeypatch.setattr(kernels, "compile_mode", lambda: "auto")
    assert found(prime * 101, 2000) == (101, True)
    assert kernels.compiling_s() > compiled_s


def test_numbers_are_spread_evenly() -> None:
    draws = seeded(3)
    counts = np.bincount([below(draws, 6) for _ in range(6000)], minlength=6)
    assert counts.size == 6
    assert np.abs(counts - 1000).max() < 150


def test_near_seeds_give_other_numbers() -> None:
    firsts = [below(seeded(seed), 1 << 20) for seed in range(200)]
    assert len(set(firsts)) > 190
    assert abs(np.mean(firsts) / (1 << 20) - 0.5) < 0.1


def test_a_shuffle_is_a_permutation_of_the_first_items() -> None:
    items = np.arange(20)
    shuffle(seeded(1), items, 15)
    assert sorted(items[:15]) == list(range(15))
    assert items[:15].tolist() != list(range(15))
    assert items[15:].tolist() == list(range(15, 20))


@pytest.mark.slow
def test_a_call_that_may_be_long_runs_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, and one that comes after a slow one."""
    monkeypatch.setattr(kernels, "compile_mode", lambda: "always")
    made, lengths = kernel(zeros), list[int]()

    def noted(work: Any, length: int) -> Any:
        lengths.append(length)
        return interruptible(work, length)

    monkeypatch.setattr(kernels, "interruptible", noted)
    for length in (1, 2):
        assert len(made(length)) == length
    monkeypatch.setattr(kernels, "SLOW_S", 0.0)
    for length in (3, 4):
        assert len(made(length)) == length
    assert lengths == [1, 4]


def test_what_a_kernel_raises_after_ctrl_c_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "compile_mode", lambda: "always")
    tried = kernel(first_of)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(ValueError, match=r"^nothing to compare$"):
            tried(np.arange(0))


def test_what_a_long_kernel_raises_is_raised() -> None:
    assert interruptible(max, 3, 4) == 4
    with pytest.raises(TypeError, match="not iterable"):
        interruptible(max, 3)


def test_ctrl_c_strikes_while_a_long_kernel_runs() -> None:
    begun, striker = time.monotonic(), threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    striker.start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(time.sleep, 20)
    assert time.monotonic() - begun < 10
