"""Schedule: what its constructor refuses, its files, and the plan, .cm and pieces that it
becomes.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from railopt import Fabric, Plan, Traffic, gap
from railopt.base.arrays import save_npz
from railopt.base.errors import CheckFailed, FormatError, Infeasible, InputError
from railopt.files.formats import parse_cm
from railopt.model.workloads import zipf
from railopt.schedule import KINDS, Schedule, certificate, conflicts, synthesise
from railopt.schedule.certify import staged
from railopt.schedule.pieces import deal
from tests.damage import damaged, saved
from tests.in_process import interpreted

FABRIC = Fabric.uniform(4, 8)
TRAFFIC = zipf(FABRIC, skew=0.8, seed=3)


@pytest.fixture(scope="module")
def compact() -> Schedule:
    return synthesise(FABRIC, TRAFFIC)


def between(traffic: Traffic) -> np.ndarray:
    """The matrix without what stays inside servers."""
    node = np.arange(len(traffic.bytes)) // traffic.gpus
    return np.where(node[:, None] == node, 0, traffic.bytes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [None, "ascending", "descending", "built"])
def test_every_kind_becomes_a_plan_that_moves_every_byte_once(kind: str, order: str | None) -> None:
    schedule = synthesise(FABRIC, TRAFFIC, kind, order=order)
    plan = schedule.plan()
    assert np.array_equal(Traffic.from_chunks(plan.chunks).bytes, between(TRAFFIC))
    starts = np.lexsort([plan.chunks.offset, plan.chunks.flow])
    flow, offset, size = (
        plan.chunks.flow[starts],
        plan.chunks.offset[starts],
        plan.chunks.size[starts],
    )
    first = np.concatenate([[True], flow[1:] != flow[:-1]])
    assert np.all(offset[first] == 0)
    follows = ~first[1:]
    assert np.array_equal(offset[1:][follows], (offset + size)[:-1][follows]), (
        "pieces overlap or leave a hole"
    )
    assert conflicts(plan) == []
    assert (plan.stage is not None) == KINDS[kind].barriers
    assert plan.policy == kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_loads_are_within_a_byte_a_peer_of_the_bound(kind: str) -> None:
    schedule = synthesise(FABRIC, TRAFFIC, kind)
    plan = schedule.plan()
    spread = plan.send.max(axis=1) - plan.send.min(axis=1)
    assert spread.max() <= FABRIC.nodes - 1
    worst = plan.bottleneck
    assert worst.load - schedule.line_sum / 8 <= FABRIC.nodes - 1
    assert gap(plan).bound >= schedule.bound.value


def test_bound_names_the_fullest_line(compact: Schedule) -> None:
    matrix = TRAFFIC.node_matrix
    sums = matrix.sum(axis=1 if compact.bound.side == "send" else 0)
    assert (
        sums[compact.bound.node]
        == compact.line_sum
        == max(matrix.sum(0).max(), matrix.sum(1).max())
    )
    assert compact.bound.value == Fraction(compact.line_sum, 8 * 50_000_000_000)
    assert compact.total <= compact.line_sum * Fraction(51, 50)
    assert compact.excess == Fraction(compact.total, compact.line_sum) - 1


def test_rails_share_each_transfer_in_each_stage(compact: Schedule) -> None:
    stage, rail, source, target, _, size = compact.pieces()
    loads = np.zeros((compact.stages, 4, 8), np.int64)
    np.add.at(loads, (stage, source // 8, rail), size)
    assert np.array_equal(loads.sum(axis=2), compact.sent)
    assert (loads.max(axis=2) - loads.min(axis=2)).max() <= 1
    assert np.array_equal(target // 8, compact.peer[stage, source // 8])


def test_a_node_can_cut_its_own_pieces(compact: Schedule) -> None:
    whole = np.stack([column.astype(np.int64) for column in compact.pieces(10_000)])
    for node in range(4):
        mine = (whole[2] // 8 == node) | (whole[3] // 8 == node)
        assert np.array_equal(np.stack(compact.pieces(10_000, node)), whole[:, mine])


def test_what_is_dealt_in_turn_adds_up() -> None:
    for amount in range(40):
        upto, whole = np.zeros((3, 5), np.int64), np.zeros((2, 5), np.int64)
        deal(amount, 3, 0, 5, upto, 0)
        deal(1, 3 + amount, 0, 5, upto, 1)
        deal(amount + 1, 3, 0, 5, whole, 0)
        assert np.array_equal(upto[2], whole[1])
        assert upto[2].sum() == upto[1].sum() + 1 == amount + 1
        assert upto[2].max() - upto[2].min() <= 1


def test_an_own_rail_needs_no_balance() -> None:
    """Equal rows: every GPU keeps its bytes, so no piece leaves its source GPU before the wire.
    In the last stage of compact each rail has bytes for its own GPU instead.
    """
    traffic = Traffic.from_matrix(np.full((32, 32), 8_000), FABRIC)
    for kind in KINDS:
        stage, rail, source, target, _, _ = synthesise(FABRIC, traffic, kind).pieces()
        last = (stage == stage.max()) & (kind == "compact")
        assert np.array_equal(rail[~last], source[~last] % 8)
        assert np.array_equal(rail[last], target[last] % 8)


@pytest.mark.parametrize(("nodes", "gpus", "rails"), [(3, 2, 2), (4, 8, 8), (6, 2, 4), (5, 3, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_the_last_stage_has_bytes_for_the_own_gpu(
    nodes: int, gpus: int, rails: int, seed: int
) -> None:
    fabric = Fabric.uniform(nodes, rails, gpus=gpus)
    rng = np.random.default_rng([nodes, seed])
    matrix = rng.integers(0, 10**6, (nodes * gpus, nodes * gpus))
    made = synthesise(fabric, Traffic.from_matrix(matrix, fabric))
    stage, rail, _, target, _, size = made.pieces()
    last = stage == stage.max()
    own = rail.astype(np.int64) * gpus // rails == target % gpus
    assert size[last & own].sum() >= 0.8 * size[last].sum()


def test_chunks_are_capped() -> None:
    plan = synthesise(FABRIC, TRAFFIC, "pipelined").plan("4KiB")
    assert plan.chunks.largest == 4096
    assert plan.stage is None
    assert (
        synthesise(FABRIC, zipf(FABRIC, mean="4MiB"), "pipelined").plan().chunks.largest == 1 << 18
    )


def test_cm_has_a_barrier_between_stages(compact: Schedule) -> None:
    text = compact.to_cm()
    nodes, found = parse_cm(text)
    connections = list(found)
    assert nodes == 32
    assert len(connections) == 8 * np.count_nonzero(compact.sent)
    assert all(c.src // 4 == c.dst // 4 for c in connections), "a connection stays on its rail"
    pattern = re.compile(r"(\d+->\d+) id \d+ (start 0|trigger \d+) size (\d+)(.*)")
    lines = pattern.findall(text)
    assert len(lines) == len(connections)
    ends = {(pair, waits): int(size) for pair, waits, size, _ in lines}
    for pair, waits, size, _ in pattern.findall(compact.plan().to_cm()):
        ends[pair, waits] -= int(size)
    assert not any(ends.values()), "the plan's own export carries the same bytes"
    assert f"Triggers {compact.stages - 1}" in text
    assert sum(c.size for c in connections) == between(TRAFFIC).sum()
    triggers = range(1, compact.stages)
    assert {waits for _, waits, *_ in lines} == {"start 0", *(f"trigger {t}" for t in triggers)}
    assert {done for *_, done in lines} == {"", *(f" send_done_trigger {t}" for t in triggers)}


def test_cm_without_barriers_starts_at_once() -> None:
    for kind in ("pipelined", "fast-nostage"):
        text = synthesise(FABRIC, TRAFFIC, kind).to_cm()
        assert "trigger" not in text.lower()
        assert sum(c.size for c in parse_cm(text)[1]) == between(TRAFFIC).sum()


@pytest.mark.parametrize("share", ["1", "1/2"])
def test_stages_are_longer_only_where_that_saves_start_ups(share: str) -> None:
    fabric, startup, fewer = Fabric.uniform(4, 1).degraded({(1, 0): share}), 20, 0
    for seed in range(20):
        matrix = np.random.default_rng(seed).integers(0, 100, (4, 4))
        traffic = Traffic.from_matrix(matrix, fabric)
        given = synthesise(fabric, traffic, startup=startup)
        short = synthesise(fabric, traffic, startup=startup, eps="1/50")
        rounding = 0 if share == "1" else short.stages
        assert given.total + startup * given.stages <= (
            short.total + startup * short.stages + rounding
        )
        fewer += given.stages < short.stages
    assert fewer >= 5


def test_no_part_is_shorter_than_the_start_up() -> None:
    made = partial(synthesise, FABRIC, TRAFFIC, eps="1/50")
    tapered, whole = made(startup=8), made(startup="1GiB")
    assert whole.stages < tapered.stages
    assert whole.total == tapered.total
    assert made(startup=int(tapered.lengths[-1]) + 1).lengths[-1] > tapered.lengths[-1]


def test_the_same_matrix_gives_the_same_schedule() -> None:
    for kind in KINDS:
        again = synthesise(Fabric.uniform(4, 8), Traffic(TRAFFIC.bytes.copy(), 4), kind)
        assert again == synthesise(FABRIC, TRAFFIC, kind)


def digests() -> list[str]:
    """Of a schedule of each kind and of its plan; a process runs this by its source."""
    from railopt import Fabric, synthesise
    from railopt.model.workloads import zipf
    from railopt.schedule import KINDS

    fabric = Fabric.uniform(5, 3)
    traffic = zipf(fabric, skew=0.8, seed=3)
    made = [synthesise(fabric, traffic, kind) for kind in KINDS]
    return [digest for one in made for digest in (one.digest, one.plan("10KB").digest)]


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_here")
def test_compiled_and_plain_python_agree() -> None:
    """What one node computes with numba another may compute without."""
    found = digests()
    assert found == interpreted(digests)
    assert len(found) == 2 * len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_between_servers(kind: str) -> None:
    for fabric, matrix in (
        (FABRIC, np.zeros((32, 32), np.int64)),
        (Fabric.uniform(1, 8), np.full((8, 8), 100)),
    ):
        schedule = synthesise(fabric, Traffic.from_matrix(matrix, fabric), kind)
        assert (schedule.stages, schedule.total, schedule.excess, schedule.bound.value) == (
            0,
            0,
            0,
            0,
        )
        assert len(schedule.plan().chunks) == 0


def test_as_many_bytes_as_traffic_may_have() -> None:
    fabric = Fabric.uniform(3, 2)
    matrix = np.zeros((6, 6), np.int64)
    matrix[0, 2] = matrix[1, 5] = 2**61 - 1
    for kind in KINDS:
        schedule = synthesise(fabric, Traffic.from_matrix(matrix, fabric), kind)
        assert schedule.line_sum == 2**62 - 2
        assert schedule.plan(2**61).chunks.total == 2**62 - 2
        with pytest.raises(InputError, match="use larger chunks"):
            schedule.plan("1KiB")


@pytest.mark.parametrize("traffic", [TRAFFIC, Traffic(np.zeros_like(TRAFFIC.bytes), TRAFFIC.nodes)])
def test_the_default_eps_is_a_fiftieth(traffic: Traffic) -> None:
    plain, given = synthesise(FABRIC, traffic), synthesise(FABRIC, traffic, eps="1/50")
    assert np.array_equal(plain.peer, given.peer)
    assert np.array_equal(plain.sent, given.sent)


def test_what_is_no_fabric_and_no_traffic_is_refused() -> None:
    with pytest.raises(InputError, match="traffic is of type Chunks: expected Traffic"):
        synthesise(FABRIC, TRAFFIC.chunks("flow"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="fabric is of type Traffic: expected a Fabric"):
        synthesise(TRAFFIC, FABRIC)  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="4 servers x 8 GPUs, the fabric has 4 x 4"):
        synthesise(Fabric.uniform(4, 4), TRAFFIC)
    with pytest.raises(InputError, match="one NIC per GPU"):
        synthesise(Fabric.uniform(4, 4, gpus=8), TRAFFIC)
    alone = {(0, n): 0 for n in range(4)} | {(1, n): 0 for n in range(4, 8)}
    with pytest.raises(Infeasible, match="no rail is alive at both server 0 and server 1"):
        synthesise(FABRIC.degraded(alone), TRAFFIC)
    with pytest.raises(InputError, match="NICs of different rate"):
        certificate(synthesise(FABRIC.degraded({(1, 2): "0.5"}), TRAFFIC))
    with pytest.raises(InputError, match="unknown kind of schedule 'slow'"):
        synthesise(FABRIC, TRAFFIC, "slow")
    with pytest.raises(InputError, match="unknown order of stages 'random'"):
        synthesise(FABRIC, TRAFFIC, order="random")
    for eps in ("much", "-1", 2, "1/0"):
        with pytest.raises(InputError, match="eps ="):
            synthesise(FABRIC, TRAFFIC, eps=eps)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda peer, sent: peer.__setitem__((0, 1), peer[0, 0]),
            "receives from two servers|does not exist",
        ),
        (lambda peer, sent: peer.__setitem__((0, 0), 0), "to itself"),
        (lambda peer, sent: peer.__setitem__((0, 0), 4), "does not exist"),
        (lambda peer, sent: peer.__setitem__((0, 0), -1), "idles with bytes"),
        (lambda peer, sent: sent.__setitem__((0, 0), sent[0, 0] + 1), "more bytes"),
        (lambda peer, sent: sent.__setitem__((0, 0), sent[0, 0] - 1), "in no stage"),
        (lambda peer, sent: sent.__setitem__((0, 0), -5), "does not exist"),
    ],
)
def test_an_invalid_schedule_cannot_exist(change, message: str) -> None:
    made = synthesise(FABRIC, TRAFFIC, "spreadout")
    peer, sent = made.peer.copy(), made.sent.copy()
    change(peer, sent)
    with pytest.raises(CheckFailed, match=message):
        replace(made, peer=peer, sent=sent)


def test_shapes_and_names_are_checked(compact: Schedule) -> None:
    with pytest.raises(InputError, match="expected both"):
        replace(compact, peer=compact.peer[:-1])
    with pytest.raises(InputError, match="known kinds"):
        replace(compact, kind="other")


def test_files_keep_everything_and_refuse_changes(compact: Schedule, tmp_path: Path) -> None:
    path = tmp_path / "schedule.npz"
    compact.save(path)
    assert Schedule.read(path) == compact
    with pytest.raises(InputError, match="exists"):
        compact.save(path)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged.npz").write_bytes(damaged)
    with pytest.raises(FormatError):
        Schedule.read(tmp_path / "damaged.npz")
    header, arrays = saved(compact, tmp_path / "true.npz")
    save_npz(tmp_path / "claim.npz", "schedule", {**header, "total": header["total"] - 1}, arrays)
    with pytest.raises(FormatError, match="claims total"):
        Schedule.read(tmp_path / "claim.npz")
    save_npz(tmp_path / "key.npz", "schedule", {**header, "more": 1}, arrays)
    with pytest.raises(FormatError, match="'more'"):
        Schedule.read(tmp_path / "key.npz")
    shorter = {**arrays, "peer": arrays["peer"][:-1], "sent": arrays["sent"][:-1]}
    save_npz(tmp_path / "stage.npz", "schedule", header, shorter)
    with pytest.raises(CheckFailed, match="in no stage"):
        Schedule.read(tmp_path / "stage.npz")


def test_a_plan_file_keeps_its_stages(compact: Schedule, tmp_path: Path) -> None:
    plan = compact.plan()
    plan.save(tmp_path / "plan.npz")
    assert Plan.read(tmp_path / "plan.npz") == plan


def test_conflicts_are_found(compact: Schedule) -> None:
    plan = compact.plan()
    assert plan.stage is not None
    crowded = replace(plan, stage=np.zeros(len(plan.chunks), np.int32))
    found = conflicts(crowded)
    assert len(found) == 10
    assert "stage 0: NIC 0 of node 0 sends to 3 nodes" in found
    assert conflicts(replace(plan, stage=None)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 3},
        {"kind": ["compact"]},
        {"order": None},
        {"order": "\x1b[2J"},
        {"total": "12"},
        {"total": True},
        {"line_sum": 1.5},
        {"line_sum": None},
        {"fabric": 7},
        {"fabric": {}},
    ],
)
def test_headers_of_wrong_types_under_a_valid_digest(
    compact: Schedule, tmp_path: Path, change: dict[str, object]
) -> None:
    header, arrays = saved(compact, tmp_path / "true.npz")
    save_npz(tmp_path / "s.npz", "schedule", {**header, **change}, arrays)
    with pytest.raises(InputError) as caught:
        Schedule.read(tmp_path / "s.npz")
    assert str(caught.value).isprintable()


@pytest.mark.slow
def test_arrays_of_wrong_shapes_under_a_valid_digest(compact: Schedule, tmp_path: Path) -> None:
    """120 files: each array cut, turned, cast or spoilt; refused, or the schedule that it says."""
    header, arrays = saved(compact, tmp_path / "true.npz")
    rng = np.random.default_rng(9)
    refused = 0
    for case in range(120):
        name = sorted(arrays)[rng.integers(0, len(arrays))]
        array = arrays[name].copy()
        spoil = rng.integers(0, 6)
        if spoil == 0:
            array = array[: rng.integers(0, len(array))]
        elif spoil == 1:
            array = array.ravel()
        elif spoil == 2:
            array = array.astype([np.float64, np.uint64, np.int8, np.bool_][rng.integers(0, 4)])
        elif spoil == 3:
            array = array[..., None]
        elif spoil == 4:
            array = array.T.copy()
        else:
            odd = [-1, -2, 7, 2**31 - 1, 2**62]
            limit = np.iinfo(array.dtype).max
            array.flat[rng.integers(0, array.size)] = min(odd[rng.integers(0, 5)], limit)
        path = tmp_path / f"{case}.npz"
        save_npz(path, "schedule", header, {**arrays, name: array})
        try:
            assert Schedule.read(path).total == header["total"]
        except (InputError, CheckFailed):
            refused += 1
    assert refused > 80


@pytest.mark.slow
def test_damaged_files_are_refused(compact: Schedule, tmp_path: Path) -> None:
    """150 files with a few bytes changed, cut out, doubled or put in."""
    compact.save(tmp_path / "s.npz")
    data, dice = (tmp_path / "s.npz").read_bytes(), random.Random(11)
    refused = 0
    for _ in range(150):
        (tmp_path / "d.npz").write_bytes(damaged(data, dice))
        try:
            assert Schedule.read(tmp_path / "d.npz") == compact
        except InputError:
            refused += 1
    assert refused > 100


def test_pieces_of_no_bytes_or_of_no_server_are_refused(compact: Schedule) -> None:
    with pytest.raises(InputError, match="at most 0 bytes: expected 1 or more"):
        compact.pieces(0)
    with pytest.raises(InputError, match="server 4: expected 0 to 3"):
        compact.pieces(node=4)


def test_options_that_can_do_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="eps can't do anything"):
        synthesise(FABRIC, TRAFFIC, "fast", eps=0)
    with pytest.raises(InputError, match="startup can't do anything"):
        synthesise(FABRIC, TRAFFIC, order="built", startup=1)


@pytest.mark.parametrize("nodes", [2, 4, 8, 16])
def test_as_many_stages_as_the_guide_says(nodes: int) -> None:
    fabric = Fabric.uniform(nodes, 8)
    for skew in (0, 0.4, 0.8, 1.2):
        found = synthesise(fabric, zipf(fabric, skew=skew, seed=1)).stages
        assert nodes - 1 <= found <= 2.7 * nodes + 6
    assert synthesise(Fabric.uniform(2, 8), zipf(Fabric.uniform(2, 8), seed=1)).stages == 4


def shared() -> Schedule:
    """Two rows in one stage: each server sends to two others at once."""
    fabric = Fabric.uniform(3, 2)
    traffic = Traffic.from_matrix(10 + np.arange(36).reshape(6, 6) % 7, fabric)
    matrix, names = traffic.node_matrix, np.arange(3)
    peer = np.array([(names + 1) % 3, (names + 2) % 3], np.int32)
    sent = np.stack([matrix[names, each] for each in peer])
    return Schedule(fabric, traffic, "compact", "ascending", peer, sent, np.zeros(2, np.int32))


def test_rows_of_a_stage_share_the_gpus(tmp_path: Path) -> None:
    made = shared()
    stage, rail, source, target, _, size = made.pieces()
    assert made.stages == 1
    assert not stage.any()
    assert np.array_equal((target // 2 - source // 2) % 3, 1 + rail)
    assert made.lengths.tolist() == [2 * made.sent.max()]
    assert size.sum() == made.sent.sum()
    made.save(tmp_path / "s.npz")
    assert Schedule.read(tmp_path / "s.npz") == made
    assert made != replace(made, stage=None)
    assert not conflicts(made.plan())
    with pytest.raises(InputError, match="with --eps, or without --startup"):
        staged(made)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stage": [0]}, "1 entries for 2 rows"),
        ({"stage": [0, 2]}, "none left out"),
        ({"stage": [1, 1]}, "from 0"),
        ({"stage": [0, 2**31 - 1]}, "none left out"),
        ({"stage": [0, -1]}, "ascending"),
        ({"kind": "spreadout", "order": "built"}, "expected compact"),
        ({"fabric": Fabric.uniform(3, 2).degraded({(0, 0): "1/2"})}, "alike"),
        ({"fabric": Fabric.uniform(3, 2, gpus=1)}, "GPUs"),
    ],
)
def test_stages_of_rows_that_can_not_be_are_refused(change: dict, message: str) -> None:
    made = shared()
    if "fabric" in change and change["fabric"].gpus == 1:
        change["traffic"] = Traffic.from_matrix(made.traffic.node_matrix, change["fabric"])
    with pytest.raises(InputError, match=message):
        replace(made, **change)
