"""Chakra execution traces, decoded again by protobuf itself from the public schema's fields."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

import railopt
from railopt import Fabric, Plan
from railopt.answers.chakra import COMP, RECV, SEND, astra, traces, varint
from railopt.base.errors import InputError
from railopt.model.leaves import Leaves

FIELD = descriptor_pb2.FieldDescriptorProto
NODE = {
    "id": (1, FIELD.TYPE_UINT64),
    "name": (2, FIELD.TYPE_STRING),
    "type": (3, FIELD.TYPE_INT32),
    "ctrl_deps": (4, FIELD.TYPE_UINT64),
    "data_deps": (5, FIELD.TYPE_UINT64),
    "attr": (10, "Attribute"),
}
ATTRIBUTE = {
    "name": (1, FIELD.TYPE_STRING),
    "int32_val": (7, FIELD.TYPE_INT32),
    "int64_val": (9, FIELD.TYPE_INT64),
    "bool_val": (27, FIELD.TYPE_BOOL),
}
METADATA = {"version": (1, FIELD.TYPE_STRING)}


def _messages() -> dict[str, Any]:
    """Classes of the messages that are written, with the numbers and types of et_def.proto."""
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")
    for name, fields in (("Attribute", ATTRIBUTE), ("Node", NODE), ("Metadata", METADATA)):
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            many = field in ("ctrl_deps", "data_deps", "attr")
            made = message.field.add(
                name=field,
                number=number,
                label=FIELD.LABEL_REPEATED if many else FIELD.LABEL_OPTIONAL,
            )
            if isinstance(kind, str):
                made.type, made.type_name = FIELD.TYPE_MESSAGE, f".et.{kind}"
            else:
                made.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"et.{name}"))
        for name in ("Node", "Metadata")
    }


CLASSES = _messages()


def decoded(data: bytes) -> list[Any]:
    """The nodes of a trace."""
    parts, at = [], 0
    while at < len(data):
        size = shift = 0
        while True:
            byte = data[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        parts.append(data[at : at + size])
        at += size
    assert at == len(data)
    assert CLASSES["Metadata"].FromString(parts[0]).version == "0.0.4"
    nodes = [CLASSES["Node"].FromString(part) for part in parts[1:]]
    for node in nodes:
        assert list(node.data_deps) == list(node.ctrl_deps)[: len(node.data_deps)]
        assert not any(len(UnknownFieldSet(part)) for part in (node, *node.attr))
    return nodes


def attributes(node: Any) -> dict[str, int]:
    values = {"is_cpu_op": "bool_val", "comm_size": "int64_val"}
    return {a.name: getattr(a, values.get(a.name, "int32_val")) for a in node.attr}


@pytest.fixture(scope="module")
def plan() -> Plan:
    fabric = Fabric.uniform(3, 2)
    return railopt.plan(fabric, railopt.workloads.zipf(fabric, seed=2), chunk="64KiB")


def test_every_chunk_is_sent_once_and_received_once(plan: Plan) -> None:
    chunks, rails = plan.chunks, plan.fabric.rails
    seen: dict[int, list[int]] = {SEND: [], RECV: []}
    for rank, data in enumerate(traces(plan)):
        nodes = decoded(data)
        assert [node.id for node in nodes] == list(range(len(nodes)))
        sends = [node.id for node in nodes if node.type == SEND]
        assert [list(nodes[k].ctrl_deps) for k in sends] == [[], *([k] for k in sends[:-1])]
        for node in nodes:
            found = attributes(node)
            chunk = found["comm_tag"]
            assert found == {
                "is_cpu_op": False,
                "comm_src": chunks.src[chunk] * rails + plan.rail[chunk],
                "comm_dst": chunks.dst[chunk] * rails + plan.rail[chunk],
                "comm_tag": chunk,
                "comm_size": chunks.size[chunk],
            }
            assert found["comm_src" if node.type == SEND else "comm_dst"] == rank
            assert list(node.data_deps) == []
            assert node.type == SEND or list(node.ctrl_deps) == []
            seen[node.type].append(chunk)
    for kind in (SEND, RECV):
        assert sorted(seen[kind]) == list(range(len(chunks)))


def test_stages_wait_for_each_other(plan: Plan) -> None:
    stage = np.arange(len(plan.chunks), dtype=np.int32) % 3
    staged = Plan(plan.fabric, plan.chunks, plan.rail, "staged", stage)
    for data in traces(staged):
        nodes = decoded(data)
        barriers = [node for node in nodes if node.type == COMP]
        assert len(barriers) == 2
        turns = [int(stage[attributes(n)["comm_tag"]]) for n in nodes if n.type != COMP]
        assert turns == sorted(turns)
        first, second = barriers
        assert list(first.ctrl_deps) == list(range(first.id))
        assert list(second.ctrl_deps) == list(range(first.id + 1, second.id))
        for node in nodes:
            waits = [] if node.id < first.id else [first.id if node.id < second.id else second.id]
            assert node.type == COMP or list(node.data_deps) == waits
            turns = [] if node.type != SEND else list(node.ctrl_deps)[len(waits) :]
            assert all(nodes[k].type == SEND and k > max([-1, *waits]) for k in turns)


def test_a_file_a_nic(plan: Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.npz")
    written = railopt.convert(tmp_path / "plan.npz", tmp_path / "out.et").paths
    beside = ["out.system.json", "out.memory.json", "out.network.json", "out.md"]
    traces_ = [f"out.{rank}.et" for rank in range(6)]
    assert [path.name for path in written] == [*traces_, *beside]
    assert [path.read_bytes() for path in written[:6]] == list(traces(plan))
    with pytest.raises(InputError, match=r"out\.0\.et exists"):
        railopt.convert(tmp_path / "plan.npz", tmp_path / "out.et")
    railopt.convert(tmp_path / "plan.npz", tmp_path / "out.et", force=True)


def test_what_astra_sim_needs_is_beside_the_traces(plan: Plan) -> None:
    found = dict(astra(plan, "run"))
    network = json.loads(found["network.json"])
    ranks = plan.fabric.nodes * plan.fabric.rails
    assert network["npus_count"] == [ranks]
    assert network["bandwidth"][0] * 2**30 == plan.fabric.tx[0, 0]
    assert network["latency"] == [plan.fabric.latency_ps / 2000]  # two hops, nanoseconds
    assert json.loads(found["system.json"])["all-to-all-implementation"] == ["direct"]
    assert "not in all of ASTRA-sim" in found["md"]
    for name in ("run.system.json", "run.network.json", "run.memory.json", f"run.{ranks - 1}.et"):
        assert name in found["md"]
    slow = plan.fabric.degraded({(0, 0): "0.5"})
    leaves = replace(plan.fabric, leaves=Leaves(nodes=1, rails=2, uplinks=1, rate=10**9))
    for fabric in (slow, leaves):
        found = dict(astra(replace(plan, fabric=fabric), "run"))
        assert "network.json" not in found
        assert "no network file" in found["md"]
        assert "--network-configuration" not in found["md"]


def test_a_nic_that_carries_nothing_has_one_node_of_no_duration() -> None:
    fabric = Fabric.uniform(2, 2)
    empty = railopt.Traffic.from_matrix(np.zeros((4, 4), np.int64), fabric)
    for data in traces(railopt.plan(fabric, empty)):
        (idle,) = decoded(data)
        assert idle.type == COMP
        assert attributes(idle) == {"is_cpu_op": False}


def test_varints() -> None:
    wanted = [b"\0", b"\x7f", b"\x80\1", b"\xac\2"]
    assert [varint(n) for n in (0, 127, 128, 300)] == wanted
