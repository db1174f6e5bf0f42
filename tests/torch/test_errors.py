"""What is wrong at one rank is an error of all, in words, and soon."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from railopt import Fabric
from railopt.base.errors import BackendError, InputError
from railopt.torch import Groups, RailAllToAll, TokenDispatcher, talk
from railopt.torch.groups import made
from railopt.torch.talk import gathered
from tests.torch.world import BACKEND, WAIT_S, outcomes_of, over_gloo, run, said

FABRIC = Fabric.uniform(2, 2)
COUNTS = np.ones((4, 4), np.int64)
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
LATE_S = 5.0


def on_one(railed: RailAllToAll, call: Callable[[], Any]) -> Any:
    """Rank 1 makes `call`, the others a plain one."""
    if dist.get_rank() == 1:
        return call()
    return railed.all_to_all_single(torch.empty(4), torch.ones(4))


def bad_calls() -> dict[str, str]:
    """What each bad call says; good ones go on afterwards."""
    railed = RailAllToAll(FABRIC, limit_s=WAIT_S)
    ones, out = torch.ones(4), torch.empty(4)
    bad: dict[str, Callable[[], Any]] = {
        "sum": lambda: railed.all_to_all_single(out, ones, None, [1, 1, 1, 2]),
        "length": lambda: railed.all_to_all_single(out, ones, None, [2, 2]),
        "negative": lambda: railed.all_to_all_single(out, ones, [5, -1, 0, 0]),
        "disagree": lambda: railed.all_to_all_single(
            torch.empty(5), torch.ones(5), [1, 1, 2, 1], [1, 2, 1, 1]
        ),
        "expects": lambda: railed.all_to_all_single(torch.empty(5), ones, [1, 1, 2, 1]),
        "divide": lambda: railed.all_to_all_single(torch.empty(5), torch.ones(5)),
        "dtypes": lambda: railed.all_to_all_single(out, ones.double()),
        "widths": lambda: railed.all_to_all_single(out.double(), ones.double()),
        "device": lambda: railed.all_to_all_single(out, torch.ones(4, device="meta")),
        "strided": lambda: railed.all_to_all_single(torch.empty(4, 2)[:, 0], ones),
        "no tensor": lambda: railed.all_to_all_single(out, [1, 2, 3, 4]),
        "as many bytes": lambda: railed.all_to_all_single(out.int(), ones.int()),
        "one number": lambda: railed.all_to_all_single(out, ones, None, 4),
        "no list": lambda: railed.all_to_all_single(out, ones, None, torch.tensor(4)),
        "no numbers": lambda: railed.all_to_all_single(out, ones, torch.ones(4, device="meta")),
        "sparse": lambda: railed.all_to_all_single(out, ones.to_sparse()),
        "compressed": lambda: railed.all_to_all_single(out, torch.ones(4, 2).to_sparse_csr()),
        "mkldnn": lambda: railed.all_to_all_single(out, ones.cpu().to_mkldnn()),
        "nested": lambda: railed.all_to_all_single(out, torch.nested.nested_tensor([ones, ones])),
        "gradients": lambda: railed.all_to_all_single(out, torch.ones(4, requires_grad=True)),
        "leaf": lambda: railed.all_to_all_single(
            torch.empty(4, requires_grad=True), torch.ones(4, requires_grad=True)
        ),
        "quantized": lambda: railed.all_to_all_single(
            out, torch.quantize_per_tensor(ones.cpu(), 0.1, 0, torch.quint8)
        ),
        "another call": lambda: railed.all_to_all_single(out, ones, counts=COUNTS),
    }
    found = {name: said(on_one, railed, call) for name, call in bad.items()}
    assert railed.all_to_all_single(torch.empty(4), torch.ones(4)).sum() == 4
    return found


BAD_CALLS = {
    "sum": "rank 1: input_split_sizes sum to 5, input has 4 rows",
    "length": "rank 1: input_split_sizes are not 4 whole numbers of at least 0: [2, 2]",
    "negative": "rank 1: output_split_sizes are not 4 whole numbers",
    "disagree": "rank 1 sends 2 rows to rank 1, which expects 1",
    "expects": "rank 2 sends 1 rows to rank 1, which expects 2",
    "divide": "rank 1: input has 5 rows and no split sizes: they don't divide by 4",
    "dtypes": "rank 1: input has float64 rows of shape (), output float32 rows",
    "widths": "rank 1 has float64 rows of shape (), rank 0 float32 rows of shape ()",
    "device": f"rank 1: input is on meta, its process groups carry {DEVICE} tensors",
    "strided": "rank 1: output is not contiguous",
    "no tensor": "rank 1: input is no tensor",
    "as many bytes": "rank 1 has int32 rows of shape (), rank 0 float32 rows of shape ()",
    "one number": "rank 1: input_split_sizes are not 4 whole numbers of at least 0: 4",
    "no list": "rank 1: input_split_sizes are not 4 whole numbers of at least 0: tensor(4",
    "no numbers": "rank 1: output_split_sizes are not 4 whole numbers of at least 0: tensor(",
    "sparse": "rank 1: input is of layout torch.sparse_coo: expected a dense tensor",
    "compressed": "rank 1: input is of layout torch.sparse_csr: expected a dense tensor",
    "mkldnn": "rank 1: input is of layout torch._mkldnn: expected a dense tensor",
    "nested": "rank 1: input is a nested tensor: expected a dense tensor",
    "gradients": "rank 1 has differentiable float32 rows of shape (), rank 0 float32 rows of",
    "leaf": "rank 1: output is a leaf that needs gradients",
    "quantized": "rank 1: input is a quantized tensor: expected a dense tensor",
    "another call": "rank 1 has float32 rows of shape () and counts, rank 0 float32 rows of shape",
}


def test_a_bad_call_of_one_rank_is_said_by_all() -> None:
    for found in run(4, bad_calls):
        assert [name for name, says in BAD_CALLS.items() if says not in found[name]] == [], found


def make_wrongly(name: str) -> None:
    odd = dist.get_rank() == 1
    if name == "layout":
        RailAllToAll(Fabric.uniform(2, 4), limit_s=WAIT_S)
    elif name == "policy":
        RailAllToAll(FABRIC, "lpt" if odd else "even-excess", limit_s=WAIT_S)
    elif name == "unknown":
        RailAllToAll(FABRIC, "evenexcess" if odd else "even-excess", limit_s=WAIT_S)
    elif name == "rates":
        RailAllToAll(FABRIC.degraded({(0, 0): "0.5"}) if odd else FABRIC, limit_s=WAIT_S)
    elif name == "shape":
        RailAllToAll(Fabric.uniform(4, 1) if odd else FABRIC, limit_s=WAIT_S)
    elif name == "no fabric":
        RailAllToAll(None if odd else FABRIC, limit_s=WAIT_S)
    elif name == "no policy":
        RailAllToAll(FABRIC, None if odd else "lpt", limit_s=WAIT_S)
    elif name == "pieces":
        RailAllToAll(FABRIC, pieces=0 if odd else 64, limit_s=WAIT_S)
    elif name == "no groups":
        RailAllToAll(FABRIC, groups=7 if odd else None, limit_s=WAIT_S)
    elif name == "experts":
        TokenDispatcher(FABRIC, 16 if odd else 8, limit_s=WAIT_S)
    elif name == "undivided":
        TokenDispatcher(FABRIC, 10 if odd else 8, limit_s=WAIT_S)
    elif name == "no number":
        TokenDispatcher(FABRIC, "8" if odd else 8, limit_s=WAIT_S)
    elif name == "other":
        TokenDispatcher(FABRIC, 8) if odd else RailAllToAll(FABRIC, limit_s=WAIT_S)
    else:
        groups = made(FABRIC, dist.group.WORLD, WAIT_S)
        rail = {"missing": None, "word": "rail", "swapped": groups.node}[name]
        RailAllToAll(FABRIC, groups=Groups(groups.node, rail if odd else groups.rail))


MADE_WRONGLY = {
    "layout": "rank 0: the group has 4 ranks, the fabric 2 nodes x 4 GPUs = 8",
    "policy": "rank 1 was made for 2 nodes x 2 GPUs, policy lpt, ",
    "unknown": "rank 1: unknown policy 'evenexcess'",
    "rates": "rank 1 was made for 2 nodes x 2 GPUs, policy even-excess, ",
    "shape": "rank 1 was made for 4 nodes x 1 GPUs",
    "no fabric": "rank 1: fabric is of type NoneType: expected a railopt.Fabric",
    "no policy": "rank 1: unknown policy 'None'",
    "pieces": "rank 1: pieces = 0: expected a whole number from 1",
    "no groups": "rank 1: groups is of type int: expected railopt.torch.Groups",
    "experts": "rank 1 was made for 2 nodes x 2 GPUs, 16 experts, ",
    "undivided": "rank 1: 10 experts do not divide over 4 ranks",
    "no number": "rank 1: experts = '8': expected a whole number",
    "other": "rank 1 was made for 2 nodes x 2 GPUs, 8 experts, ",
    "word": "rank 1: no rail group was handed in: expected ranks [1, 3]",
    "missing": "rank 1: no rail group was handed in: expected ranks [1, 3]",
    "swapped": "rank 1: the rail group has ranks [0, 1]: expected [1, 3]",
}


def made_wrongly() -> dict[str, str]:
    return {name: said(make_wrongly, name) for name in MADE_WRONGLY}


def test_ranks_that_are_made_differently_say_so() -> None:
    for found in run(4, made_wrongly):
        assert [name for name, says in MADE_WRONGLY.items() if says not in found[name]] == [], found


def other_objects() -> dict[str, str]:
    """All ranks make the same objects, and rank 1 calls another than the others."""
    odd = dist.get_rank() == 1
    slow = FABRIC.degraded({(0, 0): "0.5"})
    plain, lpt, other = (
        RailAllToAll(fabric, policy, limit_s=WAIT_S)
        for fabric, policy in ((FABRIC, "even-excess"), (FABRIC, "lpt"), (slow, "even-excess"))
    )
    apart = {  # their rounds differ in number, groups or lengths
        "spill": RailAllToAll(FABRIC, "spill", limit_s=WAIT_S),
        "dead": RailAllToAll(FABRIC.degraded({(0, 0): "0"}), limit_s=WAIT_S),
        "rails": RailAllToAll(Fabric.uniform(2, 4, gpus=2), limit_s=WAIT_S),
        "layout": RailAllToAll(Fabric.uniform(4, 1, gpus=1), limit_s=WAIT_S),
    }
    staged = RailAllToAll(FABRIC, limit_s=WAIT_S)
    staged.stages("fast")  # takes a round more
    few, many = (TokenDispatcher(FABRIC, experts, limit_s=WAIT_S) for experts in (8, 16))
    x, idx, weights = torch.ones(3, 2), torch.arange(6).reshape(3, 2), torch.ones(3, 2)
    out, ones = torch.empty(4), torch.ones(4)

    def combined() -> None:
        rows = few.dispatch(x, idx, weights)
        few.combine(rows.tokens, rows, weighted=not odd)

    calls: dict[str, Callable[[], Any]] = {
        "policy": lambda: (lpt if odd else plain).all_to_all_single(out, ones),
        "node": lambda: (lpt if dist.get_rank() > 1 else plain).all_to_all_single(out, ones),
        "fabric": lambda: (other if odd else plain).all_to_all_single(out, ones),
        "counts": lambda: (lpt if odd else plain).all_to_all_single(out, ones, counts=COUNTS),
        "experts": lambda: (many if odd else few).dispatch(x, idx, weights),
        "weighted": combined,
        "stages": lambda: (staged if odd else plain).all_to_all_single(out, ones),
    }
    for name, one in apart.items():
        calls[name] = partial((one if odd else plain).all_to_all_single, out, ones)
    found = {name: said(call) for name, call in calls.items()}
    assert plain.all_to_all_single(out, ones).sum() == 4
    return found


OTHER_OBJECTS = {
    "policy": "rank 1 calls what was made for 2 nodes x 2 GPUs, policy lpt, ",
    "node": "rank 2 calls what was made for 2 nodes x 2 GPUs, policy lpt, ",
    "fabric": "rank 1 calls what was made for 2 nodes x 2 GPUs, policy even-excess, ",
    "counts": "rank 1 calls what was made for 2 nodes x 2 GPUs, policy lpt, ",
    "experts": "rank 1 calls what was made for 2 nodes x 2 GPUs, 16 experts, ",
    "weighted": "of dispatch 1, not weighted to combine, rank 0 ",
    "stages": "rank 1 calls what was made for 2 nodes x 2 GPUs, policy even-excess, ",
    "spill": "rank 1 calls what was made for 2 nodes x 2 GPUs, policy spill, ",
    "dead": "rank 1 calls what was made for 2 nodes x 2 GPUs, policy even-excess, ",
    "rails": "rank 1 calls what was made for 2 nodes x 2 GPUs, policy even-excess, ",
    "layout": "rank 1 calls what was made for 4 nodes x 1 GPUs, policy even-excess, ",
}


def test_ranks_that_call_different_objects_say_so() -> None:
    for found in run(4, other_objects):
        wrong = [name for name, says in OTHER_OBJECTS.items() if says not in found[name]]
        assert wrong == [], found


def trusting() -> str:
    """Ranks that do not compare: rank 1 alone says what is wrong with its call, before it waits for
    anybody.
    """
    railed = RailAllToAll(FABRIC, limit_s=WAIT_S, agree_first=False)
    if dist.get_rank() == 1:
        text = said(railed.all_to_all_single, torch.empty(4), torch.ones(4), None, [1, 1, 1, 2])
        dispatcher = TokenDispatcher(FABRIC, 8, limit_s=WAIT_S, agree_first=False)
        return text + said(dispatcher.combine, torch.ones(1, 3))
    TokenDispatcher(FABRIC, 8, limit_s=WAIT_S, agree_first=False)
    return ""


def test_ranks_that_trust_each_other() -> None:
    found = run(4, trusting)
    assert "rank 1: input_split_sizes sum to 5, input has 4 rows" in found[1]
    assert "rank 1: combine before any dispatch" in found[1]


def one_node_fails() -> str:
    """The plan of node 1 fails, at both of its ranks."""
    railed = RailAllToAll(FABRIC, limit_s=WAIT_S)

    def decide(_: Any) -> Any:
        raise InputError("more chunks than can be")

    if dist.get_rank() > 1:
        railed._router.decide = decide
    return said(railed.all_to_all_single, torch.empty(4), torch.ones(4))


@over_gloo
def test_a_plan_that_fails_at_one_node_is_an_error_of_all() -> None:
    assert run(4, one_node_fails) == ["rank 2: more chunks than can be"] * 4


def rounds(*, agree_first: bool) -> list[int]:
    """Small rounds of an all-to-all, a dispatch and a combine, beside their exchanges of rows."""
    railed = RailAllToAll(FABRIC, limit_s=WAIT_S, agree_first=agree_first)
    dispatcher = TokenDispatcher(FABRIC, 8, limit_s=WAIT_S, agree_first=agree_first)
    x, idx, weights = torch.ones(3, 2), torch.arange(6).reshape(3, 2), torch.ones(3, 2)
    real, found = talk.collective, [0]

    def counting(*arguments: Any) -> Any:
        found[-1] += 1
        return real(*arguments)

    talk.collective = counting
    try:
        railed.all_to_all_single(torch.empty(4), torch.ones(4))
        found.append(0)
        rows = dispatcher.dispatch(x, idx, weights)
        found.append(0)
        dispatcher.combine(rows.tokens, rows)
    finally:
        talk.collective = real
    return found


@over_gloo
def test_small_rounds() -> None:
    assert run(4, partial(rounds, agree_first=True)) == [[3, 4, 1]] * 4
    assert run(4, partial(rounds, agree_first=False)) == [[2, 3, 0]] * 4


def dead_ends() -> str:
    """No living rail from node 0 to node 1: its ranks know, and tell all."""
    cut = FABRIC.degraded({(1, 0): "0", (1, 1): "0"})
    railed = RailAllToAll(cut, limit_s=WAIT_S)
    return said(railed.all_to_all_single, torch.empty(4), torch.ones(4))


def test_a_node_that_cant_plan_is_an_error_of_all() -> None:
    for found in run(4, dead_ends):
        assert "no living rail from node" in found


def wrong_counts() -> dict[str, str]:
    """Counts that are handed in are held against the rank's own splits and the others' counts."""
    railed = RailAllToAll(FABRIC, limit_s=WAIT_S)
    other, mine = COUNTS.copy(), COUNTS.copy()
    other[2, 3], mine[1, 0] = 7, 7
    bad = {"theirs": other, "mine": mine, "shape": COUNTS[:2], "kind": COUNTS.astype(np.int32)}
    bad |= {"list": COUNTS.tolist(), "ragged": [[1], [2, 3]]}
    found = {}
    for name, counts in bad.items():
        handed = counts if dist.get_rank() == 1 else COUNTS
        found[name] = said(
            lambda given: railed.all_to_all_single(torch.empty(4), torch.ones(4), counts=given),
            handed,
        )
    return found


WRONG_COUNTS = {
    "theirs": "rank 1 was handed counts with 7 rows from rank 2 to rank 3, rank 0 with 1",
    "mine": "rank 1: its row of counts is [7, 1, 1, 1], its split sizes are [1, 1, 1, 1]",
    "shape": "rank 1: counts are int64 (2, 4), expected int64 of numpy (4, 4)",
    "kind": "rank 1: counts are int32 (4, 4), expected int64 of numpy (4, 4)",
    "list": "rank 1: counts are of type list, expected int64 of numpy (4, 4)",
    "ragged": "rank 1: counts are of type list, expected int64 of numpy (4, 4)",
}


def test_counts_handed_in_that_are_wrong() -> None:
    for found in run(4, wrong_counts):
        assert [name for name, says in WRONG_COUNTS.items() if says not in found[name]] == [], found


def one_stays_away() -> float:
    railed = RailAllToAll(FABRIC, limit_s=LATE_S)
    start = time.monotonic()
    if dist.get_rank() == 3:
        time.sleep(1.3 * LATE_S)
    else:
        with pytest.raises(BackendError, match="the exchange of counts failed"):
            railed.all_to_all_single(torch.empty(4), torch.ones(4))
    waited = time.monotonic() - start
    again = RailAllToAll(FABRIC, limit_s=LATE_S)  # with groups that are not broken
    assert again.all_to_all_single(torch.empty(4), torch.ones(4)).sum() == 4
    return waited


@over_gloo
def test_a_rank_that_stays_away_is_waited_for_only_so_long() -> None:
    for fine, waited in outcomes_of(4, one_stays_away):
        assert fine, waited
        assert waited < LATE_S + 5


def others_end() -> None:
    """Rank 3 stays away, and sees the processes of the others end."""
    railed = RailAllToAll(FABRIC, limit_s=LATE_S)
    pids = gathered(railed.groups.all, np.array([os.getpid()]))[:3, 0].tolist()
    begin = time.monotonic()
    if dist.get_rank() != 3:
        railed.all_to_all_single(torch.empty(4), torch.ones(4))
    while any(map(os.path.exists, (f"/proc/{pid}" for pid in pids))):
        time.sleep(0.1)
    raise TimeoutError(f"{time.monotonic() - begin:.0f}")


@pytest.mark.skipif(BACKEND != "nccl", reason="of PyTorch's watchdog over NCCL")
def test_over_nccl_the_watchdog_ends_ranks_that_wait() -> None:
    *waiting, (_, text) = outcomes_of(4, others_end)
    assert [said for _, said in waiting] == ["the process is gone"] * 3
    # PyTorch waits a minute for what it writes of the timeout
    assert LATE_S <= float(text.removeprefix("TimeoutError: ")) < LATE_S + 90


def one_leaves_in_the_middle() -> str:
    """Counts are known; then rank 3 does not send."""
    railed = RailAllToAll(FABRIC, limit_s=LATE_S, agree_first=False)
    counts = np.full((4, 4), 8)
    if dist.get_rank() == 3:
        time.sleep(1.6 * LATE_S)
        return ""
    try:
        railed.all_to_all_single(torch.empty(32), torch.ones(32), counts=counts)
    except BackendError as error:
        return str(error)
    return ""


@over_gloo
def test_a_rank_that_leaves_in_the_middle() -> None:
    outcomes = outcomes_of(4, one_leaves_in_the_middle)
    assert all(fine for fine, _ in outcomes), outcomes
    assert "rank 2: the exchange inside its node group of ranks [2, 3] failed" in outcomes[2][1]
    assert "rank 1: the exchange inside its rail group of ranks [1, 3] failed" in outcomes[1][1]


def fails_to_make(missing: list[int]) -> str:
    """Rank 1 alone lacks a group in the end; afterwards all make all of them again."""
    limit_s, real = WAIT_S - 1, dist.new_group

    def new_group(ranks: list[int], *arguments: Any, **options: Any) -> Any:
        group = real(ranks, *arguments, **options)
        if dist.get_rank() == 1 and ranks == missing:
            raise RuntimeError("Connect timeout")
        return group

    dist.new_group = new_group
    try:
        RailAllToAll(FABRIC, limit_s=limit_s)
        text = ""
    except BackendError as error:
        text = str(error)
    finally:
        dist.new_group = real
    railed = RailAllToAll(FABRIC, limit_s=limit_s)
    assert railed.all_to_all_single(torch.empty(4), torch.ones(4)).sum() == 4
    return text


@pytest.mark.parametrize("missing", [[0, 1], [1, 3]], ids=["node", "rail"])
def test_groups_that_cant_be_made(missing: list[int]) -> None:
    fine = outcomes_of(4, fails_to_make, missing)
    assert all(well for well, _ in fine), fine
    expected = f"rank 1: the process group of ranks {missing} can't be made; a rank is gone"
    assert expected in fine[1][1]


def test_without_a_process_group() -> None:
    with pytest.raises(InputError, match="has no process group"):
        RailAllToAll(FABRIC)
