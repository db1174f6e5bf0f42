"""`python tests/beside/vllm_wheel.py FOLDER`: from vLLM's wheel, the Python files that run with
numpy and PyTorch alone, unchanged: its default policy and its scheduler of migrations.

vLLM's packages import its whole server with them.  Without their `__init__.py` they are namespace
packages, and the files are imported under their own names.  The balancer (`EplbState`) imports
`vllm.config`, `vllm.platforms`, `vllm.distributed.parallel_state` and
`vllm.model_executor.models.interfaces`, and with them transformers, pydantic and vLLM's other
packages: tests/torch/test_vllm_state.py runs where all of vLLM is installed.  The wheel holds no
tests of vLLM's own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION = "0.33.0"
EPLB = "vllm/distributed/eplb"
FILES = (
    f"{EPLB}/migration_scheduler.py",
    f"{EPLB}/policy/abstract.py",
    f"{EPLB}/policy/default.py",
)


def main(folder: Path) -> None:
    """Download the wheel, unpack the files, forget the wheel."""
    with tempfile.TemporaryDirectory() as room:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download"]
        wanted = ["--no-deps", "--only-binary", ":all:", "-d", room, f"vllm=={VERSION}"]
        if subprocess.run([*pip, *wanted], check=False).returncode:
            print(f"not run: no wheel of vLLM {VERSION} for this machine, or no network")
            return
        (wheel,) = Path(room).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, FILES)
    print(f"vLLM {VERSION}: {len(FILES)} files in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
