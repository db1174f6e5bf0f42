"""Exact solvers: the best plan, and a bound with a witness that the checker re-checks.

coupled   all senders and receivers at once: `railopt.solve`;  outcome: what it answers
local     one sender alone
fluid     divisible traffic
moving    the least bytes moved inside nodes within a time
program   the plain integer program: for other back-ends, or as a file
"""
