"""What NICs carried between two readings: of their ports' counters, or of railopt's own metrics.

A reading is a file, or a folder of files.  Of ports there is one file per node, named by its host,
with what the kernel counts, as `grep` prints it

    grep -H . /sys/class/infiniband/*/ports/1/{rate,counters/*,hw_counters/*} > gpu01.txt

or as node_exporter exposes it.  Bytes are needed; ticks of waiting and errors are read where they
are there.  Its words of four bytes are counted as bytes here.  The host is the
file's name without one of SUFFIXES; 10.0.0.1 has none.  Metrics are those of
`railopt.runtime.metrics`, one file per process; they begin with nothing counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints, read_text
from railopt.base.errors import FormatError, InputError, printable
from railopt.base.units import INT64_MAX, parse_integer, parse_rate, quoted
from railopt.files.openmetrics import Sample, parse
from railopt.runtime.naming import Naming, in_natural_order
from railopt.runtime.senders.report import LinkReport, Place

MAX_BYTES = 1 << 26
MAX_FILES = 1 << 16
SUFFIXES = (".txt", ".prom", ".json", ".csv")  # of a file that is named by its host
WORD = 4  # bytes of what InfiniBand's data counters count
PORT = "1"
_SYSFS = re.compile(
    r"(?:.*/)?(?P<device>[^/:]+)/ports/(?P<port>\d+)/(?:(?:hw_)?counters/)?(?P<what>\w+):(?P<value>.*)\Z"
)
_PORT_RATE = re.compile(r"\s*(\d{1,6}(?:\.\d{1,3})?) Gb/sec", re.ASCII)
_ERRORS = (  # of the kernel's counters, those that grow where a link or its cable is bad
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "port_xmit_discards",
    "packet_seq_err",
    "out_of_sequence",
    "local_ack_timeout_err",
)
_SYSFS_NAMES = {
    "port_xmit_data": "sent",
    "port_rcv_data": "received",
    "rate": "rate",
    "port_xmit_wait": "waits",
    **{name: name for name in _ERRORS},
}
_EXPORTED = {
    "node_infiniband_port_transmit_wait_total": "waits",
    "node_infiniband_symbol_error_total": "symbol_error",
    "node_infiniband_link_error_recovery_total": "link_error_recovery",
    "node_infiniband_link_downed_total": "link_downed",
    "node_infiniband_port_errors_received_total": "port_rcv_errors",
    "node_infiniband_port_receive_remote_physical_errors_total": "port_rcv_remote_physical_errors",
    "node_infiniband_port_discards_transmitted_total": "port_xmit_discards",
    "node_infiniband_port_data_transmitted_bytes_total": "sent",
    "node_infiniband_port_data_received_bytes_total": "received",
    "node_infiniband_rate_bytes_per_second": "rate",
}
_BYTES, _SECONDS = "railopt_link_sent_bytes_total", "railopt_link_busy_seconds_total"
_RUNS, _STARTED = "railopt_runs_total", "railopt_start_time_seconds"


class Reading(NamedTuple):
    """Counters at one time.

    ports    (host, device) -> "sent", "received" and "rate", in bytes and bytes per second,
             "waits" in ticks, and errors by the kernel's names
    links    (node, peer, rail) -> bytes and seconds
    runs     that the metrics' processes counted; the most of any
    started  when those processes began to count
    senders  that carried those runs out
    """

    ports: dict[tuple[str, str], dict[str, int]]
    links: dict[Place, tuple[Fraction, Fraction]]
    runs: int = 0
    started: frozenset[float | Fraction] = frozenset()
    senders: frozenset[str] = frozenset()


class Counted(NamedTuple):
    """What was carried between two readings.

    sent, received  int64 [nodes, rails], bytes
    rate            int64 [nodes, rails]: bytes per second that a port says it has; 0: not said
    links           what each link did, in one record of all runs; empty where ports were counted,
                    and of loopback, whose times say nothing of NICs
    runs            that were counted; 0 where ports were counted
    waits, errors   int64 [nodes, rails]: ticks in which a port had data and could not send, and
                    errors of all kinds; None where no port has such a counter in both readings
    hosts, devices  names of nodes and rails, of ports
    """

    sent: Ints
    received: Ints
    rate: Ints
    links: tuple[LinkReport, ...] = ()
    runs: int = 0
    waits: Ints | None = None
    errors: Ints | None = None
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def payload(self) -> bool:
        """Whether bytes are those of plans alone, without packet headers and others' traffic."""
        return bool(self.runs)


