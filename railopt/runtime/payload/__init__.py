"""Which bytes lie where, and whether they are right.

memory.py      users' buffers as addresses
layout.py      where a plan's chunks lie in them, and the list of writes that moves them
pattern.py     copy, fill and compare bytes in memory (kernels)
staging.py     a plan's copies inside nodes, by the host
verify.py      payloads of a node: filled and compared
"""
