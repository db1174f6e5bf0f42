"""A two-layer MoE language model on eight gloo processes, 2 nodes x 4 GPUs as a rail fabric has
them, trained twice: with PyTorch's all-to-all and with railopt's.  The losses are the same bits;
the bytes that each NIC would carry are not, since ranks have batches of different lengths.  Times
are those of eight processes on one machine, whose NICs cost nothing: they say what planning costs.

    pip install '.[torch]'                        # in a checkout
    python examples/torch/train_moe.py [STEPS]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import railopt
from railopt.torch import RailAllToAll
from railopt.torch.routes import Router

FABRIC = railopt.Fabric.uniform(nodes=2, rails=4)
RANKS, WIDTH, TOP_K = 8, 32, 2  # one expert a rank
TEXT = Path(__file__).read_text(encoding="utf-8")  # the model learns to write this file
LETTERS = sorted(set(TEXT))
AllToAll = Callable[[torch.Tensor, np.ndarray], torch.Tensor]


class TorchAllToAll(torch.autograd.Function):
    """torch.distributed.all_to_all_single with a gradient."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, counts: np.ndarray) -> torch.Tensor:
        ctx.counts, rank = counts, dist.get_rank()
        out = rows.new_empty((int(counts[:, rank].sum()), rows.shape[1]))
        dist.all_to_all_single(
            out, rows.contiguous(), counts[:, rank].tolist(), counts[rank].tolist()
        )
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return TorchAllToAll.apply(grad, np.ascontiguousarray(ctx.counts.T)), None


def railed(rails: RailAllToAll, carried: np.ndarray) -> AllToAll:
    """The same with railopt: one call, whose gradient takes the way back by itself."""

    def call(rows: torch.Tensor, counts: np.ndarray) -> torch.Tensor:
        recv, send = counts[:, rails.rank].tolist(), counts[rails.rank].tolist()
        out = rows.new_empty((sum(recv), rows.shape[1]))
        out = rails.all_to_all_single(out, rows, recv, send, counts=counts)
        if rails.last is not None and rails.rank % FABRIC.gpus == 0:
            carried[rails.rank // FABRIC.gpus] += rails.last.sent
        return out

    return call


class MoE(nn.Module):
    """Each token to its two best experts, which live on ranks, and back."""

    def __init__(self, all_to_all: AllToAll) -> None:
        super().__init__()
        self.all_to_all = all_to_all
        self.router = nn.Linear(WIDTH, RANKS)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(TOP_K)
        order = chosen.reshape(-1).argsort(stable=True)  # by expert, that is by rank
        token = order // TOP_K
        counts = torch.empty((RANKS, RANKS), dtype=torch.int64)
        dist.all_gather(list(counts.unbind(0)), torch.bincount(chosen.reshape(-1), minlength=RANKS))
        there = counts.numpy()
        rows = self.expert(self.all_to_all(x[token], there))
        back = self.all_to_all(rows, np.ascontiguousarray(there.T))
        return x.index_add(0, token, back * weights.reshape(-1)[order, None])


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Letters and the letters that follow them; GPU 0 of each node has four times GPU 3's."""
    length, start = 64 * (4 - rank % 4), (997 * step + 211 * rank) % (len(TEXT) - 300)
    piece = torch.tensor([LETTERS.index(letter) for letter in TEXT[start : start + length + 1]])
    return piece[:-1], piece[1:]


def train(all_to_all: AllToAll, steps: int) -> tuple[list[float], list[float]]:
    """The loss of each step, the mean over all ranks' letters, and its seconds."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(len(LETTERS), WIDTH),
        MoE(all_to_all),
        MoE(all_to_all),
        nn.Linear(WIDTH, len(LETTERS)),
    )
    shared = [p for name, p in model.named_parameters() if "expert" not in name]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, seconds = [], []
    everyone = sum(len(batch(other, 0)[0]) for other in range(RANKS))
    for step in range(steps):
        begin = time.perf_counter()
        letters, following = batch(rank, step)
        loss = nn.functional.cross_entropy(model(letters), following, reduction="sum") / everyone
        optimiser.zero_grad()
        loss.backward()
        for parameter in shared:
            dist.all_reduce(parameter.grad)
        optimiser.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total))
        seconds.append(time.perf_counter() - begin)
    return losses, seconds


def work(rank: int, store: str, steps: int) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, RANKS),
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=60),
    )
    trained = {"PyTorch": train(TorchAllToAll.apply, steps)}
    bytes_of: dict[str, np.ndarray] = {}
    for policy in ("own-nic", "even-excess"):
        bytes_of[policy] = np.zeros((FABRIC.nodes, FABRIC.rails), np.int64)
        rails = RailAllToAll(FABRIC, policy, limit_s=60)
        trained[f"railopt, {policy}"] = train(railed(rails, bytes_of[policy]), steps)
        dist.all_reduce(torch.from_numpy(bytes_of[policy]))  # each node has told its own
    if rank == 0:
        for name, (found, seconds) in trained.items():
            middle = statistics.median(seconds) * 1000
            ends = f"loss {found[0]:.6f} -> {found[-1]:.6f}"
            print(f"{name:<22} {ends}   {middle:6.1f} ms per step")
        assert len({tuple(found) for found, _ in trained.values()}) == 1, "losses differ"
        print(f"the same bits in all {steps} steps\n")
        for policy, sent in bytes_of.items():
            busiest = sent.max() / sent.mean(axis=1).max()
            print(f"KB sent per NIC, forward, {policy}: busiest {busiest:.2f} of the mean")
            for node, row in enumerate(sent):
                print(f"    node {node}  " + "  ".join(f"{load / 1000:8.1f}" for load in row))
    dist.barrier()
    dist.destroy_process_group()


def asked() -> int:
    """The steps that the command line asks for."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("steps", metavar="STEPS", nargs="?", type=int, default=20)
    steps: int = parser.parse_args().steps
    if steps < 1:
        parser.error(f"STEPS is {steps}: expected at least 1")
    return steps


if __name__ == "__main__":
    count = asked()
    Router(FABRIC, 0).route(np.ones((RANKS, RANKS), np.int64))  # compiled once, for all
    torch.optim.AdamW(nn.Linear(1, 1).parameters())  # what it imports too
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (f"{folder}/store", count), RANKS, start_method="fork")
