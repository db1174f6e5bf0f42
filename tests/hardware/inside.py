"""Runs inside the guest: the scenarios that are named, results as JSON lines in /out/results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from railopt import Chunks, Fabric, Plan, workloads
from railopt import plan as make_plan
from railopt.base.errors import BackendError
from railopt.cli.main import main as railopt_main
from railopt.policies import POLICIES
from railopt.runtime.payload import device
from railopt.runtime.payload.layout import Layout
from railopt.runtime.senders.one_node import RowSender
from railopt.runtime.verbs import regions
from railopt.runtime.verbs.objects import Patience
from railopt.runtime.verbs.rails import Options
from tests.hardware.faults import CUTS, IMPATIENT, KILLS, cut, slow_rail, soak
from tests.hardware.world import (
    FIRST,
    OUT,
    SECRET,
    SLOWEST,
    Pace,
    expected,
    on_alarm,
    payload,
    rails,
    session,
    slowness,
    with_nodes,
)


def all_policies(nodes: int, rail_count: int) -> list[dict[str, Any]]:
    """One session, every policy's plan and a staged one, each payload compared. The plans were made
    on the host.
    """
    plans = {
        path.stem: Plan.read(path)
        for path in sorted((OUT / "plans" / f"{nodes}x{rail_count}").glob("*.npz"))
    }
    lpt = plans["lpt"]
    chunks = lpt.chunks
    layout = Layout.packed(chunks)
    size = int(max(layout.send_bytes.max(), layout.recv_bytes.max()))

    def work(node: int) -> dict[str, Any]:
        group, sender, send, recv = session(
            node, nodes, rail_count, size, Options(patience=Patience(18, 3), batch=8, depth=64)
        )
        right = {}
        with group, sender:
            mine = payload(node, int(layout.send_bytes[node, 0]))
            send[: len(mine)] = mine
            wanted = expected(lpt, layout, node)
            for name, plan in plans.items():
                recv[:] = 0
                group.allgather(name)
                report = sender.run(plan).wait()
                right[name] = (
                    bool(np.array_equal(recv[: len(wanted)], wanted)) and not report.faults
                )
        return {"right": right, "bytes": int(chunks.total)}

    return with_nodes(nodes, work)


def killed() -> list[dict[str, Any]]:
    """Node 1 of 4 is killed in the middle of a run: all others end, and say who it was."""
    fabric = Fabric.uniform(4, 2)
    chunks = workloads.uniform(fabric, size="256KiB").chunks("32KiB")
    plan = make_plan(fabric, chunks, "lpt")
    size = int(Layout.packed(chunks).send_bytes.max())

    def work(node: int) -> dict[str, Any]:
        group, sender, _, _ = session(node, 4, 2, size, IMPATIENT)
        with group, sender:
            run = sender.run(plan)
            if node == 1:
                while not any(job.acked for link in sender.wiring.links for job in link.unfinished):
                    assert not run.poll(), "done before it could be killed"
                os.kill(os.getpid(), signal.SIGKILL)
            run.wait()
        return {"error": None}

    return with_nodes(4, work)


def interrupted() -> list[dict[str, Any]]:
    """Ctrl-C on node 1 in the middle of a run."""
    fabric = Fabric.uniform(2, 2)
    plan = make_plan(fabric, workloads.uniform(fabric, size="256KiB").chunks("32KiB"), "lpt")
    size = int(Layout.packed(plan.chunks).send_bytes.max())

    def work(node: int) -> dict[str, Any]:
        group, sender, _, _ = session(node, 2, 2, size, IMPATIENT)
        with group, sender:
            run = sender.run(plan)
            if node == 1:
                run.poll()
                signal.raise_signal(signal.SIGINT)
            run.wait()
        return {"error": None}

    return with_nodes(2, work)


def bad_keys() -> list[dict[str, Any]]:
    """Node 0 writes with a key that node 1 never gave out."""
    fabric = Fabric.uniform(2, 2)
    chunks = workloads.uniform(fabric, size="64KiB").chunks("16KiB")
    plan = make_plan(fabric, chunks, "lpt")
    size = int(Layout.packed(chunks).send_bytes.max())

    def work(node: int) -> dict[str, Any]:
        group, sender, _, _ = session(node, 2, 2, size, Options(patience=Patience(18, 1)))
        with group, sender:
            if node == 0:
                sender.wiring.rkeys[1] ^= 0x5500
            sender.run(plan).wait()
        return {"error": None}

    return with_nodes(2, work)


def rows_alone() -> list[dict[str, Any]]:
    """Each node plans its own row, twice, from memory that is said to be a GPU's: Soft-RoCE refuses
    its dma-buf, and takes the plain registration, as where a peer-memory driver serves.
    """
    fabric = Fabric.uniform(2, 4)
    traffic = workloads.zipf(fabric, mean="6KiB", seed=5)
    whole = make_plan(fabric, traffic.chunks("4KiB"), "even-excess")
    layout = Layout.packed(whole.chunks)
    size = int(max(layout.send_bytes.max(), layout.recv_bytes.max()))

    class Exports:
        def export(self, address: int, length: int) -> tuple[int, int]:
            return os.memfd_create("gpu"), 0

    def work(node: int) -> dict[str, Any]:
        device.libcuda = Exports  # type: ignore[assignment]
        refusals: list[str] = []
        registered, regions.Mr = regions.Mr, _noting(regions.Mr, refusals)  # type: ignore[misc]
        options = Options(patience=Patience(18, 3), batch=8, depth=64)
        group, sender, send, recv = session(node, 2, 4, size, options, cuda=True)
        regions.Mr = registered  # type: ignore[misc]
        mine, right = payload(node, int(layout.send_bytes[node, 0])), []
        with group, sender:
            rows, wanted = RowSender(sender, fabric, cap="4KiB"), expected(whole, layout, node)
            for turn in range(2):
                send[: len(mine)], recv[:] = mine, 0
                group.allgather(turn)
                report = rows.run(
                    np.ascontiguousarray(traffic.bytes[4 * node : 4 * node + 4])
                ).wait()
                loads = [(k.peer, k.rail, k.bytes) for k in report.links]
                right.append(bool(np.array_equal(recv[: len(wanted)], wanted)))
        own = whole.chunks.src == node
        planned = np.bincount(whole.rail[own], whole.chunks.size[own], 4).astype(int).tolist()
        return {"right": right, "loads": loads, "planned": planned, "refusals": refusals}

    return with_nodes(2, work)


def _noting(made: Any, refusals: list[str]) -> Any:
    def register(*arguments: Any) -> Any:
        try:
            return made(*arguments)
        except BackendError as error:
            refusals.append(str(error))
            raise

    return register


def uneven() -> tuple[Fabric, Chunks]:
    """Chunks of many sizes."""
    fabric = Fabric.uniform(2, 4)
    return fabric, workloads.zipf(fabric, mean="512B", seed=1).chunks("512B")


def command_line() -> list[dict[str, Any]]:
    """`railopt send` and `railopt bench` as their users type them, and a plan for another world."""
    make_plan(*uneven(), "lpt").save("/tmp/plan.npz", force=True)
    make_plan(*uneven(), "even-excess").save("/tmp/excess.npz", force=True)
    small = Fabric.uniform(3, 4)
    make_plan(small, workloads.uniform(small, size="1KiB").chunks("1KiB"), "lpt").save(
        "/tmp/other.npz", force=True
    )
    os.environ["RAILOPT_SECRET"] = SECRET.decode()
    commands = (
        "send /tmp/plan.npz --iters 2",
        "send /tmp/excess.npz --stage --qp 2 --metrics /tmp/{rank}.prom --json",
        "bench uniform -b 4KiB -e 8KiB -n 1 -w 1 --policy lpt,pxn",
        "send /tmp/other.npz",
    )

    def work(node: int) -> dict[str, Any]:
        devices = ",".join(f"rx{node}_{n}" for n in range(4))
        launch = f"--hosts 127.0.0.1,127.0.0.1 --rank {node} --ib-dev {devices} --ib-timeout 18"
        out = Path(f"/tmp/cli{node}")
        sys.stdout = out.open("w")
        codes = [
            railopt_main([*command.split(), *launch.split(), "--port", str(18611 + k)])
            for k, command in enumerate(commands)
        ]
        if node == 0:
            codes.append(railopt_main(["devices", "--rails", devices]))
        sys.stdout.flush()
        metrics = Path(f"/tmp/{node}.prom").read_text()
        return {"codes": codes, "output": out.read_text(), "metrics": metrics}

    return with_nodes(2, work)


def perftest(options: str, size: int) -> float:
    """ib_write_bw from rx0_0 to rx1_0: MB/s = 1e6 bytes. The client is tried again until the server
    listens, and the server if a client that failed took it along.
    """
    deadline, server, said = time.monotonic() + Pace.seconds(60), None, ""
    try:
        while time.monotonic() < deadline:
            if server is None or server.poll() is not None:
                command = f"exec ib_write_bw -d rx1_0 {options}"
                server = subprocess.Popen(command, shell=True, stdout=subprocess.DEVNULL)
            time.sleep(1)
            client = subprocess.run(
                f"ib_write_bw -d rx0_0 {options} 127.0.0.1",
                shell=True,
                capture_output=True,
                text=True,
            )
            if client.returncode == 0:
                line = next(
                    row for row in client.stdout.splitlines() if row.split()[:1] == [str(size)]
                )
                return float(line.split()[3]) * 2**20 / 1e6
            said = f"{client.stdout[-500:]} {client.stderr[-500:]}"
            print(said, flush=True)
        raise RuntimeError(f"ib_write_bw: {said}")
    finally:
        if server is not None:
            server.kill()
            server.wait()


def side_by_side() -> list[dict[str, Any]]:
    """One queue pair, 64 KiB writes, best of a few runs each: perftest's ib_write_bw before and
    after this sender, on the same rail. Reported, not judged."""
    count, size, patience = 128, 65536, Patience(20, 3)
    # perftest's own time-out is 67 ms: a slow guest sends again what rxe then refuses
    options = f"-x 1 -s {size} -n {count} -u {patience.timeout}"
    theirs = perftest(f"{options} -p 18700", size)
    fabric = Fabric.uniform(2, 1)
    chunks = Chunks.from_arrays(
        src=np.zeros(count, int), dst=np.ones(count, int), size=np.full(count, size), nodes=2
    )
    plan = make_plan(fabric, chunks, "lpt")

    def work(node: int) -> dict[str, Any]:
        group, sender, _, _ = session(
            node, 2, 1, count * size, Options(patience=patience, batch=16, depth=128)
        )
        with group, sender:
            reports = [sender.run(plan).wait() for _ in range(3)]
        return {"rate": max(report.bytes / report.seconds / 1e6 for report in reports)}

    ours = with_nodes(2, work)[0]["rate"]
    theirs = max(theirs, perftest(f"{options} -p 18701", size))
    return [{"ib_write_bw": theirs, "railopt": ours, "ratio": ours / theirs}]


def report(name: str, scenario: Callable[[], list[dict[str, Any]]], file: Any) -> None:
    began = time.monotonic()
    try:
        nodes = scenario()
    except BaseException:
        nodes = [{"error": "scenario", "trace": traceback.format_exc()[-2000:]}]
    file.write(
        json.dumps({"scenario": name, "seconds": time.monotonic() - began, "nodes": nodes}) + "\n"
    )
    file.flush()
    print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)


def save_plans(folder: Path, names: list[str]) -> None:
    """On the host: every policy's plan for the shapes that are named, and a staged one."""
    for nodes, rail_count in SCENARIOS:
        if f"{nodes}x{rail_count}" not in names:
            continue
        target = folder / "plans" / f"{nodes}x{rail_count}"
        target.mkdir(parents=True)
        fabric = Fabric.uniform(nodes, rail_count)
        chunks = workloads.zipf(fabric, mean="6KiB", seed=3).chunks("4KiB")
        for name in POLICIES:
            make_plan(fabric, chunks, name).save(target / f"{name}.npz")
        stage = (np.arange(len(chunks)) % 3).astype(np.int32)
        Plan(fabric, chunks, make_plan(fabric, chunks, "lpt").rail, "lpt", stage).save(
            target / "staged.npz"
        )


