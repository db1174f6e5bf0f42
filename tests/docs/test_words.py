"""Pages stay short: a guide is read in five minutes, and all pages together in an afternoon.

A word is anything between blanks that has a letter or a digit, in prose, tables and code alike;
rules and bars of tables are none.  The README and docs/design count like everything else.  Apart
are theory and what docs/hooks.py generates, which is in no file of docs/.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_pages import DOCS

README = DOCS.parent / "README.md"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "theory"]
GUIDES = [page for page in PAGES if page.parent.name == "guides"]
GUIDE, ALL, SENTENCE = 1_000, 20_000, 30  # words


def words(text: str) -> int:
    return sum(1 for word in text.split() if re.search(r"\w", word))


def test_bars_of_tables_are_no_words() -> None:
    assert words("| a | 7 % |\n|---|---|\n") == 2


@pytest.mark.parametrize("page", GUIDES, ids=[page.name for page in GUIDES])
def test_a_guide_is_read_in_five_minutes(page: Path) -> None:
    assert words(page.read_text(encoding="utf-8")) <= GUIDE


def test_all_pages_together_are_short() -> None:
    count = {str(page): words(page.read_text(encoding="utf-8")) for page in [README, *PAGES]}
    assert sum(count.values()) <= ALL, count


def sentences(text: str) -> list[str]:
    """Of a page's prose: without code, formulas, tables, headings and addresses of links."""
    text = re.sub(r"^```.*?^```$|\$\$.*?\$\$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(\||    |#|<!).*$|\]\([^)]*\)", "", text, flags=re.MULTILINE)
    parts = re.split(r"\n\s*\n|\n(?=[->] )", text)
    return [one for part in parts for one in re.split(r"(?<=[.:?;!])\s+", part)]


def test_sentences_are_told_from_code_and_tables() -> None:
    text = "# A\n\nOne two: three.\n\n| a | b |\n\n```text\nx\n```\n\n- four [five](six)\n- ten\n"
    assert [one for one in sentences(text) if words(one)] == [
        "One two:",
        "three.",
        "- four [five",
        "- ten\n",
    ]


@pytest.mark.parametrize("page", GUIDES, ids=[page.name for page in GUIDES])
def test_sentences_of_a_guide_are_short(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [one for one in sentences(text) if words(one) > SENTENCE] == []
