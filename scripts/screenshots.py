"""The documents' pictures of the dashboard, taken from a recorded trace in a headless Chromium.

scripts/screenshots     writes docs/img/*.png, light and dark
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsys_sync.analysis.options import Options  # noqa: E402 (the path must be set first)
from nsys_sync.analysis.run import analyze_and_draw  # noqa: E402
from nsys_sync.inputs import path_maps  # noqa: E402
from nsys_sync.report import html  # noqa: E402
from tests.browser import chromium  # noqa: E402

PICTURES = ROOT / "docs/img"
WIDTH = 1280
MAPS = ["/workspace/examples=sample_traces/programs"]

#: What is done on the page before each picture, and the element from whose top and to whose bottom it reaches.
SHOTS = {
    "dashboard": ("document.querySelector('[data-do=next-gap]').click()", "header", "#timeline-section"),
    "site": ("document.querySelector('#table tbody button').click()", "#sites", "tr.detail"),
}


def picture(driver: Any, first: str, last: str) -> bytes:
    """The page from the top of one element to the bottom of another, over its whole width."""
    top, bottom = driver.execute_script(
        "return [document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY,"
        "document.querySelector(arguments[1]).getBoundingClientRect().bottom + scrollY]",
        first,
        last,
    )
    clip = {"x": 0, "y": max(0, top - 8), "width": WIDTH, "height": bottom - top + 20, "scale": 1}
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True}
    )
    return small(base64.b64decode(taken["data"]))


def small(png: bytes) -> bytes:
    """The picture in 256 colours: a flat page needs no more."""
    packed = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(packed, "PNG", optimize=True)
    return packed.getvalue()


def main() -> None:
    """Write a page, take its pictures."""
    options = Options(maps=tuple(path_maps(MAPS)))
    report, timeline = analyze_and_draw(ROOT / "sample_traces/probe-sync.sqlite.xz", options)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium.browser(WIDTH, 1000) as driver:
        page = html.write(report, timeline, Path(folder) / "page.html")
        for dark in (False, True):
            chromium.dark(driver, on=dark)
            chromium.open_page(driver, page)
            for name, (script, first, last) in SHOTS.items():
                driver.execute_script(script)
                driver.execute_async_script("setTimeout(arguments[arguments.length - 1], 500)")
                path = PICTURES / f"{name}{'-dark' if dark else ''}.png"
                path.write_bytes(picture(driver, first, last))
                print(f"{path.relative_to(ROOT)}  {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
