"""Posts lists of writes and polls completions: the data path, without knowledge of rounds, plans or
peers' memory.

A link is one queue pair to one peer on one rail. Its jobs are posted in order, list by list, each
ended by an empty WRITE_WITH_IMM; a queue pair completes in order, so a counter a link is all the
bookkeeping that success needs.
"""

from __future__ import annotations

import errno
import time
from typing import Protocol

from railopt.base.arrays import Ints
from railopt.runtime.verbs import structs as s
from railopt.runtime.verbs.objects import Cq, Qp
from railopt.runtime.verbs.work import (
    KIND_IMM,
    KIND_RECV,
    KIND_WRITE,
    ImmRing,
    Parcel,
    Receives,
    WriteRing,
    Writes,
    split_id,
    work_id,
)

IMM_SLOTS, RECV_DEPTH = 16, 32
_IMM = -1  # in a link's flight: an immediate that ends no job


class LinkJob:
    """Writes for one link and the immediate that ends them; `rows` are the chunks, one a write.

    `ordinal` counts the jobs ever given to the link: what the receiver has counted is done.
    """

    __slots__ = ("acked", "imm", "ordinal", "posted", "rows", "writes")

    def __init__(self, writes: Writes, rows: Ints, imm: int) -> None:
        self.writes, self.rows, self.imm = writes, rows, imm
        self.posted = self.acked = self.ordinal = 0


