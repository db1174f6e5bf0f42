# %% [markdown]
# # Expert placement for sglang
#
# Recorded routing in, `--init-expert-location` out, and what the placement does to GPUs and rails.
# The trace is one of the repository's own; a file of sglang's expert recorder (`.pt`) is read by
# the same function.

# %%
import json
from pathlib import Path

import railopt
from railopt.moe import (
    ExpertRoom,
    PlacementQuestion,
    compare,
    read_trace,
    save_map,
    sglang_options,
)

OUT = Path("out/examples")
OUT.mkdir(parents=True, exist_ok=True)
CHECKOUT = Path(railopt.__file__).parents[1]
TRACE = CHECKOUT / "experiments" / "traces" / "fine-kinds.npz"

# %%
fabric = railopt.Fabric.uniform(nodes=4, rails=8, link="400Gb/s")
trace = read_trace(TRACE, ranks=fabric.nodes * fabric.gpus)
answer = compare(trace, fabric, PlacementQuestion("replicate", ExpertRoom(96)))
record = answer.as_dict()
print(json.dumps(record, indent=1)[:600], "...")

# %% [markdown]
# Balance (max/mean of the GPUs' tokens) on steps that the plan did not see, beside plain EPLB.

# %%
for name, score in answer.scores.items():
    print(f"{name:<8} {score.mean:.3f}, worst step {score.steps[1]:.3f}")
assert answer.steps.held_out
assert answer.scores["after"].mean < answer.scores["eplb"].mean

# %%
location = OUT / "location.json"
save_map(answer.placed.placement, location, "sglang", force=True)
table = json.loads(location.read_text())["physical_to_logical_map"]
print(f"{location}: {len(table)} layers of {len(table[0])} physical experts")
options = sglang_options(answer.placed.placement, location, len(table[0]) // 32)
print(f"python -m sglang.launch_server ... {options}")
assert len(table[0]) == 96
