"""Figures that guides quote are those of the page that holds them."""

from __future__ import annotations

import re

from tests.docs.test_pages import DOCS

NOTES = (DOCS / "design" / "notes.md").read_text(encoding="utf-8")


def page(name: str) -> str:
    return (DOCS / "guides" / name).read_text(encoding="utf-8")


def test_times_on_the_gpu_are_those_of_the_notes() -> None:
    row = re.search(r"^\| `even-excess` \|(.*)\|$", NOTES, re.MULTILINE)
    assert row
    small, _, large, *_ = (float(cell) for cell in row[1].split("|"))
    quoted = f"`even-excess` takes {small:.0f} us at 8 x 8 and {large:.0f} us at 64 x 8"
    assert quoted in page("gpu.md")
    cells = {
        size: line.split("|")[5].strip()
        for line in page("pays.md").splitlines()
        if (size := line[2:].split(" |")[0]) in ("8 x 8", "64 x 8")
    }
    assert cells == {"8 x 8": f"{small:.0f} us", "64 x 8": f"{large:.0f} us"}


def test_moves_of_a_rebalance_are_those_of_the_notes() -> None:
    moves = re.search(r"(\d+ of \d+) copies per layer move", NOTES)
    peer = re.search(r"vLLM 0\.33\.0 moved (\d+) per layer", NOTES)
    assert moves
    assert peer
    assert f"{moves[1]} copies per layer move, where vLLM 0.33.0 moved {peer[1]}" in page(
        "placement.md"
    )


def test_the_own_nic_is_as_good_in_words_as_in_the_table() -> None:
    beside = (DOCS / "beside.md").read_text(encoding="utf-8")
    share = re.search(r"\| 8 nodes, equal batches \| ([\d.]+ %) \|", beside)
    assert share
    assert f"own NIC was {share[1]} above the even share" in beside


def test_gains_in_per_cent_and_in_time_are_the_same() -> None:
    rows = re.findall(
        r"^\| \d+ x 8 \| ([\d,]+) us \| (\d+) us \(([\d.]+) %\) \|.*\| (\d+) us \(([\d.]+) %\) \|",
        page("pays.md"),
        re.MULTILINE,
    )
    assert len(rows) == 6
    for own, *gains in rows:
        took = int(own.replace(",", ""))
        for saved, share in (gains[:2], gains[2:]):
            assert abs(100 * int(saved) / took - float(share)) < 100 * 0.5 / took + 0.06
