"""libibverbs through ctypes: no compile step, bound on first use, C names.

lib.py        the shared library and its exported functions; `VerbsError(verb, errno)`
structs.py    layouts and constants, generated from the header and committed
objects.py    Device, Pd, Mr, Cq, Qp: owners that close their children first
work.py       work requests and completions as numpy structured arrays
engine.py     links and their jobs: posts lists of writes, polls completions
devices.py    which RDMA devices this node has, and which would be which rail
rails.py      an open device with its memory and queue pairs; the options of queue pairs
card.py       what a peer must know to reach a rank's queue pairs and memory
wiring.py     all rails of this process, wired to every peer
trial.py      whether a path that had failed carries bytes again
"""
