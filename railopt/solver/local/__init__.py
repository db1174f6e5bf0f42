"""The local problem, exactly: one list of sizes on N rails, equal (P||Cmax) or of different speeds
(Q||Cmax).  Rails of one speed are a class; equal rails are one class.

solve.py           sizes and speeds to units and ticks            outcome.py  what is known then
steps.py           the pipeline: bounds and values by rising cost until they meet
state.py           the best bound and assignment so far           deadline.py when it has to end
filling.py         steps that look for an assignment at the bound
prices.py          steps that ask the configuration LP

values.py          LPT, LPT by speed, differencing
fill.py            optimal re-splits of two rails, random filling
subsets.py         subset sums by meeting in the middle
dual.py            the exact knapsack: integer weights that refute a capacity
lp.py              the configuration LP by column generation: prices as weights, and dives
window.py          the sets of jobs that can be one rail's load
cover.py           exact cover of all jobs with such sets
exact.py           a capacity decided with these two
"""
