"""The TOML description of a hybrid question: sizes or a model preset, levels, and options; unknown
keys are errors.

    data = "24MB"              # bytes a worker sends in one all-to-all if all its tokens left
    expert = "8MB"             # bytes of one worker's experts
    pre_expert = "4ms"         # compute before the experts
    [[level]]                  # outermost first; bandwidth is one member's link
    name = "dc"
    count = 4
    bandwidth = "10Gb/s"
    latency = "1ms"            # a message (default 0)

Instead of data, expert and pre_expert: `preset = "mixtral-8x7b"`, `tokens` a worker and `compute`
("150TFLOP/s"). Options: compression (50), decode ("20us" an expert), encode ("100us" a block),
gradients (true) and with it post ("8ms"), memory ("40GB"), unequal (true).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from importlib.resources import files
from math import prod
from typing import Any, NamedTuple

from railopt.base import toml
from railopt.base.arrays import whole_number
from railopt.base.errors import InputError, printable
from railopt.base.units import PS_PER_S, parse_bytes, parse_number, parse_rate, parse_time, quoted
from railopt.model.fabric import Fabric
from railopt.moe.hybrid.stream import Level, Stream

MAX_LEVELS = 8
MAX_TOKENS = 1 << 40  # per worker

_SIZES = {"data", "expert", "pre_expert"}
_PRESET = {"preset", "tokens", "compute"}
_OPTIONS = {"compression", "decode", "encode", "gradients", "post", "memory", "unequal"}


class HybridQuestion(NamedTuple):
    """A stream, and whether domains may be unequal."""

    stream: Stream
    unequal: bool


def read(
    path: str | os.PathLike[str] | None, inside: tuple[Level, ...] | None = None
) -> HybridQuestion:
    """Read a spec; None is the bundled one (four data centres of eight GPUs on 10 Gb/s).  Levels
    `inside` are added below those of a spec, and take the place of the bundled one's.
    """
    if path is not None:
        return toml.read(path, lambda data: parse(data, inside or ()))
    bundled = files("railopt.moe.hybrid").joinpath("default.toml")
    if inside is None:
        return toml.read(bundled, parse)
    return toml.read(bundled, lambda data: parse({**data, "level": []}, inside))


def levels_of(fabric: Fabric) -> tuple[Level, Level]:
    """Nodes, whose link is all NICs of the slowest one, and GPUs on the scale-up fabric."""
    slowest = int(min(rates.sum(axis=1).min() for rates in (fabric.tx, fabric.rx)))
    latency = Fraction(fabric.latency_ps, PS_PER_S)
    return (
        Level("node", fabric.nodes, slowest, latency),
        Level("gpu", fabric.gpus, fabric.scaleup),
    )


def parse(data: Mapping[str, Any], inside: tuple[Level, ...] = ()) -> HybridQuestion:
    """A parsed TOML document as a question; levels `inside` are below its own."""
    toml.only(data, _SIZES | _PRESET | _OPTIONS | {"level"}, "spec")
    tables = data.get("level", [])
    if not isinstance(tables, list) or not (tables or inside):
        raise InputError("no [[level]]: give at least one, the outermost first, or a fabric")
    if len(tables) > MAX_LEVELS:
        raise InputError(f"{len(tables)} levels: at most {MAX_LEVELS} are possible")
    levels = (*(_level(table, number) for number, table in enumerate(tables)), *inside)
    if len({level.name for level in levels}) < len(levels):
        raise InputError(
            "two [[level]] tables of one name (those of a fabric are node and gpu): give each its "
            "own"
        )
    sizes = (
        _from_preset(data, prod(level.count for level in levels))
        if "preset" in data
        else _from_sizes(data)
    )
    options: dict[str, Any] = {}
    if "compression" in data:
        options["compression"] = parse_number(data["compression"], "compression")
    for key in ("decode", "encode", "post"):
        if key in data:
            options[key] = _time(data[key])
    if "memory" in data:
        options["memory"] = parse_bytes(data["memory"])
    for key in ("gradients", "unequal"):
        if not isinstance(data.get(key, False), bool):
            raise InputError(f"{key} = {quoted(data[key])}: expected true or false")
    if "post" in data and not data.get("gradients"):
        raise InputError(
            "post is the compute under which gradients return: give gradients = true, or leave "
            "post out"
        )
    stream = Stream(levels, gradients=data.get("gradients", False), **sizes, **options)
    return HybridQuestion(stream, data.get("unequal", False))


def _from_sizes(data: Mapping[str, Any]) -> dict[str, Any]:
    missing = sorted(_SIZES - set(data))
    if missing or _PRESET & set(data):
        raise InputError(
            f"give data, expert and pre_expert, or preset, tokens and compute; missing {missing}, "
            f"found {sorted(_PRESET & set(data))}"
        )
    return {
        "data": parse_bytes(data["data"]),
        "expert": parse_bytes(data["expert"]),
        "pre": _time(data["pre_expert"]),
    }


def _from_preset(data: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """D, P_E and Lat_PE of a known model in bf16: experts dealt over the workers (at least one
    each), attention and shared experts as the compute before the experts."""
    if _SIZES & set(data):
        raise InputError(
            f"preset and {sorted(_SIZES & set(data))[0]} contradict each other: give one of them"
        )
    if "tokens" not in data or "compute" not in data:
        raise InputError(
            'a preset needs tokens (a whole number, a worker) and compute (e.g. "150TFLOP/s")'
        )
    from railopt.moe.presets import preset

    model = preset(data["preset"])
    tokens = whole_number(data["tokens"], "tokens", 1, MAX_TOKENS)
    held = max(1, -(-model.experts // workers))
    return {
        "data": tokens * model.top_k * model.token_bytes(),
        "expert": held * model.expert_bytes(),
        "pre": Fraction(tokens * model.dense_flops) / _flops(data["compute"]),
    }


def _flops(text: Any) -> Fraction:
    for suffix, scale in (("PFLOP/s", 10**15), ("TFLOP/s", 10**12), ("GFLOP/s", 10**9)):
        if isinstance(text, str) and text.endswith(suffix):
            rate = parse_number(text.removesuffix(suffix).strip(), "rate of compute") * scale
            if rate > 0:
                return rate
    raise InputError(f'compute = {quoted(text)}: expected e.g. "150TFLOP/s"')


def _level(data: Any, number: int) -> Level:
    toml.only(data, {"name", "count", "bandwidth", "latency"}, f"[[level]] {number}")
    if "count" not in data or "bandwidth" not in data:
        raise InputError(f"[[level]] {number}: needs count (a whole number) and bandwidth")
    name = data.get("name", f"level {number}")
    if not isinstance(name, str):
        raise InputError(f"[[level]] {number}: name = {quoted(name)}: expected a text")
    return Level(
        printable(name, 40),
        data["count"],
        parse_rate(data["bandwidth"]),
        _time(data.get("latency", 0)),
    )


def _time(text: str | int) -> Fraction:
    return Fraction(parse_time(text), PS_PER_S)
