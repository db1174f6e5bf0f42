"""Who am I: launchers' environments, host lists, contradictions."""

from __future__ import annotations

import random
import socket
import time

import pytest

from railopt.base.errors import InputError
from railopt.runtime.rendezvous.address import is_local
from railopt.runtime.rendezvous.launch import Launch, detect, expand_hosts, from_hosts

OMPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "16"}
PMI = {"PMI_RANK": "3", "PMI_SIZE": "16"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_NODELIST": "gpu[08-10,12]",
}
TORCH = {
    "RANK": "3",
    "WORLD_SIZE": "16",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "t1",
}


@pytest.mark.parametrize(
    ("environ", "launcher", "hosts", "run"),
    [
        (OMPI, "mpirun", (), ""),
        (PMI, "pmi", (), ""),
        (SLURM, "slurm", ("gpu08", "gpu09", "gpu10", "gpu12"), "77.0"),
        (TORCH, "torchrun", ("10.0.0.1",), "t1.29500"),
    ],
)
def test_each_launcher_is_understood(
    environ: dict[str, str], launcher: str, hosts: tuple[str, ...], run: str
) -> None:
    launch = detect(environ)
    assert launch == Launch(launcher, 3, 16, hosts, run)
    assert str(launch) == f"# launcher={launcher} rank=3/16"


def test_nobody_launched_us() -> None:
    assert detect({"PATH": "/bin"}) is None


def test_a_batch_script_is_no_step() -> None:
    assert detect({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None


def test_launchers_that_agree_are_one() -> None:
    assert detect({**OMPI, **SLURM}) == Launch("mpirun", 3, 16)


def test_contradictions_are_refused_and_can_be_settled() -> None:
    both = {**SLURM, **TORCH, "WORLD_SIZE": "128", "RANK": "24"}
    with pytest.raises(
        InputError,
        match=r"torchrun says rank 24/128, slurm says 3/16.*--launcher torchrun or --launcher "
        r"slurm",
    ):
        detect(both)
    slurm = detect(both, "slurm")
    assert slurm is not None
    assert slurm.size == 16


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK='x'"),
        ({"RANK": "0", "WORLD_SIZE": "9" * 5000}, "WORLD_SIZE='999"),
        ({"RANK": "0", "WORLD_SIZE": "1_0"}, "WORLD_SIZE='1_0'"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "\x1b[2J"}, "not a host's name"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 of 2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "rank -1 of 2"),
    ],
)
def test_nonsense_is_refused(environ: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        detect(environ)


def test_a_named_launcher_must_be_there() -> None:
    with pytest.raises(InputError, match="SLURM_PROCID and SLURM_NTASKS are not both set"):
        detect(OMPI, "slurm")
    with pytest.raises(InputError, match="unknown launcher"):
        detect(OMPI, "lsf")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a,b", ["a", "b"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],x", ["n08", "n09", "n10", "n12", "x"]),
        ("r[1-2]-ib", ["r1-ib", "r2-ib"]),
        ("10.0.0.1,10.0.0.2", ["10.0.0.1", "10.0.0.2"]),
        ("rack[1-2]n[08-09]", ["rack1n08", "rack1n09", "rack2n08", "rack2n09"]),
        ("fe80::1%eth0,::1", ["fe80::1%eth0", "::1"]),
        ("", []),
    ],
)
def test_host_lists(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a[1-999999999]", "more than 65536 hosts"),
        ("a[1-99999999999999999999]", "not a number or a range"),
        ("a[1-300]b[1-300]", "more than 65536 hosts"),
        ("a[1-60000],b[1-60000]", "more than 65536 hosts"),
        ("a[3-1]", "goes down"),
        ("a[1-2", "not a host's name"),
        ("a]", "not a host's name"),
        ("a[]", "not a number or a range"),
        ("a[\u0661]", "not a number or a range"),
        ("a b", "not a host's name"),
        ("\x1b[2J", "not a host's name"),
        ("-oProxyCommand", "not a host's name"),
        ("h\u00e9", "not a host's name"),
        ("a\0b", "not a host's name"),
        ("a" * 300, "not a host's name"),
        ("x" + "[1]" * 5000 + "!", "not a host's name"),
    ],
)
def test_host_lists_of_strangers_are_one_sentence(text: str, words: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError, match=words) as error:
        expand_hosts(text)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300
    assert time.process_time() - began < 2


ODD = [
    *("", "0", "1", "-1", "2", "x", " 7 ", "1_0", "\u0661", "1e9", "0x10", "9" * 5000, "nan"),
    *("\udcff\udcfe", "\x1b[31m", "a[1-3]", "a[1-999999999]", "a,b", "[", "]", "host", "::1"),
]


def test_fuzzed_environments_give_a_launch_or_one_sentence() -> None:
    """3,000 environments of all launchers, with values that no launcher would set."""
    rng = random.Random(7)
    names = sorted({*OMPI, *PMI, *SLURM, *TORCH, "PMIX_NAMESPACE", "SLURM_JOB_NODELIST"})
    launches, said = 0, []
    for _ in range(3000):
        base = rng.choice([OMPI, PMI, SLURM, TORCH, {**OMPI, **SLURM}])
        environ = {**base, **{rng.choice(names): rng.choice(ODD) for _ in range(rng.randrange(4))}}
        try:
            launch = detect(environ, rng.choice([None, None, "slurm", "torchrun"]))
        except InputError as error:
            said.append(str(error))
        else:
            launches += 1
            assert launch is None or 0 <= launch.rank < launch.size <= 65536
    assert launches > 300, "the fuzz reaches what is right too"
    assert all(text.isprintable() and len(text) < 400 for text in said)


def test_fuzzed_host_lists_give_hosts_or_one_sentence() -> None:
    rng, said = random.Random(11), []
    for _ in range(3000):
        text = "".join(rng.choice("a0n1,[]- .9%\x00\u00e9") for _ in range(rng.randrange(24)))
        try:
            hosts = expand_hosts(text)
        except InputError as error:
            said.append(str(error))
        else:
            assert all(host.isprintable() and not set(host) & set(" [],") for host in hosts)
    assert 300 < len(said) < 3000
    assert all(text.isprintable() for text in said)


def test_the_rank_is_found_among_the_hosts() -> None:
    assert is_local("127.0.0.1")
    assert is_local(socket.gethostname())
    assert not is_local("192.0.2.7")
    assert from_hosts("192.0.2.7,127.0.0.1").rank == 1
    assert from_hosts("127.0.0.1,127.0.0.1", rank=1).rank == 1
    for hosts, rank, words in (
        ("127.0.0.1,127.0.0.1", None, "2 of them are this machine"),
        ("192.0.2.7,192.0.2.8", None, "none of them is this machine"),
        ("a,b", 2, "expected 0 to 1"),
        ("", None, "empty"),
        ("n[a-b]", 0, "not a number"),
    ):
        with pytest.raises(InputError, match=words):
            from_hosts(hosts, rank)
