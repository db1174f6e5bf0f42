"""Near the NICs: the CPUs that a sender runs on, and so where memory lies that it touches first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from railopt.base.errors import InputError
from railopt.base.units import parse_integer

SYSFS = Path("/sys/devices/system/node")
MAX_CPUS = 1 << 16


def cpus_of(nodes: Iterable[int], sysfs: Path = SYSFS) -> set[int]:
    """The CPUs of NUMA nodes; none if those of one of them are not known (-1 is no node)."""
    found: set[int] = set()
    for node in nodes:
        try:
            found |= _cpu_list((sysfs / f"node{node}" / "cpulist").read_text().strip())
        except (OSError, InputError):
            return set()
    return found


def _cpu_list(text: str) -> set[int]:
    """`0-3,8` -> {0, 1, 2, 3, 8}."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        first = parse_integer(low, "CPU", low=0, high=MAX_CPUS)
        last = parse_integer(high or low, "CPU", low=first, high=MAX_CPUS)
        found.update(range(first, last + 1))
    return found


@contextmanager
def near(nodes: Iterable[int], sysfs: Path = SYSFS) -> Iterator[set[int]]:
    """Run this thread, and those that it starts, on the CPUs of these NUMA nodes that it may use
    anyway, and on all of them again afterwards: which, or none where nothing changed.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    chosen = cpus_of(nodes, sysfs) & allowed
    if not chosen or chosen == allowed:
        yield set()
        return
    os.sched_setaffinity(0, chosen)
    try:
        yield chosen
    finally:
        os.sched_setaffinity(0, allowed)
