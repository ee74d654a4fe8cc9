"""What of a report is compared, and per what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from nsys_sync.analysis.findings import Report, Site, SiteProcess
    from nsys_sync.compare.comparison import Basis


def step_time(report: Report) -> int | None:
    """Median step time (ns) of the process whose steps are longest; None without measured steps."""
    return max((s.median_ns for s in report.steps if s.median_ns is not None), default=None)


def step_count(report: Report) -> int:
    """Steps of all processes together: what a total is divided by to get it per step of one process."""
    return sum(s.count for s in report.steps)


def share_events(share: SiteProcess, basis: Basis) -> int:
    """A process's events at a site: with steps those of its loop, which leave out what comes before and after it.

    A process that has no steps of its own counts whole.
    """
    return share.in_loop.events if basis == "step" and share.in_loop else share.events


def share_wait(share: SiteProcess, basis: Basis) -> int:
    """A process's wait (ns) at a site; as ``share_events``."""
    return share.in_loop.wait_ns if basis == "step" and share.in_loop else share.wait_ns


def site_events(site: Site, basis: Basis) -> int:
    """A site's events in all processes; as ``share_events``."""
    return sum(share_events(share, basis) for share in site.by_process)


def site_wait(site: Site, basis: Basis) -> int:
    """A site's wait (ns) in all processes; as ``share_events``."""
    return sum(share_wait(share, basis) for share in site.by_process)


def window(report: Report) -> int:
    """The longest window (ns) of its devices."""
    return max((d.window_ns for d in report.devices), default=0)


def source_text(site: Site) -> str | None:
    """The site's own line of code, stripped; None where it is not known."""
    if site.source is None or site.line is None:
        return None
    return site.source.lines.get(site.line, "").strip() or None


@dataclass(frozen=True)
class Quantity:
    """A total of a report. scaled: whether it is divided by the steps when the basis is a step."""

    name: str
    unit: Literal["ns", "count"]
    scaled: bool
    value: Callable[[Report, Basis], int | None]


#: Totals that are compared, in the order in which they are shown.
QUANTITIES = (
    Quantity("step_time", "ns", scaled=False, value=lambda r, _: step_time(r)),
    Quantity("wait", "ns", scaled=True, value=lambda r, basis: sum(site_wait(s, basis) for s in r.sites)),
    Quantity("idle", "ns", scaled=True, value=lambda r, _: r.totals.idle_ns),
    Quantity("idle_from_syncs", "ns", scaled=True, value=lambda r, _: r.totals.idle_from_syncs_ns),
    Quantity("recoverable", "ns", scaled=True, value=lambda r, _: r.totals.recoverable_all_ns),
    Quantity("syncs", "count", scaled=True, value=lambda r, basis: sum(site_events(s, basis) for s in r.sites)),
)
