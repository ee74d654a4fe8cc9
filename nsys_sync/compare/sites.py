"""Which site of one side is which of the other, and what became of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal

from nsys_sync.analysis.findings import Site
from nsys_sync.compare.comparison import SiteChange, SiteSide, State
from nsys_sync.compare.measures import site_events, site_wait, source_text
from nsys_sync.compare.noise import Change, change
from nsys_sync.compare.sides import Sides

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nsys_sync.analysis.findings import Report


def incomparable(sides: Sides) -> str | None:
    """Why the sites of the two sides cannot be matched, or None."""
    frames = [(side, {r.trace.python_frames for r in reports}) for side, reports in sides.named]
    if all(found == {"recorded"} for _, found in frames) or frames[0][1] == frames[1][1]:
        return None
    without = [side for side, found in frames if found != {"recorded"}]
    return (
        f"Python stacks are missing {' and '.join(without)}, so a site that seems gone or new may be the same one "
        "without its name."
    )


def site_changes(sides: Sides) -> list[SiteChange]:
    """Every site of either side, by state and then by weight."""
    changes = [_site_change(sides, g) for g in _groups(sides.before, sides.after)]
    order = {"gone": 0, "new": 1, "changed": 2, "same": 3}
    return sorted(changes, key=lambda c: (order[c.state], -_weight(c), c.id))


def _weight(site: SiteChange) -> float:
    """What a site is sorted by (ns): how much its wait changed, or all of it where nothing did."""
    wait = site.wait
    if site.state == "same":
        return max(s.median for s in (wait.before, wait.after) if s) if wait.before or wait.after else 0
    return abs(wait.delta or 0)


def _site_change(sides: Sides, group: _Group) -> SiteChange:
    def judged(name: str, unit: Literal["ns", "count"], value: Callable[[Site], int | None]) -> Change:
        def values(reports: Sequence[Report], row: Sequence[Site | None]) -> list[float | None]:
            return [
                0 if s is None else None if (v := value(s)) is None else v / sides.divisor(r)
                for r, s in zip(reports, row, strict=True)
            ]

        margin = sides.margin(unit)
        return change(name, unit, values(sides.before, group.before), values(sides.after, group.after), margin)

    events = judged("events", "count", lambda s: site_events(s, sides.basis))
    wait = judged("wait", "ns", lambda s: site_wait(s, sides.basis))
    first, second, shown = group.first, group.second, group.shown
    return SiteChange(
        id=shown.id,
        state=_state(group, events, wait),
        moved=first is not None and second is not None and first.line != second.line,
        rule=shown.rule,
        title=shown.title,
        class_=shown.class_,
        before=_site_side(first, group.before),
        after=_site_side(second, group.after),
        events=events,
        wait=wait,
        recoverable=judged("recoverable", "ns", lambda s: s.recoverable_ns),
    )


def _state(group: _Group, events: Change, wait: Change) -> State:
    if group.second is None:
        return "gone"
    if group.first is None:
        return "new"
    return "changed" if events.notable or wait.notable else "same"


def _site_side(site: Site | None, row: Sequence[Site | None]) -> SiteSide | None:
    if site is None:
        return None
    return SiteSide(
        id=site.id,
        file=site.file,
        line=site.line,
        function=site.function,
        source=source_text(site),
        leaf=site.leaf.function if site.leaf else None,
        stack_origin=site.stack_origin,
        apis=site.apis,
        calls=site.calls,
        events=site.events,
        wait_ns=site.wait_ns.total,
        seen=sum(s is not None for s in row),
    )


class _Group:
    """One site over all captures: for each side a list with its Site in each capture, None where it is absent."""

    def __init__(self, before: list[Site | None], after: list[Site | None]) -> None:
        self.before = before
        self.after = after
        self.first = _heaviest(before)
        self.second = _heaviest(after)
        shown = self.second or self.first
        assert shown is not None
        self.shown = shown


def _heaviest(sites: Iterable[Site | None]) -> Site | None:
    return max((s for s in sites if s), key=lambda s: s.wait_ns.total, default=None)


def _groups(before: Sequence[Report], after: Sequence[Report]) -> list[_Group]:
    """The sites of both sides, each with its counterpart if there is one."""
    first, second = _by_id(before), _by_id(after)
    pairs = _pairs(first, second)
    matched = set(pairs.values())
    absent_before: list[Site | None] = [None] * len(before)
    absent_after: list[Site | None] = [None] * len(after)
    groups = [_Group(row, second[pairs[i]] if i in pairs else absent_after) for i, row in first.items()]
    return groups + [_Group(absent_before, row) for i, row in second.items() if i not in matched]


def _by_id(reports: Sequence[Report]) -> _Rows:
    """For each site id of a side its Site in each capture."""
    rows: _Rows = {}
    for column, report in enumerate(reports):
        for site in report.sites:
            rows.setdefault(site.id, [None] * len(reports))[column] = site
    return rows


_Rows = dict[str, list[Site | None]]


def _pairs(first: _Rows, second: _Rows) -> dict[str, str]:
    """Ids before to ids after.

    Ids hold no line, so an edit that moves lines keeps them. But the like calls of one function are numbered in the
    order of their lines, and removing one renumbers the rest. So they are told apart by their code first; then, if one
    side has more of them, by their lines; and what is left by id.
    """
    pairs = _unique(first, second, source_text)
    left, right = _numbers(first), _numbers(second)
    uneven = {family for family in left if left[family] != right[family]}
    rest_first = {i: r for i, r in first.items() if i not in pairs and _family(i) in uneven}
    rest_second = {i: r for i, r in second.items() if i not in pairs.values() and _family(i) in uneven}
    pairs |= _unique(rest_first, rest_second, lambda s: str(s.line) if s.line else None)
    taken = set(pairs.values())
    return pairs | {i: i for i in first if i not in pairs and i in second and i not in taken}


def _family(site_id: str) -> str:
    """What the ids of like calls of one function share."""
    return site_id.partition("-")[0]


def _numbers(rows: _Rows) -> Counter[str]:
    return Counter(_family(i) for i in rows)


def _unique(first: _Rows, second: _Rows, mark: Callable[[Site], str | None]) -> dict[str, str]:
    """Ids before to ids after for sites whose mark occurs once on each side of their family."""

    def marked(rows: _Rows) -> dict[tuple[str, str], list[str]]:
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for site_id, row in rows.items():
            site = _heaviest(row)
            text = mark(site) if site else None
            if text:
                found[_family(site_id), text].append(site_id)
        return found

    left, right = marked(first), marked(second)
    return {ids[0]: right[key][0] for key, ids in left.items() if len(ids) == 1 and len(right.get(key, ())) == 1}