def counted_between(
    before: str | None,
    after: str,
    shape: tuple[int, int] | None = None,
    naming: Naming | None = None,
    usual: Naming | None = None,
) -> Counted:
    """What was counted between two readings of `shape` (nodes, rails); ports without it are as many
    as there are.  Hosts and devices of ports are in the order of `naming`, or of `usual` where they
    have these names, or of the numbers in their names.
    Metrics need none before: without it, and where other processes wrote it, all that they counted
    is taken.
    """
    first, last = Reading({}, {}) if before is None else read(before), read(after)
    if last.links or not last.ports:
        if naming is not None:
            raise InputError("metrics name nodes and rails themselves: hosts and devices can't act")
        if first.ports:
            raise InputError("counters of ports before, and metrics after: expected one kind")
        anew = first.started and last.started and first.started.isdisjoint(last.started)
        if shape is None:
            raise InputError(
                "metrics are counted beside a plan: give the plan that was carried out"
            )
        return _of_links(Reading({}, {}) if anew else first, last, shape)
    if before is None:
        raise InputError("counters of ports need a reading before the run: --counters BEFORE AFTER")
    return _of_ports(first, last, shape, naming or Naming((), ()), usual or Naming((), ()))


def read(path: str) -> Reading:
    """A file, or all files of a folder."""
    made = Reading({}, {})
    seen: dict[str, str] = {}
    for file in _files(path):
        text = read_text(file, MAX_BYTES)
        name = printable(file)
        lines = list(_sysfs_lines(text, name))
        names = {*_EXPORTED, _BYTES, _SECONDS, _RUNS, _STARTED}
        found = parse(text, names, name) if not lines else {}
        host = file.stem if file.suffix.lower() in SUFFIXES else file.name
        for device, what, value in lines or _exported_lines(found):
            if seen.setdefault(host, name) != name:
                raise FormatError(
                    f"{name}: host {printable(host)} is in {seen[host]}, too: expected a file a "
                    f"host"
                )
            made.ports.setdefault((host, device), {})[what] = value
        for place, link in _links(found, name).items():
            if place in made.links:
                raise FormatError(f"{name}: link {place} is in two files: expected each in one")
            made.links[place] = link
        runs = int(sum(value for _, value in found.get(_RUNS, ())))
        started = made.started.union(value for _, value in found.get(_STARTED, ()))
        senders = made.senders.union(labels.get("sender", "") for labels, _ in found.get(_RUNS, ()))
        made = Reading(made.ports, made.links, max(made.runs, runs), started, senders)
    if made.ports and made.links:
        raise FormatError(f"{printable(path)}: counters of ports and metrics: expected one kind")
    return made


def _files(path: str) -> list[Path]:
    try:
        folder = Path(path)
        if not folder.is_dir():
            return [folder]
        found = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{printable(path)}: {words}") from error
    if not 0 < len(found) <= MAX_FILES:
        raise InputError(f"{printable(path)}: {len(found)} files: expected one per node")
    return found


def _sysfs_lines(text: str, name: str) -> Iterator[tuple[str, str, int]]:
    """(device, what, number) of the lines of `grep`, of port 1."""
    for line in text.splitlines():
        match = _SYSFS.match(line)
        if match is None or match["port"] != PORT or match["what"] not in _SYSFS_NAMES:
            continue
        what = _SYSFS_NAMES[match["what"]]
        try:
            if what == "rate":
                rate = _PORT_RATE.match(match["value"])
                if rate is None:
                    raise InputError(f"{quoted(match['value'])}: expected e.g. 400 Gb/sec (4X NDR)")
                number = parse_rate(f"{rate[1]}Gb/s")
            else:
                word = WORD if what in ("sent", "received") else 1
                number = word * parse_integer(match["value"], "counter", low=0)
        except InputError as error:
            raise FormatError(f"{name}: {printable(match['device'])}: {error}") from error
        yield match["device"], what, number


def _exported_lines(found: Mapping[str, list[Sample]]) -> Iterator[tuple[str, str, int]]:
    """The same as node_exporter has them."""
    for name, what in _EXPORTED.items():
        for labels, value in found.get(name, ()):
            if labels.get("port") == PORT and "device" in labels:
                yield labels["device"], what, int(value)


