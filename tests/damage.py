"""Damage for fuzz tests: a fixed number of cases, the same in every run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from railopt import Plan
from railopt.base.arrays import Array, read_npz
from railopt.schedule import Schedule

BYTES = [0, 1, 0x7F, 0x80, 0xFF]
PIECES = [
    "-1",
    "nan",
    "inf",
    "1e-999999999",
    "1/0",
    "9223372036854775808",
    "9" * 5000,
    "0.5",
    "true",
    '"text"',
    "[1]",
    "{a = 1}",
    "[" * 2000,
    "=",
    "\n",
    "\0",
    "é",
    "²",
    "\x1b[2J",
    " ",
    "",
]


def damaged(data: bytes, dice: random.Random) -> bytes:
    """A few bytes changed, cut out, doubled or put in."""
    out = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(out) + 1)
        kind = dice.randrange(4)
        if kind == 0 and at < len(out):
            out[at] = dice.choice([*BYTES, out[at] ^ (1 << dice.randrange(8))])
        elif kind == 1:
            del out[at : at + dice.randint(1, 40)]
        elif kind == 2:
            out[at:at] = out[at : at + dice.randint(1, 40)]
        else:
            out[at:at] = bytes(dice.randrange(256) for _ in range(dice.randint(1, 8)))
    return bytes(out)


def damaged_text(text: str, dice: random.Random) -> str:
    """A word or a line of it replaced by something hostile, cut out, doubled or moved."""
    keep = "\n" if dice.random() < 0.4 else " "
    words = text.split(keep)
    for _ in range(dice.randint(1, 3)):
        at, kind = dice.randrange(len(words)), dice.randrange(4)
        if kind == 0:
            words[at] = dice.choice(PIECES)
        elif kind == 1 and len(words) > 1:
            del words[at]
        elif kind == 2:
            words.insert(at, dice.choice(words))
        else:
            words[at] += dice.choice(PIECES)
    return keep.join(words)


def saved(value: Plan | Schedule, path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of the file that a value is saved in."""
    value.save(path, force=True)
    return read_npz(path, "plan" if isinstance(value, Plan) else "schedule")
