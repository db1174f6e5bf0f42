"""Flags that can't act: they are refused, never dropped."""

from __future__ import annotations

import argparse

from railopt.errors import InputError

FABRIC = ("fabric", "nodes", "rails", "gpus", "link", "degrade")


def refuse_idle(args: argparse.Namespace, *flags: str, because: str) -> None:
    """Refuse options (by their names in `args`) that were given and could do nothing."""
    for name in flags:
        value = getattr(args, name)
        if not (value is None or value is False or value == []):
            raise InputError(
                f"--{name.replace('_', '-')} can't do anything {because}: leave it out"
            )
