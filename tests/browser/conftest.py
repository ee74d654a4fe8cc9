"""One Chromium for all tests of the pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from nsys_sync.analysis.findings import Report
from nsys_sync.analysis.timeline import Timeline
from nsys_sync.report import html
from tests.browser import chromium
from tests.waiting import PATIENCE_S


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.needs_browser)


@pytest.fixture(scope="session")
def chrome() -> Iterator[Any]:
    with chromium.browser() as driver:
        yield driver


class Page:
    """A dashboard in the browser."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver, self.path = driver, path
        driver.get_log("browser")
        driver.get_log("performance")
        driver.get(path.as_uri())
        self.until("return document.documentElement.classList.contains('scripted')")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, seconds: float = PATIENCE_S) -> Any:
        return WebDriverWait(self.driver, seconds, poll_frequency=0.05).until(lambda _: self.run(script))

    def drawn(self) -> Page:
        """Wait for the timeline's first picture."""
        self.until("return document.documentElement.dataset.drawn")
        return self

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        """Texts of the elements that are shown."""
        script = """return [...document.querySelectorAll(arguments[0])]
            .filter((one) => one.checkVisibility()).map((one) => one.innerText.trim())"""
        found: list[str] = self.run(script, selector)
        return found

    def view(self) -> tuple[float, float]:
        """The stretch of time in view, ns from the start."""
        self.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        start, end = self.run("return document.getElementById('timeline')._fullLayout.xaxis.range")
        return float(start), float(end)

    def console(self) -> list[str]:
        """What the page complained about."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself left out."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if url != self.path.as_uri() and not url.startswith(("data:", "blob:"))]


@pytest.fixture
def show(chrome: Any, tmp_path: Path) -> Callable[..., Page]:
    """``show(report, timeline)`` is the dashboard in the browser, light, 1400 by 1000."""

    def open_page(report: Report, timeline: Timeline | None, **options: Any) -> Page:
        chromium.dark(chrome, on=False)
        return Page(chrome, html.write(report, timeline, tmp_path / "page.html", force=True, **options))

    return open_page
