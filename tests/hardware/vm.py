"""Boots the Soft-RoCE guest: Debian's kernel under qemu in software emulation, this host's root as
its own (read-only).

`prepare.sh` must have run; `boot` starts a guest on a command, `Guest.wait` gives its exit status
and output.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("RAILOPT_GUEST", ".cache/guest")).resolve()
MACHINES = {
    "x86_64": ["qemu-system-x86_64", "-M", "q35", "-cpu", "max"],
    "aarch64": ["qemu-system-aarch64", "-M", "virt,gic-version=3", "-cpu", "neoverse-n1"],
}
CONSOLES = {"x86_64": "ttyS0", "aarch64": "ttyAMA0"}


# numba takes the emulation a minute to import and is not what is tried
ENTRY = """export PATH={path} HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 {environment}
export PYTHONPATH={tree} RAILOPT_COMPILE=never
cd {folder}
ip link set lo up; hostname {name}; ulimit -l unlimited
/bin/bash /out/command.sh > /out/log 2>&1 < /dev/null
echo $? > /out/status; dmesg > /out/dmesg; sync
"""


@dataclass
class Guest:
    """A running guest and the folder that is its /out."""

    out: Path
    process: subprocess.Popen[bytes]
    cpu_s: float = 0.0

    def wait(self, timeout: float) -> int:
        """The command's exit status; the guest's own words if it has none. Sets `cpu_s`, what the
        host's CPUs spent on it.
        """
        status = self.ends_within(lambda: timeout)
        if status is None:
            raise RuntimeError(
                f"the guest gave no exit status within {timeout:g} s\n{self.words()}"
            )
        return status

    def ends_within(self, limit_s: Callable[[], float]) -> int | None:
        """As `wait`, but None without an exit status; the limit may grow while the guest runs."""
        try:
            self._watch(limit_s)
        finally:
            if self.process.returncode is None:
                self.process.kill()
                self.process.wait()
        status = self.out / "status"
        return int(status.read_text()) if status.exists() else None

    def _watch(self, limit_s: Callable[[], float]) -> None:
        stat = Path(f"/proc/{self.process.pid}/stat")
        began = time.monotonic()
        while self.process.poll() is None and time.monotonic() - began < limit_s():
            fields = stat.read_text().rpartition(")")[2].split()
            self.cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            time.sleep(0.2)

    def words(self) -> str:
        """What the guest, its console and qemu said, the end of each."""
        return "\n".join(
            f"== {name}\n{(self.out / name).read_text(errors='replace')[-3000:]}"
            for name in ("log", "console", "qemu")
            if (self.out / name).exists()
        )


def boot(
    command: str,
    out: Path,
    *,
    name: str = "node0",
    cpus: int = 2,
    memory_mib: int = 1536,
    nics: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Guest:
    """Start a guest on a shell command; `nics` are qemu netdevs, in the order of eth0, eth1, ..."""
    machine = platform.machine()
    kernel = next((CACHE / "kernel" / "boot").glob("vmlinuz-*"))
    out.mkdir(parents=True, exist_ok=True)
    variables = " ".join(
        f"{key}={shlex.quote(value)}" for key, value in (environment or {}).items()
    )
    (out / "command.sh").write_text(command + "\n")
    (out / "entry.sh").write_text(
        ENTRY.format(
            path=shlex.quote(os.environ["PATH"]),
            environment=variables,
            name=name,
            folder=shlex.quote(os.getcwd()),
            tree=shlex.quote(str(HERE.parents[1])),
        )
    )
    arguments = [
        *MACHINES[machine],
        "-smp",
        str(cpus),
        "-m",
        str(memory_mib),
        "-accel",
        "tcg,thread=multi",
        "-nographic",
        "-nodefaults",
        "-no-reboot",
        "-monitor",
        "none",
        "-serial",
        f"file:{out / 'console'}",
        "-kernel",
        str(kernel),
        "-initrd",
        str(CACHE / "initrd.gz"),
        "-append",
        f"console={CONSOLES[machine]} quiet loglevel=4 panic=-1 mitigations=off "
        f"random.trust_cpu=on nokaslr "
        "net.ifnames=0 rdinit=/init",
        "-fsdev",
        "local,id=r,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device",
        "virtio-9p-pci,fsdev=r,mount_tag=hostroot",
        "-fsdev",
        f"local,id=o,path={out},security_model=none",
        "-device",
        "virtio-9p-pci,fsdev=o,mount_tag=hostout",
        "-device",
        "virtio-rng-pci",
    ]
    for i, netdev in enumerate(nics):
        mac = f"52:54:00:{hash_byte(name):02x}:00:{i:02x}"
        arguments += [
            "-netdev",
            f"{netdev},id=n{i}",
            "-device",
            f"virtio-net-pci,netdev=n{i},romfile=,mac={mac}",
        ]
    with open(out / "qemu", "wb") as log:
        return Guest(
            out, subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        )


def hash_byte(name: str) -> int:
    """A byte that differs between the guests' names."""
    return sum(name.encode()) & 0xFF
