"""Pattern, and users' buffers as addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.runtime.payload import pattern
from railopt.runtime.payload.memory import memory_of, refuse_overlap
from railopt.runtime.payload.pattern import Payloads
from railopt.runtime.senders.loopback import Loopback

MASK = (1 << 64) - 1


def mix(seed: int, key: int, word: int) -> int:
    """The pattern, written down once more in plain Python."""
    x = (seed + key * 0x9E3779B97F4A7C15 + word * 0xD1B54A32D192ED03) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


SIZES = np.array([1, 7, 8, 9, 64, 100, 4099], np.int64)
KEYS = np.arange(len(SIZES), dtype=np.uint64) * np.uint64(3)
KERNELS = ("copy_chunks", "_fill", "_find_wrong")


@pytest.fixture(params=["numpy", "plain"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """By numpy in blocks of 512 bytes, and by the loops that are compiled elsewhere."""
    monkeypatch.setattr(pattern, "_BLOCK", 512)
    for name in KERNELS:
        monkeypatch.setattr(pattern, name, getattr(getattr(pattern, name), request.param))
    with np.errstate(over="ignore"):
        yield


def payloads(memory: np.ndarray) -> Payloads:
    """Chunks one behind the other, at odd places."""
    number, offset = np.zeros(len(SIZES), np.int64), 1 + np.cumsum(SIZES) - SIZES
    return Payloads([memory], number, offset, SIZES)


@pytest.mark.usefixtures("both_ways")
def test_the_pattern_is_what_it_says() -> None:
    memory = np.zeros(int(SIZES.sum()) + 2, np.uint8)
    payloads(memory).fill(KEYS, np.uint64(5))
    wanted = (
        b"\0"
        + b"".join(
            b"".join(mix(5, int(k), w).to_bytes(8, "little") for w in range(n // 8 + 1))[:n]
            for k, n in zip(KEYS, SIZES.tolist(), strict=True)
        )
        + b"\0"
    )
    assert memory.tobytes() == wanted


@pytest.mark.usefixtures("both_ways")
def test_any_single_wrong_bit_is_found() -> None:
    memory = np.zeros(int(SIZES.sum()) + 2, np.uint8)
    held, seed = payloads(memory), np.uint64(1)
    held.fill(KEYS, seed)
    assert not held.wrong(KEYS, seed).any()
    for chunk, size in enumerate(SIZES.tolist()):
        for place in {0, size * 2 // 3, size - 1}:
            memory[held.offset[chunk] + place] ^= 0x10
            assert np.flatnonzero(held.wrong(KEYS, seed)).tolist() == [chunk]
            memory[held.offset[chunk] + place] ^= 0x10


@pytest.mark.usefixtures("both_ways")
def test_another_round_and_another_chunk_are_wrong() -> None:
    held = payloads(np.zeros(int(SIZES.sum()) + 2, np.uint8))
    held.fill(KEYS, np.uint64(1))
    assert held.wrong(KEYS, np.uint64(2)).all()
    assert held.wrong(KEYS[::-1].copy(), np.uint64(1)).sum() == len(SIZES) - 1


@pytest.mark.usefixtures("both_ways")
def test_chunks_of_several_memories_far_apart() -> None:
    size, number = np.array([100_000, 100_000, 5]), np.array([1, 0, 1])
    source, target = ([np.zeros(300_000, np.uint8) for _ in range(2)] for _ in "st")
    at, to = np.array([7, 0, 200_000]), np.array([3, 1, 150_000])
    sent, received = Payloads(source, number, at, size), Payloads(target, number, to, size)
    sent.fill(KEYS[:3], np.uint64(9))
    for i in (0, 2):
        pattern.copy_chunks(source[1], at[i : i + 1], target[1], to[i : i + 1], size[i : i + 1])
    assert received.wrong(KEYS[:3], np.uint64(9)).tolist() == [False, True, False]


class Interface:
    def __init__(self, name: str, array: np.ndarray, **changes: Any) -> None:
        self.array = array
        setattr(self, name, {**array.__array_interface__, **changes})


class Dlpack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


class Refuses:
    """As a tensor of torch that requires gradients."""

    def __dlpack__(self, **_: object) -> None:
        raise BufferError("it requires grad")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_characters_have_four_bytes() -> None:
    assert memory_of(np.zeros(8, "U5"), writable=True).length == 160


def test_buffers_of_every_kind_give_their_address() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    for buffer in (
        array,
        Interface("__array_interface__", array),
        Dlpack(array),
        memoryview(array),
    ):
        memory = memory_of(buffer, writable=True)
        assert (memory.address, memory.length, memory.cuda) == (array.ctypes.data, 96, False)
    cuda = memory_of(Interface("__cuda_array_interface__", array, strides=None), writable=True)
    assert (cuda.address, cuda.length, cuda.cuda) == (array.ctypes.data, 96, True)
    data = bytearray(b"hello")
    memory = memory_of(data, writable=True)
    assert ctypes.string_at(memory.address, memory.length) == b"hello"
    assert memory_of(memory, writable=True) is memory
    assert memory_of(b"", writable=False).length == 0


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (b"read only", "read-only"),
        (np.zeros((4, 4))[:, :2], "strides"),
        (np.frombuffer(b"12345678", np.uint8), "read-only"),
        (Dlpack(np.zeros((4, 4))[:, 1]), "strides"),
        (memoryview(bytearray(8))[::2], "not C-contiguous: expected contiguous memory"),
        (7, "no buffer"),
        (np.array([None] * 8), "Python objects"),
        (np.zeros(2, [("a", "i4"), ("b", "O")]), "Python objects"),
        (Refuses(), "Refuses gives no memory away: it requires grad"),
        (Interface("__array_interface__", np.zeros(4), typestr="<?9"), "an array of type"),
    ],
)
def test_what_can_not_receive_is_refused(buffer: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        memory_of(buffer, writable=True)


@pytest.mark.parametrize(
    ("send", "recv", "fine"),
    [
        ([(0, 10)], [(10, 20)], True),
        ([(0, 10), (5, 8), (0, 10)], [(10, 20)], True),
        ([(0, 10)], [(9, 20)], False),
        ([(10, 20)], [(0, 11)], False),
        ([(0, 30)], [(10, 20)], False),
        ([(12, 14), (40, 41)], [(10, 20)], False),
        ([(0, 1)], [(10, 20), (19, 25)], False),
        ([(15, 15)], [(10, 20), (12, 12), (20, 25)], True),
        ([], [(0, 5), (0, 5)], False),
    ],
)
def test_memory_is_sent_or_receives(
    send: list[tuple[int, int]], recv: list[tuple[int, int]], fine: bool
) -> None:
    pool = np.zeros(50, np.uint8)
    sides = [[memory_of(pool[a:b], writable=True) for a, b in side] for side in (send, recv)]
    if fine:
        refuse_overlap(*sides)
        return
    with pytest.raises(InputError, match="share memory"):
        refuse_overlap(*sides)


def test_loopback_takes_plans_alone() -> None:
    with pytest.raises(InputError, match="expected a Plan"):
        Loopback().run("plan.npz")  # type: ignore[arg-type]
