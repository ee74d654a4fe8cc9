"""Level of detail: a Timeline of any size becomes few enough bars to draw, and says what it merged.

Bars shorter than the resolution are merged with their neighbours in the same stretch of time; a merged bar knows how
many it stands for and how much of its length they fill. Around the longest gaps that syncs caused, and in one typical
step, nothing is merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from nsys_sync.report.words import harmless, process_label
from nsys_sync.trace.tables import os_pid, os_tid

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nsys_sync.analysis.findings import Report
    from nsys_sync.analysis.timeline import Column, Timeline

#: Bars that one page may hold. About 25 bytes each.
BARS = 100_000
#: Bars that may be spent on stretches in full detail.
DETAIL = 30_000
#: Rows of one kind for one process or device; further ones share the last.
ROWS = 12
#: Nesting of NVTX ranges that is drawn.
RANGE_ROWS = 3

_LAUNCH, _BLOCKING = 1, 2

LaneKind = Literal["ranges", "syncs", "calls", "gaps", "ops"]


@dataclass(frozen=True)
class Bars:
    """Bars of one lane, sorted by start; columns of equal length. Times in ns of the trace's clock; -1 = none.

    count: how many it stands for; filled: ns of its length that they cover; category: call category, index into
    timeline.KINDS, or 1 for a step; name: index into the lane's names, of the longest one merged; site, event: of a
    single bar.
    """

    start: Column
    end: Column
    count: Column
    filled: Column
    category: Column
    name: Column
    site: Column
    event: Column


@dataclass(frozen=True)
class GapBars:
    """Gaps of one device, sorted by start. causes: shape (n, 8), ns by timeline.CAUSES.

    event: sync event that caused most of a single gap (-1 = none); caused_*: that event's extent; launch_*: the call
    that launched what ended the gap, its thread and whether it blocks (0, 1).
    """

    start: Column
    end: Column
    count: Column
    causes: Column
    site: Column
    event: Column
    caused_start: Column
    caused_end: Column
    launch_start: Column
    launch_end: Column
    launch_tid: Column
    launch_blocks: Column


@dataclass(frozen=True)
class Lane:
    """One row of the picture. group: the process or device it belongs to; tids: threads whose calls it shows."""

    kind: LaneKind
    group: str
    title: str
    tids: tuple[int, ...]
    bars: Bars | GapBars


@dataclass(frozen=True)
class Drawing:
    """All lanes, top to bottom.

    resolution_ns: bars below this length were merged (0 = none); detailed: stretches [start, end) where none were.
    drawn, total: bars here and items in the timeline.
    """

    lanes: list[Lane]
    names: dict[LaneKind, list[str]]
    resolution_ns: int
    detailed: list[tuple[int, int]]
    drawn: int
    total: int


@dataclass(frozen=True)
class _Items:
    """The items of one lane before merging; ``rows``: their rows in the timeline."""

    kind: LaneKind
    group: str
    title: str
    tids: tuple[int, ...]
    rows: Column
    start: Column
    end: Column


def draw(timeline: Timeline, report: Report, bars: int = BARS) -> Drawing:
    """Reduce a timeline to at most ``bars`` bars, where a hundred a lane fit in that."""
    lanes = list(_lanes(timeline, report))
    total = sum(len(lane.rows) for lane in lanes)
    resolution, detailed = 0, list[tuple[int, int]]()
    if total > bars:
        detailed = _stretches(timeline, lanes, min(DETAIL, bars // 3))
        resolution = _resolution(timeline, lanes, detailed, bars)
    drawn = [_merge(lane, timeline, resolution, detailed) for lane in lanes]
    return Drawing(
        lanes=drawn,
        names={
            "calls": timeline.call_names,
            "syncs": timeline.call_names,
            "ops": timeline.op_names,
            "ranges": timeline.range_names,
            "gaps": [],
        },
        resolution_ns=resolution,
        detailed=detailed,
        drawn=sum(len(lane.bars.start) for lane in drawn),
        total=total,
    )


def _lanes(timeline: Timeline, report: Report) -> Iterable[_Items]:
    """Each process's lanes, then those of the devices that it alone uses; shared devices last."""
    ops, gaps = timeline.ops, timeline.gaps
    users = {int(d): np.unique(ops.pid[ops.device == d]) for d in np.unique(np.concatenate((ops.device, gaps.device)))}
    order = {p.pid: place for place, p in enumerate(report.trace.processes)}
    names = {p.pid: process_label(p) for p in report.trace.processes}
    pids = [int(p) for p in np.unique(np.concatenate((timeline.calls.pid, timeline.ranges.pid)))]
    for pid in sorted(pids, key=lambda p: order.get(os_pid(p), len(order))):
        group = names.get(os_pid(pid), f"pid {os_pid(pid)}")
        yield from _host(timeline, pid, group)
        for device, by in users.items():
            if by.tolist() == [pid]:
                yield from _device(timeline, device)
    for device, by in users.items():
        if len(by) != 1 or int(by[0]) not in pids:
            yield from _device(timeline, device)


