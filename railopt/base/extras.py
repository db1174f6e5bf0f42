"""The packages that are not installed with railopt alone, and the extra that brings each.

    need("matplotlib", "a picture")   BackendError: a picture needs Matplotlib: pip install
                                      'railopt[plot]'

A module of an extra is imported where it is used, after `need` has asked for it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from railopt.base.errors import BackendError


class Package(NamedTuple):
    """What its authors call a package, and the extra of railopt that installs it ("": none)."""

    title: str
    extra: str


PACKAGES = {  # by the name that is imported
    "ortools": Package("OR-Tools", "solve"),
    "pulp": Package("PuLP", "solve"),
    "scipy": Package("SciPy", ""),  # comes with railopt, but not after pip's --no-deps
    "sympy": Package("SymPy", "prove"),
    "matplotlib": Package("Matplotlib", "plot"),
    "distributed": Package("Dask", "sweep"),
    "pyarrow": Package("PyArrow", "sweep"),
    "torch": Package("PyTorch", "torch"),
    "cuda": Package("CUDA for Python", "cuda"),
    "mpi4py": Package("mpi4py", "mpi"),
}


def installed(package: str) -> bool:
    """Whether a package can be imported; imports nothing."""
    return find_spec(package) is not None


def remedy(package: str) -> str:
    """How to install a package: `pip install 'railopt[plot]'`."""
    extra = PACKAGES[package].extra if package in PACKAGES else ""
    return f"pip install 'railopt[{extra}]'" if extra else f"pip install {package}"


def missing(package: str, what: str) -> str:
    """The sentence for a package that `what` needs and that is not installed."""
    title = PACKAGES[package].title if package in PACKAGES else package
    return f"{what} needs {title}: {remedy(package)}"


def need(package: str, what: str, instead: str = "") -> None:
    """BackendError if a package that `what` needs is not installed.

    instead   what else could be done, as it ends the sentence: ", or export .csv"
    """
    if not installed(package):
        raise BackendError(missing(package, what) + instead)
