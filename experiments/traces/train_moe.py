"""Train small mixture-of-experts language models and record their routing while they learn.

    python3 experiments/traces/train_moe.py --out out/traces --trace fine-mixed --trace fine-kinds

Source ranks are data-parallel workers: each reads its own sequences.  In a "-mixed" trace every
rank reads all kinds of text, in a "-kinds" trace consecutive ranks read one kind, so that whole
nodes differ.  Needs PyTorch and numpy; all ranks are simulated on one device, which changes nothing
about the routing.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from experiments.traces import text
from experiments.traces.model import Model, Shape
from railopt.moe.routing.trace import Trace


@dataclass(frozen=True)
class Run:
    """One trace: a model, its ranks, and what they read."""

    shape: Shape
    ranks: int
    sequences: int
    iterations: int
    kinds: bool
    token_layers: tuple[int, ...] = ()
    token_limit: int = 0


MIXTRAL = Shape(layers=8, width=512, heads=8, experts=8, top_k=2, ffn=1024, aux=0.01)
FINE = Shape(layers=8, width=512, heads=8, experts=64, top_k=6, ffn=256, shared=1, aux=0.001)


def gpt(experts: int, top_k: int, aux: float = 0.0) -> Run:
    """As Pro-Prophet trains (arXiv 2411.10003; the launch script of king0722/Pro-Prophet): experts
    = ranks, 64 sequences of 256 tokens over all ranks, experts 1408 wide, 16 heads, 100 iterations,
    without a balance loss (its gate "naive") or with one of weight 0.001 (its alternative).
    """
    shape = Shape(
        layers=12,
        width=512,
        heads=16,
        experts=experts,
        top_k=top_k,
        ffn=1408,
        aux=aux,
        context=256,
    )
    return Run(shape, ranks=experts, sequences=64 // experts, iterations=100, kinds=False)


RUNS = {
    "mixtral-mixed": Run(
        MIXTRAL,
        ranks=32,
        sequences=4,
        iterations=1000,
        kinds=False,
        token_layers=(0, 4, 7),
        token_limit=256,
    ),
    "mixtral-kinds": Run(
        MIXTRAL,
        ranks=32,
        sequences=4,
        iterations=1000,
        kinds=True,
        token_layers=(0, 4, 7),
        token_limit=256,
    ),
    "fine-mixed": Run(
        FINE,
        ranks=32,
        sequences=4,
        iterations=1000,
        kinds=False,
        token_layers=(0, 4, 7),
        token_limit=256,
    ),
    "fine-kinds": Run(
        FINE,
        ranks=32,
        sequences=4,
        iterations=1000,
        kinds=True,
        token_layers=(0, 4, 7),
        token_limit=256,
    ),
    **{f"gpt{e}-top{k}": gpt(e, k) for e in (16, 32) for k in (1, 2)},
    **{f"gpt{e}-top{k}-aux": gpt(e, k, 0.001) for e in (16, 32) for k in (1, 2)},
}
TINY = {"layers": 2, "width": 32, "heads": 2, "ffn": 32, "context": 64}


def recorded(iterations: int) -> list[int]:
    """Every iteration at first, then bursts of four ever further apart, the last four always."""
    chosen = set(range(min(8, iterations)))
    start = 10.0
    while start < iterations:
        chosen.update(range(int(start), min(int(start) + 4, iterations)))
        start *= 1.6
    return sorted(chosen | set(range(max(0, iterations - 4), iterations)))


def batch(corpus: text.Corpus, run: Run, rng: np.random.Generator) -> np.ndarray:
    """int64 [ranks * sequences, context + 1]: windows of the text each rank reads."""
    length = run.shape.context + 1
    rows = []
    for rank in range(run.ranks):
        for _ in range(run.sequences):
            kind = (
                rank * len(text.KINDS) // run.ranks
                if run.kinds
                else int(rng.integers(len(text.KINDS)))
            )
            stream = corpus.tokens[text.KINDS[kind]]
            start = int(rng.integers(len(stream) - length))
            rows.append(stream[start : start + length].astype(np.int64))
    return np.stack(rows)


def adam(model: Model, device: str) -> torch.optim.Optimizer:
    """Its rate is `learn`'s."""
    return torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.95), weight_decay=0.1, fused=device == "cuda"
    )


