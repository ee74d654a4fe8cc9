"""Two sides, each one or several captures of a program, to one ``Comparison``: plain values with a JSON form.

For renderers: ``Comparison.quantities`` holds the totals in the order in which they are read, step time first;
``Comparison.sites`` every site of either side, sorted by state (gone, new, changed, same) and then by weight;
``Comparison.prediction`` what the before side had predicted for the sites that are gone. Times are nanoseconds, per
step of one process where ``basis`` is "step", else of the whole capture. A value that was not measured is null and its
change "unmeasured"; it is never 0. What counts as a change is said in ``nsys_sync.noise``.
Sentences are the renderers' (``nsys_sync.report.compare_words``).
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from nsys_sync.analysis.findings import (
    TOOL,
    Confidence,
    Document,
    Note,
    Plain,
    Report,
    Site,
    SiteClass,
    SiteProcess,
    StackOrigin,
    WhatIf,
)
from nsys_sync.errors import UsageError
from nsys_sync.noise import Change, Margin, Sample, change, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FORMAT = 1

Basis = Literal["step", "capture"]
SideName = Literal["before", "after"]
State = Literal["gone", "new", "changed", "same"]
Outcome = Literal["faster", "slower", "within_noise", "noise_unknown", "same", "unmeasured"]

#: Two identical captures of a host-bound program were seen to differ by a quarter.
UNKNOWN_NOISE = 0.25
#: A share of a step (of the window where there are no steps) that is too small to be called a change.
NEGLIGIBLE = 0.01
#: Counts of calls are far steadier than times.
UNKNOWN_NOISE_COUNT = 0.10


class CaptureSummary(Plain, frozen=True, kw_only=True):
    """One capture of a side. window_ns: its devices' longest window; steps: over all processes that have any."""

    file: str
    sha256: str
    steps: int
    stepping_processes: int
    window_ns: int
    sync_events: int


class Side(Plain, frozen=True, kw_only=True):
    """How the captures of one side were taken; lists hold every value that occurs, sorted."""

    name: SideName
    captures: list[CaptureSummary]
    gpus: list[str]
    drivers: list[str]
    nsys_versions: list[str]


class SiteSide(Plain, frozen=True, kw_only=True):
    """A site as one side saw it: the capture in which it waited longest. seen: captures of the side that have it.

    source: its line of code, stripped; events, calls, wait_ns: in that whole capture.
    """

    id: str
    file: str | None
    line: int | None
    function: str | None
    source: str | None
    leaf: str | None
    stack_origin: StackOrigin
    apis: dict[str, int]
    calls: int
    events: int
    wait_ns: int
    seen: int


class SiteChange(Plain, frozen=True, kw_only=True):
    """One site. before or after is null when that side does not have it (state "new" or "gone").

    id: the after side's id where it has the site, else the before side's. moved: both sides have it, at different
    lines. events, wait, recoverable: per step or capture, as ``Comparison.basis`` says; a side without the site counts
    as a measured 0. Per step, events and wait are those of the loop: from a process's first step to its last.
    """

    id: str
    state: State
    moved: bool
    rule: str
    title: str
    class_: SiteClass = msgspec.field(name="class")
    before: SiteSide | None
    after: SiteSide | None
    events: Change
    wait: Change
    recoverable: Change


class Prediction(Plain, frozen=True, kw_only=True):
    """What the before side's what-if said about exactly the sites that are gone, and what was measured after.

    scope: "all" (every sync in the loop), "class" or "site"; name: the class, or the site's id. Step times in ns.
    holds: whether the measured range touches the predicted one.
    """

    scope: Literal["all", "class", "site"]
    name: str
    sites: list[str]
    step_ns_now: int
    step_ns_low: int
    step_ns_high: int
    gpu_bound_ns: int
    confidence: Confidence
    measured: Sample
    holds: bool


class Comparison(Document, frozen=True, kw_only=True):
    """Everything that changed between two sides.

    outcome: of the step time. noise_known: both sides have two captures or more. sites is null where sites cannot be
    told apart on both sides; ``sites_reason`` says why.
    """

    basis: Basis
    before: Side
    after: Side
    outcome: Outcome
    noise_known: bool
    quantities: list[Change]
    sites: list[SiteChange] | None
    sites_reason: str | None
    prediction: Prediction | None
    warnings: list[Note]

    def quantity(self, name: str) -> Change:
        """The change of one total, by its name in ``QUANTITIES``."""
        return next(q for q in self.quantities if q.name == name)


@dataclass(frozen=True)
class _Quantity:
    """A total of a report. scaled: whether it is divided by the steps when the basis is a step."""

    name: str
    unit: Literal["ns", "count"]
    scaled: bool
    value: Callable[[Report, Basis], int | None]


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


