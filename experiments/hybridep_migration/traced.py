"""Train the models that made the routing traces with compressed copies of their experts, and write
the losses that `run.py --full` compares.  Needs PyTorch; one GPU, or --tiny on a CPU.

    python3 -m experiments.hybridep_migration.traced --out out/migration --model gpt16-top2

A token is read by one of four data centres, as its rank is; an expert is at home in one of them,
and copies in the others are compressed anew in every step.  Gradients of a copy return whole.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.traces import text
from experiments.traces.model import Experts, Model
from experiments.traces.train_moe import RUNS, TINY, Run, adam, batch, hardware, learn
from railopt.moe.hybrid import migrate

RATIOS = (50, 10, 5, 2)
CENTRES = 4
UNSEEN = 4  # batches that the loss is of
POINTS = 5  # of the loss curve


def rebuilt(experts: Tensor, ratio: int, shared: bool) -> Tensor:
    """float32 [experts, parameters] as their receivers rebuild them (`migrate.encode`): the
    largest differences from the mean expert, or the largest parameters.
    """
    base = experts.mean(dim=0) if shared else torch.zeros_like(experts[0])
    difference = experts - base
    keep = migrate.kept(experts.shape[1], ratio)
    sent = difference.abs().topk(keep, sorted=False).indices
    return base + torch.zeros_like(difference).scatter_(1, sent, difference.gather(1, sent))


class Migrating(Experts):
    """Experts whose copies outside their data centre are compressed; `ratio` 1: whole."""

    ratio, shared = 1, True

    @property
    def flat(self) -> Tensor:
        """float32 [experts, parameters]"""
        return torch.cat([self.up.flatten(1), self.down.flatten(1)], dim=1)

    def held(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.ratio == 1:
            return chosen, self.up, self.down
        tokens, experts = len(chosen), len(self.up)
        place = torch.arange(tokens, device=chosen.device) * CENTRES // tokens
        home = torch.arange(experts, device=chosen.device) * CENTRES // experts
        away = home[chosen] != place[:, None]
        whole = self.flat
        with torch.no_grad():
            lost = rebuilt(whole, self.ratio, self.shared) - whole
        up, down = (whole + lost).split([self.up[0].numel(), self.down[0].numel()], dim=1)
        return (
            chosen + experts * away,
            torch.cat([self.up, up.reshape_as(self.up)]),
            torch.cat([self.down, down.reshape_as(self.down)]),
        )


def compress(model: Model, ratio: int, shared: bool) -> None:
    """From now on its copies are compressed so."""
    for block in model.blocks:
        block.experts.ratio, block.experts.shared = ratio, shared


@torch.no_grad()
def loss_on(model: Model, unseen: list[Tensor]) -> float:
    """Mean cross entropy in nats."""
    with torch.autocast(unseen[0].device.type, dtype=torch.bfloat16):
        return float(np.mean([float(model(data[:, :-1], data[:, 1:])[0]) for data in unseen]))


@torch.no_grad()
def errors(model: Model, ratio: int, shared: bool) -> float:
    """Mean over layers and experts of what compression loses, over the expert (norms)."""
    each = [
        ((rebuilt(one, ratio, shared) - one).norm(dim=1) / one.norm(dim=1)).mean()
        for one in (block.experts.flat for block in model.blocks)
    ]
    return float(torch.stack(each).mean())


@torch.no_grad()
def explained(model: Model) -> float:
    """Which part of the experts' squares their mean explains, mean over layers."""
    flats = (block.experts.flat for block in model.blocks)
    each = [one.mean(dim=0).square().sum() / one.square().sum(dim=1).mean() for one in flats]
    return float(torch.stack(each).mean())


class Training:
    """One model's text: the last tenth of each kind is not trained on."""

    def __init__(self, run: Run, corpus: text.Corpus, seed: int, device: str) -> None:
        self.run, self.seed, self.device = run, seed, device
        cut = {kind: len(each) * 9 // 10 for kind, each in corpus.tokens.items()}
        first = {kind: each[: cut[kind]] for kind, each in corpus.tokens.items()}
        last = {kind: each[cut[kind] :] for kind, each in corpus.tokens.items()}
        self.seen = replace(corpus, tokens=first)
        dice = np.random.default_rng([seed, 3])
        self.unseen = [self.data(replace(corpus, tokens=last), dice) for _ in range(UNSEEN)]

    def data(self, corpus: text.Corpus, dice: np.random.Generator) -> Tensor:
        return torch.from_numpy(batch(corpus, self.run, dice)).to(self.device)

    def trained(self, ratio: int, shared: bool) -> tuple[Model, list[list[float]]]:
        """A model, and (iterations, loss on unseen text) as it learned with such copies."""
        torch.manual_seed(self.seed)
        dice, curve = np.random.default_rng(self.seed), []
        with torch.device(self.device):
            model = Model(self.run.shape, Migrating)
        compress(model, ratio, shared)
        optimizer, every = adam(model, self.device), max(1, self.run.iterations // POINTS)
        for iteration in range(self.run.iterations):
            learn(model, optimizer, self.data(self.seen, dice), iteration)
            if (iteration + 1) % every == 0:
                curve.append([iteration + 1, loss_on(model, self.unseen)])
        return model, curve

    def rows(self, name: str) -> Any:
        """By ratio, as `run.measured` has them."""
        plain, curve = self.trained(1, True)
        base = {"model": name, "seed": self.seed, "explained": explained(plain)}
        base["parameters"] = plain.blocks[0].experts.flat.shape[1]
        whole = {"after": curve[-1][1], "curve": curve, "trained": curve[-1][1], "error": 0.0}
        yield base | {"ratio": 1} | whole | {f"{key}_alone": each for key, each in whole.items()}
        found: dict[int, dict[str, Any]] = {ratio: base | {"ratio": ratio} for ratio in RATIOS}
        for ratio in RATIOS:
            for end, shared in (("", True), ("_alone", False)):
                compress(plain, ratio, shared)
                found[ratio][f"after{end}"] = loss_on(plain, self.unseen)
                found[ratio][f"error{end}"] = errors(plain, ratio, shared)
        del plain  # its place on the GPU
        for ratio, row in found.items():
            for end, shared in (("", True), ("_alone", False)):
                row[f"curve{end}"] = self.trained(ratio, shared)[1]
                row[f"trained{end}"] = row[f"curve{end}"][-1][1]
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for MODEL-SEED.json")
    parser.add_argument("--model", choices=sorted(RUNS), default="gpt16-top2")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--seed", type=int, action="append", help="repeatable; default 100")
    parser.add_argument("--tiny", action="store_true", help="a toy model and little text")
    args = parser.parse_args()
    run = replace(RUNS[args.model], iterations=args.iterations)
    if args.tiny:
        small = TINY | {"vocabulary": 512, "context": 16}
        run = replace(run, shape=replace(run.shape, **small), sequences=1)
    args.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    corpus = text.load(200_000 if args.tiny else 8_000_000, run.shape.vocabulary, 2411)
    for seed in args.seed or [100]:
        began, rows = time.monotonic(), []
        for row in Training(run, corpus, seed, device).rows(args.model):
            rows.append(row)
            took = round(time.monotonic() - began, 1)
            about = {"iterations": args.iterations, "hardware": hardware(device), "seconds": took}
            made = {**about, "text": corpus.source, "rows": rows}
            (args.out / f"{args.model}-{seed}.json").write_text(json.dumps(made, indent=1) + "\n")
            shown = {key: each for key, each in row.items() if not key.startswith("curve")}
            print(f"{took} s: {json.dumps(shown)}", flush=True)


if __name__ == "__main__":
    main()
