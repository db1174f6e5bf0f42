"""A rail fabric on one machine, out of network namespaces that have no names: each belongs to a
process, and the kernel removes it, with all that is in it, when that process ends, however it does.

The hub (this process, after `enter`) has one bridge a rail, one a node (scale-up), one for control,
and a spine that joins the rails.  Each GPU (a process of its own) has three interfaces:

    rail0   its NIC, at both ends limited to a rate    10.77.0.RANK+1
    su0     scale-up, not limited                      10.77.(100 + node).LOCAL+1
    ctl0    control: the store, barriers, counts       10.77.200.RANK+1
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

from railopt.base.errors import BackendError, InputError, printable

CLONE_NEWNET, PR_SET_PDEATHSIG = 0x40000000, 1
MTU, HEADERS = 1500, 66  # bytes of a packet; of its headers: Ethernet 14, IP 20, TCP 32
QUEUE_KB, BURST_KB = 16384, 32
PATIENCE = "2s"  # before a packet is sent again: queues are long, and nothing is lost in them
SMALL_MASK = "0xff80"  # of a packet's length: below 128 bytes, an acknowledgement
LIMIT_S = 30.0
CONTROL = "10.77.200.1"

SETTINGS = {
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv4/tcp_early_retrans": "0",
    "ipv4/tcp_wmem": "4096 16384 131072",
    "ipv4/tcp_rmem": "4096 131072 8388608",
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
}


def check_tools() -> None:
    """Refuse where namespaces can't be made."""
    if os.geteuid() != 0:
        raise InputError(
            "the emulated fabric makes network namespaces: run it as root, or in a container with "
            "CAP_SYS_ADMIN and CAP_NET_ADMIN"
        )
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise InputError(f"no `{tool}` on the PATH: install iproute2 (Debian's iproute2)")


def enter() -> None:
    """Put this process into a network namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise BackendError(
            f"no network namespace can be made here: {os.strerror(ctypes.get_errno())}"
        )
    for name, value in SETTINGS.items():
        path = Path("/proc/sys/net") / name
        if path.exists():
            path.write_text(value)


def die_with_parent() -> None:
    """End this process when the one that forked it does; Ctrl-C is for that one."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def batch(tool: str, lines: Iterable[str]) -> None:
    """Run commands of `ip` or `tc`."""
    ran = subprocess.run(
        [tool, "-batch", "-"],
        input="\n".join(lines) + "\n",
        text=True,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    if ran.returncode:
        raise BackendError(f"{tool} failed: {printable(ran.stderr.strip(), 300)}")


def bridges(nodes: int, gpus: int) -> None:
    """The hub's bridges, and the spine's links to the rails."""
    lines = [f"link add {name} type bridge" for name in _bridges(nodes, gpus)]
    for n in range(gpus):
        lines += [
            f"link add up{n} type veth peer name down{n}",
            f"link set up{n} master rail{n} up",
            f"link set down{n} master spine up",
        ]
    batch("ip", [*lines, *(f"link set {name} up" for name in _bridges(nodes, gpus))])


def _bridges(nodes: int, gpus: int) -> list[str]:
    return [
        "control",
        "spine",
        *(f"rail{n}" for n in range(gpus)),
        *(f"node{m}" for m in range(nodes)),
    ]


def plug(node: int, local: int, process: int) -> None:
    """The three cables of a GPU, whose process is in its namespace already."""
    gpu = f"{node}-{local}"
    ends = (("r", "rail0", f"rail{local}"), ("s", "su0", f"node{node}"), ("c", "ctl0", "control"))
    lines = []
    for letter, there, bridge in ends:
        mtu = 9000 if letter == "s" else MTU
        lines += [
            f"link add {letter}{gpu} mtu {mtu} type veth peer name {there} mtu {mtu} "
            f"netns {process}",
            f"link set {letter}{gpu} master {bridge} up",
        ]
    batch("ip", lines)


def address(node: int, local: int, gpus: int) -> None:
    """Addresses of this GPU, in its own namespace; mates of its node are reached over scale-up
    whichever of their addresses is used.
    """
    rank = node * gpus + local
    lines = [
        f"addr add 10.77.0.{rank + 1}/24 dev rail0",
        f"addr add 10.77.{100 + node}.{local + 1}/24 dev su0",
        f"addr add 10.77.200.{rank + 1}/24 dev ctl0",
    ]
    lines += [f"link set {name} up" for name in ("lo", "rail0", "su0", "ctl0")]
    lines += [
        f"route add 10.77.0.{node * gpus + mate + 1}/32 dev su0 src 10.77.0.{rank + 1}"
        for mate in range(gpus)
        if mate != local
    ]
    lines += [f"route change 10.77.0.0/24 dev rail0 src 10.77.0.{rank + 1} rto_min {PATIENCE}"]
    batch("ip", lines)


def limit(device: str, rate: int) -> None:
    """Limit what leaves a device of this namespace to `rate` bytes a second.

    Acknowledgements pass by: behind data that goes the other way they would hold up their sender.
    """
    data = f"htb rate {rate}bps ceil {rate}bps burst {BURST_KB}kb cburst {BURST_KB}kb quantum 60000"
    subprocess.run(
        ["tc", "qdisc", "del", "dev", device, "root"],
        capture_output=True,  # there is none at first
        timeout=LIMIT_S,
        check=False,
    )
    batch(
        "tc",
        [
            f"qdisc add dev {device} root handle 1: htb default 2",
            f"class add dev {device} parent 1: classid 1:1 htb rate 10gbit burst 256kb "
            f"cburst 256kb quantum 60000",
            f"class add dev {device} parent 1: classid 1:2 {data}",
            f"qdisc add dev {device} parent 1:2 handle 2: bfifo limit {QUEUE_KB}kb",
            f"filter add dev {device} parent 1: protocol ip prio 1 u32 match u16 0 {SMALL_MASK} "
            f"at 2 flowid 1:1",
        ],
    )


def counters(device: str) -> dict[str, tuple[int, int]]:
    """(bytes, packets) that a device of this namespace sent and received, ever."""
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() == device:
            column = [int(number) for number in numbers.split()]
            return {"received": (column[0], column[1]), "sent": (column[8], column[9])}
    raise BackendError(f"this namespace has no device {device}")
