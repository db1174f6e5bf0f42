# %% [markdown]
# # A failing NIC
#
# NIC 5 of node 3 is slow, then dead: what do policies reach that know the rates? Where one NIC of
# N is at a fraction phi and its node is the bottleneck, no plan beats N / (N - 1 + phi) of the
# healthy time (theorem T9b).

# %%
from fractions import Fraction

import numpy as np

import railopt
from railopt.sim import Fault

healthy = railopt.Fabric.uniform(nodes=8, rails=8, link="400Gb/s")
matrix = np.full((64, 64), 1 << 20, dtype=np.int64)
matrix[:, 24:32] = matrix[:, 24:32] * 6 // 5  # node 3 receives most
traffic = railopt.Traffic.from_matrix(matrix, healthy)
chunks = traffic.chunks("128KiB")
before = railopt.plan(healthy, chunks, policy="lpt-global")

# %% [markdown]
# Slow: plans are made for the rates that there are.

# %%
for fraction in ("0.5", "0"):
    fabric = healthy.degraded({(3, 5): fraction})
    best = Fraction(8) / (7 + Fraction(fraction))
    print(f"NIC 5 of node 3 at {fraction}: no plan below {float(best):.3f} of the healthy time")
    for policy in ("lpt", "lpt-local", "lpt-global"):
        again = railopt.plan(fabric, chunks, policy=policy)
        print(f"    {policy:<10} {float(again.makespan / before.makespan):.3f}")

# %% [markdown]
# Dead in the middle of a run: the simulator says which chunks never arrive.

# %%
half = railopt.simulate(before).completion_ps // 2
run = railopt.simulate(before, faults=[Fault(half, 3, 5)], partial=True)
print(f"dies half-way: {len(run.stuck)} of {len(chunks)} chunks never arrive")
assert 0 < len(run.stuck) < len(chunks)
