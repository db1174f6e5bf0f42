"""Runs inside the guest: every scenario with one forked process a node, results as JSON lines in
/out/results.

The parent imports everything once (imports are slow under emulation) and never opens a device
itself. Payloads are random bytes; a receiver builds what it should have from the senders' seeds and
the layout alone, and compares byte for byte.
"""

from __future__ import annotations

import faulthandler
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
from railopt.cli.main import main as railopt_main
from railopt.policies import POLICIES
from railopt.runtime.payload.layout import Layout
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.join import join
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.verbs.objects import Patience
from railopt.runtime.verbs.rails import Options

SECRET = b"a secret for the guest"
RAILS = Path(__file__).parent / "guest" / "rails.sh"
OUT = Path("/out")
FIRST = {2: 0, 4: 4}  # nodes -> number of their first rail
Node = Callable[[int], dict[str, Any]]


def sh(command: str) -> None:
    subprocess.run(command, shell=True, check=True)


def rails(*words: object) -> None:
    subprocess.run([str(RAILS), *map(str, words)], check=True)


def payload(node: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(node).integers(0, 256, size, dtype=np.uint8)


def expected(plan: Plan, layout: Layout, node: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """What `node`'s receive memory must hold."""
    sent = [payload(k, int(layout.send_bytes[k, 0])) for k in range(plan.fabric.nodes)]
    memory = np.zeros(int(layout.recv_bytes[node, 0]), np.uint8)
    for c in np.flatnonzero(plan.chunks.dst == node):
        size, source = plan.chunks.size[c], layout.send_offset[c]
        memory[layout.recv_offset[c] :][:size] = sent[plan.chunks.src[c]][source : source + size]
    return memory


def with_nodes(nodes: int, work: Node, limit: float = 90.0) -> list[dict[str, Any]]:
    """Fork one process a node; what each returned, or how it ended."""
    children, began = {}, time.monotonic()
    for node in range(nodes):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            faulthandler.dump_traceback_later(limit * 0.9)  # a hung node shows where
            result: dict[str, Any] = {}
            try:
                result = work(node)
            except BaseException as error:
                result = {
                    "error": type(error).__name__,
                    "text": str(error),
                    "exit_code": getattr(error, "exit_code", None),
                    "trace": traceback.format_exc()[-1500:],
                }
            result["seconds"] = time.monotonic() - began
            with os.fdopen(writer, "w") as file:
                json.dump(result, file)
            os._exit(0)
        os.close(writer)
        children[node] = pid, reader
    results = []
    for node, (pid, reader) in children.items():
        os.set_blocking(reader, True)
        signal.alarm(max(1, int(limit - (time.monotonic() - began))))
        try:
            with os.fdopen(reader) as file:
                text = file.read()
        except TimeoutError:
            text = json.dumps({"error": "hung", "node": node})
            os.kill(pid, signal.SIGKILL)
        finally:
            signal.alarm(0)
        status = os.waitpid(pid, 0)[1]
        results.append(json.loads(text) if text else {"error": "killed", "status": status})
    return results


def on_alarm(number: int, frame: object) -> None:
    raise TimeoutError


def devices(nodes: int, node: int, rail_count: int) -> list[str]:
    """A node's devices; worlds of different size have rails of their own, made once and never taken
    down.
    """
    return [f"rx{node}_{FIRST[nodes] + n}" for n in range(rail_count)]


def session(
    node: int, nodes: int, rail_count: int, size: int, options: Options
) -> tuple[Group, Verbs, Any, Any]:
    launch = Launch("hosts", node, nodes, ("127.0.0.1",) * nodes)
    group = join(launch, SECRET, run="guest", port=18600, join_s=20)
    send, recv = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    return (
        group,
        Verbs(group, devices(nodes, node, rail_count), send, recv, options=options),
        send,
        recv,
    )


def all_policies(nodes: int, rail_count: int) -> list[dict[str, Any]]:
    """One session, every policy's plan and a staged one, each payload compared. The plans were made
    on the host.
    """
    plans = {
        path.stem: Plan.load(path)
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


def cut(fault: str, nodes: int = 2, rail_count: int = 3) -> list[dict[str, Any]]:
    """Cut rail 0 between nodes 0 and 1 in the middle of a run, then run once more with what is
    left.
    """
    fabric = Fabric.uniform(nodes, rail_count)
    chunks = workloads.uniform(fabric, size="256KiB").chunks("32KiB")
    plan = make_plan(fabric, chunks, "lpt")
    layout = Layout.packed(chunks)
    size = int(max(layout.send_bytes.max(), layout.recv_bytes.max()))

    def work(node: int) -> dict[str, Any]:
        group, sender, send, recv = session(
            node, nodes, rail_count, size, Options(patience=Patience(18, 1), batch=2, depth=4)
        )
        with group, sender:
            send[:] = payload(node, size)
            wanted = expected(plan, layout, node)
            run = sender.run(plan)
            link = sender.wiring.by_place.get((1 - node, 0)) if node < 2 else None
            while (
                link is not None
                and not run.poll()
                and not any(job.acked for job in link.unfinished)
            ):
                time.sleep(0.001)
            began = time.monotonic()
            if node == 0 and fault in CUTS:
                sh(CUTS[fault])
            if node == 1 and fault == "peer queue pair gone":
                link.qp.close()
            if node == 1 and fault == "peer queue pair in error":
                link.qp.retire()
            report = run.wait()
            took = time.monotonic() - began
            right = bool(np.array_equal(recv[: len(wanted)], wanted))
            recv[:] = 0
            group.allgather("again")
            sender.run(plan).wait()
            again = bool(np.array_equal(recv[: len(wanted)], wanted))
        return {
            "right": right,
            "again": again,
            "took": took,
            "faults": [str(f) for f in report.faults],
            "moved": sum(f.moved for f in report.faults),
            "alive": [r.alive for r in report.rails],
        }

    results = with_nodes(nodes, work)
    rails("mend", 0, 0)
    rails("mend", 1, 0)
    return results


CUTS = {
    "own link down": "ip link set n0r0 down",
    "peer link down": "ip link set n1r0 down",
    "all packets lost": "tc qdisc add dev n0r0 root netem loss 100%",
}


def killed() -> list[dict[str, Any]]:
    """Node 1 of 4 is killed in the middle of a run: all others end, and say who it was."""
    fabric = Fabric.uniform(4, 2)
    chunks = workloads.uniform(fabric, size="256KiB").chunks("32KiB")
    plan = make_plan(fabric, chunks, "lpt")
    size = int(Layout.packed(chunks).send_bytes.max())

    def work(node: int) -> dict[str, Any]:
        group, sender, _, _ = session(
            node, 4, 2, size, Options(patience=Patience(18, 1), batch=2, depth=4)
        )
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
        group, sender, _, _ = session(
            node, 2, 2, size, Options(patience=Patience(18, 1), batch=2, depth=4)
        )
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
                sender.wiring.peers[1].rkey[:] ^= 0x5500
            sender.run(plan).wait()
        return {"error": None}

    return with_nodes(2, work)


def command_line() -> list[dict[str, Any]]:
    """`railopt send` and `railopt bench` as their users type them, and a plan for another world."""
    fabric = Fabric.uniform(2, 4)
    plan = make_plan(fabric, workloads.zipf(fabric, mean="32KiB", seed=1).chunks("16KiB"), "lpt")
    plan.save("/tmp/plan.npz", force=True)
    small = Fabric.uniform(3, 4)
    make_plan(small, workloads.uniform(small, size="1KiB").chunks("1KiB"), "lpt").save(
        "/tmp/other.npz", force=True
    )
    os.environ["RAILOPT_SECRET"] = SECRET.decode()

    def work(node: int) -> dict[str, Any]:
        devices = ",".join(f"rx{node}_{n}" for n in range(4))
        launch = [
            "--hosts",
            "127.0.0.1,127.0.0.1",
            "--rank",
            str(node),
            "--ib-dev",
            devices,
            "--ib-timeout",
            "18",
        ]
        out = Path(f"/tmp/cli{node}")
        sys.stdout = out.open("w")
        codes = [
            railopt_main(["send", "/tmp/plan.npz", "--iters", "2", "--port", "18611", *launch]),
            railopt_main(
                [
                    "bench",
                    "uniform",
                    "-b",
                    "64KiB",
                    "-e",
                    "128KiB",
                    "-n",
                    "1",
                    "-w",
                    "1",
                    "--policy",
                    "lpt,pxn",
                    "--port",
                    "18612",
                    *launch,
                ]
            ),
            railopt_main(["send", "/tmp/other.npz", "--port", "18613", *launch]),
        ]
        if node == 0:
            codes.append(railopt_main(["devices", "--rails", devices]))
        sys.stdout.flush()
        return {"codes": codes, "output": out.read_text()}

    return with_nodes(2, work)


def perftest(options: str, size: int) -> float:
    """ib_write_bw from rx0_0 to rx1_0: MB/s = 1e6 bytes. The client is tried again until the server
    listens.
    """
    with subprocess.Popen(
        f"exec ib_write_bw -d rx1_0 {options}", shell=True, stdout=subprocess.DEVNULL
    ) as server:
        try:
            for _ in range(20):
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
            raise RuntimeError(f"ib_write_bw: {client.stdout[-500:]} {client.stderr[-500:]}")
        finally:
            server.kill()


def side_by_side() -> list[dict[str, Any]]:
    """One queue pair, 64 KiB writes, best of a few runs each: perftest's ib_write_bw before and
    after this sender, on the same rail. Reported, not judged."""
    count, size = 128, 65536
    theirs = perftest(f"-x 1 -s {size} -n {count} -p 18700", size)
    fabric = Fabric.uniform(2, 1)
    chunks = Chunks.from_arrays(
        src=np.zeros(count, int), dst=np.ones(count, int), size=np.full(count, size), nodes=2
    )
    plan = make_plan(fabric, chunks, "lpt")

    def work(node: int) -> dict[str, Any]:
        group, sender, _, _ = session(
            node, 2, 1, count * size, Options(patience=Patience(18, 3), batch=16, depth=128)
        )
        with group, sender:
            reports = [sender.run(plan).wait() for _ in range(3)]
        return {"rate": max(report.bytes / report.seconds / 1e6 for report in reports)}

    ours = with_nodes(2, work)[0]["rate"]
    theirs = max(theirs, perftest(f"-x 1 -s {size} -n {count} -p 18701", size))
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


def save_plans(folder: Path) -> None:
    """On the host: every policy's plan for both shapes, and a staged one."""
    for nodes, rail_count in SCENARIOS:
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
    """Use every kernel that the scenarios need: on the host to compile them into a cache that the
    guest shares (it has no patience for compilers), in the guest to load them once, before the
    nodes are forked.
    """
    from railopt.bounds import lower_bound
    from railopt.runtime.payload import verify
    from railopt.runtime.payload.memory import memory_of
    from railopt.runtime.senders.replan import replan

    fabric = Fabric.uniform(2, 3)
    chunks = workloads.uniform(fabric, size="2KiB").chunks("1KiB")
    plan = make_plan(fabric, chunks, "lpt")
    lower_bound(fabric, chunks)
    replan(plan, np.flatnonzero(chunks.src == 0).astype(np.int64), 0, 1, [1, 2])
    layout = Layout.packed(chunks)
    memory = [memory_of(np.zeros(int(layout.send_bytes.max()), np.uint8), writable=True)]
    verify.fill(plan, layout, 0, memory, 0)
    verify.wrong(plan, layout, 1, memory, 0)
    verify.checksums(plan, layout, 0, "send", memory)


SCENARIOS: dict[tuple[int, int], dict[str, Callable[[], list[dict[str, Any]]]]] = {
    (2, 4): {
        "2x4": lambda: all_policies(2, 4),
        "own link down": lambda: cut("own link down"),
        "peer link down": lambda: cut("peer link down"),
        "all packets lost": lambda: cut("all packets lost"),
        "peer queue pair gone": lambda: cut("peer queue pair gone"),
        "peer queue pair in error": lambda: cut("peer queue pair in error"),
        "bad keys": bad_keys,
        "interrupted": interrupted,
        "command line": command_line,
        "side by side": side_by_side,
    },
    (4, 2): {"4x2": lambda: all_policies(4, 2), "peer killed": killed},
}


def main() -> int:
    """`inside.py [NAME ...]`: run the scenarios, all or those named. On the host: `inside.py warm`,
    `inside.py plans FOLDER`.
    """
    if sys.argv[1:] == ["warm"]:
        warm()
        return 0
    if sys.argv[1:2] == ["plans"]:
        save_plans(Path(sys.argv[2]))
        return 0
    signal.signal(signal.SIGALRM, on_alarm)
    with open(OUT / "results", "w") as file:
        report("warm", lambda: [{"error": warm()}], file)
        for (nodes, rail_count), scenarios in SCENARIOS.items():
            chosen = {
                name: work
                for name, work in scenarios.items()
                if name in sys.argv[1:] or not sys.argv[1:]
            }
            if chosen:
                rails("make", nodes, rail_count, FIRST[nodes])
                for name, work in chosen.items():
                    report(name, work, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
