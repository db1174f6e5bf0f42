"""`python -m railopt`."""

from railopt.cli.main import entry

entry()
