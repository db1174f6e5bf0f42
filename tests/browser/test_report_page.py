"""The report in headless Chromium: no errors, answers first, tables sort and filter, a node shows
its NICs, figures show, all by keyboard; both themes and a phone's width hold.

Needs Debian's chromium and chromium-driver and selenium: `make test-browser` sees to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from railopt.report import page
from railopt.sweep import instance, results, spec
from railopt.symbolic import registry

OUT = Path(__file__).parents[2] / "out" / "browser"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    sweep = spec.parse(
        {
            "simulate": True,
            "grid": {
                "nodes": [2, 4],
                "rails": [4],
                "traffic": ["moe:tokens=64"],
                "chunk": ["16KiB", "64KiB"],
                "policy": ["lpt", "lpt-local", "equitable"],
                "seed": [0, 1],
            },
        }
    )
    return [instance.run(point) for point in sweep.instances]


@pytest.fixture(scope="module")
def path(rows: list[dict[str, Any]]) -> Path:
    OUT.mkdir(parents=True, exist_ok=True)
    compared = [
        {"name": "a claim", "paper_text": "1.5x", "ours_text": "1.4x", "verdict": "reproduced"},
        {"name": "another", "paper_text": "2x", "ours_text": "1x", "verdict": "contradicted"},
    ]
    record = OUT / "experiments" / "sample" / "results.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"comparison": compared}))
    claims = page.read_experiments(OUT / "experiments")
    found = results.Results(
        tuple(rows),
        (instance.failure(spec.parse({"grid": {"nodes": 2}}).instances[0], "on purpose"),),
        0,
        1,
    )
    text = page.build(found, tuple(registry.read().values()), claims)
    assert len(text.encode()) < 2_000_000
    target = OUT / "report.html"
    target.write_text(text)
    return target


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


def shot(browser: webdriver.Chrome, name: str, width: int) -> None:
    browser.set_window_size(width, 1200)
    height = browser.execute_script("return document.documentElement.scrollHeight")
    browser.set_window_size(width, min(height, 8000))
    browser.save_screenshot(str(OUT / f"{name}.png"))


def test_no_script_error_and_no_request(browser: webdriver.Chrome, path: Path) -> None:
    browser.get(path.as_uri())
    assert browser.title == "railopt report"
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    asked = re.findall(
        r'"requestWillBeSent".*?"url":"([^"]+)"',
        str([entry["message"] for entry in browser.get_log("performance")]),
    )
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert not re.search(r'(src|href)="(https?:)?//', path.read_text())
    shot(browser, "light", 1200)


def shown(browser: webdriver.Chrome, selector: str) -> list[Any]:
    """The elements that a reader sees."""
    found = browser.find_elements(By.CSS_SELECTOR, selector)
    return [element for element in found if element.is_displayed()]


def test_the_page_answers_first(browser: webdriver.Chrome, path: Path) -> None:
    browser.get(path.as_uri())
    heads = [head.text for head in browser.find_elements(By.TAG_NAME, "h2")]
    assert heads[:3] == ["What was asked", "Verdict", "Gap against largest chunk"]
    assert heads.index("Completion times") < heads.index("Table of gaps")
    (verdict,) = browser.find_elements(By.CSS_SELECTOR, ".verdict")
    assert "closest of 3 policies" in verdict.text


def test_figures_show(browser: webdriver.Chrome, path: Path) -> None:
    browser.get(path.as_uri())
    figures = shown(browser, "figure svg[role=img]")
    assert len(figures) == 5
    for figure in figures:
        assert figure.size["width"] > 300
        assert figure.size["height"] > 100
        label = figure.get_attribute("aria-labelledby")
        assert browser.find_element(By.ID, label).text


def column(table: Any, number: int) -> list[float]:
    return [
        float(cell.get_attribute("data-value"))
        for cell in table.find_elements(By.CSS_SELECTOR, f"tbody td:nth-child({number})")
    ]


def test_tables_sort_by_mouse_and_keyboard(browser: webdriver.Chrome, path: Path) -> None:
    browser.set_window_size(1200, 900)
    browser.get(path.as_uri())
    table = browser.find_element(By.CSS_SELECTOR, "section[aria-labelledby=instances] table")
    head = table.find_elements(By.CSS_SELECTOR, "thead th")[8]
    button = head.find_element(By.TAG_NAME, "button")
    browser.execute_script("arguments[0].click()", button)
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(table, 9) == sorted(column(table, 9))
    button.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "descending"
    assert column(table, 9) == sorted(column(table, 9), reverse=True)


def test_every_number_is_the_number_in_the_results(
    browser: webdriver.Chrome, path: Path, rows: list[dict[str, Any]]
) -> None:
    browser.get(path.as_uri())
    shown = browser.find_elements(By.CSS_SELECTOR, "section[aria-labelledby=instances] tbody tr")
    assert len(shown) == len(rows)
    for line, row in zip(shown, rows, strict=True):
        cells = line.find_elements(By.TAG_NAME, "td")
        assert [cell.text for cell in cells[:6]] == [
            str(row["instance"][n])
            for n in ("nodes", "rails", "traffic", "chunk", "policy", "seed")
        ]
        assert Fraction(cells[6].get_attribute("title")) == Fraction(row["value"]) * 10**6
        assert Fraction(cells[7].get_attribute("title")) == Fraction(row["bound"]) * 10**6
        assert Fraction(cells[8].get_attribute("title")) == Fraction(row["gap"]) * 100


def contrast(browser: webdriver.Chrome, selector: str) -> float:
    """WCAG contrast of an element's colour against the page."""
    script = (
        "const e = getComputedStyle(document.querySelector(arguments[0])).color, b = "
        "getComputedStyle(document.body).backgroundColor;"
        "return [e, b]"
    )
    shades = []
    for text in browser.execute_script(script, selector):
        channels = [int(value) / 255 for value in re.findall(r"\d+", text)[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        shades.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    high, low = max(shades), min(shades)
    return (high + 0.05) / (low + 0.05)


def test_both_themes_are_readable(browser: webdriver.Chrome, path: Path) -> None:
    browser.set_window_size(1200, 900)
    browser.get(path.as_uri())
    backgrounds = set()
    for theme in ("light", "dark"):
        browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        backgrounds.add(
            browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        )
        for selector in (
            "h1",
            "p.soft",
            "td",
            "figure svg text",
            ".reproduced",
            ".contradicted",
            ".refuted",
            "a",
        ):
            assert contrast(browser, selector) >= 4.5, (theme, selector)
    assert len(backgrounds) == 2
    shot(browser, "dark", 1200)
    browser.execute_script("delete document.documentElement.dataset.theme")
    before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.find_element(By.ID, "theme").send_keys(Keys.ENTER)
    assert (
        browser.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    )


def focused(browser: webdriver.Chrome) -> Any:
    return browser.switch_to.active_element


def press(browser: webdriver.Chrome, *keys: str) -> None:
    ActionChains(browser).send_keys(*keys).perform()


def tab_to(browser: webdriver.Chrome, wanted: Any) -> None:
    """The tab key alone, from where the focus is."""
    for _ in range(400):
        press(browser, Keys.TAB)
        if focused(browser) == wanted:
            return
    raise AssertionError("the tab key does not reach it")


def visible_focus(browser: webdriver.Chrome) -> bool:
    script = "return getComputedStyle(document.activeElement).outlineStyle"
    return bool(browser.execute_script(script) != "none")


def test_rows_are_filtered_by_keyboard_alone(
    browser: webdriver.Chrome, path: Path, rows: list[dict[str, Any]]
) -> None:
    browser.set_window_size(1200, 900)
    browser.get(path.as_uri())
    filters = browser.find_element(By.CSS_SELECTOR, "[data-filters]")
    labels = [label.text.splitlines()[0] for label in filters.find_elements(By.TAG_NAME, "label")]
    assert labels == ["nodes", "chunk", "policy", "seed"]  # rails and traffic have one value
    choice = filters.find_element(By.CSS_SELECTOR, "select[data-column='4']")
    tab_to(browser, choice)
    assert visible_focus(browser)
    press(browser, Keys.ARROW_DOWN)
    mine = [row for row in rows if row["instance"]["policy"] == "lpt"]
    count = filters.find_element(By.TAG_NAME, "output")
    assert count.text == f"{len(mine)} of {len(rows)} shown"
    body = "section[aria-labelledby=instances] tbody tr"
    assert len(shown(browser, body)) == len(mine)
    press(browser, Keys.ARROW_UP)
    assert len(shown(browser, body)) == len(rows)


def test_one_nodes_nics_by_keyboard_alone(
    browser: webdriver.Chrome, path: Path, rows: list[dict[str, Any]]
) -> None:
    browser.set_window_size(1200, 900)
    browser.get(path.as_uri())
    problem, policy, node = (
        Select(browser.find_element(By.ID, f"view-{name}"))
        for name in ("problem", "policy", "node")
    )
    tab_to(browser, problem._el)
    assert visible_focus(browser)
    press(browser, Keys.END)
    tab_to(browser, policy._el)
    press(browser, Keys.END)
    tab_to(browser, node._el)
    press(browser, Keys.HOME, Keys.ARROW_DOWN)
    assert policy.first_selected_option.text == "equitable"
    assert node.first_selected_option.text.startswith("node 1")
    row = rows[-1]
    full = Fraction(row["bound"]) * 50 * 10**9  # bytes of a NIC of 400 Gb/s
    cells = browser.find_elements(By.CSS_SELECTOR, "#view tbody td")
    found = [float(cell.get_attribute("data-value") or "nan") for cell in cells]
    for side, column in (("send", 0), ("recv", 1)):
        expected = [float(load / full) for load in row["loads"][side][1]]
        assert found[column::2] == pytest.approx(expected, abs=0.0006)
    assert "times the bound" in browser.find_element(By.ID, "view-slowest").text


@pytest.mark.parametrize("width", [360, 390])
def test_a_phone_needs_no_sideways_scrolling(
    browser: webdriver.Chrome, path: Path, width: int
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": True},
    )
    browser.get(path.as_uri())
    script = "return [document.documentElement.scrollWidth, document.body.scrollWidth]"
    assert max(browser.execute_script(script)) <= width
    figures = shown(browser, "figure svg[role=img]")
    assert [figure.get_attribute("class") for figure in figures] == ["narrow"] * 5
    smallest = (
        "return Math.min(...[...document.querySelectorAll('figure svg.narrow text')].map("
        "t => parseFloat(getComputedStyle(t).fontSize) * "
        "Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b)))"
    )
    assert browser.execute_script(smallest) >= 8  # CSS pixels
    for table in shown(browser, "main table"):
        box = table.find_element(By.XPATH, "..")
        assert box.get_attribute("class") == "scroll"
        assert box.size["width"] <= width
    browser.save_screenshot(str(OUT / f"phone-{width}.png"))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
