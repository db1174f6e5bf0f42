"""HybridEP's migration with a shared expert and compressed differences (arXiv 2510.19470): what it
does to the error and the loss of small models, and the bytes and the time beside it.  The small
size trains a model in numpy; --full reads what `traced.py` recorded of the traces' models.

python -m experiments.hybridep_migration.run [--full] [--out DIR]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, claim, figure, finish, goal
from experiments.hybridep_migration.model import Array, Copies, Model, Size, Text
from railopt.base.tables import table
from railopt.base.units import format_bytes, format_time
from railopt.moe.hybrid import migrate, spec
from railopt.moe.hybrid.stream import optimum


def compressed(ratio: float, shared: bool) -> Copies | None:
    """Copies as their receivers rebuild them: the largest differences from the mean expert, or the
    largest parameters; None: whole copies.
    """
    if ratio == 1:
        return None

    def copies(experts: Array) -> Array:
        whole = experts.astype(np.float32)
        base = migrate.shared_expert(whole) if shared else np.zeros_like(whole[0])
        keep = migrate.kept(whole.shape[1], ratio)
        rebuilt = [migrate.decode(base, migrate.encode(one, base, keep)) for one in whole]
        return np.stack(rebuilt).astype(np.float64)

    return copies


def trained(
    given: dict[str, Any], seed: int, copies: Copies | None
) -> tuple[Model, list[list[float]]]:
    """A model, and (steps, its loss on unseen text) as it learned with such copies."""
    model, text, unseen = Model(Size(), seed), Text(Size(), seed), held_out(given, seed)
    losses = []
    for step in range(given["steps"]):
        model.learn(model.loss(text.letters(Size().batch), copies)[1])
        if (step + 1) % given["every"] == 0:
            losses.append([step + 1, model.loss(unseen, copies)[0]])
    return model, losses


def held_out(given: dict[str, Any], seed: int) -> Array:
    """Text of the same chains that training does not read."""
    text = Text(Size(), seed)
    text.dice = np.random.default_rng([seed, 3])
    return text.letters(given["unseen"])


def measured(given: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """A row per ratio: error and loss of a trained model whose copies are compressed, loss of one
    that was trained with such copies.
    """
    plain, curve = trained(given, seed, None)
    unseen, whole = held_out(given, seed), plain.parameters["experts"].astype(np.float32)
    ratios = [Fraction(1), *map(Fraction, given["ratios"])]
    rows = []
    for sent in migrate.curve(whole, ratios, spec.read(None)):
        ratio = int(sent.compression)
        row: dict[str, Any] = {"model": "numpy", "seed": seed, "ratio": ratio}
        row |= {"parameters": whole.shape[1], "error": sent.error, "error_alone": sent.error_alone}
        for name, shared in (("", True), ("_alone", False)):
            copies = compressed(ratio, shared)
            row[f"after{name}"] = plain.loss(unseen, copies)[0]
            row[f"curve{name}"] = trained(given, seed, copies)[1] if copies else curve
            row[f"trained{name}"] = row[f"curve{name}"][-1][1]
        rows.append(row)
    return rows


def recorded(folder: Path) -> list[dict[str, Any]]:
    """The rows of the traces' models, as a GPU wrote them."""
    files = sorted((folder / "trained").glob("*.json"))
    return [row for file in files for row in json.loads(file.read_text())["rows"]]


def costs(ratio: int, parameters: int) -> dict[str, Any]:
    """Bytes per expert, in float32, and seconds of `railopt hybrid`'s bundled block."""
    question = spec.read(None)
    best = optimum(replace(question.stream, compression=Fraction(ratio)), unequal=question.unequal)
    sent = 4 * parameters if ratio == 1 else 8 * migrate.kept(parameters, ratio)
    return {"sent_bytes": sent, "block_s": float(best.latency.total)}


def show(rows: list[dict[str, Any]]) -> None:
    """The mean over seeds."""
    lines = []
    for model, ratio in sorted({(row["model"], row["ratio"]) for row in rows}):
        mine = [row for row in rows if (row["model"], row["ratio"]) == (model, ratio)]
        losses = ("error", "error_alone", "after", "after_alone", "trained", "trained_alone")
        means = [f"{np.mean([row[name] for row in mine]):.3f}" for name in losses]
        time = format_time(Fraction(mine[0]["block_s"]))
        lines.append([model, ratio, format_bytes(mine[0]["sent_bytes"]), time, *means])
    columns = ["model", "ratio", "sent", "block", "error", "no mean", "loss after", "no mean"]
    table([*columns, "loss trained", "no mean"], lines, title="compressed copies, mean over seeds")


def drawing(rows: list[dict[str, Any]]) -> Callable[[Any], None]:
    """Loss while learning, by ratio; dashed without the mean expert."""
    ratios = sorted({row["ratio"] for row in rows})
    models = sorted({row["model"] for row in rows})

    def draw(made: Any) -> None:
        every = made.subplots(1, len(models), squeeze=False)[0]
        for row in sorted(rows, key=lambda row: (-row["seed"], row["ratio"])):
            axis, color = every[models.index(row["model"])], f"C{ratios.index(row['ratio'])}"
            label = f"{row['ratio']}x" if row["seed"] == rows[0]["seed"] else None
            axis.plot(*zip(*row["curve"], strict=True), color=color, label=label)
            axis.plot(*zip(*row["curve_alone"], strict=True), color=color, linestyle="--")
        for axis, model in zip(every, models, strict=True):
            axis.set(xlabel="step", ylabel="loss on unseen text, nats", title=model)
            axis.legend(title="compression")

    return draw


def main() -> int:
    folder, given, expected, args = arguments(__file__, __doc__)
    if args.size == "full":
        rows = recorded(folder)
    else:
        rows = [row for seed in range(*given["seeds"]) for row in measured(given, seed)]
    rows = [row | costs(row["ratio"], row["parameters"]) for row in rows]
    show(rows)
    figure(Path(args.out) / "loss.svg", drawing(rows), 9, 4)
    base = {(row["model"], row["seed"]): row["trained"] for row in rows if row["ratio"] == 1}
    most = [row for row in rows if row["ratio"] == 50]
    tenth = [row for row in rows if row["ratio"] == 10]
    claims = [
        claim(
            expected,
            "loss over the baseline's, compression 50",
            [row["trained"] / base[row["model"], row["seed"]] for row in most],
        ),
        claim(
            expected,
            "loss without the shared expert over with it, compression 50",
            [row["trained_alone"] / row["trained"] for row in most],
        ),
    ]
    own = [
        goal(
            expected,
            "loss over the baseline's, compression 10",
            [row["trained"] / base[row["model"], row["seed"]] for row in tenth],
        )
    ]
    return finish(folder, args, rows, claims, own)


if __name__ == "__main__":
    sys.exit(main())