def _host(timeline: Timeline, pid: int, group: str) -> Iterable[_Items]:
    ranges, calls = timeline.ranges, timeline.calls
    mine = np.flatnonzero(ranges.pid == pid)
    steps, others = mine[ranges.step[mine] >= 0], mine[ranges.step[mine] < 0]
    if len(steps):
        yield _items("ranges", group, "steps", (), steps, ranges)
    depth = _depth(ranges.start[others], ranges.end[others], ranges.tid[others])
    for level in range(min(RANGE_ROWS, int(depth.max(initial=-1)) + 1)):
        title = "NVTX" if level == 0 else f"NVTX, level {level + 1}"
        yield _items("ranges", group, title, (), others[depth == level], ranges)
    rows = np.flatnonzero(calls.pid == pid)
    for tids, of_threads in _split(rows, calls.tid[rows], weight=calls.category[rows] > 0):
        title = _thread(timeline, tids)
        blocking = calls.category[of_threads] == _BLOCKING
        if blocking.any():
            yield _items("syncs", group, f"{title}: syncs", tids, of_threads[blocking], calls)
        if not blocking.all():
            yield _items("calls", group, f"{title}: calls", tids, of_threads[~blocking], calls)


def _thread(timeline: Timeline, tids: tuple[int, ...]) -> str:
    if len(tids) > 1:
        return f"{len(tids)} other threads"
    number = os_tid(tids[0])
    name = timeline.thread_names.get(tids[0])
    return f"{harmless(name, 24)} {number}" if name else f"thread {number}"


def _device(timeline: Timeline, device: int) -> Iterable[_Items]:
    group = f"GPU {device}"
    ops, gaps = timeline.ops, timeline.gaps
    idle = np.flatnonzero(gaps.device == device)
    if len(idle):
        yield _items("gaps", group, "idle by cause", (), idle, gaps)
    rows = np.flatnonzero(ops.device == device)
    of_process, of_context = _codes(ops.pid[rows])[0], _codes(ops.context[rows])[0]
    context = _codes(of_process << 32 | of_context)[0]
    key = context << 32 | _codes(ops.stream[rows])[0]
    contexts = int(context.max(initial=0)) + 1
    for members, of_streams in _split(rows, key, weight=np.ones(len(rows), dtype=bool)):
        first = of_streams[0]
        title = f"stream {ops.stream[first]}" + (f", context {ops.context[first]}" if contexts > 1 else "")
        if len(members) > 1:
            title = f"{len(members)} other streams"
        yield _items("ops", group, title, (), of_streams, ops)


def _items(kind: LaneKind, group: str, title: str, tids: tuple[int, ...], rows: Column, table: object) -> _Items:
    start, end = getattr(table, "start")[rows], getattr(table, "end")[rows]  # noqa: B009 (any of the four tables)
    return _Items(kind, group, title, tids, rows, start, np.maximum(start, end))


def _split(rows: Column, key: Column, weight: npt.NDArray[np.bool_]) -> Iterable[tuple[tuple[int, ...], Column]]:
    """Rows by key, keys with most weight kept apart, the rest together; keys in ascending order."""
    index, keys = _codes(key)
    weights = np.bincount(index, weights=weight, minlength=len(keys))
    ranked = np.argsort(-weights, kind="stable")
    apart = ranked if len(keys) <= ROWS else ranked[: ROWS - 1]
    for k in np.sort(apart):
        yield (int(keys[k]),), rows[index == k]
    rest = np.setdiff1d(np.arange(len(keys)), apart)
    if len(rest):
        yield tuple(int(k) for k in keys[rest]), rows[np.isin(index, rest)]


def _codes(column: Column) -> tuple[Column, Column]:
    """Each value's place among the distinct values, and those in ascending order; quick where they are few."""
    distinct = np.unique(column)
    return np.searchsorted(distinct, column), distinct