def _events(site: Site, basis: Basis) -> int:
    return sum(share_events(share, basis) for share in site.by_process)


def _wait(site: Site, basis: Basis) -> int:
    return sum(share_wait(share, basis) for share in site.by_process)


#: Totals that are compared, in the order in which they are shown.
QUANTITIES = (
    _Quantity("step_time", "ns", scaled=False, value=lambda r, _: step_time(r)),
    _Quantity("wait", "ns", scaled=True, value=lambda r, basis: sum(_wait(s, basis) for s in r.sites)),
    _Quantity("idle", "ns", scaled=True, value=lambda r, _: r.totals.idle_ns),
    _Quantity("idle_from_syncs", "ns", scaled=True, value=lambda r, _: r.totals.idle_from_syncs_ns),
    _Quantity("recoverable", "ns", scaled=True, value=lambda r, _: r.totals.recoverable_all_ns),
    _Quantity("syncs", "count", scaled=True, value=lambda r, basis: sum(_events(s, basis) for s in r.sites)),
)


def compare(before: Sequence[Report], after: Sequence[Report]) -> Comparison:
    """Compare two sides, each of one or more captures of the same program.

    A capture that was given twice on one side counts once. Raises UsageError when a side is empty.
    """
    if not before or not after:
        raise UsageError("no-captures", "A comparison needs at least one capture before and one after.")
    sides = _Sides(before, after)
    quantities = [sides.total(q) for q in QUANTITIES]
    reason = _incomparable(sides)
    sites = None if reason else _site_changes(sides)
    return Comparison(
        format=FORMAT,
        tool=TOOL,
        basis=sides.basis,
        before=_side("before", sides.before),
        after=_side("after", sides.after),
        outcome=_outcome(quantities[0]),
        noise_known=min(len(sides.before), len(sides.after)) > 1,
        quantities=quantities,
        sites=sites,
        sites_reason=reason,
        prediction=_prediction(sides, sites) if sites else None,
        warnings=_warnings(sides, before, after),
    )


class _Sides:
    """The captures of both sides, each once, and how their values are brought to one basis."""

    def __init__(self, before: Sequence[Report], after: Sequence[Report]) -> None:
        self.before = _once(before)
        self.after = _once(after)
        self.both = [*self.before, *self.after]
        self.basis: Basis = "step" if all(step_count(r) for r in self.both) else "capture"
        self._unit_ns = statistics.median(
            (step_time(r) if self.basis == "step" else None) or _window(r) / self.divisor(r) for r in self.both
        )

    def divisor(self, report: Report) -> int:
        return step_count(report) if self.basis == "step" else 1

    def margin(self, unit: Literal["ns", "count"]) -> Margin:
        """Counts may differ by one event a capture: where a capture begins and ends is chance."""
        if unit == "ns":
            return Margin(UNKNOWN_NOISE, NEGLIGIBLE * self._unit_ns)
        return Margin(UNKNOWN_NOISE_COUNT, 1 / min(self.divisor(r) for r in self.both))

    def total(self, quantity: _Quantity) -> Change:
        def values(reports: Iterable[Report]) -> list[float | None]:
            return [
                None
                if (v := quantity.value(r, self.basis)) is None
                else v / (self.divisor(r) if quantity.scaled else 1)
                for r in reports
            ]

        margin = self.margin(quantity.unit)
        return change(quantity.name, quantity.unit, values(self.before), values(self.after), margin)


def _once(reports: Sequence[Report]) -> list[Report]:
    """The captures without repetitions: the same capture twice would look like a program without noise."""
    return list({r.trace.sha256 or str(id(r)): r for r in reports}.values())


def _window(report: Report) -> int:
    return max((d.window_ns for d in report.devices), default=0)


def _side(name: SideName, reports: Sequence[Report]) -> Side:
    return Side(
        name=name,
        captures=[
            CaptureSummary(
                file=r.trace.file,
                sha256=r.trace.sha256,
                steps=step_count(r),
                stepping_processes=sum(s.count > 0 for s in r.steps),
                window_ns=_window(r),
                sync_events=r.totals.sync_events,
            )
            for r in reports
        ],
        gpus=sorted({d.name for r in reports for d in r.trace.devices}),
        drivers=sorted({r.trace.driver for r in reports if r.trace.driver}),
        nsys_versions=sorted({r.trace.nsys_version for r in reports if r.trace.nsys_version}),
    )


def _outcome(step: Change) -> Outcome:
    outcomes: dict[str, Outcome] = {
        "lower": "faster",
        "higher": "slower",
        "equal": "same",
        "within_noise": "within_noise",
        "noise_unknown": "noise_unknown",
    }
    return outcomes.get(step.verdict, "unmeasured")


# Sites


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


def source_text(site: Site) -> str | None:
    """The site's own line of code, stripped; None where it is not known."""
    if site.source is None or site.line is None:
        return None
    return site.source.lines.get(site.line, "").strip() or None


