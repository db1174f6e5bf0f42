# %% [markdown]
# # A sweep, read with pandas
#
# `pip install pandas` (it is part of railopt's extra `docs`). The sweep runs in this process; on a
# cluster the same results come from `railopt sweep spec.toml -o results --cluster ...`.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

SPEC = """
limit = "0s"
[grid]
nodes = [4]
rails = [4]
traffic = ["moe:skew=0.5,tokens=256", "moe:skew=0.8,tokens=256"]
chunk = ["64KiB", "256KiB"]
policy = ["lpt", "lpt-local", "equitable"]
seed = [0]
"""


def railopt(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "railopt", *map(str, words)], check=True)


# %%
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    (folder / "spec.toml").write_text(SPEC)
    railopt("sweep", folder / "spec.toml", "-o", folder / "results")
    railopt("results", folder / "results", "--export", folder / "rows.csv")
    rows = pd.read_csv(folder / "rows.csv")

# %% [markdown]
# Exact numbers are text "p/q"; a column of floats is one `map` away.

# %%
rows["gap %"] = rows["gap"].map(
    lambda text: 100 * int(str(text).split("/")[0]) / int((str(text) + "/1").split("/")[1])
)
table = rows.pivot_table(index="policy", columns="chunk", values="gap %", aggfunc="median")
print(table.round(3))
assert len(rows) == 12
assert (table >= 0).all().all()
