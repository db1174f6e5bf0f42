"""Where the ranks of a run meet, by whichever way this process was launched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from railopt.base.errors import InputError
from railopt.runtime.rendezvous import mpi
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.handshake import read_secret
from railopt.runtime.rendezvous.join import DEFAULT_JOIN_S, DEFAULT_PORT, join
from railopt.runtime.rendezvous.launch import Launch


@dataclass(frozen=True)
class Meeting:
    """The rendezvous' settings; None is the default of each.

    secret_file   holds the shared secret (default: RAILOPT_SECRET of `environ`)
    port          TCP port on rank 0
    join_s        how long all ranks are waited for
    bind          the address at which rank 0 listens (default: that of its host name)
    """

    secret_file: str | None = None
    port: int | None = None
    join_s: float = DEFAULT_JOIN_S
    bind: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)


def meet(launch: Launch, run: str, meeting: Meeting | None = None) -> Group:
    """Join the other ranks: through MPI where it launched us and mpi4py is there, else through the
    TCP rendezvous. `run` names what all ranks must agree on.
    """
    meeting = meeting or Meeting()
    comm = mpi.world(launch)
    if comm is None:
        return join(
            launch,
            read_secret(meeting.environ, meeting.secret_file),
            run=run,
            port=DEFAULT_PORT if meeting.port is None else meeting.port,
            join_s=meeting.join_s,
            bind=meeting.bind,
        )
    for flag, value in (("--port", meeting.port), ("--secret-file", meeting.secret_file)):
        if value is not None:
            raise InputError(
                f"{flag} can't act here: {launch.launcher} launched this process, and port and "
                f"secret travel through MPI"
            )
    return mpi.join_mpi(comm, run=run, join_s=meeting.join_s, bind=meeting.bind)
