"""The sweep's TOML: a grid of lists (every combination), further `[[instance]]` tables, and limits;
unknown keys are errors.

name = "chunk sizes"
limit = "1s"                 # for the solver, an instance (0 leaves bounds alone)
timeout = "60s"              # after which an instance is given up
memory = "2GiB"              # that an instance may use
threads = 1                  # that a solver may use; workers are as many as cores / threads
simulate = true              # run the plan in the flow simulator too
[grid]
nodes = [4, 8]
rails = [8]
traffic = ["moe:skew=0.5", "moe:skew=0.8"]      # without a seed
chunk = ["256KiB", "1MiB"]
policy = ["lpt", "lpt-local", "equitable"]
seed = [0, 1, 2]
# optional: gpus, link, degrade ("3:5=0.5" or "")
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from railopt import __version__, toml
from railopt.errors import InputError
from railopt.policies import policy_code, policy_named
from railopt.units import PS_PER_S, parse_bytes, parse_time

MAX_INSTANCES = 1_000_000
_DEFAULTS: dict[str, Any] = {
    "nodes": 8,
    "rails": 8,
    "gpus": None,
    "link": "400Gb/s",
    "degrade": "",
    "traffic": "moe:skew=0.5",
    "chunk": "1MiB",
    "policy": "lpt",
    "seed": 0,
}
_OPTIONS = {"name", "limit", "timeout", "memory", "threads", "simulate", "grid", "instance"}


@dataclass(frozen=True)
class Instance:
    """One point of a sweep: a fabric, a workload, a chunk size, a policy, a seed, and what to
    compute.
    """

    nodes: int
    rails: int
    gpus: int | None
    link: str
    degrade: str
    traffic: str
    chunk: str
    policy: str
    seed: int
    limit_s: float
    simulate: bool
    threads: int

    @property
    def key(self) -> str:
        """What makes a result the same: the instance and its options, railopt's version and its
        code, and that of a policy from outside.
        """
        code = code_digest() + policy_code(self.policy)
        text = json.dumps([asdict(self), __version__, code], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Sweep:
    """A parsed spec: instances and the limits of each."""

    name: str
    instances: tuple[Instance, ...]
    timeout_s: float
    memory: int
    threads: int


@cache
def code_digest() -> str:
    """blake2b over railopt's own source files: results of other code are not the same results."""
    state = hashlib.blake2b(digest_size=8)
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        if path.parts[len(root.parts)] not in (
            "cli",
            "report",
        ):  # how results are asked for and shown does not change them
            state.update(path.relative_to(root).as_posix().encode())
            state.update(path.read_bytes())
    return state.hexdigest()


def read(path: str | os.PathLike[str]) -> Sweep:
    """Read a spec file."""
    return toml.read(path, parse)


def parse(data: Mapping[str, Any]) -> Sweep:
    """A parsed TOML document as a sweep."""
    toml.only(data, _OPTIONS, "sweep")
    threads = data.get("threads", 1)
    if not isinstance(threads, int) or threads < 1:
        raise InputError(f"threads = {threads!r}: expected a whole number of at least 1")
    if not isinstance(data.get("simulate", False), bool):
        raise InputError(f"simulate = {data['simulate']!r}: expected true or false")
    options = {
        "limit_s": _seconds(data.get("limit", 0)),
        "simulate": data.get("simulate", False),
        "threads": threads,
    }
    grid, further = data.get("grid", {}), data.get("instance", [])
    toml.only(grid, set(_DEFAULTS), "[grid]")
    axes = {key: grid[key] if isinstance(grid[key], list) else [grid[key]] for key in grid}
    count = (prod(len(axis) for axis in axes.values()) if grid else 0) + len(further)
    if count == 0:
        empty = [key for key, axis in axes.items() if not axis]
        why = (
            f"the list of {empty[0]} is empty" if empty else "give a [grid] or [[instance]] tables"
        )
        raise InputError(f"0 instances: {why}")
    if count > MAX_INSTANCES:
        raise InputError(
            f"{count} instances: more than {MAX_INSTANCES}; make the lists of the grid shorter, "
            f"or split the spec"
        )
    instances = [_instance(values, options) for values in _points(axes, further)]
    return Sweep(
        str(data.get("name", "sweep")),
        tuple(dict.fromkeys(instances)),
        _seconds(data.get("timeout", "600s")),
        parse_bytes(data.get("memory", "4GiB")),
        threads,
    )


def _points(axes: Mapping[str, list[Any]], further: list[Any]) -> Iterator[dict[str, Any]]:
    if axes:
        for values in product(*axes.values()):
            yield dict(zip(axes, values, strict=True))
    for number, table in enumerate(further):
        toml.only(table, set(_DEFAULTS), f"[[instance]] {number}")
        yield dict(table)


def _instance(values: Mapping[str, Any], options: Mapping[str, Any]) -> Instance:
    """Checked as far as that is cheap, so that a typing error does not cost a night."""
    full = {**_DEFAULTS, **values}
    for key in ("nodes", "rails", "seed"):
        if (
            not isinstance(full[key], int)
            or isinstance(full[key], bool)
            or full[key] < (key != "seed")
        ):
            raise InputError(
                f"{key} = {full[key]!r}: expected a whole number of at least {int(key != 'seed')}"
            )
    policy_named(str(full["policy"]))
    if full["chunk"] != "flow":
        parse_bytes(full["chunk"])
    if "seed=" in str(full["traffic"]):
        raise InputError(
            f"traffic = {full['traffic']!r}: the seed is an axis of its own, seed = [...]"
        )
    checked: dict[str, Any] = {
        key: str(value) if isinstance(_DEFAULTS[key], str) else value for key, value in full.items()
    }
    return Instance(**checked, **options)


def _seconds(text: str | int) -> float:
    return float(Fraction(parse_time(text), PS_PER_S))
