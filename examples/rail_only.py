# %% [markdown]
# # Wide expert parallelism on rails without a spine
#
# NIC n of every node hangs on switch n, and no switch joins the rails. Every GPU still sends
# tokens to experts on every other GPU: a byte leaves on some rail, arrives at the NIC of the same
# rail, and is passed on over scale-up (NVLink) inside the target's node.

# %%
import numpy as np

import railopt
from railopt.runtime import Loopback

fabric = railopt.Fabric.uniform(nodes=4, rails=4, link="400Gb/s")  # no spine
traffic = railopt.workloads.moe(fabric, tokens=256, skew=0.5, seed=1)
local = np.arange(16) % fabric.gpus
between = traffic.bytes * (np.arange(16)[:, None] // 4 != np.arange(16) // 4)
crossing = between[local[:, None] != local].sum() / between.sum()
print(f"{crossing:.0%} of the bytes between nodes are for a GPU on another rail")
assert 0.5 < crossing < 1

# %% [markdown]
# Each byte stays on the rail that it leaves on. Every chunk arrives whole: here with real bytes,
# in this process, each payload checked.

# %%
chunks = traffic.chunks("256KiB")
plans = {policy: railopt.plan(fabric, chunks, policy) for policy in ("own-nic", "spill")}
for policy, plan in plans.items():
    report = Loopback().run(plan).wait()
    assert plan.misses(traffic) == ""
    assert report.wrong == 0
    share = plan.scaleup_time / plan.makespan
    print(
        f"{policy:<8} {float(plan.makespan) * 1e6:6.1f} us, scale-up busy {float(share):.0%} of it"
    )
    assert share < 1, "passing on hides behind the rails"

# %% [markdown]
# What would a spine gain? Nothing: no plan of any kind beats the bound of the NICs, and plans on
# the rails are at it. Direct traffic over a spine fills the NICs of GPUs whose experts are popular.

# %%
bound = railopt.gap(plans["spill"], limit_s=0).bound
direct = railopt.simulate(traffic, fabric=fabric, balancer="adaptive").completion
alone = railopt.simulate(plans["spill"]).completion
print(f"bound {float(bound) * 1e6:.1f} us, on rails {float(alone) * 1e6:.1f} us, ", end="")
print(f"over a full spine {float(direct) * 1e6:.1f} us")
assert bound <= alone < direct
