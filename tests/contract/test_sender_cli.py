"""`railopt send`, `bench` and `devices` as their users type them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from railopt import Fabric
from railopt.base.errors import BackendError, InputError
from railopt.cli.main import main
from railopt.runtime.carried import Carried
from railopt.runtime.senders import verbs as verbs_sender
from railopt.runtime.senders import verbs_carrier
from railopt.runtime.verbs import devices, wiring
from tests.contract.sender_world import SECRET, free_port, small_plan
from tests.doubles.null_verbs import NullLibrary
from tests.openmetrics import families

Cli = Callable[..., Any]


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    small_plan(2, 2).save(tmp_path / "plan.npz")
    return tmp_path / "plan.npz"


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID", "RAILOPT_SECRET"):
        monkeypatch.delenv(name, raising=False)


def test_send_is_loopback_without_a_launcher(plan_file: Path, railopt_cli: Cli) -> None:
    ran = railopt_cli("send", plan_file)
    assert ran.code == 0
    assert "# launcher=none rank=0/1 sender=loopback" in ran.err
    header, _, *rows = ran.out.splitlines()
    assert header.split()[:3] == ["sender", "node", "rail"]
    assert all(row.startswith("loopback ") for row in rows)
    assert rows[-1].split()[-1] == "0"
    data = json.loads(railopt_cli("send", plan_file, "--json", "--iters", "3").out)
    assert data["sender"] == "loopback"
    assert [run["wrong"] for run in data["nodes"][0]] == [0, 0, 0]
    assert (
        json.loads(railopt_cli("send", plan_file, "--out_json", "--no-verify").out)["nodes"][0][0][
            "wrong"
        ]
        is None
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_of_a_launcher_record_their_own_table_and_loopback_is_all_of_them(
    rank: int, plan_file: Path, railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = railopt_cli("send", plan_file, "--sender", "record", "--hosts", "a,b", "--rank", rank)
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) > 2
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    whole = railopt_cli("send", plan_file, "--sender", "loopback")
    assert whole.code == 0, whole.err
    assert "rank=0/1 sender=loopback" in whole.err
    assert whole.out


def test_ranks_of_another_number_than_nodes_record_nothing(
    plan_file: Path, tmp_path: Path, railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("send", plan_file, "--sender", "record", "-o", tmp_path / "posts-{rank}.tsv")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "5")
    ran = railopt_cli(*line)
    assert ran.code == 1
    assert "the plan is for 2 nodes, this run has 5 ranks" in ran.err
    monkeypatch.setenv("WORLD_SIZE", "2")
    ran = railopt_cli(*line)
    assert ran.code == 0, ran.err
    assert f"wrote {tmp_path / 'posts-1.tsv'}" in ran.err
    nodes = {row.split("\t")[2] for row in (tmp_path / "posts-1.tsv").read_text().splitlines()[1:]}
    assert nodes == {"1"}


def test_wrong_bytes_are_the_exit_code_of_every_rank(
    plan_file: Path, null_devices: NullLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("railopt.runtime.carried.Carried.wrong", 5)
    assert on_two_nodes("send", str(plan_file)) == [4, 4]


def test_record_goes_to_stdout_or_a_file(plan_file: Path, tmp_path: Path, railopt_cli: Cli) -> None:
    ran = railopt_cli("send", plan_file, "--sender", "record")
    assert ran.out.splitlines()[0].startswith("sender\tround\tnode")
    assert (
        railopt_cli("send", plan_file, "--sender", "record", "-o", tmp_path / "posts.tsv").code == 0
    )
    assert (tmp_path / "posts.tsv").read_text() == ran.out
    assert (
        railopt_cli("send", plan_file, "--sender", "record", "-o", tmp_path / "posts.tsv").code == 1
    )
    large = railopt_cli(
        "send", plan_file, "--sender", "record", "--batch", 1024, "--depth", 1024
    ).out
    signals = [
        sum(row.split("\t")[7] == "1" for row in out.splitlines()) for out in (ran.out, large)
    ]
    assert signals[0] >= signals[1] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sender", "verbs"], "needs the other ranks"),
        (["--iters", "0"], "from 1 to"),
        (
            ["--hosts", "127.0.0.1,127.0.0.1,127.0.0.1", "--rank", "0"],
            "is for 2 nodes, this run has 3 ranks",
        ),
        (["--hosts", "127.0.0.1,127.0.0.1", "--rank", "0"], "shared secret"),
        (
            ["--hosts", "127.0.0.1,127.0.0.1", "--rank", "0", "--qp", "0"],
            "--qp 0: expected 1 to 64",
        ),
        (["--hosts", "127.0.0.1,127.0.0.1", "--rank", "0", "--batch", "0"], "1 <= batch <= depth"),
        (["--sender", "record", "--json"], "--format can't do anything"),
    ],
)
def test_bad_usage_is_refused(
    plan_file: Path, railopt_cli: Cli, arguments: list[str], words: str
) -> None:
    ran = railopt_cli("send", plan_file, *arguments)
    assert ran.code == 1
    assert words in ran.err


HOSTS = ["--hosts", "127.0.0.1,127.0.0.1", "--rank", "0"]


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("send", ["--hosts", ""], "--hosts is empty"),
        ("send", ["--hosts", "a[1-999999999]"], "more than 65536 hosts"),
        ("send", ["--rank", "0"], "--rank can't do anything without --hosts"),
        ("send", [*HOSTS, "--launcher", "slurm"], "--launcher can't do anything with --hosts"),
        (
            "send",
            [*HOSTS, "--sender", "loopback"],
            "--hosts can't do anything with --sender",
        ),
        ("send", ["--secret-file", "x"], "--secret-file can't do anything"),
        ("send", ["--port", "1"], "--port can't do anything"),
        ("send", ["--join", "5"], "--join can't do anything"),
        ("send", ["--bind", "::"], "--bind can't do anything"),
        ("send", ["--rails", "a,b"], "--ib-dev can't do anything"),
        ("send", ["--ib-timeout", "3"], "--ib-timeout can't do anything"),
        ("send", ["--stall", "3"], "--stall can't do anything"),
        ("send", ["--batch", "3"], "--batch can't do anything"),
        ("send", ["-o", "x"], "-o can't do anything"),
        ("send", ["--force"], "--force can't do anything"),
        ("send", ["--json", "--report_gbits"], "--report_gbits can't do anything"),
        ("send", ["--sender", "record", "--no-verify"], "--no-verify can't do anything"),
        ("send", ["--sender", "record", "--report_gbits"], "--report_gbits can't do anything"),
        ("send", ["--sender", "record", "--depth", "9"], "1 <= batch <= depth"),
        ("send", ["--sender", "record", "--qp", "2"], "--qp can't do anything"),
        ("send", ["--sender", "record", "--metrics-port", "0"], "--metrics-port can't do anything"),
        ("send", ["--gid-index", "0"], "--gid-index can't do anything"),
        ("send", ["--sl", "0"], "--sl can't do anything"),
        ("send", ["--tclass", "0"], "--tclass can't do anything"),
        ("send", ["--ib-retry", "0"], "--ib-retry can't do anything"),
        ("send", ["--join", "0"], "--join can't do anything"),
        ("send", ["--sender", "record", "--batch", "0"], "1 <= batch <= depth"),
        ("send", ["--sender", "record", "--size", "1e9999"], "not a size"),
        ("send", [*HOSTS, "--port", "0"], "from 1 to 65535"),
        ("send", [*HOSTS, "--port", "65536"], "from 1 to 65535"),
        ("send", [*HOSTS, "--port", "9" * 5000], "from 1 to 65535"),
        ("send", [*HOSTS, "--port", "http"], "from 1 to 65535"),
        ("send", [*HOSTS, "--join", "nan"], "not a time"),
        ("send", [*HOSTS, "--join", "0"], "expected seconds above 0"),
        ("send", [*HOSTS, "--join", "1e99"], "at most 2**63 - 1"),
        ("send", [*HOSTS, "--stall", "0"], "expected seconds above 0"),
        ("send", [*HOSTS, "--sl", "16"], "expected 0 to 15"),
        ("send", [*HOSTS, "--gid-index", "-1"], "expected 0 to 255"),
        ("send", [*HOSTS, "--ib-port", "256"], "expected 1 to 255"),
        ("send", [*HOSTS, "--depth", "99999999"], "expected 1 to 65536"),
        ("send", [*HOSTS, "--ib-dev", ""], "expected devices in rail order"),
        ("send", [*HOSTS, "--ib-dev", "a,,b"], "expected devices in rail order"),
        ("send", [*HOSTS, "--secret-file", "/nowhere/secret"], "No such file"),
        ("bench", ["--hosts", ""], "--hosts is empty"),
        ("bench", ["--ib-dev", "a"], "--ib-dev can't do anything"),
        ("bench", ["--join", "5"], "--join can't do anything"),
        ("bench", ["--fabric", "f.toml", "--link", "1Gb/s"], "--fabric and --link contradict"),
        ("bench", ["--fabric", "f.toml", "--nodes", "4"], "--fabric and --nodes contradict"),
        ("bench", ["--nodes", "0"], "from 1 to"),
        ("bench", ["--sender", "record"], "invalid choice"),
        ("bench", ["-n", "0"], "from 1 to"),
        ("bench", ["-f", "1"], "from 2 to"),
        ("bench", ["--force"], "unrecognized arguments"),
        ("devices", ["--ib-port", "0"], "from 1 to 255"),
        ("devices", ["--rails", ""], "expected devices in rail order"),
    ],
)
def test_flags_that_can_not_act_and_numbers_that_can_not_be_are_refused(
    command: str,
    arguments: list[str],
    words: str,
    plan_file: Path,
    railopt_cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAILOPT_SECRET", SECRET.decode())
    ran = railopt_cli(command, *([plan_file] if command == "send" else []), *arguments)
    assert ran.code == 1, ran.err
    assert words in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("secret", [b"", b"short", b"\xff" * 8, b" " * 40, b"x" * 70000])
def test_a_secret_that_is_none_is_refused(
    secret: bytes, plan_file: Path, tmp_path: Path, railopt_cli: Cli
) -> None:
    (tmp_path / "secret").write_bytes(secret)
    ran = railopt_cli("send", plan_file, *HOSTS, "--secret-file", tmp_path / "secret")
    assert ran.code == 1
    assert "needs a shared secret of 16 to 65536 bytes" in ran.err


def test_mpirun_hands_out_port_and_secret_itself(
    plan_file: Path, railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setattr("railopt.runtime.rendezvous.mpi.world", lambda launch: object())
    for flag, value in (("--port", "4000"), ("--secret-file", "x")):
        ran = railopt_cli("send", plan_file, flag, value)
        assert ran.code == 1
        assert f"{flag} can't act here: mpirun launched this process" in ran.err


def test_a_record_that_can_not_be_written_leaves_nothing_behind(
    plan_file: Path, tmp_path: Path, railopt_cli: Cli
) -> None:
    before = sorted(tmp_path.iterdir())
    for target in (tmp_path, tmp_path / "no" / "posts.tsv"):
        assert railopt_cli("send", plan_file, "--sender", "record", "-o", target).code == 1
    assert sorted(tmp_path.iterdir()) == before


def test_mpirun_without_mpi4py_says_what_to_install(
    plan_file: Path, railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    ran = railopt_cli("send", plan_file)
    assert ran.code == 3
    assert "# launcher=mpirun rank=0/2 sender=verbs" in ran.err
    assert "railopt[mpi]" in ran.err


@pytest.fixture
def null_devices(monkeypatch: pytest.MonkeyPatch) -> NullLibrary:
    """Two nodes of two null devices instead of libibverbs and sysfs."""
    lib = NullLibrary([f"null{k}_{n}" for k in range(2) for n in range(2)])
    monkeypatch.setattr(wiring, "libibverbs", lambda: lib)
    found = [devices.DeviceInfo(f"null{k}_{n}", "-", -1, (), ()) for k in "01" for n in "01"]
    monkeypatch.setattr(verbs_carrier, "list_devices", lambda gids: found)
    monkeypatch.setenv("RAILOPT_SECRET", SECRET.decode())
    return lib


def before_each_run(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[verbs_sender.Verbs], None]
) -> None:
    """Have something happen to a sender whenever it is about to run a plan."""
    real = verbs_sender.Verbs.run

    def run(self: verbs_sender.Verbs, *args: Any) -> Any:
        act(self)
        return real(self, *args)

    monkeypatch.setattr(verbs_sender.Verbs, "run", run)


def lose_rail(null_devices: NullLibrary, sender: verbs_sender.Verbs) -> None:
    """Rail 0 of node 1 dies in the first run, and stays so."""
    if sender.group.rank == 0 and sender.rounds.round == 0:
        null_devices.down.add("null1_0")
        null_devices.inject(sender.wiring.by_place[1, 0].qp.pointer, 12, 3)


def on_two_nodes(*arguments: str) -> list[int]:
    codes, port = [-1, -1], free_port()

    def node(k: int) -> None:
        codes[k] = main(
            [
                *arguments,
                "--hosts",
                "127.0.0.1,127.0.0.1",
                "--rank",
                str(k),
                "--port",
                str(port),
                "--ib-dev",
                f"null{k}_0,null{k}_1",
            ]
        )

    threads = [threading.Thread(target=node, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return codes


def test_send_on_two_nodes(
    plan_file: Path, null_devices: NullLibrary, capsys: pytest.CaptureFixture[str]
) -> None:
    assert on_two_nodes("send", str(plan_file), "--iters", "2", "--report_gbits") == [0, 0]
    out = capsys.readouterr().out.splitlines()
    assert "Gb/s" in out[0]
    assert [row.split()[:3] for row in out[2:]] == [
        ["verbs", k, n] for k in "01" for n in ("0", "1", "all")
    ]


@pytest.mark.parametrize("words", [["--iters", "4"], ["--iters", "3", "--adapt", "rates"]])
def test_ranks_that_would_send_otherwise_are_of_another_run(
    plan_file: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs the plan less often, or plans anew, would leave the others waiting."""
    names = []

    def carry(plan: Any, sender: str, setting: Any, *rest: Any, **options: Any) -> Any:
        names.append(setting.run)
        raise InputError("enough")

    monkeypatch.setattr("railopt.cli.send.carry", carry)
    for arguments in (["--iters", "3"], words):
        assert main(["send", str(plan_file), "--sender", "loopback", *arguments]) == 1
    assert len(set(names)) == 2


