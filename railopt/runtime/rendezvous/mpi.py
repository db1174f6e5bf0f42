"""Ranks that MPI launched: address, port and a fresh secret of the rendezvous travel through MPI.

`comm` is an mpi4py communicator everywhere; nothing is pickled.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from typing import Any

import numpy as np

from railopt.base.errors import BackendError, InputError, printable
from railopt.base.extras import remedy
from railopt.runtime.rendezvous.address import listening_address
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.handshake import Hello, run_name
from railopt.runtime.rendezvous.hub import Hub
from railopt.runtime.rendezvous.join import DEFAULT_JOIN_S, check_limits, enter, own_door
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.rendezvous.wire import PeerLost

CARD, MOST_WORDS = 4096, 300  # bytes of the broadcast, and characters of a failure in it


def join_mpi(
    comm: Any, *, run: str = "", join_s: float = DEFAULT_JOIN_S, bind: str | None = None
) -> Group:
    """As `join`, launched by MPI; rank 0 listens at `bind` (default: the address of its default
    route).
    """
    check_limits(1, join_s)
    rank, size = comm.Get_rank(), comm.Get_size()
    hello = Hello(rank, size, run_name(run), socket.gethostname())
    secret, hub, failed = secrets.token_hex(32), None, None
    said: Any = None
    if rank == 0:
        try:
            address = listening_address((), bind)
            hub = Hub(size, secret.encode(), hello.run, address=address, join_s=join_s)
            said = [secret, hub.port, _doors(hub)]
        except Exception as error:  # the others wait in the broadcast
            failed, said = error, str(error)[:MOST_WORDS]
    said = _broadcast(comm, said, join_s)
    if failed is not None:
        raise failed
    if isinstance(said, str):
        raise PeerLost(f"rank 0 gave up: {printable(said, MOST_WORDS)}")
    secret, port, doors = said
    if hub is not None:
        doors = [own_door(hub)]
    return enter(hello, secret.encode(), doors, port, join_s, hub=hub)


def _doors(hub: Hub) -> list[str]:
    """Where the other ranks reach the hub."""
    if own_door(hub) == hub.address:
        return [hub.address]
    return [socket.gethostname(), listening_address(())]


def _broadcast(comm: Any, said: Any, limit_s: float) -> Any:
    """Rank 0's JSON value on every rank; PeerLost if it does not come in time, for which MPI itself
    would wait without end.
    """
    card, text = np.zeros(CARD, np.uint8), json.dumps(said).encode()
    card[: len(text)] = np.frombuffer(text, np.uint8)
    coming, end = comm.Ibcast(card, root=0), time.monotonic() + limit_s
    while not coming.Test():
        if time.monotonic() > end:
            raise PeerLost(f"rank 0 was not heard of through MPI within {limit_s:g} s")
        time.sleep(0.001)
    return json.loads(bytes(card).rstrip(b"\0"))


def world(launch: Launch) -> Any:
    """mpi4py's world if MPI launched us without a host list; None if it did not, or without mpi4py
    where a host list is known.
    """
    if launch.launcher not in ("mpirun", "pmi"):
        return None
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        # RuntimeError: mpi4py is there, its MPI library is not
        if launch.hosts:
            return None
        raise BackendError(
            f"{launch.launcher} launched this process, but mpi4py can't be used "
            f"({printable(error)}): {remedy('mpi4py')}, or name the nodes with --hosts"
        ) from error
    if (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()) != (launch.rank, launch.size):
        raise InputError(
            f"the environment says rank {launch.rank}/{launch.size}, mpi4py says "
            f"{MPI.COMM_WORLD.Get_rank()}/{MPI.COMM_WORLD.Get_size()}: mpi4py is built for "
            f"another MPI; use the mpirun it was built for, or --hosts"
        )
    return MPI.COMM_WORLD
