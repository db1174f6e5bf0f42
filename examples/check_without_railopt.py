# %% [markdown]
# # A certificate, checked on a machine without railopt
#
# The checker is one file of the standard library. This script makes a certificate, copies it and
# `railopt/checker.py`, nothing else, to an empty folder, and checks it there with `python3 -S -I`:
# no site-packages, no railopt. Then it falsifies the certificate, which the checker refuses.

# %%
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import railopt


def check(folder: Path, name: str) -> int:
    """The kernel's exit code, in a Python that sees neither site-packages nor this folder."""
    ran = subprocess.run(
        [sys.executable, "-S", "-I", "checker.py", name], cwd=folder, capture_output=True, text=True
    )
    print(f"exit code {ran.returncode}: {(ran.stdout + ran.stderr).strip()}")
    return ran.returncode


# %%
fabric = railopt.Fabric.uniform(nodes=4, rails=4, link="400Gb/s")
chunks = railopt.workloads.moe(fabric, tokens=256, skew=0.5, seed=1).chunks("256KiB")
outcome = railopt.solve(fabric, chunks, limit_s=5)

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    outcome.save_certificate(folder / "best.json")
    shutil.copy(railopt.checker.__file__, folder / "checker.py")
    assert check(folder, "best.json") == 0

    record = json.loads((folder / "best.json").read_text())
    record["claim"]["bound"] = str(outcome.bound * 2)  # twice as slow, "nothing is faster"
    (folder / "forged.json").write_text(json.dumps(record, sort_keys=True, separators=(",", ":")))
    assert check(folder, "forged.json") == 4
