"""The hybrid specification: hostile values and damaged files are refused in one sentence."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from railopt.base.errors import InputError
from railopt.moe.hybrid import spec, stream
from railopt.moe.hybrid.answer import answer
from tests.damage import damaged, damaged_text

LEVEL = {"name": "dc", "count": 6, "bandwidth": "10Gb/s"}
GOOD: dict[str, Any] = {
    "data": "24MB",
    "expert": "8MB",
    "pre_expert": "10ms",
    "level": [LEVEL],
}
PRESET: dict[str, Any] = {
    "preset": "mixtral-8x7b",
    "tokens": 4096,
    "compute": "150TFLOP/s",
    "level": [LEVEL],
}
HOSTILE = (
    "1e-999999999",
    "1e999999999",
    "1/0",
    "nan",
    "inf",
    "-1",
    "9" * 5000,
    "",
    float("nan"),
    float("inf"),
    -1,
    2**70,
    True,
    None,
    [1],
    {"a": 1},
    "\x1b[2J\n",
)


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_refused(value: Any) -> None:
    keys = ("data", "expert", "pre_expert", "compression", "decode", "encode", "post", "memory")
    specs = [{**GOOD, key: value} for key in keys]
    specs += [{**GOOD, "level": [{**LEVEL, key: value}]} for key in ("count", "bandwidth")]
    specs += [{**PRESET, key: value} for key in ("preset", "tokens", "compute")]
    specs += [{**GOOD, "level": value}, {**GOOD, "level": [value]}]
    for one in specs:
        with pytest.raises(InputError) as refusal:
            spec.parse(one)
        assert str(refusal.value).isprintable()


def test_names_are_printable_texts() -> None:
    for name in (3, [1], True):
        with pytest.raises(InputError, match="expected a text"):
            spec.parse({**GOOD, "level": [{**LEVEL, "name": name}]})
    odd = spec.parse({**GOOD, "level": [{**LEVEL, "name": "a\nb" * 100}]}).stream.levels[0]
    assert odd.name.isprintable()
    assert len(odd.name) < 60


def test_levels_have_limits() -> None:
    with pytest.raises(InputError, match="at most 8"):
        spec.parse({**GOOD, "level": [LEVEL] * 9})
    with pytest.raises(InputError, match="1048576"):
        spec.parse({**GOOD, "level": [{**LEVEL, "count": 10**9}]})
    with pytest.raises(InputError, match=r"two .* tables of one name"):
        spec.parse({**GOOD, "level": [LEVEL] * 2})
    levels = [{**LEVEL, "name": name, "count": 1000} for name in "abc"]
    many = {**GOOD, "level": levels, "unequal": True}
    with pytest.raises(InputError, match="more than 50000"):
        answer(spec.parse(many))


@pytest.mark.slow
def test_many_members_are_answered_without_counting_one_by_one() -> None:
    block = spec.parse({**GOOD, "level": [{**LEVEL, "count": 1 << 20}]})
    found = answer(block)
    assert found.messages is not None
    assert sum(found.messages) <= (1 << 20) ** 2
    with pytest.raises(InputError, match="too long to simulate"):
        answer(block, simulate=True)


@pytest.mark.parametrize("counts", [(6,), (4, 3), (2, 3, 4)])
def test_messages_are_as_many_as_pairs_that_meet(counts: tuple[int, ...]) -> None:
    from railopt.moe.hybrid.domains import message_counts, messages

    levels = tuple(stream.Level(str(i), count, 10**9) for i, count in enumerate(counts))
    block = stream.Stream(levels, 10**6, 10**6, stream.Fraction(0))
    for parts in range(1, max(counts) + 1):
        chosen = [stream.Domain(n, parts if n % parts == 0 else n) for n in counts]
        pairs = [messages(block, chosen, level) for level in range(len(counts))]
        data = sum(len(one.src) for _, one in pairs)
        experts = sum(len(one.src) for one, _ in pairs)
        assert message_counts(block, chosen) == (data, experts)


@pytest.mark.slow
def test_damaged_specs_are_read_or_refused(railopt_cli: Callable[..., Any], tmp_path: Path) -> None:
    whole = (Path(spec.__file__).parent / "default.toml").read_text()
    path, dice = tmp_path / "x.toml", random.Random(15)
    for case in range(150):
        if case % 2:
            path.write_text(damaged_text(whole, dice))
        else:
            path.write_bytes(damaged(whole.encode(), dice))
        ran = railopt_cli("hybrid", path, "--json")
        assert ran.code in (0, 1)
        assert (ran.err == "") == (ran.code == 0)
        assert ran.err.count("\n") <= 1