def _depth(start: Column, end: Column, tid: Column) -> Column:
    """How many ranges of the same thread each range lies in (shape (n,))."""
    depth = np.zeros(len(start), dtype=np.int64)
    for thread in np.unique(tid):
        on = np.flatnonzero(tid == thread)
        open_before = np.arange(len(on)) - np.searchsorted(np.sort(end[on]), start[on], side="right")
        depth[on] = np.maximum(open_before, 0)
    return depth


def _stretches(timeline: Timeline, lanes: Sequence[_Items], bars: int) -> list[tuple[int, int]]:
    """Stretches [start, end) to draw in full: the middle one of the steps by length, then the longest sync gaps."""
    wanted = [*_typical_step(timeline), *_longest_sync_gaps(timeline)]
    taken, spent = list[tuple[int, int]](), 0
    for start, end in wanted:
        cost = sum(int(np.searchsorted(lane.start, end) - np.searchsorted(lane.start, start)) for lane in lanes)
        if spent + cost <= bars:
            taken.append((start, end))
            spent += cost
    return _union(taken)


def _typical_step(timeline: Timeline) -> list[tuple[int, int]]:
    steps = np.flatnonzero(timeline.ranges.step >= 0)
    if not len(steps):
        return []
    length = timeline.ranges.end[steps] - timeline.ranges.start[steps]
    row = steps[np.argsort(length, kind="stable")[(len(steps) - 1) // 2]]
    return [(int(timeline.ranges.start[row]), int(timeline.ranges.end[row]))]


def _longest_sync_gaps(timeline: Timeline, number: int = 200) -> list[tuple[int, int]]:
    gaps = timeline.gaps
    from_syncs = gaps.causes[:, 0] + gaps.causes[:, 1]
    longest = np.argsort(-from_syncs, kind="stable")[:number]
    longest = longest[from_syncs[longest] > 0]
    length = gaps.end[longest] - gaps.start[longest]
    return list(zip((gaps.start[longest] - length).tolist(), (gaps.end[longest] + length).tolist(), strict=True))


def _union(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    union: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def _resolution(timeline: Timeline, lanes: Sequence[_Items], detailed: list[tuple[int, int]], bars: int) -> int:
    """The finest resolution (ns; halves of a hundredth of the window) that needs at most ``bars`` bars."""
    resolution = max(1, (timeline.end_ns - timeline.start_ns) // 100)
    while resolution > 1:
        finer = resolution // 2
        if sum(int(np.count_nonzero(_first_of_bar(lane, finer, detailed))) for lane in lanes) > bars:
            break
        resolution = finer
    return resolution


def _first_of_bar(lane: _Items, resolution: int, detailed: list[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Whether each item begins a bar: it is long, or in detail, or in another stretch of time than the one before."""
    alone = lane.end - lane.start >= resolution
    for start, end in detailed:
        alone[np.searchsorted(lane.start, start) : np.searchsorted(lane.start, end)] = True
    stretch = lane.start // resolution
    first = np.ones(len(alone), dtype=bool)
    first[1:] = alone[1:] | alone[:-1] | (stretch[1:] != stretch[:-1])
    return first


def _merge(lane: _Items, timeline: Timeline, resolution: int, detailed: list[tuple[int, int]]) -> Lane:
    if resolution and len(lane.rows):
        first = np.flatnonzero(_first_of_bar(lane, resolution, detailed))
    else:
        first = np.arange(len(lane.rows))
    count = np.diff(first, append=len(lane.rows))
    bars = _gaps(lane, timeline, first, count) if lane.kind == "gaps" else _bars(lane, timeline, first, count)
    return Lane(lane.kind, lane.group, lane.title, lane.tids, bars)


def _bars(lane: _Items, timeline: Timeline, first: Column, count: Column) -> Bars:
    calls, ops, ranges = timeline.calls, timeline.ops, timeline.ranges
    none = np.full(len(lane.rows), -1, dtype=np.int64)
    columns: tuple[Column, ...]
    if lane.kind == "ranges":
        columns = (np.minimum(ranges.step[lane.rows], 0) + 1, ranges.name[lane.rows], none, none)
    elif lane.kind == "ops":
        columns = (ops.kind[lane.rows], ops.name[lane.rows], none, none)
    else:
        columns = tuple(c[lane.rows] for c in (calls.category, calls.name, calls.site, calls.event))
    length = lane.end - lane.start
    longest = _longest(length, first, count)
    category, name, site, event = (column[longest] for column in columns)
    end = _reduce(np.maximum, lane.end, first)
    single = count == 1
    return Bars(
        start=lane.start[first],
        end=end,
        count=count,
        filled=np.minimum(_reduce(np.add, length, first), end - lane.start[first]),
        category=category,
        name=name,
        site=np.where(single, site, -1),
        event=np.where(single, event, -1),
    )


def _longest(length: Column, first: Column, count: Column) -> Column:
    """Row of the longest item in each bar, the first of equals."""
    is_longest = np.flatnonzero(length == np.repeat(_reduce(np.maximum, length, first), count))
    return is_longest[np.searchsorted(is_longest, first)]


def _reduce(operation: np.ufunc, values: Column, first: Column) -> Column:
    reduced: Column = operation.reduceat(values, first) if len(first) else values[:0]
    return reduced


def _gaps(lane: _Items, timeline: Timeline, first: Column, count: Column) -> GapBars:
    gaps = timeline.gaps
    single = count == 1
    rows = lane.rows[first]
    caused, launch = _causing_events(timeline, rows), _ending_launch(timeline, rows)
    causes = gaps.causes[lane.rows]
    return GapBars(
        start=lane.start[first],
        end=_reduce(np.maximum, lane.end, first),
        count=count,
        causes=np.add.reduceat(causes, first, axis=0) if len(first) else causes,
        site=np.where(single, gaps.site[rows], -1),
        **{name: np.where(single, column, -1) for name, column in {**caused, **launch}.items()},
    )


def _causing_events(timeline: Timeline, rows: Column) -> dict[str, Column]:
    """For gaps (rows) with a site: the last event of that site and process that began before the gap's end."""
    calls, gaps, ops = timeline.calls, timeline.gaps, timeline.ops
    next_op = gaps.next_op[rows]
    pid = ops.pid[next_op] if len(ops.pid) else np.full(len(rows), -1, dtype=np.int64)
    known = (gaps.site[rows] >= 0) & (next_op >= 0)
    blocking = np.flatnonzero((calls.category == _BLOCKING) & (calls.site >= 0))
    # One number a call, ordered by site, process, start: a search among them finds the last call before a gap's end.
    distinct = np.unique(np.concatenate((calls.pid[blocking], pid)))
    span = timeline.end_ns - timeline.start_ns + 2

    def number(site: Column, process: Column, time: Column) -> Column:
        group = site * len(distinct) + np.searchsorted(distinct, process)
        return group * span + np.clip(time - timeline.start_ns, 0, span - 1)

    numbers = number(calls.site[blocking], calls.pid[blocking], calls.start[blocking])
    order = np.argsort(numbers, kind="stable")
    wanted = number(gaps.site[rows], pid, gaps.end[rows])
    place = np.searchsorted(numbers[order], wanted, side="left") - 1
    last = _at(blocking[order], np.where(known, place, -1))
    same = (_at(calls.site, last) == gaps.site[rows]) & (_at(calls.pid, last) == pid)
    found = np.where(known & same, last, -1)
    event = _at(calls.event, found)
    start, end = _extent_of_events(timeline, blocking, event)
    return {"event": event, "caused_start": start, "caused_end": end}


def _extent_of_events(timeline: Timeline, blocking: Column, events: Column) -> tuple[Column, Column]:
    """First start and last end of the calls of each event (-1 where the event is -1)."""
    calls = timeline.calls
    order = blocking[np.argsort(calls.event[blocking], kind="stable")]
    ids, first = np.unique(calls.event[order], return_index=True)
    if not len(ids):
        return events, events
    start, end = _reduce(np.minimum, calls.start[order], first), _reduce(np.maximum, calls.end[order], first)
    place = np.where(events >= 0, np.searchsorted(ids, events), -1)
    return _at(start, place), _at(end, place)


def _ending_launch(timeline: Timeline, rows: Column) -> dict[str, Column]:
    call = _at(timeline.ops.call, timeline.gaps.next_op[rows])
    calls = timeline.calls
    extent = {f"launch_{name}": _at(getattr(calls, name), call) for name in ("start", "end", "tid")}
    return extent | {"launch_blocks": (_at(calls.category, call) == _BLOCKING).astype(np.int64)}


def _at(column: Column, index: Column) -> Column:
    """column[index], -1 where index is -1."""
    if not len(column):
        return np.full(len(index), -1, dtype=np.int64)
    return np.where(index >= 0, column[index], -1)
