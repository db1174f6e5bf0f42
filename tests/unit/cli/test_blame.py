"""What `railopt blame` prints."""

from __future__ import annotations

import re

import pytest

from railopt import Fabric, plan, workloads
from railopt.answers.blame import blame
from railopt.base.units import format_time
from railopt.cli.blame import print_blame
from railopt.cli.common import Output
from railopt.runtime.counters import Counted


def test_times_below_zero_have_a_sign(capsys: pytest.CaptureFixture[str]) -> None:
    fabric = Fabric.uniform(2, 2)
    planned = plan(fabric, workloads.moe(fabric, seed=2), "lpt", chunk="64KiB")
    found = blame(planned, Counted(planned.send, planned.recv, fabric.tx))
    time = found.nics[0].time
    found = found._replace(terms={"even": 2 * time, "plan": -time})
    for form, shown in (("csv", f"-{float(time)}"), ("text", f"-{format_time(time)}")):
        print_blame(found, Output(form))
        assert shown in re.split(r"[,\s]+", capsys.readouterr().out)
