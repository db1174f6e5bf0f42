"""NCCL Inspector's files as traffic: what counts, what is said, what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, demand_from
from railopt.base.errors import InputError
from railopt.model.running import running_job
from tests.inspector import GPUS, NODES, drawn, exchange, record, write

FABRIC = Fabric.uniform(NODES, GPUS)


@pytest.mark.parametrize("spaced", [True, False])
def test_the_matrix_of_several_exchanges_is_their_sum(tmp_path: Path, spaced: bool) -> None:
    first, second = drawn(1), drawn(2)
    records = [*exchange(first), *exchange(second, 9)]
    text = write(tmp_path / "run", records, spaced=spaced)
    job = running_job(text, FABRIC)
    np.testing.assert_array_equal(job.traffic.bytes, first + second)
    assert job.notes == ()
    assert demand_from(text, FABRIC) == job.traffic


def test_a_part_is_chosen_by_number_and_by_time(tmp_path: Path) -> None:
    first, second = drawn(4), drawn(5)
    records = [*exchange(first), *exchange(second, 9, time=2_000_000)]
    text = write(tmp_path / "run", records)
    for options, expected in (
        ("sn=1-8", first),
        ("sn=9-16", second),
        ("to=2s", first),
        ("from=2s", second),
        ("from=0s,to=2001ms,comm=0x7f", first + second),
        ("comm=EP Group 0", first + second),
    ):
        job = running_job(f"{text}:{options}", FABRIC)
        np.testing.assert_array_equal(job.traffic.bytes, expected, options)


def test_what_is_doubled_missing_or_foreign_is_said(tmp_path: Path) -> None:
    matrix = drawn(8)
    records = list(exchange(matrix))
    del records[1]  # a Send of rank 0 to rank 1: the Recv is still there
    text = write(tmp_path / "run", [*records, records[0]])
    other = {**records[0], "coll_perf": {"coll": "AllReduce"}}
    del other["p2p_perf"]
    stats = {**other, "dump_stats": {"coll_dropped_total": 1, "p2p_dropped_total": 7}}
    del stats["coll_perf"]
    with gzip.open(tmp_path / "run" / "more.jsonl.gz", "wt") as file:
        file.write("\n".join([json.dumps(other), json.dumps(stats), "epoch 3 loss 2.1", ""]))
    job = running_job(text, FABRIC)
    np.testing.assert_array_equal(job.traffic.bytes, matrix)
    said = " | ".join(job.notes)
    for part in ("count once: 1", "sent and received: 1, most", "that are not there: 1 of 32;"):
        assert part in said
    for part in ("dropped 7 operations", "matrix: 1", "NCCL Inspector: 1"):
        assert part in said


def test_operations_before_the_first_number_are_missing(tmp_path: Path) -> None:
    """The ring keeps the last ones alone; a part that was asked for begins where it does."""
    text = write(tmp_path / "run", exchange(drawn(14), 1001))
    said = running_job(text, FABRIC).notes
    assert "that are not there: 4000 of 4032; Inspector keeps the last" in said[0]
    for numbers, missing in (("1001-1008", 0), ("1000-1010", 12), ("1003-", 0), ("999-", 8)):
        said = running_job(f"{text}:sn={numbers}", FABRIC).notes
        assert ("".join(said).partition("not there: ")[2].split()[:1] or ["0"]) == [str(missing)]


def test_a_rank_of_none_of_the_numbers_is_missing(tmp_path: Path) -> None:
    records = [*exchange(drawn(23)), *exchange(drawn(24), 9)]
    kept = [one for one in records if one["header"]["rank"] or one["p2p_perf"]["p2p_sn"] > 8]
    job = running_job(write(tmp_path / "run", kept) + ":sn=0-8", FABRIC)
    assert "not there: 8 of 32;" in job.notes[-1]
    np.testing.assert_array_equal(job.traffic.bytes[1:, 1:], drawn(23)[1:, 1:])


def test_smaller_communicators_are_placed_by_their_processes(tmp_path: Path) -> None:
    world = list(exchange(np.full((4, 4), 8192)))
    pair = drawn(9)[:2, :2]
    members = (3, 0)
    small = []
    for one in exchange(pair, id="0x9", name="EP Group 1", ranks=2):
        gpu = members[one["header"]["rank"]]
        one["metadata"].update(hostname=f"gpu{gpu // GPUS}", pid=1000 + gpu)
        small.append(one)
    text = write(tmp_path / "run", [*world, *small])
    job = running_job(text + ":comm=0x9", FABRIC)
    expected = np.zeros((4, 4), np.int64)
    expected[np.ix_(members, members)] = pair
    np.testing.assert_array_equal(job.traffic.bytes, expected)
    assert job.notes[-1] == "1 of 2 communicators have a Send or Recv"


def test_gpus_of_one_process_are_told_apart_by_one_communicator_alone(tmp_path: Path) -> None:
    matrix = drawn(22)
    records = [*exchange(matrix, id="0x1"), *exchange(matrix, id="0x2")]
    for one in records:
        one["metadata"]["pid"] = 1000
    text = write(tmp_path / "run", records)
    np.testing.assert_array_equal(running_job(text + ":comm=0x1", FABRIC).traffic.bytes, matrix)
    for options in ("", ":comm=0x2"):
        with pytest.raises(InputError, match=r"several GPUs, .* alone, comm=0x1$"):
            running_job(text + options, FABRIC)


def test_ranks_follow_their_hosts(tmp_path: Path) -> None:
    """Ranks that alternate between hosts are GPUs of their nodes, and nodes have the fabric's
    order.
    """
    matrix = drawn(10)
    records = list(exchange(matrix))
    for one in records:
        one["metadata"]["hostname"] = f"gpu{one['header']['rank'] % 2}"
    text = write(tmp_path / "run", records)
    order = [0, 2, 1, 3]
    job = running_job(text, FABRIC)
    np.testing.assert_array_equal(job.traffic.bytes, matrix[np.ix_(order, order)])
    named = Fabric.from_toml({"nodes": 2, "rails": 2, "link": "400Gb/s", "hosts": ["gpu1", "gpu0"]})
    order = [1, 3, 0, 2]
    job = running_job(text, named)
    np.testing.assert_array_equal(job.traffic.bytes, matrix[np.ix_(order, order)])


def test_hosts_have_their_domain_or_are_said_to_be_others(tmp_path: Path) -> None:
    matrix = drawn(15)
    swapped = matrix[np.ix_([2, 3, 0, 1], [2, 3, 0, 1])]
    named = {"nodes": 2, "rails": 2, "link": "400Gb/s"}
    for hosts, expected, said in (
        (("b.dc", "a.dc"), swapped, ()),
        (("b.dc", "c"), matrix, ("hosts are not the fabric's (b.dc, c): nodes follow the order",)),
        (("b.dc", "b.ec"), matrix, ("hosts are not the fabric's (b.dc, b.ec)",)),
    ):
        records = list(exchange(matrix))
        for one in records:
            one["metadata"]["hostname"] = hosts[one["header"]["rank"] // GPUS]
        text = write(tmp_path / hosts[1], records)
        job = running_job(text, Fabric.from_toml({**named, "hosts": ["a", "b"]}))
        np.testing.assert_array_equal(job.traffic.bytes, expected)
        assert len(job.notes) == len(said)
        assert all(part in note for part, note in zip(said, job.notes, strict=True))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"p2p_msg_size_bytes": -1}, "line 8: p2p_msg_size_bytes = -1"),
        ({"p2p_msg_size_bytes": 1.5}, "p2p_msg_size_bytes = 1.5"),
        ({"p2p_exec_time_us": -50}, "p2p_exec_time_us = -50"),
        ({"p2p_peer": 4}, "p2p_peer = 4: expected a rank below 4"),
        ({"p2p": "Broadcast"}, "expected Send or Recv"),
        ({"rank": 4}, "rank = 4"),
        ({"n_ranks": 8}, "communicator '0x7f' of 8 ranks, before 4"),
        ({"pid": 7}, "two jobs in one folder"),
    ],
)
def test_a_contradiction_is_one_sentence(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    records = list(exchange(drawn(11)))
    for part in records[-1].values():
        part.update({key: value for key, value in change.items() if key in part})
    text = write(tmp_path / "run", records)
    with pytest.raises(InputError, match=expected):
        running_job(text, FABRIC)


def test_sizes_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    records = list(exchange(drawn(12)))
    again = json.loads(json.dumps(records[0]))
    again["p2p_perf"]["p2p_msg_size_bytes"] += 1
    with pytest.raises(InputError, match="rank 0: Send 1 with peer 0 has"):
        running_job(write(tmp_path / "run", [*records, again]), FABRIC)


def test_a_send_and_its_recv_of_other_sizes_are_refused(tmp_path: Path) -> None:
    """Though their sums are equal; where a line of one of both may be missing, nothing is
    contradicted.
    """
    first, second = drawn(20), drawn(21)
    records = [*exchange(first), *exchange(second, 9)]
    one, two = (records[place]["p2p_perf"] for place in (12, 44))  # Recvs of rank 1 from rank 0
    one["p2p_msg_size_bytes"], two["p2p_msg_size_bytes"] = int(second[0, 1]), int(first[0, 1])
    text = write(tmp_path / "run", records)
    wrong = f"Send 2 of rank 0 to 1 has {first[0, 1]} bytes, Recv 5, .*, {second[0, 1]}$"
    for options in ("", ":sn=1-8", ":from=0s"):
        with pytest.raises(InputError, match=wrong):
            running_job(text + options, FABRIC)
    del records[-12]  # of rank 2, which is not concerned
    with pytest.raises(InputError, match=wrong):
        running_job(write(tmp_path / "less", records), FABRIC)
    said = "differ in what was sent and received: 1"
    assert said in running_job(text + ":sn=9-16", FABRIC).notes[0]
    cut = running_job(
        write(tmp_path / "cut", [*exchange(first), *exchange(second, 9)][:-1]), FABRIC
    )
    np.testing.assert_array_equal(cut.traffic.bytes, first + second)
    assert [said in note for note in cut.notes] == [True]


def test_sums_beyond_int64_are_refused(tmp_path: Path) -> None:
    records = list(exchange(drawn(18)))
    huge = [record(0, "Send", 1, number, 2**62) for number in range(9, 13)]
    with pytest.raises(InputError, match=r"1844674407.* bytes in all"):
        running_job(write(tmp_path / "run", [*records, *huge]), FABRIC)


def test_other_input_is_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "run", exchange(drawn(13)))
    (tmp_path / "empty").mkdir()
    few = write(tmp_path / "few", list(exchange(drawn(13)))[:24])
    for asked, fabric, expected in (
        (text, Fabric.uniform(4, 2), "has 4 ranks, the fabric 4 nodes x 2 = 8 GPUs"),
        (text, Fabric.uniform(1, 4), "4 ranks on 2 hosts"),
        (text + ":sn=99", FABRIC, "no Send or Recv that was asked for"),
        (text + ":form=1s", FABRIC, "did you mean 'from'"),
        (text + ":from=soon", FABRIC, "soon"),
        (f"inspector:{tmp_path}/nowhere", FABRIC, "no folder of that name"),
        (f"inspector:{tmp_path}/empty", FABRIC, "no line of NCCL Inspector in 0 files"),
        (few, FABRIC, "1 of 4 ranks have no file .3.: expected all files"),
    ):
        with pytest.raises(InputError, match=expected):
            running_job(asked, fabric)


@pytest.mark.parametrize(
    "line",
    [
        ("gap", "--policy", "own-nic", "--limit", "0s"),
        ("compare", "--degrade", "0:0=0.5", "--policy", "own-nic"),
        ("simulate", "--policy", "own-nic"),
        ("size", "--cases", "1"),
    ],
    ids=lambda line: line[0],
)
def test_commands_take_it_and_say_what_is_doubled(
    tmp_path: Path, railopt_cli: Any, line: tuple[str, ...]
) -> None:
    matrix, command, *options = drawn(6), *line
    text = write(tmp_path / "run", [*exchange(matrix), record(0, "Send", 1, 2, int(matrix[0, 1]))])
    nodes = ("--nodes", "2", "--rails", "2", "--gpus", "2", "--chunk", "256KiB", "--json")
    ran = railopt_cli(command, text, *nodes, *options)
    assert ran.code == 0, ran.err
    assert "operations that stood there twice, and count once: 1" in ran.err
    assert json.loads(ran.out)
