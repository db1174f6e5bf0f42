"""Policies from outside railopt: `module:function`, imported from the current folder or from what
is installed.

A policy is any function `(fabric, chunks) -> Plan`, with a keyword `seed` if it draws.  What it
raises and what it returns is checked here, so that a mistake in it reads as one.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from railopt.base.errors import InputError, RailoptError, did_you_mean
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan

__all__ = ["checked_policy", "code_of", "loaded", "look_in", "takes_seed"]

Policy = Callable[..., Plan]


def loaded(text: str) -> Policy:
    """The policy that `module:function` names, its results checked."""
    where, _, name = text.partition(":")
    module = _module(where, text)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise InputError(
            f"policy {text!r}: {where} has no function {name!r}{did_you_mean(name, functions)}"
        )
    return checked_policy(function, text)


def look_in(folder: str) -> None:
    """Import policies from this folder too, before what is installed."""
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _module(where: str, text: str) -> ModuleType:
    """Import as `python -m` would: from the current folder first."""
    if not where or not all(part.isidentifier() for part in where.split(".")):
        raise InputError(f"policy {text!r}: expected module:function, for example mine:spread")
    here = os.getcwd()
    look_in(here)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise InputError(f"policy {text!r}: importing {where} failed: {error}") from error
        raise InputError(
            f"policy {text!r}: no module {where!r}, neither in {here} nor installed"
        ) from None
    except (Exception, SystemExit) as error:
        raise InputError(
            f"policy {text!r}: importing {where} raised {type(error).__name__}: {error}"
        ) from error


def checked_policy(function: Callable[..., Any], text: str) -> Policy:
    """The function as a policy by the name `text`: what it raises and returns is checked, and its
    plans carry that name.
    """

    def policy(fabric: Fabric, chunks: Chunks, **seed: int) -> Plan:
        try:
            made = function(fabric, chunks, **seed)
        except RailoptError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"policy {text!r} raised {type(error).__name__}: {error}") from error
        if not isinstance(made, Plan):
            raise InputError(
                f"policy {text!r} returned {type(made).__name__}, expected a railopt.Plan"
            )
        if made.fabric != fabric or (made.chunks is not chunks and made.chunks != chunks):
            raise InputError(f"policy {text!r} returned a plan of another fabric or other chunks")
        return made if made.policy == text else replace(made, policy=text)

    policy.__wrapped__ = function  # type: ignore[attr-defined]  # its signature, for takes_seed
    return policy


def takes_seed(policy: Policy) -> bool:
    """Whether it draws: it has a parameter `seed`."""
    try:
        parameters = inspect.signature(policy).parameters
    except (TypeError, ValueError):  # built-in code without a signature
        return False
    return "seed" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@cache
def code_of(text: str) -> str:
    """blake2b of the file that holds the policy `module:function`: results of other code are not
    the same results.
    """
    where = text.partition(":")[0]
    file = getattr(_module(where, text), "__file__", None)
    content = Path(file).read_bytes() if file else b""
    return hashlib.blake2b(content, digest_size=8).hexdigest()