def test_send_reports_a_rail_that_died_and_goes_on(
    plan_file: Path,
    null_devices: NullLibrary,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before_each_run(monkeypatch, partial(lose_rail, null_devices))
    assert on_two_nodes("send", str(plan_file), "--iters", "3") == [0, 0]
    captured = capsys.readouterr()
    assert captured.err.count("RETRY_EXC_ERR") == 2, "each end says so once"
    rows = [row.split() for row in captured.out.splitlines()[2:]]
    assert [row[4] for row in rows if row[2] == "0"] == ["dead:", "dead:"]
    assert [row[4] for row in rows if row[2] == "1"] == ["ok", "ok"]


def test_metrics_of_two_nodes(
    plan_file: Path,
    tmp_path: Path,
    null_devices: NullLibrary,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    railopt_cli: Cli,
) -> None:
    before_each_run(monkeypatch, partial(lose_rail, null_devices))
    after = tmp_path / "after"
    after.mkdir()
    (tmp_path / "before.prom").write_text("# EOF\n")
    files = ["--iters", "3", "--metrics", str(after / "{rank}.prom")]
    assert on_two_nodes("send", str(plan_file), *files) == [0, 0]
    plan = small_plan(2, 2)
    found = [families((after / f"{k}.prom").read_text()) for k in range(2)]
    for node in range(2):
        sent = found[node]["railopt_link_sent_bytes"]
        assert all(f'node="{node}"' in name for name in sent), "each its own links"
        assert sum(sent.values()) == 3 * plan.send[node].sum()
        assert max(found[node]["railopt_link_faults"].values()) == 1
    assert sum(found[0]["railopt_link_replans"].values()) == 1
    capsys.readouterr()
    ran = railopt_cli("blame", plan_file, "--counters", tmp_path / "before.prom", after, "--json")
    assert ran.code == 0, ran.err
    blamed = json.loads(ran.out)
    assert blamed["cause"] in ("diverted", "slow"), "a machine that others want has slow links"
    gained = {nic["rail"] for nic in blamed["nics"] if Fraction(nic["diverted"]) > 0}
    assert gained == {1}, "what was planned for the dead rail"
    assert all(nic["others"] == "0" for nic in blamed["nics"])


def test_metrics_and_talk_of_a_run_that_failed(
    plan_file: Path,
    tmp_path: Path,
    null_devices: NullLibrary,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def act(sender: verbs_sender.Verbs) -> None:
        if sender.group.rank == 0 and sender.rounds.round == 1:
            null_devices.down |= {"null1_0", "null1_1"}
            for rail in range(2):
                null_devices.inject(sender.wiring.by_place[1, rail].qp.pointer, 12, 1)

    before_each_run(monkeypatch, act)
    monkeypatch.setattr("railopt.runtime.senders.rounds.NEWS_S", 0.2)
    files = ["--iters", "3", "--metrics", str(tmp_path / "{rank}.prom")]
    assert on_two_nodes("send", str(plan_file), *files) == [3, 3]
    said = capsys.readouterr().err
    assert "no living rail is left to node" in said, "whichever end gives up first says so"
    assert "rail 1 between node 0 and node 1 died" in said
    found = families((tmp_path / "0.prom").read_text())
    assert sum(found["railopt_link_faults"].values()) == 2
    assert [*found["railopt_runs"].values()] == [1], "the one that came to its end"
    assert sum(found["railopt_link_sent_bytes"].values()) == small_plan(2, 2).send[0].sum()


@pytest.mark.slow
def test_a_dead_nic_leaves_the_plan_and_comes_back(
    plan_file: Path,
    tmp_path: Path,
    null_devices: NullLibrary,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def act(sender: verbs_sender.Verbs) -> None:
        lose_rail(null_devices, sender)
        if sender.rounds.round == 4:
            null_devices.down.clear()
        if sender.rounds.round >= 4:
            time.sleep(0.1)

    before_each_run(monkeypatch, act)
    saved = tmp_path / "now.toml"
    arguments = ["--iters", "30", "--adapt", "failures", "--save-fabric", str(saved), "--json"]
    assert on_two_nodes("send", str(plan_file), *arguments) == [0, 0]
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert [len(runs) for runs in data["nodes"]] == [30, 30]
    assert {run["wrong"] for runs in data["nodes"] for run in runs} == {0}
    first, second = data["replans"]
    assert (first["run"], second["digest"]) == (1, data["digest"]), "and the first plan again"
    back = [i for i, run in enumerate(data["nodes"][0]) if run["readmissions"]]
    assert back == [second["run"] - 1]
    assert "0:0 dead; 1:0 dead" in captured.err
    assert "is back after" in captured.err
    assert Fabric.read(saved).tx.min() > 0


def test_what_was_measured_is_saved_as_a_fabric(
    plan_file: Path, tmp_path: Path, railopt_cli: Cli
) -> None:
    saved = tmp_path / "now.toml"
    ran = railopt_cli("send", plan_file, "--save-fabric", saved, "--iters", "2")
    assert ran.code == 0
    assert f"wrote {saved}" in ran.err
    fabric = Fabric.read(saved)
    assert (fabric.nodes, fabric.rails) == (2, 2)
    assert 0 < fabric.tx.max() <= 50 * 10**9
    before = saved.read_text()
    again = railopt_cli("send", plan_file, "--save-fabric", saved)
    assert (again.code, again.out) == (1, "")
    assert "exists: give another name" in again.err
    assert saved.read_text() == before
    assert railopt_cli("send", plan_file, "--save-fabric", saved, "--force").code == 0
    nowhere = railopt_cli("send", plan_file, "--save-fabric", tmp_path / "no" / "now.toml")
    assert (nowhere.code, nowhere.out) == (1, ""), "before anything is sent"
    other = railopt_cli("send", plan_file, "--save-fabric", tmp_path / "now.topo")
    assert (other.code, other.out) == (1, "")
    assert "expected a name that ends in .toml" in other.err


def test_a_fabric_that_can_not_be_saved_hides_nothing(
    plan_file: Path, tmp_path: Path, railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise InputError("no space left")

    monkeypatch.setattr(Fabric, "save", full)
    ran = railopt_cli("send", plan_file, "--save-fabric", tmp_path / "now.toml")
    assert ran.code == 1
    assert "no space left" in ran.err
    assert "loopback" in ran.out
    monkeypatch.setattr(Carried, "wrong", 3)
    ran = railopt_cli("send", plan_file, "--save-fabric", tmp_path / "now.toml")
    assert "3 chunks arrived with wrong bytes" in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sender", "record", "--adapt", "rates"], "--adapt can't do anything"),
        (["--sender", "record", "--save-fabric", "x.toml"], "--save-fabric can't do anything"),
        (["--adapt", "always"], "invalid choice"),
        (["--force"], "--force can't do anything"),
    ],
)
def test_adapting_that_can_not_act_is_refused(
    plan_file: Path, railopt_cli: Cli, arguments: list[str], words: str
) -> None:
    ran = railopt_cli("send", plan_file, *arguments)
    assert ran.code in (1, 2)
    assert words in ran.err
    assert ran.out == ""


def test_a_plan_with_stages_is_not_made_again(tmp_path: Path, railopt_cli: Cli) -> None:
    from tests.contract.test_sender_contract import staged

    staged(small_plan(2, 2)).save(tmp_path / "staged.npz")
    ran = railopt_cli("send", tmp_path / "staged.npz", "--iters", "2", "--adapt", "rates")
    assert ran.code == 1
    assert "a plan with stages" in ran.err
    assert railopt_cli("send", tmp_path / "staged.npz", "--adapt", "off").code == 0


def test_bench_on_two_nodes(
    tmp_path: Path, null_devices: NullLibrary, capsys: pytest.CaptureFixture[str]
) -> None:
    assert on_two_nodes(
        "bench",
        "uniform",
        "-b",
        "64KiB",
        "-e",
        "256KiB",
        "-n",
        "2",
        "-w",
        "1",
        "--policy",
        "lpt,own-nic",
        "--wide",
        "--metrics",
        str(tmp_path / "{rank}.prom"),
    ) == [0, 0]
    rows = [
        line.split() for line in capsys.readouterr().out.splitlines() if not line.startswith("#")
    ]
    assert [row[:3] for row in rows] == [
        ["verbs", policy, str(size)]
        for size in (65536, 131072, 262144)
        for policy in ("lpt", "own-nic")
    ]
    assert {row[10] for row in rows} == {"0"}
    for node in range(2):
        found = families((tmp_path / f"{node}.prom").read_text())
        achieved = found["railopt_link_achieved_bytes_per_second"]
        assert len(achieved) == 2, "one per rail, to the one peer"
        assert min(achieved.values()) > 0


def test_bench_has_the_columns_of_nccl_tests(railopt_cli: Cli) -> None:
    arguments = [
        "bench",
        "uniform",
        "-b",
        "1MiB",
        "-e",
        "2MiB",
        "-f",
        "2",
        "-n",
        "2",
        "-w",
        "0",
        "--nodes",
        "2",
        "--rails",
        "2",
    ]
    ran = railopt_cli(*arguments, "--wide")
    assert ran.code == 0
    header = ran.out.splitlines()[0].lstrip("#").split()
    assert header == [
        "sender",
        "policy",
        "size(B)",
        "count",
        "type",
        "redop",
        "root",
        "time(us)",
        "algbw(GB/s)",
        "busbw(GB/s)",
        "#wrong",
        "bound%",
    ]
    data = json.loads(railopt_cli(*arguments, "--json").out)
    for row in data["rows"]:
        assert row["busbw"] == pytest.approx(row["algbw"] / 2)
        assert row["algbw"] == pytest.approx(row["size"] / row["seconds"] / 1e9)
        numerator, _, denominator = row["bound"].partition("/")
        bound = int(numerator) / int(denominator or 1)
        assert bound == pytest.approx(row["size"] / 2 / (2 * 50e9)), (
            "half of the buffer leaves, over two NICs"
        )
        assert row["bound_percent"] == pytest.approx(bound / row["seconds"] * 100)
    assert railopt_cli("bench", "-b", "2MiB", "-e", "1MiB").code == 1
    assert railopt_cli("bench", "--policy", "nonsense").code == 1


def fake_sysfs(
    root: Path, name: str, pci: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)"
) -> None:
    device = root / "devices" / pci
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    port = root / "class" / name / "ports" / "1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs" / "types").mkdir(parents=True)
    (port / "gid_attrs" / "ndevs").mkdir(parents=True)
    (root / "class" / name / "device").symlink_to(device)
    for file, text in (("state", state), ("rate", rate), ("link_layer", "Ethernet")):
        (port / file).write_text(text + "\n")
    gids = [
        "fe80:0000:0000:0000:0000:00ff:fe00:0a00",
        "0000:0000:0000:0000:0000:ffff:0a0a:0001",
        "0000:0000:0000:0000:0000:ffff:0a0a:0001",
        "0000:0000:0000:0000:0000:0000:0000:0000",
    ]
    for index, (gid, kind) in enumerate(
        zip(gids, ["RoCE v2", "IB/RoCE v1", "RoCE v2", ""], strict=True)
    ):
        (port / "gids" / str(index)).write_text(gid + "\n")
        (port / "gid_attrs" / "types" / str(index)).write_text(kind + "\n")
        (port / "gid_attrs" / "ndevs" / str(index)).write_text("eth7\n")


