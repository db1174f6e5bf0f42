"""libibverbs through ctypes: no compile step, bound on first use, C names.

lib.py        the shared library and its exported functions; `VerbsError(verb, errno)`
structs.py    layouts and constants, generated from the header by generate.py and committed
objects.py    Device, Pd, Mr, Cq, Qp: owners that close their children first
work.py       work requests and completions as numpy structured arrays
null.py       a driver without hardware: the same calls, bytes moved by memcpy, any completion
              status on demand
"""
