"""What RDMA devices this node has, and which of them would be which rail."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from railopt.base.errors import BackendError, InputError
from railopt.runtime.verbs.lib import Library, libibverbs
from railopt.runtime.verbs.objects import device_names

SYSFS = Path("/sys/class/infiniband")
# GID tables have up to 1024 entries and fill from the front: behind so many empty ones nothing is
# looked for
MAX_HOLE = 64


@dataclass(frozen=True)
class Gid:
    """An entry of a port's GID table."""

    index: int
    gid: str
    kind: str


@dataclass(frozen=True)
class PortInfo:
    """A port as sysfs describes it: state ("ACTIVE"), rate ("400 Gb/sec (4X NDR)"), link layer,
    GIDs.
    """

    number: int
    state: str
    rate: str
    link_layer: str
    gids: tuple[Gid, ...]


@dataclass(frozen=True)
class DeviceInfo:
    """A device: its PCI address ("-" for software devices), NUMA node (-1: unknown), network
    interfaces and ports.
    """

    name: str
    pci: str
    numa: int
    interfaces: tuple[str, ...]
    ports: tuple[PortInfo, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


COLUMNS = "rail", "device", "port", "state", "rate", "link layer", "pci", "numa", "netdev", "gids"


def device_rows(devices: Sequence[DeviceInfo], rails: Sequence[str], port: int) -> list[list[str]]:
    """The cells of `COLUMNS`, one row per port, in rail order; "-" is no rail. `rails` are the
    devices whose `port` is a rail.
    """
    rows = []
    for device in devices:
        for p in device.ports:
            is_rail = device.name in rails and p.number == port
            rail = rails.index(device.name) if is_rail else len(rails)
            gids = "; ".join(f"{g.index}={g.gid} ({g.kind})" for g in p.gids)
            cells = [
                *(str(rail) if is_rail else "-", device.name, str(p.number), p.state, p.rate),
                *(p.link_layer, device.pci, str(device.numa)),
                *(",".join(device.interfaces) or "-", gids or "-"),
            ]
            rows.append((rail, cells))
    return [cells for _, cells in sorted(rows, key=lambda row: row[0])]


def list_devices(
    lib: Library | None = None, sysfs: Path = SYSFS, *, gids: bool = True
) -> list[DeviceInfo]:
    """All devices that libibverbs knows, in rail order; BackendError says what to do where there is
    none.

    Without `gids` the GID tables, of up to a thousand files each, are not read.
    """
    names = device_names(lib or libibverbs())
    if not names:
        raise BackendError(
            "libibverbs is there but finds no RDMA device: load the NIC's kernel driver (mlx5_ib, "
            "bnxt_re, irdma, ...) and install its user part (apt-get install ibverbs-providers); "
            "to try without a NIC: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0"
        )
    return sorted(
        (describe(name, sysfs, gids) for name in names), key=lambda d: (d.pci == "-", d.pci, d.name)
    )


def describe(name: str, sysfs: Path = SYSFS, gids: bool = True) -> DeviceInfo:
    """One device from sysfs."""
    root = sysfs / name
    target = (root / "device").resolve() if (root / "device").exists() else None
    numa = _read(root / "device" / "numa_node", "-1")
    ports = tuple(
        _port(p, gids) for p in sorted((root / "ports").glob("*"), key=lambda p: int(p.name))
    )
    interfaces = {
        _read(root / "ports" / str(p.number) / "gid_attrs" / "ndevs" / str(g.index), "")
        for p in ports
        for g in p.gids
    }
    return DeviceInfo(
        name,
        target.name if target and ":" in target.name else "-",
        int(numa),
        tuple(sorted(interfaces - {""})),
        ports,
    )


def _port(path: Path, gids: bool) -> PortInfo:
    table: list[Gid] = []
    for index in range(len(os.listdir(path / "gids")) if gids else 0):
        gid = _read(path / "gids" / str(index), "")
        if index - (table[-1].index if table else 0) > MAX_HOLE:
            break
        if gid.strip("0:"):
            table.append(
                Gid(index, _short(gid), _read(path / "gid_attrs" / "types" / str(index), "?"))
            )
    return PortInfo(
        int(path.name),
        _read(path / "state", "?").partition(": ")[2] or "?",
        _read(path / "rate", "?"),
        _read(path / "link_layer", "?"),
        tuple(table),
    )


def _short(gid: str) -> str:
    """`::ffff:10.0.0.1` rather than eight groups of zeros."""
    address = ipaddress.IPv6Address(gid)
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)


def _read(path: Path, default: str) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # sysfs answers EINVAL for empty table entries
        return default


def is_roce_v2(device: str, port: int, index: int, sysfs: Path = SYSFS) -> bool:
    """Whether a GID entry is RoCE v2; true where sysfs does not say."""
    return (
        _read(sysfs / device / "ports" / str(port) / "gid_attrs" / "types" / str(index), "RoCE v2")
        == "RoCE v2"
    )


def rail_map(
    rails: Sequence[str] | None,
    available: Sequence[DeviceInfo],
    port: int = 1,
    count: int | None = None,
) -> list[str]:
    """Device of each rail: those named, else all with an active port in PCI order, `count` of them
    where that is asked.
    """
    names = [d.name for d in available]
    if rails is not None:
        for name in rails:
            if name not in names:
                raise BackendError(f"--ib-dev: no RDMA device {name!r}; found {', '.join(names)}")
        if len(set(rails)) != len(rails):
            raise InputError(f"--ib-dev {','.join(rails)}: a device is named twice")
        chosen = list(rails)
    else:
        chosen = [
            d.name
            for d in available
            if any(p.number == port and p.state == "ACTIVE" for p in d.ports)
        ]
    if count is not None and len(chosen) != count:
        raise InputError(
            f"the plan has {count} rails, this node would use {len(chosen)} "
            f"({', '.join(chosen) or 'none'}): name the devices in rail order with --ib-dev"
        )
    return chosen