def _by_id(reports: Sequence[Report]) -> _Rows:
    """For each site id of a side its Site in each capture."""
    rows: _Rows = {}
    for column, report in enumerate(reports):
        for site in report.sites:
            rows.setdefault(site.id, [None] * len(reports))[column] = site
    return rows


def _groups(before: Sequence[Report], after: Sequence[Report]) -> list[_Group]:
    """The sites of both sides, each with its counterpart if there is one."""
    first, second = _by_id(before), _by_id(after)
    pairs = _pairs(first, second)
    matched = set(pairs.values())
    absent_before: list[Site | None] = [None] * len(before)
    absent_after: list[Site | None] = [None] * len(after)
    groups = [_Group(row, second[pairs[i]] if i in pairs else absent_after) for i, row in first.items()]
    return groups + [_Group(absent_before, row) for i, row in second.items() if i not in matched]


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


def _site_changes(sides: _Sides) -> list[SiteChange]:
    changes = [_site_change(sides, g) for g in _groups(sides.before, sides.after)]
    order = {"gone": 0, "new": 1, "changed": 2, "same": 3}
    return sorted(changes, key=lambda c: (order[c.state], -_weight(c), c.id))


def _weight(site: SiteChange) -> float:
    """What a site is sorted by (ns): how much its wait changed, or all of it where nothing did."""
    wait = site.wait
    if site.state == "same":
        return max(s.median for s in (wait.before, wait.after) if s) if wait.before or wait.after else 0
    return abs(wait.delta or 0)


def _site_change(sides: _Sides, group: _Group) -> SiteChange:
    def judged(name: str, unit: Literal["ns", "count"], value: Callable[[Site], int | None]) -> Change:
        def values(reports: Sequence[Report], row: Sequence[Site | None]) -> list[float | None]:
            return [
                0 if s is None else None if (v := value(s)) is None else v / sides.divisor(r)
                for r, s in zip(reports, row, strict=True)
            ]

        margin = sides.margin(unit)
        return change(name, unit, values(sides.before, group.before), values(sides.after, group.after), margin)

    events = judged("events", "count", lambda s: _events(s, sides.basis))
    wait = judged("wait", "ns", lambda s: _wait(s, sides.basis))
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


def _incomparable(sides: _Sides) -> str | None:
    """Why the sites of the two sides cannot be matched, or None."""
    frames = [(side, {r.trace.python_frames for r in reports}) for side, reports in _by_name(sides)]
    if all(found == {"recorded"} for _, found in frames) or frames[0][1] == frames[1][1]:
        return None
    without = [side for side, found in frames if found != {"recorded"}]
    return (
        f"Python stacks are missing {' and '.join(without)}, so a site that seems gone or new may be the same one "
        "without its name."
    )


def _by_name(sides: _Sides) -> list[tuple[SideName, list[Report]]]:
    """Both sides with their names."""
    return [("before", sides.before), ("after", sides.after)]


# Prediction


def _prediction(sides: _Sides, sites: Sequence[SiteChange]) -> Prediction | None:
    """The before side's what-if for exactly the sites in the loop that are gone, if it made one.

    No prediction is claimed when another site came into the loop.
    """
    measured = sample([step_time(r) for r in sides.after])
    loop, loop_after = _in_loop(sides.before), _in_loop(sides.after)
    if sides.basis != "step" or measured is None or any(s.state == "new" and s.id in loop_after for s in sites):
        return None
    gone = {s.before.id for s in sites if s.state == "gone" and s.before} & loop
    found = [_predicted(r, gone, loop) for r in sides.before]
    known = [f for f in found if f is not None]
    if not gone or len(known) < len(found):
        return None
    scope, name, _ = known[0]
    what_ifs = [what_if for _, _, what_if in known]
    low = round(statistics.median(w.step_ns_low for w in what_ifs))
    high = round(statistics.median(w.step_ns_high for w in what_ifs))
    return Prediction(
        scope=scope,
        name=name,
        sites=sorted(gone),
        step_ns_now=round(statistics.median(w.step_ns_now for w in what_ifs)),
        step_ns_low=low,
        step_ns_high=high,
        gpu_bound_ns=round(statistics.median(w.gpu_bound_ns for w in what_ifs)),
        confidence=max((w.confidence for w in what_ifs), key=("high", "medium", "low").index),
        measured=measured,
        holds=measured.low <= high and measured.high >= low,
    )


def _in_loop(reports: Sequence[Report]) -> set[str]:
    """Ids of the sites that some process of some capture has in at least every second step."""
    found = set()
    for report in reports:
        steps = {s.pid: s.count for s in report.steps}
        for site in report.sites:
            if any(p.in_loop and 0 < steps.get(p.pid, 0) <= 2 * p.in_loop.events for p in site.by_process):
                found.add(site.id)
    return found


