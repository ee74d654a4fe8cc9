"""What the renderers of a check say the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_sync.report.compare_words import arrow, difference, number
from nsys_sync.report.words import count, duration, harmless, source_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nsys_sync.analysis.findings import Site
    from nsys_sync.gate import AllowUse, Gate, Growth, Limit, LimitResult

_WHAT = {"wait": "of waiting", "idle_from_syncs": "of GPU idle from syncs"}


def headline(gate: Gate) -> str:
    """Passed, failed or not measured, and by what."""
    exceeded = [r for r in gate.limits if r.status == "exceeded"]
    growth = gate.baseline.growth if gate.baseline else []
    new, grown = ({g.site for g in growth if g.kind == kind} for kind in ("new_site", "growth"))
    reasons = [
        count(len({r.limit.quantity for r in exceeded}), "limit") + " exceeded" if exceeded else "",
        count(len(new), "new site") if new else "",
        count(len(grown), "site") + " grew" if grown else "",
    ]
    if gate.status == "failed":
        return f"Failed: {', '.join(r for r in reasons if r)}."
    if gate.status == "not_measured":
        return "Not passed: something that was to be checked was not measured."
    return f"Passed: {passed(gate)}."


def passed(gate: Gate) -> str:
    """What was judged and held."""
    parts = []
    if gate.limits:
        parts.append(count(len({r.limit.quantity for r in gate.limits}), "limit") + " held")
    if gate.baseline:
        parts.append("no new site and no clear growth")
    accepted = sum(s.outcome == "accepted" for s in gate.sites)
    return "; ".join([*parts, count(len(gate.sites), "site") + (f", {accepted} of them accepted" if accepted else "")])


def amount(value: float, limit: Limit) -> str:
    """A value in a limit's unit, with what it is and what it is per."""
    per = " a step" if limit.per == "step" else " in the capture"
    if limit.unit == "share":
        return f"{value * 100:.3g} % of the GPUs' time idle from syncs"
    if limit.unit == "count":
        return syncs(value) + per
    return f"{duration(round(value))} {_WHAT[limit.quantity]}{per}"


def syncs(value: float) -> str:
    """``1 sync``, ``7.1 syncs``."""
    return f"{round(value, 3):,g} sync" + ("" if value == 1 else "s")


def limit_line(result: LimitResult) -> str:
    """One limit's outcome in one capture."""
    limit = result.limit
    if result.measured is None:
        return f"{limit.option}: not measured: {result.reason}."
    allowed = f"{limit.value * 100:.3g} %" if limit.unit == "share" else number(limit.value, limit.unit)
    text = f"{limit.option} {allowed}: {amount(result.measured, limit)}"
    if result.excess is None:
        return f"{text}."
    excess = f"{result.excess * 100:.3g} %" if limit.unit == "share" else number(result.excess, limit.unit)
    return f"{text}, {excess} too {'many' if limit.unit == 'count' else 'much'}."


def growth_line(growth: Growth) -> str:
    """One site's growth against the baseline."""
    per = " a step" if growth.per == "step" else " in the capture"
    what = "syncs" if growth.change.unit == "count" else "waiting"
    if growth.kind == "new_site":
        after = growth.change.after
        return f"Not in the baseline: {syncs(after.median) if after else what}{per}."
    unknown = "; one capture a side, noise unknown" if growth.change.noise is None else ", more than noise explains"
    return f"Grew: {arrow(growth.change)} {what}{per}, {difference(growth.change)}{unknown}."


def why_it_fails(gate: Gate, site_id: str) -> list[str]:
    """Every reason for which a site fails the check."""
    limits = [limit_line(r) for r in gate.limits if site_id in r.sites]
    return limits + [growth_line(g) for g in (gate.baseline.growth if gate.baseline else []) if g.site == site_id]


def entry_name(use: AllowUse) -> str:
    """An entry of the allow-list as it was written."""
    entry = use.entry
    return harmless(f"site {entry.site}" if entry.site else f"{entry.file} {entry.function}", 120)


def entry_line(use: AllowUse) -> str | None:
    """What is wrong with an entry of the allow-list; None where nothing is."""
    if use.status == "expired":
        return f"Expired on {use.entry.until}: {entry_name(use)} ({harmless(use.entry.reason, 120)})."
    if use.status == "stale":
        return f"Stale, no such site: {entry_name(use)} ({harmless(use.entry.reason, 120)})."
    return None


def site_sentence(site: Site) -> str:
    """What a site is, how often and how much, and what to do, in one paragraph."""
    parts = [f"{harmless(site.title, 200)}: {count(site.events, 'sync')}, {duration(site.wait_ns.total)} of waiting"]
    if site.recoverable_ns is not None:
        parts.append(f"{duration(site.recoverable_ns)} recoverable")
    text = f"{', '.join(parts)} in the capture ({site.class_})."
    return f"{text} {harmless(site.fix.text, 400)}" if site.fix else text


def code(site: Site) -> str:
    """The site's line of code, or nothing."""
    return harmless(source_line(site) or "", 200)


def failing(gate: Gate, sites: dict[str, Site]) -> Sequence[Site]:
    """The sites that fail the check, longest wait first."""
    bad = {s.id for s in gate.sites if s.outcome == "fails"}
    return [s for i, s in sites.items() if i in bad]
