"""Who am I among the nodes: rank, world size and the address of rank 0, from mpirun, srun, torchrun
or a host list.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from railopt.errors import InputError

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
                f"{other.rank}/{other.size}: railopt runs one process a node; name the launcher "
                f"to believe "
                f"with --launcher {first.launcher} or --launcher {other.launcher}"
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
        hosts = (environ["MASTER_ADDR"],)
    if launcher in ("slurm", "pmi"):
        nodes = environ.get("SLURM_STEP_NODELIST", environ.get("SLURM_JOB_NODELIST", ""))
        hosts = tuple(expand_hosts(nodes)) if nodes else ()
    run = ".".join(environ[name] for name in _RUN_IDS[launcher] if name in environ)
    return Launch(launcher, rank, size, hosts, run)


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise InputError(f"{name}={environ[name]!r}: expected a whole number") from None


def expand_hosts(text: str) -> list[str]:
    """`"gpu[01-03,7],login"` -> gpu01 gpu02 gpu03 gpu7 login: Slurm's node lists and plain comma
    lists.
    """
    hosts = []
    for prefix, ranges, suffix in re.findall(
        r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)(?:,|$)", text
    ):
        if ranges:
            for item in ranges.split(","):
                low, _, high = item.partition("-")
                if not low.isdigit() or (high and not high.isdigit()):
                    raise InputError(
                        f"host list {text!r}: {item!r} is not a number or a range of numbers"
                    )
                hosts += [
                    f"{prefix}{n:0{len(low)}d}{suffix}"
                    for n in range(int(low), int(high or low) + 1)
                ]
        elif prefix:
            hosts.append(prefix)
    return hosts


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
        mine = [i for i, name in enumerate(names) if is_local(name)]
        if len(mine) != 1:
            problem = (
                "none of them is this machine"
                if not mine
                else f"{len(mine)} of them are this machine"
            )
            raise InputError(
                f"--hosts {hosts}: {problem} ({socket.gethostname()}); say which with --rank"
            )
        rank = mine[0]
    if not 0 <= rank < len(names):
        raise InputError(f"--rank {rank}: expected 0 to {len(names) - 1}, one a host of --hosts")
    return Launch("hosts", rank, len(names), tuple(names))


def is_local(host: str) -> bool:
    """Whether a name or an address is this machine's: one can listen on it."""
    if host in (socket.gethostname(), socket.gethostname().split(".")[0]):
        return True
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_can_bind(a[0], a[4]) for a in addresses)


def _can_bind(family: int, address: tuple[Any, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
        return True
