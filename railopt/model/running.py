"""The traffic of a job that ran, as NCCL Inspector saw it: `"inspector:DIR"`.

    comm      one communicator alone, by its id or name; default: all, added up
    sn        sequence numbers of operations, `100-199`; `100-` is all from there on
    from, to  from the first line on, e.g. 2s; when an operation began where Inspector was verbose
              (NCCL_INSPECTOR_DUMP_VERBOSE=1), else when its line was written

From a GPU to another counts the larger of all Sends and all Recvs: where lines of one side are
missing, that is the other side's.  A rank without a file is refused, and so are a Send and its Recv
of different sizes, if neither rank's numbers that were chosen have a gap from 1 on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints, check_total
from railopt.base.errors import FormatError, InputError, about, printable
from railopt.base.units import (
    INT64_MAX,
    PS_PER_US,
    format_bytes,
    parse_integer,
    parse_options,
    parse_time,
    quoted,
)
from railopt.files.inspector import KINDS, Chosen, Communicator, Operations, read_operations
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic

PREFIX = "inspector:"
OPTIONS = ("comm", "sn", "from", "to")


class Running(NamedTuple):
    """What a job sent, and in words what is missing, doubled or assumed."""

    traffic: Traffic
    notes: tuple[str, ...]


def running_job(text: str, fabric: Fabric) -> Running:
    """The traffic of a job between the GPUs of a fabric; `text` is `inspector:DIR`, with options
    behind a second colon.
    """
    folder, chosen = _parsed(text)
    found = read_operations(folder, chosen)
    with about(f"{printable(folder)}: "):
        return _running(found, fabric, chosen)


def _parsed(text: str) -> tuple[str, Chosen]:
    folder, options = text.removeprefix(PREFIX), ""
    if not os.path.isdir(folder):
        folder, _, options = folder.rpartition(":")
    if not os.path.isdir(folder):
        raise InputError(f"{quoted(text)}: no folder of that name; expected inspector:DIR")
    said = parse_options(options, OPTIONS, quoted(text))
    numbers = None
    if "sn" in said:
        first, dash, last = said["sn"].partition("-")
        open_end = INT64_MAX if dash else first
        numbers = parse_integer(first, "sn", low=0), parse_integer(last or open_end, "sn", low=0)
    since, until = (
        parse_time(said[key]) // PS_PER_US if key in said else None for key in ("from", "to")
    )
    return folder, Chosen(said.get("comm"), numbers, since, until)


def _running(found: Operations, fabric: Fabric, chosen: Chosen) -> Running:
    if not len(found.size):
        raise FormatError("no Send or Recv that was asked for: an all-to-all is made of these")
    job = max(found.communicators, key=lambda one: one.ranks)
    gpus = fabric.nodes * fabric.gpus
    if job.ranks != gpus:
        raise InputError(
            f"the largest communicator has {job.ranks} ranks, the fabric {fabric.nodes} nodes x "
            f"{fabric.gpus} = {gpus} GPUs: expected one rank per GPU"
        )
    missing = sorted(set(range(gpus)) - set(job.process))
    if missing:
        raise FormatError(
            f"{len(missing)} of {gpus} ranks have no file ({_some(missing)}): expected all files"
        )
    spans = _spans(found)
    _refuse_contradictions(found, spans)
    gaps = _gaps(found, spans, chosen)
    places, placed = _places(found, job, fabric)
    counted = np.zeros((2, gpus, gpus), np.int64)
    of_process = {process: places[rank] for rank, process in job.process.items()}
    others = any(found.communicators[one] is not job for one in np.unique(found.communicator))
    if others and len(of_process) < gpus:
        raise FormatError(
            f"processes have several GPUs, and no line says which of them communicators have: "
            f"expected one that is as large as the job alone, comm={printable(job.id)}"
        )
    here = np.empty((2, len(found.size)), np.int64)
    for position, one in enumerate(found.communicators):
        rows = found.communicator == position
        gpu = places if one is job else _members(one, of_process)
        here[0, rows], here[1, rows] = gpu[found.rank[rows]], gpu[found.peer[rows]]
    if here.min() < 0:
        raise FormatError("a communicator has a peer whose file is not there")
    src = np.where(found.kind == 0, here[0], here[1])
    dst = np.where(found.kind == 0, here[1], here[0])
    for kind in KINDS.values():
        check_total(found.size[found.kind == kind])
    np.add.at(counted, (found.kind, src, dst), found.size)
    notes = [*placed, *_notes(found, counted), *_incomplete(found, gaps)]
    return Running(Traffic(counted.max(axis=0), fabric.nodes), tuple(notes))


class Spans(NamedTuple):
    """The sequence numbers of each rank of a communicator that has an operation: which one (the
    communicator's position x the most ranks of any + rank), first, last and how many there are.
    """

    whose: Ints
    first: Ints
    last: Ints
    present: Ints


def _spans(found: Operations) -> Spans:
    whose = found.communicator * _most_ranks(found) + found.rank
    order = np.lexsort((found.number, whose))
    whose, number = whose[order], found.number[order]
    starts = np.flatnonzero(np.diff(whose, prepend=-1))
    again = np.diff(number, prepend=-1) == 0
    again[starts] = False
    last = number[np.append(starts[1:], len(number)) - 1]
    return Spans(whose[starts], number[starts], last, np.add.reduceat(~again, starts, dtype=int))


def _most_ranks(found: Operations) -> int:
    return max(one.ranks for one in found.communicators)


def _refuse_contradictions(found: Operations, spans: Spans) -> None:
    """Between ranks of which no operation is missing before the last one that is there, the nth
    Send of one to the other is the nth Recv there; what follows the last one is not known.
    """
    received = found.kind == 1
    src = np.where(received, found.peer, found.rank)
    dst = np.where(received, found.rank, found.peer)
    ranks = _most_ranks(found)
    known = spans.whose[(spans.first <= 1) & (spans.last - spans.first < spans.present)]
    of_src, of_dst = (found.communicator * ranks + side for side in (src, dst))
    both = np.isin(of_src, known) & np.isin(of_dst, known)
    pair = of_src * ranks + dst
    sends, recvs = np.flatnonzero(~received & both), np.flatnonzero(received & both)
    recvs = recvs[np.argsort(pair[recvs], kind="stable")]  # Sends are in this order
    wanted, there = pair[sends], pair[recvs]
    at = np.arange(len(sends)) - np.searchsorted(wanted, wanted) + np.searchsorted(there, wanted)
    both = at < np.searchsorted(there, wanted, "right")
    sends, recvs = sends[both], recvs[at[both]]
    differ = np.flatnonzero(found.size[sends] != found.size[recvs])
    if len(differ):
        send, recv = int(sends[differ[0]]), int(recvs[differ[0]])
        raise FormatError(
            f"communicator {quoted(found.communicators[int(found.communicator[send])].id)}: Send "
            f"{found.number[send]} of rank {src[send]} to {dst[send]} has {found.size[send]} "
            f"bytes, Recv {found.number[recv]}, which is the same there, {found.size[recv]}"
        )


def _places(found: Operations, job: Communicator, fabric: Fabric) -> tuple[Ints, list[str]]:
    """int64 [ranks]: the GPU of each rank, and what is said of it.  Hosts are nodes, in the
    fabric's order where it names them, with or without a domain, else by their first rank.
    """
    hosts, said = [found.hosts[job.process[rank]] for rank in range(job.ranks)], []
    seen = Counter(hosts)
    names = _in_fabric(list(seen), fabric.hosts)
    if names is not None:
        order = {host: fabric.hosts.index(names[host]) for host in seen}
    else:
        order = {host: node for node, host in enumerate(seen)}
        if fabric.hosts:
            said.append(
                f"hosts are not the fabric's ({_some(list(seen))}): nodes follow the order of ranks"
            )
    node = [order[host] for host in hosts]
    counts = np.bincount(node, minlength=fabric.nodes)
    if len(counts) != fabric.nodes or np.any(counts != fabric.gpus):
        few, many = min(seen.values()), max(seen.values())
        raise InputError(
            f"{len(hosts)} ranks on {len(seen)} hosts, of {few} to {many} ranks: the fabric has "
            f"{fabric.nodes} nodes x {fabric.gpus} GPUs"
        )
    places = np.empty(job.ranks, np.int64)
    places[np.argsort(node, kind="stable")] = np.arange(job.ranks)
    return places, said


def _in_fabric(hosts: list[str], names: Sequence[str]) -> dict[str, str] | None:
    """The fabric's name of each host: the same one, else the one that is equal up to the first dot;
    None where some have none, or several have the same.
    """
    if set(hosts) <= set(names):
        return {host: host for host in hosts}
    short = {name.partition(".")[0]: name for name in names}
    found = {host: short.get(host.partition(".")[0], "") for host in hosts}
    unique = len(short) == len(names) and len(set(found.values())) == len(hosts)
    return found if unique and all(found.values()) else None


def _members(one: Communicator, of_process: dict[int, int]) -> Ints:
    """int64 [ranks]: the GPU of each rank of a smaller communicator, -1 where it has no file."""
    gpu = np.full(one.ranks, -1, np.int64)
    for rank, process in one.process.items():
        gpu[rank] = of_process.get(process, -1)
    return gpu


def _notes(found: Operations, counted: Ints) -> tuple[str, ...]:
    said = []
    if found.doubled:
        said.append(f"operations that stood there twice, and count once: {found.doubled}")
    off = np.abs(counted[0] - counted[1])
    if np.any(off):
        src, dst = np.unravel_index(int(off.argmax()), off.shape)
        said.append(
            f"pairs of GPUs that differ in what was sent and received: {np.count_nonzero(off)}, "
            f"most from GPU {src} to {dst}: {format_bytes(int(counted[0, src, dst]))} and "
            f"{format_bytes(int(counted[1, src, dst]))}; the larger counts"
        )
    if found.collectives:
        said.append(f"collectives, no part of the matrix: {found.collectives}")
    if found.foreign:
        said.append(f"lines that are no operation of NCCL Inspector: {found.foreign}")
    if len(found.communicators) > 1:
        used = np.unique(found.communicator)
        said.append(f"{len(used)} of {len(found.communicators)} communicators have a Send or Recv")
    return tuple(said)


def _incomplete(found: Operations, gaps: int) -> list[str]:
    """What is said of operations that Inspector did not write."""
    said = []
    if gaps:
        said.append(
            f"sequence numbers that are not there: {gaps} of {gaps + len(found.number)}; Inspector "
            f"keeps the last NCCL_INSPECTOR_DUMP_P2P_RING_SIZE operations, 1024 by default, and "
            f"writes them every NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS, by default only "
            f"at the end; it leaves out those below NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES, 8192 by "
            f"default, and, unless NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING=0, those that no GPU timed"
        )
    if found.dropped:
        said.append(f"Inspector dropped {found.dropped} operations for want of room")
    return said


def _gaps(found: Operations, spans: Spans, chosen: Chosen) -> int:
    """Sequence numbers of each rank of a communicator that no operation has: of those asked for, or
    of a whole job from 1 on; where times were asked for, between its first and its last one.
    """
    first, last = spans.first.tolist(), spans.last.tolist()
    absent = 0
    if chosen.since is None and chosen.until is None:
        low, high = chosen.numbers or (1, INT64_MAX)
        low = max(low, 1)
        first = [min(low, one) for one in first]
        if high < INT64_MAX:
            last = [high] * len(last)
            used = np.unique(found.communicator).tolist()
            ranks = sum(len(found.communicators[one].process) for one in used)
            absent = (ranks - len(last)) * (high - low + 1)
    return absent + sum(last) - sum(first) + len(last) - sum(spans.present.tolist())


def _some(names: Sequence[int | str]) -> str:
    return ", ".join(printable(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")