def warm() -> None:
    """Import what the scenarios need, once, before the nodes are forked."""
    import railopt.cli.bench
    import railopt.cli.devices
    import railopt.cli.send
    import railopt.runtime.senders.verbs_carrier  # noqa: F401


SCENARIOS: dict[tuple[int, int], dict[str, Callable[[], list[dict[str, Any]]]]] = {
    (2, 4): {
        "2x4": lambda: all_policies(2, 4),
        **{name: lambda name=name: cut(name) for name in (*CUTS, *KILLS)},
        "slow rail": slow_rail,
        "soak": soak,
        "rows alone": rows_alone,
        "bad keys": bad_keys,
        "interrupted": interrupted,
        "command line": command_line,
        "side by side": side_by_side,
    },
    (4, 2): {"4x2": lambda: all_policies(4, 2), "peer killed": killed},
}


def main() -> int:
    """`inside.py NAME ...`: run the scenarios that are named. On the host:
    `inside.py plans FOLDER NAME ...`.
    """
    if sys.argv[1:2] == ["plans"]:
        warm()  # leaves bytecode for the guest, which can't write any
        save_plans(Path(sys.argv[2]), sys.argv[3:])
        return 0
    signal.signal(signal.SIGALRM, on_alarm)
    with open(OUT / "results", "w") as file:
        found = slowness()
        Pace.factor = min(max(1.0, found), SLOWEST)
        report("warm", lambda: [{"error": warm(), "slowness": found}], file)
        for (nodes, rail_count), scenarios in SCENARIOS.items():
            chosen = {name: work for name, work in scenarios.items() if name in sys.argv[1:]}
            if chosen:
                rails("make", nodes, rail_count, FIRST[nodes])
                for name, work in chosen.items():
                    report(name, work, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
