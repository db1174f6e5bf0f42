# %% [markdown]
# # Your own matrix: a certified gap and a figure
#
# Bytes from every GPU to every GPU as a CSV, row = source, with or without labels, or with columns
# src,dst,bytes. `python examples/own_matrix.py [bytes.csv NODES GPUS-PER-NODE]`; without a file it
# makes one.

# %%
import sys
from pathlib import Path

import numpy as np

import railopt
from railopt.report.gaps import gap_against_chunk
from railopt.report.saving import save_figure

OUT = Path("out/examples")
OUT.mkdir(parents=True, exist_ok=True)

# %%
given = sys.argv[1:] if "__file__" in globals() else []  # a notebook has none
if given:
    if len(given) != 3:
        sys.exit(f"{len(given)} arguments: expected bytes.csv NODES GPUS-PER-NODE, or none")
    file, nodes, gpus = Path(given[0]), int(given[1]), int(given[2])
else:
    file, nodes, gpus = OUT / "bytes.csv", 4, 4
    rng = np.random.default_rng(7)
    popular = rng.pareto(1.5, size=16) + 0.1
    tokens = (rng.random((16, 16)) * popular * 256).astype(np.int64)
    np.savetxt(file, tokens * 4096, fmt="%d", delimiter=",")  # 4 KiB per token

fabric = railopt.Fabric.uniform(nodes=nodes, rails=gpus, link="400Gb/s")
traffic = railopt.Traffic.read(file, fabric)

# %% [markdown]
# Every policy at every chunk size, against a bound that no plan beats.

# %%
lines: dict[str, list[tuple[int, float]]] = {}
for cap in (64 << 10, 256 << 10, 1 << 20):
    chunks = traffic.chunks(cap)
    policies = ("lpt", "lpt-local", "equitable")
    plans = [railopt.plan(fabric, chunks, policy=policy) for policy in policies]
    for policy, report in zip(policies, railopt.gap(plans, limit_s=5), strict=True):
        lines.setdefault(policy, []).append((cap, float(report.gap) * 100))
        print(
            f"{cap >> 10:>5} KiB {policy:<10} gap {float(report.gap):8.3%}, "
            f"the optimum is {report.optimum}"
        )
        certificate = OUT / f"{policy}-{cap >> 10}KiB.json"
        report.certificate.save(certificate, force=True)
        assert railopt.check(certificate).ok

# %%
save_figure(gap_against_chunk(lines, "own matrix"), OUT / "own_matrix.svg", force=True)
print(f"certificates and figure: {OUT}")
