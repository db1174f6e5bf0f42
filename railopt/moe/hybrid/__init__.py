"""HybridEP (arXiv 2510.19470): when links between data centres are slow, send experts to the data
or data to the experts?

stream      the latency of one MoE block as a function of the domain sizes, and its optimum, closed
            form and exact
domains     the multilevel partition: who exchanges experts with whom, and data with whom
simulated   the same block as flows that the simulator runs
migrate     parameter-efficient migration: an expert as a sparse difference from a shared one
recorded    the same on a trace, step after step, on the nodes of a fabric
gating      uneven popularity: which expert travels to which data centre, one by one
spec        the TOML description that `railopt hybrid` reads
answer      what `railopt hybrid` tells: the best domains, their parts, what if
"""
