"""The site builds without a warning, whole, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from railopt.cli.main import COMMANDS
from railopt.symbolic import registry

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return folder


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)', text_of(page))
        loaded += re.findall(
            r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="([^"]+)', text_of(page)
        )
        assert [url for url in loaded if "//" in url] == [], page.name
        assert "arithmatex" not in text_of(page), f"{page.name}: a formula that is not typeset"


def test_what_its_pages_link_to_is_there(site: Path) -> None:
    missing = [
        f"{page.relative_to(site)} -> {link}"
        for page in site.rglob("*.html")
        if page.name != "404.html"  # its links begin at the server's root
        for link in re.findall(r'(?:href|src)="([^"#?]+)', text_of(page))
        if "//" not in link and ":" not in link and not (page.parent / link).exists()
    ]
    assert missing == []


def test_generated_pages_are_complete(site: Path) -> None:
    table = text_of(site / "theory" / "registry.html")
    for name in registry.read():
        entry = table.partition(f'id="{name.lower()}"')[2].partition("<h2")[0]
        assert "<math" in entry, name
    for command in COMMANDS:
        assert "usage: railopt" in text_of(site / "reference" / "commands" / f"{command}.html")
    for folder in sorted(path.parent for path in (ROOT / "experiments").glob("*/expected.json")):
        assert (site / "experiments" / f"{folder.name}.html").is_file()
    assert "railopt.model.fabric.Fabric.degraded" in text_of(
        site / "reference" / "api" / "values.html"
    )


def test_what_pages_import_is_on_a_page_of_the_api(site: Path) -> None:
    """Modules, that is: a package's names are on the pages of the modules that have them."""
    shown = "".join(text_of(page) for page in (site / "reference" / "api").glob("*.html"))
    for page in (ROOT / "docs").rglob("*.md"):
        for module in re.findall(r"^from (railopt\.[\w.]+) import", text_of(page), re.MULTILINE):
            if (ROOT / f"{module.replace('.', '/')}.py").is_file():
                assert f'id="{module}"' in shown, f"{page.name} imports {module}"


def test_every_theorem_has_its_formula() -> None:
    formulas = tomllib.loads(text_of(ROOT / "docs" / "theory" / "formulas.toml"))
    assert list(formulas) == list(registry.read())
