"""What the terminal and the page say the same way about several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_sync.report.words import Scale, count, duration, harmless, scale, short_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nsys_sync.ranks import Rank, Ranks, RankSite

#: A share of a step that is too small to speak of.
_NEGLIGIBLE = 0.01


def headline(found: Ranks) -> str:
    """Who holds the others, for how long, and what of it is behind syncs."""
    return harmless(f"{count(len(found.ranks), 'rank')}{_step_time(found)}. {_meeting(found)}")


def _step_time(found: Ranks) -> str:
    steps = [r.step_ns for r in found.ranks if r.step_ns is not None]
    if not steps:
        return ""
    unit = scale(steps, 3)
    low, high = unit.show(min(steps)), unit.show(max(steps))
    return f", a step takes {low if low == high else f'{low}–{high}'} {unit.unit}"


def _meeting(found: Ranks) -> str:
    if found.meetings.reason is not None:
        return f"How long they wait for one another is not known: {found.meetings.reason}."
    per = " a step" if found.basis == "step" else " in all"
    most = max(found.ranks, key=lambda r: r.holds_ns or 0)
    holds = each(found, most.holds_ns) or 0
    if holds <= _NEGLIGIBLE * (most.step_ns or 0):
        return f"They come together: none holds the others for more than {duration(holds)}{per}."
    text = f"{_capital(label(found, most))} holds the others for {duration(holds)}{per}{_why(found, most)}"
    if most.by_syncs_ns is None:
        return f"{text}."
    behind = each(found, most.by_syncs_ns) or 0
    if behind <= _NEGLIGIBLE * holds:
        return f"{text}. Its syncs are not the reason."
    site = max(found.sites, key=lambda s: s.holds_ns or 0, default=None)
    at = f", most at {place(site, names(found))}" if site is not None and site.holds_ns else ""
    return f"{text}. At most {duration(behind)} of that is behind its syncs{at}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _why(found: Ranks, rank: Rank) -> str:
    """What its GPU did for longer than that of the rank before it."""
    if rank.held is None:
        return ""
    parts = [(each(found, rank.held.idle) or 0, "is idle"), (each(found, rank.held.work) or 0, "works")]
    longer = [f"{what} {duration(ns)} longer" for ns, what in parts if ns > 0]
    return f": its GPU {' and '.join(longer)} than the next" if longer else ""


def each(found: Ranks, total: int | None) -> int | None:
    """What a sum over the meetings is a step (ns); the sum itself where there are no steps."""
    if total is None:
        return None
    return round(total / max(found.meetings.steps, 1)) if found.basis == "step" else total


def of_rank(found: Ranks, rank: Rank, total: int | None) -> int | None:
    """What a sum over a rank's own steps is a step (ns); the sum itself where there are no steps."""
    if total is None:
        return None
    return round(total / max(rank.steps, 1)) if found.basis == "step" else total


def label(found: Ranks, rank: Rank) -> str:
    """``rank 3`` where the capture marked it, else its process, and its trace where there are several."""
    if rank.rank is not None:
        return f"rank {rank.rank}"
    several = len({r.file for r in found.ranks}) > 1
    return f"pid {rank.pid} of {harmless(rank.file, 80)}" if several else f"pid {rank.pid}"


def names(found: Ranks) -> dict[str, str]:
    """Short names of the source files."""
    return short_names({site.file for site in found.sites if site.file})


def place(site: RankSite, files: dict[str, str]) -> str:
    """``file:line``; the function, or that there is no stack, where no file is known."""
    if not site.file:
        return f"native {harmless(site.function, 80)}" if site.function else "(no stack)"
    name = harmless(files[site.file], 160)
    return f"{name}:{site.line}" if site.line else name


def who(found: Ranks, site: RankSite) -> str:
    """The ranks that have a site: ``all ranks``, ``only rank 0``, ``3 of 8 ranks``."""
    having = [r for r, events in zip(found.ranks, site.events, strict=True) if events is not None]
    if len(having) == len(found.ranks):
        return "all ranks"
    return f"only {label(found, having[0])}" if len(having) == 1 else f"{len(having)} of {len(found.ranks)} ranks"


def waits(found: Ranks, site: RankSite, unit: Scale) -> str:
    """How a site's wait spreads over the ranks that have it."""
    per_rank = [of_rank(found, r, w) for r, w in zip(found.ranks, site.wait_ns, strict=True)]
    known = [w for w in per_rank if w is not None]
    low, high = unit.show(min(known)), unit.show(max(known))
    return low if low == high else f"{low} … {high}"


def at_most(shown: str, ns: int | None) -> str:
    """A shown time as a bound, unless it is 0 or not known."""
    return f"≤ {shown}" if ns else shown


def unit_of_waits(found: Ranks) -> Scale:
    """One unit for the waits of all sites."""
    return scale(_all_waits(found), 4)


def _all_waits(found: Ranks) -> Iterable[int | None]:
    for site in found.sites:
        yield from (of_rank(found, r, w) for r, w in zip(found.ranks, site.wait_ns, strict=True))


def notes(found: Ranks) -> list[str]:
    """What a reader must know about the comparison."""
    met = found.meetings
    if met.reason is not None:
        return []
    of = f"of {count(met.steps, 'step')}, without the first of the capture" if found.basis == "step" else "in all"
    lines = [f"Compared by {count(met.count, 'collective')} {of}."]
    if met.tolerance_ns:
        lines.append(
            f"Each trace has a clock of its own; they are matched by the ends of the collectives, within "
            f"{duration(met.tolerance_ns)}. Ranks that come that close to each other come together."
        )
    return lines
