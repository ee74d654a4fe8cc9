"""The one sentence on top: what the GPU's idle time is about, and what fixing the syncs can give back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from nsys_sync.analysis.findings import Capture, DeviceTime, Headline, Site, Totals

#: Shares of the window from which idle time and what comes back are worth a headline.
_WORTH = 0.10
_LITTLE = 0.05
_ONE_SITE = 0.8


def ms(ns: int) -> str:
    """Milliseconds with three significant digits: 0.527 ms, 6.2 ms, 421 ms."""
    value = ns / 1e6
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} ms"


def choose_headline(devices: Sequence[DeviceTime], totals: Totals, sites: Sequence[Site], capture: Capture) -> Headline:
    """The sentence that these findings support, and no more."""
    window = sum(d.window_ns for d in devices)
    if not window:
        return Headline(
            slug="nothing_measured", text="Nothing was measured: the trace holds no GPU work in this window."
        )
    withheld = next((d.idle_reason for d in devices if d.idle_reason), None)
    if withheld is not None or totals.idle_ns is None or totals.recoverable_all_ns is None:
        return Headline(
            slug="withheld",
            text=f"The host waited {ms(totals.wait_ns)} in {totals.sync_events} syncs; GPU idle time is withheld: "
            f"{withheld or 'it was not measured'}.",
        )
    idle, back = totals.idle_ns, totals.recoverable_all_ns
    on = f"{ms(window)}" + (f" on {len(devices)} GPUs" if len(devices) > 1 else "")
    lead = f"GPU idle {idle / window:.0%} of {on}"
    if not totals.sync_events:
        return Headline(slug="no_syncs", text=f"{lead}; no call blocked the host.")
    if back >= _WORTH * window or (idle >= _LITTLE * window and back >= idle / 2):
        return Headline(
            slug="sync_bound",
            text=f"{lead} ({ms(idle)}); fixing every sync gives back up to {ms(back)}{_share(sites, back)}"
            f"{_copying(sites, back - idle)}.",
        )
    if idle < _WORTH * window:
        return Headline(
            slug="gpu_bound",
            text=f"GPU busy {1 - idle / window:.0%} of {on}; fixing every sync gives back at most {ms(back)}: "
            "syncs are not the problem.",
        )
    if idle - min(back, idle) > idle / 2:
        return Headline(
            slug="launch_bound",
            text=f"{lead}; fixing every sync gives back at most {ms(back)}: the host is launch-bound, syncs are not "
            f"the problem; look at CUDA graphs or torch.compile. {_profiler(capture)}",
        )
    return Headline(slug="mixed", text=f"{lead}; fixing every sync gives back up to {ms(back)}{_share(sites, back)}.")


def _share(sites: Sequence[Site], back: int) -> str:
    best = max(sites, key=lambda s: (s.recoverable_ns or 0, s.id), default=None)
    if best is None or not best.recoverable_ns or best.recoverable_ns < _ONE_SITE * back:
        return ""
    where = f"{PurePosixPath(best.file).name}:{best.line}" if best.file else (best.leaf.function if best.leaf else "")
    return f", {ms(best.recoverable_ns)} of it from {where or 'one place'}"


def _copying(sites: Sequence[Site], beyond_idle: int) -> str:
    """More can come back than the GPU was idle: while a blocking copy runs the GPU does nothing else."""
    copying = sum(s.copy_in_call_ns or 0 for s in sites)
    return f" (the GPU did nothing but blocking copies for {ms(copying)})" if beyond_idle > 0 else ""


def _profiler(capture: Capture) -> str:
    if capture.slowdown is None:
        return "How much of the idle time is the profiler's own doing was not measured."
    more = capture.slowdown.ratio - 1
    return f"Profiling itself made the steps {more:.0%} longer." if more > 0 else "Profiling did not slow the steps."
