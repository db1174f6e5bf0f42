"""`python -m railopt.symbolic.coq`: build, audit and compare the theory."""

from railopt.symbolic.coq.build import entry

entry()
