"""What a file calls itself does not make it refute a theorem."""

from __future__ import annotations

import json
from pathlib import Path

from railopt.checking import check
from railopt.symbolic.search.counterexamples import files


def test_a_claim_that_is_not_made_is_called_so(tmp_path: Path) -> None:
    record = json.loads(files()[0].read_text())
    for theorem, said in ((record["theorem"], "T10d rules out"), ("T1", "does not make")):
        path = tmp_path / "c.json"
        path.write_text(json.dumps({**record, "theorem": theorem}))
        verdict = check(path)
        assert verdict.ok
        assert said in verdict.kind
