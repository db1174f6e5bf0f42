"""This process among the others: rank, world size and the address of rank 0, from mpirun, srun,
torchrun or a host list.
"""

from __future__ import annotations

import itertools
import math
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from railopt.base.errors import InputError, printable
from railopt.base.units import parse_integer, quoted
from railopt.runtime.rendezvous.address import is_local

MAX_HOSTS = 1 << 16

# launcher -> (rank, size) variables; the order is the order in which they are looked for
VARIABLES: dict[str, tuple[str, str]] = {
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "pmi": ("PMI_RANK", "PMI_SIZE"),
    "torchrun": ("RANK", "WORLD_SIZE"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS"),
}
# a job's own number, so that a process left over from another job is recognised
_RUN_IDS = {
    "mpirun": ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    "pmi": ("PMI_JOBID", "SLURM_JOB_ID"),
    "torchrun": ("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    "slurm": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
}

# items of a list are parted by commas outside of brackets
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\]|[\[\]])+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]{0,254}\Z|:[0-9A-Fa-f.:%]{1,60}\Z")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")


@dataclass(frozen=True)
class Launch:
    """How this process was started; `hosts` is what is known of the nodes' names, rank 0's first,
    or empty.
    """

    launcher: str
    rank: int
    size: int
    hosts: tuple[str, ...] = ()
    run: str = ""

    def __str__(self) -> str:
        return f"# launcher={self.launcher} rank={self.rank}/{self.size}"


def detect(environ: Mapping[str, str], launcher: str | None = None) -> Launch | None:
    """What the environment says; None where no launcher started us. Launchers that contradict each
    other are refused unless one is named."""
    if launcher is not None and launcher not in VARIABLES:
        raise InputError(f"unknown launcher {launcher!r}; known: {', '.join(VARIABLES)}")
    found = [
        _read(environ, name)
        for name in ([launcher] if launcher else VARIABLES)
        if _started_by(environ, name)
    ]
    if launcher is not None and not found:
        raise InputError(
            f"--launcher {launcher}: {' and '.join(VARIABLES[launcher])} are not both set"
        )
    if not found:
        return None
    first = found[0]
    for other in found[1:]:
        if (other.rank, other.size) != (first.rank, first.size):
            raise InputError(
                f"{first.launcher} says rank {first.rank}/{first.size}, {other.launcher} says "
                f"{other.rank}/{other.size}: railopt runs one process per node; name the launcher "
                f"to believe with --launcher {first.launcher} or --launcher {other.launcher}"
            )
    return first


def _started_by(environ: Mapping[str, str], launcher: str) -> bool:
    # a batch script has SLURM_PROCID too, but only srun makes a step
    return all(name in environ for name in VARIABLES[launcher]) and (
        launcher != "slurm" or "SLURM_STEP_ID" in environ
    )


def _read(environ: Mapping[str, str], launcher: str) -> Launch:
    rank, size = (_number(environ, name) for name in VARIABLES[launcher])
    if not 0 <= rank < size:
        raise InputError(f"{launcher}: rank {rank} of {size}: expected a rank below the size")
    hosts: tuple[str, ...] = ()
    if launcher == "torchrun" and "MASTER_ADDR" in environ:
        hosts = tuple(expand_hosts(environ["MASTER_ADDR"]))[:1]
    if launcher in ("slurm", "pmi"):
        nodes = environ.get("SLURM_STEP_NODELIST", environ.get("SLURM_JOB_NODELIST", ""))
        hosts = tuple(expand_hosts(nodes)) if nodes else ()
    run = ".".join(environ[name] for name in _RUN_IDS[launcher] if name in environ)
    return Launch(launcher, rank, size, hosts, run)


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return parse_integer(environ[name], "number", low=-1, high=MAX_HOSTS)
    except InputError as error:
        raise InputError(f"{name}={error}") from None


def expand_hosts(text: str) -> list[str]:
    """`"gpu[01-03,7],login"` -> gpu01 gpu02 gpu03 gpu7 login: Slurm's node lists and plain comma
    lists, of at most MAX_HOSTS hosts.
    """
    hosts: list[str] = []
    for item in _ITEM.findall(text):
        hosts += _expand(item, text, MAX_HOSTS - len(hosts))
    return hosts


def _expand(item: str, text: str, most: int) -> list[str]:
    """The hosts of one item of a list, of which at most `most` are taken: every choice of a number
    from each of its brackets.
    """
    choices = [
        _choices(piece, text, most) if i % 2 else [piece]
        for i, piece in enumerate(_BRACKETS.split(item))
    ]
    if math.prod(map(len, choices)) > most:
        raise _too_many(text)
    hosts = ["".join(chosen) for chosen in itertools.product(*choices)]
    for host in hosts:
        if not _NAME.match(host):
            raise InputError(
                f"host list {quoted(text)}: {quoted(host)} is not a host's name or address"
            )
    return hosts


def _choices(bracket: str, text: str, most: int) -> list[str]:
    """All numbers of a bracket, of which there may be `most`."""
    found: list[str] = []
    for part in bracket.split(","):
        found += _numbers(part, text, most - len(found))
    return found


def _numbers(part: str, text: str, most: int) -> list[str]:
    """`"08-10"` -> 08 09 10."""
    match = _RANGE.match(part)
    if match is None:
        raise InputError(
            f"host list {quoted(text)}: {quoted(part)} is not a number or a range of numbers"
        )
    low, high = int(match[1]), int(match[2] or match[1])
    if high < low:
        raise InputError(f"host list {quoted(text)}: the range {part} goes down")
    if high - low >= most:
        raise _too_many(text)
    return [f"{n:0{len(match[1])}d}" for n in range(low, high + 1)]


def _too_many(text: str) -> InputError:
    return InputError(f"host list {quoted(text)}: more than {MAX_HOSTS} hosts")


def from_hosts(hosts: str, rank: int | None = None) -> Launch:
    """A launch from `--hosts a,b,c`, one node each; the rank is given or found by this machine's
    names and addresses.
    """
    names = expand_hosts(hosts)
    if not names:
        raise InputError(
            "--hosts is empty: expected the nodes in rank order, e.g. --hosts node1,node2"
        )
    if rank is None:
        rank = _own_place(names, hosts)
    if not 0 <= rank < len(names):
        raise InputError(f"--rank {rank}: expected 0 to {len(names) - 1}, one a host of --hosts")
    return Launch("hosts", rank, len(names), tuple(names))


def _own_place(names: list[str], hosts: str) -> int:
    mine = [i for i, name in enumerate(names) if is_local(name)]
    if len(mine) == 1:
        return mine[0]
    found = f"{len(mine)} of them are" if mine else "none of them is"
    raise InputError(
        f"--hosts {printable(hosts)}: {found} this machine ({socket.gethostname()}); say which "
        f"with --rank"
    )