def _predicted(
    report: Report, gone: set[str], loop: set[str]
) -> tuple[Literal["all", "class", "site"], str, WhatIf] | None:
    """The prediction of one report whose sites in the loop are exactly ``gone``: all, a class, or one site."""
    mine = [s for s in report.sites if s.id in loop]
    if report.what_if.all and gone == {s.id for s in mine}:
        return "all", "all", report.what_if.all
    for name, what_if in sorted(report.what_if.by_class.items()):
        if gone == {s.id for s in mine if s.class_ == name}:
            return "class", name, what_if
    single = next((s for s in mine if gone == {s.id}), None)
    return ("site", single.id, single.what_if) if single and single.what_if else None


# Warnings


def _warnings(sides: _Sides, before: Sequence[Report], after: Sequence[Report]) -> list[Note]:
    return [
        *_repeated(before, "before"),
        *_repeated(after, "after"),
        *_same_captures(sides),
        *_different_conditions(sides),
        *_different_steps(sides),
        *_unnamed(sides),
    ]


def _repeated(reports: Sequence[Report], side: SideName) -> list[Note]:
    extra = len(reports) - len(_once(reports))
    text = f"{side}: a capture was given more than once; it counts once."
    return [Note(slug="capture-repeated", text=text)] if extra else []


def _same_captures(sides: _Sides) -> list[Note]:
    shared = {r.trace.sha256 for r in sides.before} & {r.trace.sha256 for r in sides.after} - {""}
    text = "The same capture is on both sides."
    return [Note(slug="same-capture", text=text)] if shared else []


def _conditions(report: Report) -> dict[str, str]:
    """What must be alike for two captures to be comparable: description and value of each condition."""
    trace, capture = report.trace, report.trace.capture
    names = Counter(d.name for d in trace.devices)
    return {
        "GPUs": ", ".join(f"{n} × {name}" for name, n in sorted(names.items())),
        "driver": trace.driver or "unknown",
        "CUDA version": trace.cuda or "unknown",
        "nsys version": trace.nsys_version or "unknown",
        "capture options": " ".join(sorted(capture.flags)) or "unknown",
        "backtraces": capture.backtrace or "unknown",
        "CUDA graph tracing": capture.graphs or "unknown",
        "processes": str(len(trace.processes)),
    }


def _different_conditions(sides: _Sides) -> list[Note]:
    """One note for each condition that is not the same in all captures."""
    notes = []
    for name in _conditions(sides.both[0]):
        first, second = ([_conditions(r)[name] for r in reports] for _, reports in _by_name(sides))
        if len({*first, *second}) > 1:
            values = f"{' / '.join(sorted(set(first)))} before, {' / '.join(sorted(set(second)))} after"
            notes.append(Note(slug="different-conditions", text=f"Different {name}: {values}."))
    return notes


def _different_steps(sides: _Sides) -> list[Note]:
    notes = []
    sources = [{(s.source, s.name) for r in reports for s in r.steps} for _, reports in _by_name(sides)]
    with_steps = [[bool(step_count(r)) for r in reports] for _, reports in _by_name(sides)]
    if sides.basis == "capture" and any(any(flags) for flags in with_steps):
        missing = [side for (side, _), flags in zip(_by_name(sides), with_steps, strict=True) if not all(flags)]
        text = f"No steps are known {' and '.join(missing)}: totals are of whole captures, whose length may differ."
        notes.append(Note(slug="different-steps", text=text))
    elif sides.basis == "step" and sources[0] != sources[1]:
        named = [", ".join(sorted({f"{name} ({source})" for source, name in s})) for s in sources]
        text = f"Steps come from different marks: {named[0]} before, {named[1]} after. A step may not be the same work."
        notes.append(Note(slug="different-steps", text=text))
    counts = [{step_count(r) for r in reports} for _, reports in _by_name(sides)]
    if sides.basis == "step" and counts[0] != counts[1]:
        shown = [" / ".join(str(c) for c in sorted(found)) for found in counts]
        text = f"{shown[0]} steps before, {shown[1]} after: totals are divided by the steps."
        notes.append(Note(slug="normalised-by-steps", text=text))
    return notes


def _unnamed(sides: _Sides) -> list[Note]:
    """Calls without a Python line can hide a site that seems gone."""
    notes = []
    for side, reports in _by_name(sides):
        unnamed = sum(s.calls for r in reports for s in r.sites if s.file is None)
        calls = sum(s.calls for r in reports for s in r.sites)
        if unnamed and any(s.file for r in reports for s in r.sites):
            text = f"{side}: {unnamed} of {calls} blocking calls have no Python line; a site may hide among them."
            notes.append(Note(slug="unnamed-calls", text=text))
    return notes
