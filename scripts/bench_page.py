"""How heavy a dashboard is and how soon it is there, opened from disk in a headless Chromium.

    scripts/bench_page               five loads a page, the medians as a table
    scripts/bench_page --json        the same as JSON
    scripts/bench_page --check       exit 1 if a page exceeds 10 MB, or 2 s to its first paint

First paint: headline, tiles and table are on the screen. Timeline: it is drawn and answers. Each load is in a browser
with an empty profile that has opened nothing before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsys_sync.analysis.findings import Report  # noqa: E402 (the path must be set first)
from nsys_sync.analysis.run import analyze_and_draw  # noqa: E402
from nsys_sync.analysis.timeline import Timeline  # noqa: E402
from nsys_sync.report import html  # noqa: E402
from tests.browser import chromium  # noqa: E402
from tests.report.factory import make_report, make_site, make_timeline  # noqa: E402

MAX_BYTES = 10_000_000
MAX_PAINT_MS = 2_000


@dataclass(frozen=True)
class Row:
    """One page: what it shows, its weight, how long it took to write, and when things were there (ms, medians)."""

    page: str
    items: int
    sites: int
    megabytes: float
    written_s: float
    first_paint_ms: float
    timeline_ms: float


def recorded(name: str) -> Callable[[], tuple[Report, Timeline]]:
    """The report on a recorded trace."""
    return lambda: analyze_and_draw(ROOT / f"sample_traces/{name}.sqlite.xz")


def made(steps: int, kernels: int, sites: int) -> Callable[[], tuple[Report, Timeline]]:
    """A made report of that size: each step launches kernels and blocks once."""
    return lambda: (
        make_report([make_site(n) for n in range(sites)]),
        make_timeline(steps=steps, kernels=kernels, sites=sites),
    )


PAGES = {
    "probe-sync": recorded("probe-sync"),
    "ddp-fix0 (two GPUs)": recorded("ddp-fix0"),
    "gpt_train-fix0": recorded("gpt_train-fix0"),
    "1,000 sites": made(steps=1_000, kernels=20, sites=1_000),
    "1,000,000 kernels, 200,000 syncs": made(steps=200_000, kernels=5, sites=1_000),
    "1,000,000 kernels, 50 syncs": made(steps=50, kernels=20_000, sites=3),
}


def measure(name: str, folder: Path, rounds: int) -> Row:
    """Write a page and open it ``rounds`` times."""
    report, timeline = PAGES[name]()
    start = time.perf_counter()
    path = html.write(report, timeline, folder / "page.html", force=True)
    written = time.perf_counter() - start
    loads = [load(path) for _ in range(rounds)]
    return Row(
        page=name,
        items=len(timeline.calls.start) + len(timeline.ops.start) + len(timeline.gaps.start),
        sites=len(report.sites),
        megabytes=path.stat().st_size / 1e6,
        written_s=written,
        first_paint_ms=statistics.median(paint for paint, _ in loads),
        timeline_ms=statistics.median(drawn for _, drawn in loads),
    )


def load(path: Path) -> tuple[float, float]:
    """First paint and timeline (ms after the page was asked for)."""
    with chromium.browser() as driver:
        chromium.open_page(driver, path)
        paint, drawn = driver.execute_script(
            "return [performance.getEntriesByName('first-contentful-paint')[0].startTime,"
            "Number(document.documentElement.dataset.drawn)]"
        )
    return float(paint), float(drawn)


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(name, Path(folder), options.rounds) for name in PAGES]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print("| page | items | sites | MB | written, s | first paint, ms | timeline, ms |")
        print("|---|--:|--:|--:|--:|--:|--:|")
        for r in rows:
            figures = f"{r.megabytes:.1f} | {r.written_s:.1f} | {r.first_paint_ms:.0f} | {r.timeline_ms:.0f}"
            print(f"| {r.page} | {r.items:,} | {r.sites:,} | {figures} |")
    if options.check and any(r.megabytes * 1e6 > MAX_BYTES or r.first_paint_ms > MAX_PAINT_MS for r in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