class Link:
    """One queue pair and what is under way on it.

    lane     counts a peer's queue pairs over all rails; its rail unless that has several
    open     whether the peer is ready for this round
    jobs     not wholly posted yet
    flight   signalled requests not completed yet, oldest first: (job or None, writes or _IMM)
    sent     jobs ever given to it; seen: immediates of the peer's jobs ever received on it
    expect   what `seen` must become in this round
    confirmed  after it died: how many of our jobs the peer had seen, or None while it has not said
    cause    why it died, in words
    first    when the first request of this run was posted, and last: when its last job was done;
             time.perf_counter(), 0.0 while neither was
    """

    def __init__(
        self,
        index: int,
        peer: int,
        rail: int,
        qp: Qp,
        *,
        depth: int,
        batch: int,
        remote: int,
        rkey: int,
    ) -> None:
        self.index, self.peer, self.rail, self.qp = index, peer, rail, qp
        self.writes = WriteRing(qp, max(1, depth // batch), batch, work_id(KIND_WRITE, index))
        self.imms = ImmRing(qp, IMM_SLOTS, work_id(KIND_IMM, index), remote, rkey)
        self.receives = Receives(qp, RECV_DEPTH, work_id(KIND_RECV, index))
        self.lane, self.alive, self.open = rail, True, False
        self.jobs: list[LinkJob] = []
        self.flight: list[tuple[LinkJob | None, int]] = []
        self.unfinished: list[LinkJob] = []
        self.lists = self.immediates = 0  # in flight
        self._list, self._immediate = 0, 0  # next slot
        self.sent = self.seen = self.expect = 0
        self.confirmed: int | None = None
        self.cause = ""
        self.first = self.last = 0.0

    def give(self, job: LinkJob) -> None:
        """Add a job; it is posted as the queue pair has room."""
        self.sent += 1
        job.ordinal = self.sent
        self.jobs.append(job)
        self.unfinished.append(job)

    @property
    def waiting(self) -> bool:
        """Whether our jobs on it, or the peer's that we expect, are not done."""
        return bool(self.unfinished) or (self.alive and self.seen < self.expect)

    def push(self) -> int:
        """Post what fits: errno or 0."""
        while self.jobs and self.open and self.alive:
            job = self.jobs[0]
            if job.posted < len(job.writes.local):
                if self.lists == self.writes.slots:
                    return 0
                count, error = self.writes.post(self._list, job.writes, job.posted)
                if error:
                    return error
                if not self.first:
                    self.first = time.perf_counter()
                self._list = (self._list + 1) % self.writes.slots
                self.lists += 1
                job.posted += count
                self.flight.append((job, count))
            else:
                if self.immediates == self.imms.slots:
                    return 0
                self.jobs.pop(0)
                error = self.signal(job.imm, job)
                if error:
                    return error
        return 0

    def signal(self, value: int, job: LinkJob | None = None, parcel: Parcel | None = None) -> int:
        """Post one immediate now: errno or 0."""
        if self.immediates == self.imms.slots:
            return errno.ENOMEM
        error = self.imms.post(self._immediate, value, parcel)
        if not error:
            self._immediate = (self._immediate + 1) % self.imms.slots
            self.immediates += 1
            self.flight.append((job, _IMM))
        return error

    def complete(self) -> None:
        """The oldest signalled request succeeded, and with it all before it."""
        job, count = self.flight.pop(0)
        if count == _IMM:
            self.immediates -= 1
            if job is not None:
                self.last = time.perf_counter()
                self.unfinished.remove(job)
        else:
            assert job is not None
            self.lists -= 1
            job.acked += count


class Watcher(Protocol):
    """What is called with what the data path does not understand."""

    def on_immediate(self, link: Link, value: int) -> None:
        """The peer's immediate arrived."""

    def on_fault(self, link: Link, status: int, error: int) -> None:
        """A completion with a bad status, or a post that failed with an errno; once per link."""


class Engine:
    """All links of one process and the completion queue of each rail."""

    def __init__(self, cqs: list[Cq], watcher: Watcher) -> None:
        self.cqs, self.watcher = cqs, watcher
        self.links: list[Link] = []
        self.active: dict[Link, None] = {}  # links with jobs to post, in their order
        self._columns = [
            (cq.wc["wr_id"], cq.wc["status"], cq.wc["imm_data"].view(">u4")) for cq in cqs
        ]
        self._faults: list[tuple[Link, int, int]] = []

    def give(self, link: Link, job: LinkJob) -> None:
        """Add a job to a link."""
        link.give(job)
        self.active[link] = None

    def sweep(self) -> bool:
        """Post what fits and take what has completed: whether anything happened."""
        busy = False
        for link in self.active:
            before = link.lists + link.immediates
            error = link.push()
            busy |= link.lists + link.immediates != before
            if error:
                self._faults.append((link, 0, error))
        self.active = {link: None for link in self.active if link.jobs and link.alive}
        for rail in range(len(self.cqs)):
            busy |= self.drain(rail, once=True)
        if self._faults:
            self._report()
        return busy

    def drain(self, rail: int, *, once: bool = False) -> bool:
        """Take the completions of one rail, all or one poll's worth; faults are kept for
        `sweep`.
        """
        cq, any_taken = self.cqs[rail], False
        while count := cq.poll():
            any_taken = True
            self._take(rail, count)
            if once:
                break
        return any_taken

    def _take(self, rail: int, count: int) -> None:
        ids, statuses, imms = self._columns[rail]
        bad = statuses[:count].any()
        for i, wr_id in enumerate(ids[:count].tolist()):
            kind, index = split_id(wr_id)
            link = self.links[index]
            if not link.alive:
                continue  # a retired queue pair is flushed: its requests were planned again
            if bad and statuses[i]:
                self._faults.append((link, int(statuses[i]), 0))
            elif kind == KIND_RECV:
                value = int(imms[i])
                error = link.receives.replace()
                if error:
                    self._faults.append((link, 0, error))
                self.watcher.on_immediate(link, value)
            else:
                link.complete()

    def _report(self) -> None:
        while self._faults:
            link, status, error = self._faults.pop(0)
            if link.alive:
                self.watcher.on_fault(link, status, error)


def describe(status: int, error: int) -> str:
    """`RETRY_EXC_ERR` for a completion status, or what errno a post failed with."""
    return (
        f"post failed with errno {error}" if error else s.WC_STATUS.get(status, f"status {status}")
    )


PROTECTION = frozenset(
    {
        s.IBV_WC_LOC_LEN_ERR,
        s.IBV_WC_LOC_PROT_ERR,
        s.IBV_WC_LOC_ACCESS_ERR,
        s.IBV_WC_REM_ACCESS_ERR,
        s.IBV_WC_MW_BIND_ERR,
    }
)
"""Statuses that say a request was wrong, not its path: another rail would refuse it too."""
