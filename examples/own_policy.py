# %% [markdown]
# # Your own policy
#
# A policy is a function `(fabric, chunks) -> Plan`. In Python the function itself will do; on the
# command line it is named `module:function`, from the current folder or from what is installed:
#
#     cd examples && railopt gap zipf:skew=0.5 --nodes 4 --policy lpt,own_policy:by_pair

# %%
import railopt


def by_pair(fabric: railopt.Fabric, chunks: railopt.Chunks) -> railopt.Plan:
    """In turn over the rails, from a start that depends on source and destination; dead NICs are
    not looked at, and the plan's constructor would refuse them.
    """
    start = chunks.src * 3 + chunks.dst * 5
    return railopt.Plan(fabric, chunks, (start + chunks.offset // (64 << 10)) % fabric.rails)


# %%
if __name__ == "__main__":
    fabric = railopt.Fabric.uniform(nodes=6, rails=4, link="400Gb/s")
    chunks = railopt.workloads.moe(fabric, tokens=512, skew=0.5, seed=1).chunks("64KiB")
    for policy in ("lpt", "lpt-local", by_pair):
        plan = railopt.plan(fabric, chunks, policy=policy)
        report = railopt.gap(plan, limit_s=1)
        print(f"{plan.policy:<20} gap {float(report.gap):7.3%}, worst {report.bottleneck.side}")
        assert report.value >= report.bound
