"""The configuration file: the fabric and the defaults of one's own cluster, so that they need not
be typed.  What the command line says wins.

# railopt.toml
policy = "lpt-local"         # defaults of --policy, --chunk, --limit, --format
chunk = "256KiB"
[fabric]                     # or fabric = "fabric.toml", a file beside this one
nodes = 8
rails = 8                    # NICs a node
gpus = 8                     # default: as many as rails
link = "400Gb/s"

The file is --config FILE, else the one that RAILOPT_CONFIG names, else railopt.toml in the current
folder, if there is one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from railopt.base import toml
from railopt.base.errors import InputError, printable
from railopt.base.tables import FORMS
from railopt.base.units import parse_bytes, parse_time, shown
from railopt.cli.parsing import Parser
from railopt.model.fabric import Fabric

NAME, VARIABLE = "railopt.toml", "RAILOPT_CONFIG"
HELP = f"defaults for the fabric and for options (default: {NAME} here, or what {VARIABLE} names)"
DEFAULTS = ("policy", "chunk", "limit", "format")
SIZES = ("nodes", "rails", "gpus", "link")


class Configured(str):
    """A value that nobody typed: where it can't act, that is no mistake."""


@dataclass(frozen=True)
class Config:
    """What a file sets: `defaults` by option, and the fabric as a file or as some of `SIZES`;
    `demanded` if the command line named it.
    """

    path: str
    defaults: Mapping[str, str] = field(default_factory=dict)
    fabric_file: str | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    demanded: bool = False

    def apply(self, parser: Parser) -> None:
        """Give a command's options these defaults."""
        has = {action.dest for action in parser.actions}
        taken = {name: Configured(text) for name, text in self.defaults.items() if name in has}
        parser.set_defaults(**taken)
        if self.demanded and not taken and not (self._has_fabric and "nodes" in has):
            raise InputError(
                f"--config {printable(self.path)} sets nothing that this command takes: leave it "
                f"out"
            )

    @property
    def _has_fabric(self) -> bool:
        return self.fabric_file is not None or bool(self.sizes)

    def told(self, args: argparse.Namespace) -> str:
        """What of it these arguments took over, in a line, once the command has run and its idle
        options are known; empty where that is nothing.
        """
        taken = [
            f"{name} = {value}"
            for name, value in vars(args).items()
            if isinstance(value, Configured) and name not in args.idle
        ]
        typed = [name for name in SIZES if getattr(args, name, None) is not None]
        if "nodes" in args and args.fabric is None and "nodes" not in args.idle:
            taken += [f"fabric = {self.fabric_file}"] if self.fabric_file else []
            taken += [f"{n} = {value}" for n, value in self.sizes.items() if n not in typed]
        return printable(f"defaults from {self.path}: {', '.join(taken)}") if taken else ""

    def rows(self) -> list[list[Any]]:
        """(key, value) of all that it sets."""
        fabric = {"fabric": self.fabric_file} if self.fabric_file is not None else self.sizes
        return [[name, value] for name, value in {**self.defaults, **fabric}.items()]


def taken_out(arguments: list[str]) -> tuple[str | None, list[str]]:
    """(the file of `--config FILE` or `--config=FILE`, the other arguments), wherever it stands."""
    rest, named = [], None
    words = iter(arguments)
    for word in words:
        if word == "--config":
            named = next(words, "")
        elif word.startswith("--config="):
            named = word.partition("=")[2]
        else:
            rest.append(word)
        if named == "":
            raise InputError("--config: expected the name of a file after it")
    return named, rest


def serves(parser: Parser) -> bool:
    """Whether a command takes anything that a file could set: else none is looked for."""
    return any(action.dest in (*DEFAULTS, "nodes") for action in parser.actions)


def find(named: str | None) -> Config | None:
    """The file that is meant, read; None where there is none."""
    path = named or os.environ.get(VARIABLE) or (NAME if Path(NAME).is_file() else None)
    if path is None:
        return None
    return toml.read(path, lambda data: parse(data, path, demanded=named is not None))


def parse(data: Mapping[str, Any], path: str, *, demanded: bool = False) -> Config:
    """A parsed TOML document; every value is checked, whoever will use it, but for the code of
    policies of one's own.
    """
    toml.only(data, {*DEFAULTS, "fabric"}, "configuration")
    defaults = {name: _default(name, data[name]) for name in DEFAULTS if name in data}
    fabric = data.get("fabric", {})
    if isinstance(fabric, str):
        file = os.path.join(os.path.dirname(path), fabric)
        Fabric.read(file)
        return Config(path, defaults, file, {}, demanded)
    toml.only(fabric, set(SIZES), "[fabric]")
    if not isinstance(fabric.get("link", ""), str):
        raise InputError(f'link = {shown(fabric["link"])}: expected a text such as "400Gb/s"')
    Fabric.uniform(**{"nodes": 1, "rails": 1, **fabric})
    return Config(path, defaults, None, dict(fabric), demanded)


def _default(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} = {shown(value)}: expected a text, as after --{name}")
    if name == "policy":
        from railopt.policies import policy_named

        for part in value.split(","):
            if ":" not in part:
                policy_named(part.strip())
    elif name == "chunk":
        for part in value.split(","):
            if part.strip() != "flow":
                parse_bytes(part.strip())
    elif name == "limit":
        parse_time(value)
    elif name == "format" and value not in (*FORMS, "json"):
        raise InputError(f"format = {shown(value)}: expected one of {', '.join(FORMS)}, json")
    return value