def learn(
    model: Model, optimizer: torch.optim.Optimizer, data: torch.Tensor, iteration: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """One step on data int64 [sequences, context + 1]: its loss and the experts of each layer."""
    for group in optimizer.param_groups:
        group["lr"] = 6e-4 * min(1.0, (iteration + 1) / 50)
    with torch.autocast(data.device.type, dtype=torch.bfloat16):
        loss, aux, chosen = model(data[:, :-1], data[:, 1:])
    optimizer.zero_grad(set_to_none=True)
    (loss + model.shape.aux * aux).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach(), chosen


def train(
    run: Run, corpus: text.Corpus, seed: int, device: str, deadline: float
) -> tuple[Trace, dict[str, object]]:
    """Trains one model; stops early at `deadline` (monotonic seconds), keeping what was
    recorded.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Model(run.shape).to(device)
    optimizer = adam(model, device)
    wanted = set(recorded(run.iterations))
    counts: list[np.ndarray] = []
    kept: list[int] = []
    losses: dict[str, float] = {}
    choices: np.ndarray | None = None
    for iteration in range(run.iterations):
        data = torch.from_numpy(batch(corpus, run, rng)).to(device)
        loss, chosen = learn(model, optimizer, data, iteration)
        if iteration in wanted:
            counts.append(np.stack([count(c, run) for c in chosen]))
            kept.append(iteration)
            losses[str(iteration)] = round(float(loss), 3)
            if run.token_layers:
                choices = np.stack([tokens(chosen[layer], run) for layer in run.token_layers])[None]
        if time.monotonic() > deadline:
            break
    trace = Trace(
        np.stack(counts),
        run.shape.top_k,
        run.sequences * run.shape.context,
        run.shape.width,
        np.array(kept),
    )
    if choices is not None:
        trace = replace(
            trace,
            choices=choices,
            choice_iterations=np.array(kept[-1:]),
            choice_layers=np.array(run.token_layers, dtype=np.int32),
        )
    return trace, {"loss": losses, "iterations_run": iteration + 1}


def count(chosen: torch.Tensor, run: Run) -> np.ndarray:
    """int64 [ranks, experts] from the experts of every token [ranks * tokens, k]."""
    rank = torch.arange(run.ranks, device=chosen.device).repeat_interleave(
        chosen.numel() // run.ranks
    )
    flat = torch.bincount(
        rank * run.shape.experts + chosen.flatten(), minlength=run.ranks * run.shape.experts
    )
    return flat.view(run.ranks, run.shape.experts).cpu().numpy()


def tokens(chosen: torch.Tensor, run: Run) -> np.ndarray:
    """int16 [ranks, tokens, k]: the first `token_limit` tokens of each rank, each token's experts
    in ascending order.
    """
    by_rank = chosen.view(run.ranks, -1, run.shape.top_k)[:, : run.token_limit]
    return by_rank.sort(dim=-1).values.to(torch.int16).cpu().numpy()


def hardware(device: str) -> str:
    name = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else platform.processor() or platform.machine()
    )
    return f"{name}, torch {torch.__version__}, python {platform.python_version()}"


def command(args: argparse.Namespace, name: str) -> str:
    """What to type to make this one trace again."""
    extra = "".join(
        f" --{key} {value}"
        for key in ("iterations", "seed", "seconds", "text")
        if (value := getattr(args, key)) is not None
    )
    return (
        f"python3 experiments/traces/train_moe.py --out out/traces --trace "
        f"{name}{extra}{' --tiny' if args.tiny else ''}"
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the .npz files")
    parser.add_argument(
        "--trace",
        action="append",
        choices=sorted(RUNS),
        help="which traces (repeatable; default: all)",
    )
    parser.add_argument(
        "--iterations", type=int, help="train so many iterations instead of the trace's own number"
    )
    parser.add_argument("--seed", type=int, default=2411)
    parser.add_argument(
        "--seconds",
        type=float,
        default=1e9,
        help="stop each training after so many seconds, keep what is recorded",
    )
    parser.add_argument("--text", type=int, default=8_000_000, help="bytes of text a kind")
    parser.add_argument(
        "--tiny", action="store_true", help="a toy model, to try the script on a CPU"
    )
    return parser.parse_args()


def run_of(args: argparse.Namespace, name: str) -> Run:
    """The trace's training run, as the arguments change it."""
    run = RUNS[name]
    if args.tiny:
        run = replace(
            run,
            shape=replace(run.shape, **TINY),
            sequences=1,
            token_layers=run.token_layers[:1],
            token_limit=16,
        )
    return replace(run, iterations=args.iterations) if args.iterations else run


def record(args: argparse.Namespace, name: str, corpus: text.Corpus, device: str) -> None:
    """Train one model and write its trace."""
    run, began = run_of(args, name), time.monotonic()
    trace, log = train(run, corpus, args.seed, device, began + args.seconds)
    took = round(time.monotonic() - began, 1)
    meta = {
        "command": command(args, name),
        "seed": args.seed,
        "hardware": hardware(device),
        "seconds": took,
        "model": asdict(run.shape),
        "text": corpus.source,
        "rank_text": "one kind" if run.kinds else "mixed",
        **log,
    }
    path = args.out / f"{name}.npz"
    replace(trace, meta=meta).save(path, force=True)
    skew = trace.load.max(axis=2) / trace.load.mean(axis=2)
    print(
        f"{name}: {log['iterations_run']} iterations in {took} s, {len(trace.iterations)} "
        f"recorded, {path.stat().st_size} bytes, "
        f"loss {log['loss']}, max/mean first {skew[0].mean():.2f} last {skew[-1].mean():.2f}",
        flush=True,
    )


def main() -> None:
    args = parsed()
    args.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    began = time.monotonic()
    corpus = text.load(args.text, 4096, args.seed)
    print(f"text: {corpus.source} ({time.monotonic() - began:.0f} s)", flush=True)
    for name in args.trace or list(RUNS):
        record(args, name, corpus, device)


if __name__ == "__main__":
    main()
