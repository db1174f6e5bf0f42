"""The site in headless Chromium, opened from a folder: it searches, typesets, and asks nobody.

Needs Debian's chromium and chromium-driver, selenium and the extra docs: `make test-browser`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).parents[2]
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PATIENCE = 30

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_window_size(1200, 900)
    yield driver
    driver.quit()


def asked(browser: Any) -> list[str]:
    """Every address that was asked for since the last call."""
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


def test_search_finds_pages_without_a_network(site: Path, browser: Any) -> None:
    browser.get((site / "index.html").as_uri())
    box = browser.find_element(By.CSS_SELECTOR, "input.md-search__input")
    browser.execute_script("arguments[0].focus()", box)
    box.send_keys("equitable")
    found = WebDriverWait(browser, PATIENCE).until(
        lambda driver: driver.find_elements(By.CSS_SELECTOR, "a.md-search-result__link")
    )
    targets = [link.get_attribute("href") for link in found]
    assert any("theory/T8.html" in target for target in targets), targets
    urls = asked(browser)
    assert urls
    assert [url for url in urls if url.startswith("http")] == []


@pytest.mark.parametrize(
    "page", ["start.html", "theory/registry.html", "reference/api/values.html"]
)
def test_a_page_loads_without_errors_or_strangers(site: Path, browser: Any, page: str) -> None:
    browser.get((site / page).as_uri())
    assert [url for url in asked(browser) if url.startswith("http")] == []
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []


def test_formulas_are_typeset(site: Path, browser: Any) -> None:
    browser.get((site / "index.html").as_uri())
    formula = browser.find_element(By.CSS_SELECTOR, "math[display=block]")
    assert formula.size["height"] > 30
    assert "\\frac" not in browser.find_element(By.TAG_NAME, "article").text