def _links(found: Mapping[str, list[Sample]], name: str) -> dict[Place, tuple[Fraction, Fraction]]:
    """Bytes and seconds by (node, peer, rail)."""
    columns: list[dict[Place, Fraction]] = []
    for metric in (_BYTES, _SECONDS):
        column = {}
        for labels, value in found.get(metric, ()):
            try:
                node, peer, rail = (
                    parse_integer(labels.get(key, ""), key, low=0, high=1 << 20)
                    for key in ("node", "peer", "rail")
                )
            except InputError as error:
                raise FormatError(f"{name}: {metric}: {error}") from error
            column[node, peer, rail] = Fraction(value)
        columns.append(column)
    sent, busy = columns
    return {place: (value, busy.get(place, Fraction(0))) for place, value in sent.items()}


def _grown(before: int | Fraction, after: int | Fraction, what: str) -> int | Fraction:
    """How much a counter grew."""
    if not 0 <= after - before <= INT64_MAX:
        raise InputError(
            f"{what} went from {before} to {after}: counters were reset in between, or BEFORE and "
            f"AFTER are exchanged"
        )
    return after - before


def _of_links(first: Reading, last: Reading, shape: tuple[int, int]) -> Counted:
    nodes, rails = shape
    sent, received = ([[0] * rails for _ in range(nodes)] for _ in range(2))
    links = []
    nothing = Fraction(0), Fraction(0)
    for place, (size, busy) in sorted(last.links.items()):
        node, peer, rail = place
        if max(node, peer) >= nodes or rail >= rails:
            raise InputError(f"metrics of link {place}: the plan has {nodes} nodes x {rails} rails")
        was, busy_was = first.links.get(place, nothing)
        moved = int(_grown(was, size, f"link {place}"))
        seconds = float(_grown(busy_was, busy, f"busy seconds of link {place}"))
        sent[node][rail] += moved
        received[peer][rail] += moved
        links.append(LinkReport(node, peer, rail, moved, 0, 0.0, seconds))
    runs = int(_grown(first.runs, last.runs, "runs"))
    if not runs:
        raise InputError(
            "no run was counted between the two readings, nor are there counters of ports: "
            "expected metrics of railopt, or lines of /sys/class/infiniband, before and after"
        )
    if max(max(map(max, side)) for side in (sent, received)) > INT64_MAX:
        raise InputError("the links of a NIC carried more than 2**63 - 1 bytes together")
    out, back = (np.array(side, np.int64) for side in (sent, received))
    timed = () if last.senders == {"loopback"} else tuple(links)
    return Counted(out, back, np.zeros(shape, np.int64), timed, runs)


def _of_ports(
    first: Reading, last: Reading, shape: tuple[int, int] | None, naming: Naming, usual: Naming
) -> Counted:
    hosts, devices = _order(last, shape, naming, usual)
    shape = len(hosts), len(devices)
    columns = {name: np.zeros(shape, np.int64) for name in ("sent", "received", "rate")}
    extra: dict[str, Ints] = {}
    for node, host in enumerate(hosts):
        for rail, device in enumerate(devices):
            was, now = (reading.ports.get((host, device), {}) for reading in (first, last))
            where = f"{printable(device)} of {printable(host)}"
            for name in ("sent", "received"):
                if name not in was or name not in now:
                    raise InputError(f"{where}: bytes {name} are not in both readings")
                columns[name][node, rail] = _grown(was[name], now[name], f"{where}: bytes {name}")
            columns["rate"][node, rail] = now.get("rate", 0)
            for name in sorted({"waits", *_ERRORS} & set(was) & set(now)):
                grown = _grown(was[name], now[name], f"{where}: {name}")
                kind = "waits" if name == "waits" else "errors"
                extra.setdefault(kind, np.zeros(shape, np.int64))[node, rail] += grown
    return Counted(
        columns["sent"],
        columns["received"],
        columns["rate"],
        waits=extra.get("waits"),
        errors=extra.get("errors"),
        hosts=hosts,
        devices=devices,
    )


def _order(
    last: Reading, shape: tuple[int, int] | None, naming: Naming, usual: Naming
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Hosts in node order, devices in rail order."""
    found = [in_natural_order([port[i] for port in last.ports]) for i in (0, 1)]
    orders = [
        given or (known if set(known) <= set(names) else ()) or names
        for given, known, names in zip(
            (naming.hosts, naming.devices), (usual.hosts, usual.devices), found, strict=True
        )
    ]
    kinds = ("hosts", "nodes", "--hosts"), ("devices", "rails", "--ib-dev")
    for order, (what, of, flag), count in zip(orders, kinds, shape or (None, None), strict=True):
        if count is not None and len(order) != count:
            raise InputError(
                f"{len(order)} {what} ({printable(', '.join(order))}), the plan has {count} {of}: "
                f"name them in the order of {of} ({flag})"
            )
    return orders[0], orders[1]