@pytest.fixture
def two_nics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_sysfs(tmp_path, "mlx5_0", "0000:c1:00.0")
    fake_sysfs(tmp_path, "mlx5_1", "0000:41:00.0")
    fake_sysfs(tmp_path, "mlx5_2", "0000:81:00.0", state="1: DOWN")
    lib = NullLibrary(["mlx5_0", "mlx5_1", "mlx5_2"])
    sysfs = tmp_path / "class"
    real = devices.list_devices
    monkeypatch.setattr("railopt.cli.devices.list_devices", lambda: real(lib, sysfs))
    return sysfs


def test_devices_lists_ports_gids_and_the_rail_map(two_nics: Path, railopt_cli: Cli) -> None:
    ran = railopt_cli("devices")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["0", "mlx5_1"],
        ["1", "mlx5_0"],
        ["-", "mlx5_2"],
    ], "PCI order"
    assert "2=::ffff:10.10.0.1 (RoCE v2)" in lines[2]
    assert "400 Gb/sec (4X NDR)" in lines[2]
    assert lines[5] == "# rail map: --ib-dev mlx5_1,mlx5_0"
    data = json.loads(railopt_cli("devices", "--rails", "mlx5_0,mlx5_1", "--json").out)
    assert data["rails"] == ["mlx5_0", "mlx5_1"]
    assert {d["name"]: d["numa"] for d in data["devices"]} == {
        "mlx5_0": 1,
        "mlx5_1": 1,
        "mlx5_2": 1,
    }
    assert railopt_cli("devices", "--rails", "mlx5_9").code == 3
    assert railopt_cli("devices", "--rails", "mlx5_0,mlx5_0").code == 1
    assert devices.is_roce_v2("mlx5_0", 1, 2, two_nics)
    assert not devices.is_roce_v2("mlx5_0", 1, 1, two_nics)


def test_devices_without_library_or_device_exits_3(
    railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise BackendError("libibverbs.so.1 can't be loaded; install it")

    monkeypatch.setattr(devices, "libibverbs", missing)
    assert railopt_cli("devices").code == 3
    monkeypatch.setattr(devices, "libibverbs", lambda: NullLibrary([]))
    ran = railopt_cli("devices")
    assert ran.code == 3
    assert "ibverbs-providers" in ran.err


def test_a_plan_with_other_rails_is_refused(two_nics: Path) -> None:
    found = devices.list_devices(NullLibrary(["mlx5_0", "mlx5_1", "mlx5_2"]), two_nics)
    assert devices.rail_map(None, found, count=2) == ["mlx5_1", "mlx5_0"]
    with pytest.raises(InputError, match=r"the plan has 4 rails, this node would use 2 .*--ib-dev"):
        devices.rail_map(None, found, count=4)


def test_adapting_after_the_only_run_is_refused(plan_file: Path, railopt_cli: Cli) -> None:
    ran = railopt_cli("send", plan_file, "--adapt", "rates")
    assert ran.code == 1
    assert "--adapt can't do anything with --iters 1: one run leaves none to plan for" in ran.err
