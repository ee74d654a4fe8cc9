"""Captures for tests of comparisons and checks: small reports that differ in what a test says."""

from __future__ import annotations

from typing import Any

import msgspec

from nsys_sync.analysis import findings as f
from tests.report.factory import MS, make_report, make_site

__all__ = ["MS", "capture", "line", "make_site", "steps", "trace"]


def trace(number: int, **changes: Any) -> f.TraceInfo:
    """What is known about a capture; another number is another file."""
    known = make_report().trace
    return msgspec.structs.replace(known, **{"sha256": f"{number:064}", "file": f"run{number}.sqlite"} | changes)


def steps(median_ns: int | None, count: int = 10, **changes: Any) -> list[f.Steps]:
    """The steps of the one process."""
    values: dict[str, Any] = {"pid": 41, "source": "nvtx", "name": "step *"} | changes
    return [f.Steps(count=count, mean_ns=median_ns, median_ns=median_ns, **values)]


def capture(number: int, sites: list[f.Site] | None = None, *, step_ns: int = 20 * MS, **changes: Any) -> f.Report:
    """A report of one process with ten steps on one GPU."""
    return make_report(sites, **{"trace": trace(number), "steps": steps(step_ns)} | changes)


def line(number: int, text: str) -> dict[str, Any]:
    """A site's place: its line and the code there."""
    return {"line": number, "source": f.SourceLine(lines={number: text}, sha256="0" * 64)}


def wait(total: int, events: int = 10, *, in_loop: bool = True) -> dict[str, Any]:
    """A site's cost: its wait (ns) and its events, all in the one process, in the loop or after it."""
    loop = f.InLoop(events=events, wait_ns=total) if in_loop else f.InLoop(events=0, wait_ns=0)
    share = f.SiteProcess(pid=41, calls=events, events=events, wait_ns=total, recoverable_ns=total, in_loop=loop)
    return {
        "events": events,
        "calls": events,
        "wait_ns": f.Spread(total=total, median=total // max(events, 1), max=total),
        "by_process": [share],
        "recoverable_ns": total,
    }


def what_if(low: int, high: int, confidence: f.Confidence = "high") -> f.WhatIf:
    """A predicted step time (ns)."""
    return f.WhatIf(
        step_ns_now=20 * MS, step_ns_low=low, step_ns_high=high, gpu_bound_ns=low, confidence=confidence, reasons=[]
    )
