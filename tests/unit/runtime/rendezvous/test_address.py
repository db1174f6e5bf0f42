"""Where rank 0 listens."""

from __future__ import annotations

import socket

import pytest

from railopt.base.errors import BackendError
from railopt.runtime.rendezvous import address

OWN = {"127.0.0.1", "127.0.1.1", "10.0.0.1", "10.9.0.1", "::1"}
NAMES = {
    "debian": ["127.0.1.1"],
    "node1": ["10.0.0.1"],
    "both": ["127.0.1.1", "10.0.0.1"],
    "node2": ["10.9.0.2"],
    "localhost": ["127.0.0.1"],
    "other": ["192.0.2.9"],
}


@pytest.fixture(autouse=True)
def a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with two networks, whose names resolve as in NAMES."""
    monkeypatch.setattr(address, "resolve", lambda host: NAMES.get(host, [host]))
    monkeypatch.setattr(address, "can_bind", lambda host: host in OWN)
    monkeypatch.setattr(address, "address_towards", lambda other: other.rpartition(".")[0] + ".1")


@pytest.mark.parametrize(
    ("hosts", "bind", "where"),
    [
        (["node1", "node2"], None, "10.0.0.1"),
        (["both", "node2"], None, "10.0.0.1"),
        (["debian", "node2"], None, "10.9.0.1"),
        (["debian", "debian"], None, "127.0.1.1"),
        (["localhost", "localhost"], None, "127.0.0.1"),
        (["127.0.0.1", "127.0.0.1"], None, "127.0.0.1"),
        (["10.0.0.1", "10.0.0.2"], None, "10.0.0.1"),
        (["::1", "::1"], None, "::1"),
        (["node1", "node2"], "0.0.0.0", "0.0.0.0"),
        ([], None, "192.0.2.1"),
        ([], "10.0.0.1", "10.0.0.1"),
    ],
)
def test_rank_0_listens_at_the_address_of_its_name(
    hosts: list[str], bind: str | None, where: str
) -> None:
    assert address.listening_address(hosts, bind) == where


def test_a_name_that_is_not_this_machine_is_refused() -> None:
    with pytest.raises(BackendError, match=r"that is no address of this machine.*--bind"):
        address.listening_address(["other", "node2"])


def test_names_that_can_not_be_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for host in ("a" * 70, "a..b", "\udcff", "a\0b", ""):
        assert not address.is_local(host) or host == ""
    assert address.is_local("127.0.0.1")
    assert not address.can_bind("192.0.2.7")
    assert address.is_loopback("::1%lo")
    assert not address.is_loopback("no address")
    socket.inet_aton(address.address_towards("192.0.2.1"))
