"""The sweep's TOML: a grid of lists (every combination), further `[[instance]]` tables, and limits;
unknown keys are errors.

name = "chunk sizes"         # shown by railopt results and report
limit = "1s"                 # for the solver, per instance (0 leaves bounds alone)
timeout = "60s"              # after which an instance is given up
memory = "2GiB"              # that an instance may use
threads = 1                  # that a solver may use; workers are as many as cores / threads
simulate = true              # run the plan in the flow simulator too
[grid]
nodes = [4, 8]
rails = [8]
traffic = ["moe:skew=0.5", "bytes.csv"]     # workloads without a seed, or files
chunk = ["256KiB", "1MiB"]
policy = ["lpt", "lpt-local", "equitable"]
seed = [0, 1, 2]
# optional: gpus, link, degrade ("3:5=0.5" or "")

Traffic files and modules of own policies are looked for in the spec's folder; a file's content is
part of the key.  Seeds are for workloads: a file has none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from railopt import __version__
from railopt.base import toml
from railopt.base.arrays import require_type, whole_number
from railopt.base.errors import InputError, about, printable
from railopt.base.units import INT64_MAX, PS_PER_S, format_bytes, parse_bytes, parse_time, quoted
from railopt.model.fabric import Fabric, parse_nics
from railopt.model.tokens import Tokens
from railopt.model.traffic import Traffic
from railopt.model.workloads import WORKLOADS, from_spec, known_workloads
from railopt.policies import policy_code, policy_named
from railopt.policies.outside import look_in

MAX_INSTANCES = 100_000
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
LONGEST_S = 1_000_000  # of an instance; a pipe can't be waited at for much longer
LEAST_MEMORY = 64 << 20  # in less no process of Python with numpy starts
_OPTIONS = {"name", "limit", "timeout", "memory", "threads", "simulate", "grid", "instance"}


def fabric_of(instance: Mapping[str, Any]) -> Fabric:
    """The fabric of an instance, as a row holds it."""
    shape = (instance["nodes"], instance["rails"], instance["link"])
    fabric = Fabric.uniform(*shape, gpus=instance["gpus"])
    nics = parse_nics(filter(None, instance["degrade"].split(",")))
    return fabric.degraded(nics) if nics else fabric


@dataclass(frozen=True)
class Instance:
    """One point of a sweep: a fabric, traffic, a chunk size, a policy, a seed, and what to compute.

    folder    where the spec lies, and with it traffic files and modules of policies
    content   digest of the traffic file; empty for a workload
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
    folder: str = ""
    content: str = ""

    def fabric(self) -> Fabric:
        """Its fabric."""
        return fabric_of(vars(self))

    @property
    def file(self) -> str:
        """Where its traffic lies, if that is a file."""
        return os.path.join(self.folder, self.traffic)

    def read_traffic(self, fabric: Fabric) -> Traffic | Tokens:
        """Its traffic: the file, which must not have changed since the spec was read, or the
        workload.
        """
        if not self.content:
            return from_spec(self.traffic, fabric, seed=self.seed)
        if content_digest(self.file) != self.content:
            raise InputError(f"{self.traffic}: changed since the sweep was started")
        return Traffic.read(self.file, fabric)

    def described(self) -> dict[str, Any]:
        """All of it but where files lie on this machine."""
        return {key: value for key, value in asdict(self).items() if key != "folder"}

    @property
    def key(self) -> str:
        """What makes a result the same: the instance and its options, railopt's version and its
        code, and that of a policy from outside.
        """
        code = code_digest() + policy_code(self.policy)
        text = json.dumps([self.described(), __version__, code], sort_keys=True)
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


