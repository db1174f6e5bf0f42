"""Pattern, checksum, and users' buffers as addresses."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric, Plan
from railopt.base.errors import InputError
from railopt.runtime.payload import pattern
from railopt.runtime.payload.memory import memory_of, refuse_overlap
from railopt.runtime.senders.loopback import Loopback

MASK = (1 << 64) - 1


def mix(seed: int, key: int, word: int) -> int:
    """The pattern, written down once more in plain Python."""
    x = (seed + key * 0x9E3779B97F4A7C15 + word * 0xD1B54A32D192ED03) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


SIZES = np.array([1, 7, 8, 9, 64, 100, 4099], np.int64)


def layout(memory: np.ndarray) -> np.ndarray:
    """Chunks one behind the other, at odd addresses."""
    return memory.ctypes.data + 1 + np.cumsum(SIZES) - SIZES


def test_the_pattern_is_what_it_says() -> None:
    memory = np.zeros(int(SIZES.sum()) + 2, np.uint8)
    keys = np.arange(len(SIZES), dtype=np.uint64) * 3
    pattern.fill_pattern(layout(memory), SIZES, keys, np.uint64(5))
    wanted = (
        b"\0"
        + b"".join(
            b"".join(mix(5, int(k), w).to_bytes(8, "little") for w in range(n // 8 + 1))[:n]
            for k, n in zip(keys, SIZES.tolist(), strict=True)
        )
        + b"\0"
    )
    assert memory.tobytes() == wanted


@pytest.mark.parametrize("chunk", range(len(SIZES)))
def test_any_single_wrong_bit_is_found(chunk: int) -> None:
    memory = np.zeros(int(SIZES.sum()) + 2, np.uint8)
    at, keys = layout(memory), np.arange(len(SIZES), dtype=np.uint64)
    pattern.fill_pattern(at, SIZES, keys, np.uint64(1))
    wrong, sums = np.zeros(len(SIZES), np.bool_), np.zeros((2, len(SIZES)), np.uint64)
    assert pattern.wrong_chunks(at, SIZES, keys, np.uint64(1), wrong) == 0
    pattern.checksum_chunks(at, SIZES, keys, sums[0])
    position = 1 + int(SIZES[:chunk].sum() + SIZES[chunk] * 2 // 3)
    memory[position] ^= 0x10
    assert pattern.wrong_chunks(at, SIZES, keys, np.uint64(1), wrong) == 1
    assert np.flatnonzero(wrong).tolist() == [chunk]
    pattern.checksum_chunks(at, SIZES, keys, sums[1])
    assert np.flatnonzero(sums[0] != sums[1]).tolist() == [chunk]


def test_another_round_and_another_chunk_are_wrong() -> None:
    memory = np.zeros(int(SIZES.sum()) + 2, np.uint8)
    at, keys, wrong = (
        layout(memory),
        np.arange(len(SIZES), dtype=np.uint64),
        np.zeros(len(SIZES), np.bool_),
    )
    pattern.fill_pattern(at, SIZES, keys, np.uint64(1))
    assert pattern.wrong_chunks(at, SIZES, keys, np.uint64(2), wrong) == len(SIZES)
    assert pattern.wrong_chunks(at, SIZES, keys[::-1].copy(), np.uint64(1), wrong) == len(SIZES) - 1


def test_a_checksum_sees_words_that_changed_places() -> None:
    words = np.arange(8, dtype=np.uint64)
    size, key, sums = np.array([64]), np.zeros(1, np.uint64), np.zeros((2, 1), np.uint64)
    pattern.checksum_chunks(np.array([words.ctypes.data]), size, key, sums[0])
    words[[2, 5]] = words[[5, 2]]
    pattern.checksum_chunks(np.array([words.ctypes.data]), size, key, sums[1])
    assert sums[0] != sums[1]


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


def test_characters_have_four_bytes_and_loopback_reaches_no_gpu() -> None:
    assert memory_of(np.zeros(8, "U5"), writable=True).length == 160
    there = [Interface("__cuda_array_interface__", np.zeros(4), strides=None)]
    with pytest.raises(InputError, match="can't reach memory of a GPU"):
        Loopback(there, there)


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


def test_loopback_does_not_receive_where_it_sends() -> None:
    """In place the bytes of the first node come back to it, and checksums of both sides agree."""
    fabric = Fabric.uniform(2, 1)
    chunks = Chunks.from_arrays(src=[0, 1], dst=[1, 0], size=[8, 8])
    made = Plan(fabric, chunks, np.zeros(2, np.int16))
    buffers = [np.full(8, node, np.uint8) for node in range(2)]
    with pytest.raises(InputError, match="share memory"):
        Loopback(buffers, buffers).run(made)
    with pytest.raises(InputError, match="expected a Plan"):
        Loopback().run("plan.npz")  # type: ignore[arg-type]
