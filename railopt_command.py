"""The console script `railopt`, apart from the package so that a Ctrl-C while numpy and the package
are being imported is answered like any other: one line, exit code 130.
"""

from __future__ import annotations

import os
import signal


def _stop(*_: object) -> None:
    """At once: an import that is torn in the middle may swallow an exception or report it."""
    os.write(2, b"railopt: interrupted\n")
    os._exit(130)


def entry() -> None:
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # a job that ignores Ctrl-C goes on ignoring it
        signal.signal(signal.SIGINT, _stop)
    from railopt.cli.main import entry as run

    signal.signal(signal.SIGINT, before)
    run()
