"""The page of several ranks: a row for each rank, and which of them have which syncs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nsys_sync.report import ranks_words as words
from nsys_sync.report.page import NAME, fill
from nsys_sync.report.words import CLASSES, NOT_MEASURED, harmless, scale

if TYPE_CHECKING:
    from nsys_sync.ranks import Rank, Ranks, RankSite
    from nsys_sync.report.words import Scale


def ranks_page(found: Ranks) -> str:
    """The page of several ranks as text."""
    data = {"sites": None, "classes": CLASSES, "timeline": None}
    return fill("ranks.html.jinja", data, _values(found), plotly=False)


def _values(found: Ranks) -> dict[str, Any]:
    files = list(dict.fromkeys(harmless(r.file, 80) for r in found.ranks))
    step = scale((r.step_ns for r in found.ranks), 4)
    waited = scale((words.of_rank(found, r, r.wait_ns) for r in found.ranks), 4)
    met = scale((words.each(found, ns) for r in found.ranks for ns in (r.waits_ns, r.holds_ns)), 3)
    site_wait = words.unit_of_waits(found)
    held = scale((words.each(found, s.holds_ns) for s in found.sites), 3)
    names = words.names(found)
    return {
        "title": f"{len(found.ranks)} ranks – nsys-sync",
        "files": files,
        "headline": words.headline(found),
        "per": " a step" if found.basis == "step" else "",
        "units": {"step": step.unit, "wait": waited.unit, "met": met.unit, "site": site_wait.unit, "held": held.unit},
        "ranks": [_rank(found, r, step, waited, met) for r in found.ranks],
        "rows": [_row(found, s, names, site_wait, held) for s in found.sites],
        "notes": words.notes(found),
    }


def _rank(found: Ranks, rank: Rank, step: Scale, waited: Scale, met: Scale) -> dict[str, Any]:
    largest = max((ns or 0 for r in found.ranks for ns in (r.waits_ns, r.holds_ns)), default=0) or 1
    return {
        "name": words.label(found, rank),
        "file": harmless(rank.file, 80),
        "gpu": ", ".join(str(d) for d in rank.devices) or NOT_MEASURED,
        "step": step.show(rank.step_ns),
        "wait": waited.show(words.of_rank(found, rank, rank.wait_ns)),
        "syncs": f"{words.of_rank(found, rank, rank.events):,}" if found.basis == "capture" else _syncs(rank),
        "waits": met.show(words.each(found, rank.waits_ns)),
        "holds": met.show(words.each(found, rank.holds_ns)),
        "behind": words.at_most(met.show(words.each(found, rank.by_syncs_ns)), rank.by_syncs_ns),
        "waits_width": f"{100 * (rank.waits_ns or 0) / largest:.1f}",
        "holds_width": f"{100 * (rank.holds_ns or 0) / largest:.1f}",
    }


def _syncs(rank: Rank) -> str:
    return f"{rank.events / max(rank.steps, 1):.1f}".removesuffix(".0")


def _row(found: Ranks, site: RankSite, names: dict[str, str], unit: Scale, held: Scale) -> dict[str, Any]:
    waits = [words.of_rank(found, r, w) or 0 for r, w in zip(found.ranks, site.wait_ns, strict=True)]
    return {
        "place": words.place(site, names),
        "file": harmless(names[site.file], NAME) if site.file else "",
        "function": harmless(site.function, 80) if site.function and site.file else "",
        "code": harmless(site.source, 160) if site.source else "",
        "who": words.who(found, site),
        "all": all(events is not None for events in site.events),
        "wait": words.waits(found, site, unit),
        "holds": words.at_most(held.show(words.each(found, site.holds_ns)), site.holds_ns),
        "title": harmless(site.title, 120),
        "class": site.class_,
        "order": {"wait": max(waits), "holds": site.holds_ns or 0, "ranks": sum(e is not None for e in site.events)},
    }
