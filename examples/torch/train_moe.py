"""A two-layer MoE language model on eight gloo processes, 2 nodes x 4 GPUs as a rail fabric has
them, trained four times: with PyTorch's all-to-all, and with railopt's layer of experts, on the
GPUs' own NICs, on planned rails, and with copies of popular experts.  The losses are the same bits
(with copies, whose gradients are added up in another order, the same curve); the bytes that each
NIC would carry are not, since ranks have batches of different lengths.  Times are those of eight
processes on one machine, whose NICs cost nothing: they say what planning and copies cost.

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
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import railopt
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.replicate import rebalance
from railopt.torch import Copies, ExpertLayer
from railopt.torch.routes import Router

FABRIC = railopt.Fabric.uniform(nodes=2, rails=4)
RANKS, WIDTH, TOP_K = 8, 32, 2  # one expert a rank, which is its home
TEXT = Path(__file__).read_text(encoding="utf-8")  # the model learns to write this file
LETTERS = sorted(set(TEXT))
NEAR = 1e-3  # how far losses may lie apart with copies


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


def expert() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))


class PlainExperts(nn.Module):
    """Each token to its experts, and back, over PyTorch's all-to-all."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = expert()

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        order = chosen.reshape(-1).argsort(stable=True)  # by expert, that is by rank
        token = order // TOP_K
        counts = torch.empty((RANKS, RANKS), dtype=torch.int64)
        dist.all_gather(list(counts.unbind(0)), torch.bincount(chosen.reshape(-1), minlength=RANKS))
        there = counts.numpy()
        rows = self.expert(TorchAllToAll.apply(x[token], there))
        back = TorchAllToAll.apply(rows, np.ascontiguousarray(there.T))
        return torch.zeros_like(x).index_add(0, token, back * weights.reshape(-1)[order, None])


class MoE(nn.Module):
    """Each token to its two best experts, which live on ranks, and back."""

    def __init__(self, experts: Callable[[], nn.Module], seen: np.ndarray) -> None:
        super().__init__()
        self.seen = seen  # int64 [experts]: how often each was chosen here
        self.router, self.experts = nn.Linear(WIDTH, RANKS), experts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(TOP_K)
        self.seen += np.bincount(chosen.reshape(-1).numpy(), minlength=RANKS)
        return x + self.experts(x, chosen, weights)


class Trained(NamedTuple):
    """What a run shows: losses and seconds of each step, bytes that each NIC of this node sent
    forward, choices of each expert by this rank, and seconds that copies took in vain.
    """

    losses: list[float]
    seconds: list[float]
    sent: np.ndarray
    seen: np.ndarray
    waited_s: float = 0.0


def one_each() -> Placement:
    return Placement.contiguous(1, RANKS, FABRIC.nodes, FABRIC.gpus)


def with_copies(chosen: np.ndarray) -> Placement:
    """One copy more on every GPU, of the experts that were chosen most."""
    slots, _, _ = rebalance(chosen[None], 2 * RANKS, 1, FABRIC.nodes, RANKS)
    holds = np.zeros((1, RANKS, RANKS), np.bool_)
    holds[0, np.arange(2 * RANKS) // 2, slots[0]] = True
    return Placement.from_home(np.arange(RANKS)[None], FABRIC.nodes, FABRIC.gpus, holds)


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Letters and the letters that follow them; GPU 0 of each node has four times GPU 3's."""
    length, start = 64 * (4 - rank % 4), (997 * step + 211 * rank) % (len(TEXT) - 300)
    piece = torch.tensor([LETTERS.index(letter) for letter in TEXT[start : start + length + 1]])
    return piece[:-1], piece[1:]


def train(experts: Callable[[], nn.Module], steps: int) -> Trained:
    """Train a model with such experts; losses are the mean over all ranks' letters."""
    rank, seen = dist.get_rank(), np.zeros(RANKS, np.int64)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(len(LETTERS), WIDTH),
        MoE(experts, seen),
        MoE(experts, seen),
        nn.Linear(WIDTH, len(LETTERS)),
    )
    layers = [module for module in model.modules() if isinstance(module, ExpertLayer)]
    shared = [p for name, p in model.named_parameters() if "expert" not in name]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, seconds, sent = [], [], np.zeros(FABRIC.rails, np.int64)
    everyone = sum(len(batch(other, 0)[0]) for other in range(RANKS))
    for step in range(steps):
        begin = time.perf_counter()
        letters, following = batch(rank, step)
        loss = nn.functional.cross_entropy(model(letters), following, reduction="sum") / everyone
        optimiser.zero_grad()
        loss.backward()  # gradients of copies set out
        for parameter in shared:
            dist.all_reduce(parameter.grad)
        for layer in layers:
            layer.sum_gradients()
            sent += layer.dispatcher.rails.last.sent
        optimiser.step()
        for layer in layers:
            layer.send_parameters()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total))
        seconds.append(time.perf_counter() - begin)
    waited = sum(layer.trans.waited_s + layer.agg.waited_s for layer in layers)
    return Trained(losses, seconds, sent, seen, waited)


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

    def railed(policy: str, placement: Placement) -> Trained:
        copies = Copies(placement, shares="near")
        return train(lambda: ExpertLayer(FABRIC, [expert()], copies, policy, limit_s=60), steps)

    trained = {"PyTorch": train(PlainExperts, steps)}
    for policy in ("own-nic", "even-excess"):
        trained[f"railopt, {policy}"] = railed(policy, one_each())
    chosen = torch.from_numpy(trained["railopt, even-excess"].seen.copy())
    dist.all_reduce(chosen)
    trained["railopt, with copies"] = railed("even-excess", with_copies(chosen.numpy()))
    sent = {}
    for name, run in trained.items():
        sent[name] = np.zeros((FABRIC.nodes, FABRIC.rails), np.int64)
        if rank % FABRIC.gpus == 0:  # each node tells its own
            sent[name][rank // FABRIC.gpus] = run.sent
        dist.all_reduce(torch.from_numpy(sent[name]))
    if rank == 0:
        show(trained, sent, steps)
    dist.barrier()
    dist.destroy_process_group()


def show(trained: dict[str, Trained], sent: dict[str, np.ndarray], steps: int) -> None:
    for name, run in trained.items():
        middle = statistics.median(run.seconds) * 1000
        ends = f"loss {run.losses[0]:.6f} -> {run.losses[-1]:.6f}"
        waited = run.waited_s / steps * 1000
        print(f"{name:<22} {ends}   {middle:6.1f} ms per step, {waited:.1f} of it for copies")
    *same, copied = trained.values()
    assert len({tuple(run.losses) for run in same}) == 1, "losses differ"
    apart = float(np.abs(np.subtract(copied.losses, same[0].losses)).max())
    assert apart < NEAR, f"losses with copies are {apart} apart"
    print(f"the same bits in all {steps} steps; with copies at most {apart:.1e} apart\n")
    for name, nics in sent.items():
        if nics.any():
            busiest = nics.max() / nics.mean(axis=1).max()
            print(f"KB sent per NIC, forward, {name}: busiest {busiest:.2f} of the mean")
            for node, row in enumerate(nics):
                print(f"    node {node}  " + "  ".join(f"{load / 1000:8.1f}" for load in row))


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