def content_digest(path: str) -> str:
    """blake2b of a file's bytes."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def read(path: str | os.PathLike[str]) -> Sweep:
    """Read a spec file; traffic files and policies are looked for in its folder."""
    folder = os.path.dirname(os.path.abspath(path))
    return toml.read(path, lambda data: parse(data, folder))


def parse(data: Mapping[str, Any], folder: str = "") -> Sweep:
    """A parsed TOML document as a sweep, every instance of which can be started: its fabric, its
    traffic and its policy exist.

        >>> from railopt.sweep.spec import parse
        >>> sweep = parse({"grid": {"nodes": [4, 8], "policy": ["lpt", "spill"]}})
        >>> [(point.nodes, point.policy) for point in sweep.instances]
        [(4, 'lpt'), (4, 'spill'), (8, 'lpt'), (8, 'spill')]
    """
    toml.only(data, _OPTIONS, "sweep")
    threads = whole_number(data.get("threads", 1), "threads", 1, INT64_MAX)
    require_type(data.get("name", ""), str, "name", "a text")
    require_type(data.get("simulate", False), bool, "simulate", "true or false")
    options = {
        "folder": os.path.abspath(folder or os.curdir),
        "limit_s": _seconds(data.get("limit", 0)),
        "simulate": data.get("simulate", False),
        "threads": threads,
    }
    grid, further = data.get("grid", {}), data.get("instance", [])
    toml.only(grid, set(_DEFAULTS), "[grid]")
    if not isinstance(further, list):
        raise InputError(f"instance = {quoted(further)}: expected [[instance]] tables")
    timeout_s = _seconds(data.get("timeout", "600s"))
    if not options["limit_s"] < timeout_s <= LONGEST_S:
        raise InputError(
            f"timeout = {quoted(data.get('timeout', '600s'))}: expected more than the solver's "
            f"limit of {options['limit_s']:g} s and at most {LONGEST_S} s"
        )
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
    look_in(options["folder"])
    contents = cache(lambda path: content_digest(path) if os.path.isfile(path) else "")
    instances = [_instance(values, options, contents) for values in _points(axes, further)]
    if "seed" in axes and all(point.content for point in instances):
        raise InputError("seed = [...] can't do anything: every traffic is a file; leave it out")
    _check_runnable(instances)
    return Sweep(
        data.get("name", ""),
        tuple(dict.fromkeys(instances)),
        timeout_s,
        _memory(data.get("memory", "4GiB")),
        threads,
    )


def _points(axes: Mapping[str, list[Any]], further: list[Any]) -> Iterator[dict[str, Any]]:
    if axes:
        for values in product(*axes.values()):
            yield dict(zip(axes, values, strict=True))
    for number, table in enumerate(further):
        toml.only(table, set(_DEFAULTS), f"[[instance]] {number}")
        yield dict(table)


def _instance(
    values: Mapping[str, Any], options: Mapping[str, Any], contents: Callable[[str], str]
) -> Instance:
    """Checked as far as that is cheap, so that a typing error is found before the sweep runs;
    `contents` gives the digest of a file, "" where there is none.
    """
    full = {**_DEFAULTS, **values}
    for key in ("nodes", "rails", "seed"):
        whole_number(full[key], key, int(key != "seed"), INT64_MAX)
    policy_named(str(full["policy"]))
    _check_chunk(str(full["chunk"]))
    checked: dict[str, Any] = {
        key: str(value) if isinstance(_DEFAULTS[key], str) else value for key, value in full.items()
    }
    point = Instance(**checked, **options)
    if content := contents(point.file):
        return replace(point, content=content, seed=0)
    if point.traffic.partition(":")[0] not in WORKLOADS:
        raise InputError(
            f"traffic = {quoted(point.traffic)}: neither a file in {printable(point.folder)} nor a "
            f"workload; {known_workloads(point.traffic)}"
        )
    if "seed=" in point.traffic:
        raise InputError(
            f"traffic = {point.traffic!r}: the seed is an axis of its own, seed = [...]"
        )
    return point


@cache
def _check_chunk(text: str) -> None:
    """Refuse what is no number of bytes; once, however many instances have it."""
    if text != "flow":
        parse_bytes(text)


def _check_runnable(points: Iterable[Instance]) -> None:
    """Refuse a fabric that does not exist, a file that does not fit its fabric, and a workload that
    can't be made, each once: a workload on the smallest of its fabrics.
    """
    fabrics: dict[tuple[Any, ...], Fabric] = {}
    wanted: dict[tuple[Any, ...], tuple[Instance, Fabric]] = {}
    for point in points:
        described = (point.nodes, point.rails, point.gpus, point.link, point.degrade)
        fabric = fabrics.get(described) or fabrics.setdefault(described, point.fabric())
        size = (fabric.nodes, fabric.gpus) if point.content else ()
        known = wanted.setdefault((point.traffic, *size), (point, fabric))[1]
        if fabric.nodes * fabric.gpus < known.nodes * known.gpus:
            wanted[point.traffic, *size] = (point, fabric)
    for point, fabric in wanted.values():
        with about(f"traffic = {quoted(point.traffic)}: "):
            point.read_traffic(fabric)


def _memory(text: str | int) -> int:
    value = parse_bytes(text)
    if value < LEAST_MEMORY:
        raise InputError(
            f"memory = {quoted(text)}: expected at least {format_bytes(LEAST_MEMORY)}, in less no "
            f"instance starts"
        )
    return value


def _seconds(text: str | int) -> float:
    return float(Fraction(parse_time(text), PS_PER_S))
