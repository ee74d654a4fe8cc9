"""A headless Chromium with an empty profile and no network of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.waiting import PATIENCE_S

FLAGS = [
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
]


@contextmanager
def browser(width: int = 1400, height: int = 1000) -> Iterator[webdriver.Chrome]:
    """A browser window of that size, logging the console and every request."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    profile = tempfile.mkdtemp(prefix="chromium-")
    for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_script_timeout(PATIENCE_S)
        size(driver, width, height)
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def dark(driver: webdriver.Chrome, *, on: bool) -> None:
    """Make the page believe that the person prefers dark (or light) colours."""
    features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def size(driver: webdriver.Chrome, width: int, height: int) -> None:
    """Give the page a window of that size."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def open_page(driver: webdriver.Chrome, path: Path, wait_for: str = "drawn") -> None:
    """Open a dashboard and wait for its timeline ("drawn") or, where it has none, its table."""
    driver.get(path.absolute().as_uri())
    ready = {"drawn": "dataset.drawn", "scripted": "classList.contains('scripted')"}[wait_for]
    script = f"return document.documentElement.{ready}"
    WebDriverWait(driver, PATIENCE_S, poll_frequency=0.05).until(lambda d: d.execute_script(script))
