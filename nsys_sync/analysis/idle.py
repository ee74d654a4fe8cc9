"""Device time, and the blame for every idle nanosecond.

A gap is ended by an operation whose launching call tells which thread had been late. What that thread did during the
gap is the gap's cause: it was inside a blocking call, it was catching up after one, it was allocating, or it was just
slow. How much of a gap may be charged to a sync event is limited by the event's credit, the time that it really
waited; credit is spent once, in time order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_sync.analysis import intervals
from nsys_sync.analysis.calls import COPY, NEVER, Activity, Blocking, Events, Mask
from nsys_sync.analysis.timeline import CAUSES
from nsys_sync.analysis.window import ALL, Window
from nsys_sync.trace.columns import distinct, expand, order
from nsys_sync.trace.tables import MEMCPY, Column

Sizes = npt.NDArray[np.int32] | Column

WAIT, REFILL, OVERHEAD, HOST, ON_DEVICE, ALLOC, TAIL, UNKNOWN = range(len(CAUSES))


@dataclass(frozen=True)
class DeviceBusy:
    """One device's time in ns; busy is split into compute and copy-only, copy-only into blocking copies and others.

    withheld: why idle is not known, None where it is. gaps: how many idle intervals.
    """

    device: int
    low: int
    high: int
    busy: int
    compute: int
    blocking_copy: int
    async_copy: int
    gaps: int
    withheld: str | None


@dataclass(frozen=True)
class Gaps:
    """The idle intervals of all measured devices, sorted by (device, start).

    causes: shape (gaps, 8) by timeline.CAUSES, each row adds up to the gap (ns; int32 where that is enough); event: the
    sync event with the largest share of wait and refill (-1 = none).
    """

    device: Column
    start: Column
    end: Column
    next_op: Column
    causes: Sizes
    event: Column


@dataclass(frozen=True)
class Blame:
    """What each sync event caused, in ns.

    idle: shape (events, devices, 3): sync_wait, sync_refill, sync_overhead, by position in ``devices``.
    copy_in_call: time its own copy was all that its device did, inside the copy call. recoverable: by event.
    recoverable_all: if no event blocked.
    """

    devices: list[DeviceBusy]
    gaps: Gaps
    idle: Column
    copy_in_call: Column
    recoverable: Column
    recoverable_all: int


def blame(activity: Activity, blocking: Blocking, events: Events, window: Window = ALL) -> Blame:
    """Charge every gap of every device within the window to its causes (docs/model.md has the definitions).

    What sync events cause that the window does not count is host time.
    """
    compute = _compute_covers(activity)
    devices, gaps = _device_times(activity, blocking, compute, window)
    counted = window.counts(events.pid, events.start, events.end)
    copy_in_call = np.where(counted, _copy_in_call(activity, blocking, events, compute), 0)
    wait = np.where(counted, events.wait, 0)
    credit = np.maximum(wait - copy_in_call, 0)
    demands = _Demands.of(activity, blocking, events, gaps, counted)
    granted = demands.granted(credit)
    causes = demands.causes(granted)
    idle = demands.by_event(gaps, granted, len(events), [d.device for d in devices])
    measured = idle.sum(axis=1)
    recoverable = np.minimum(wait, measured[:, WAIT] + measured[:, REFILL] + copy_in_call)
    charged = Gaps(
        gaps.device, gaps.start, gaps.end, gaps.next_op, causes, demands.main_event(len(gaps.start), granted)
    )
    together = int(copy_in_call.clip(max=wait).sum()) + demands.together(events, credit)
    return Blame(devices, charged, idle, copy_in_call, recoverable, together)


# --- busy, idle ------------------------------------------------------------------------------------------------------

Cover = tuple[Column, Column]


def _compute_covers(activity: Activity) -> dict[int, Cover]:
    """By device the time in which it computes (anything but copies)."""
    ops = activity.ops
    covers = {}
    for device in distinct(ops.device):
        rows = np.flatnonzero((ops.device == device) & (ops.kind != MEMCPY))
        covers[int(device)] = intervals.union(ops.start[rows], ops.end[rows])
    return covers


def _device_times(
    activity: Activity, blocking: Blocking, compute: dict[int, Cover], window: Window
) -> tuple[list[DeviceBusy], Gaps]:
    """Each device's time, and the gaps of those whose idle time is known, not yet charged."""
    ops, calls = activity.ops, activity.calls
    work = activity.launches | activity.is_api("alloc", "graph_launch")
    work[blocking.row] = True
    blocks = np.zeros(len(calls) + 1, dtype=bool)
    blocks[blocking.row[blocking.kind == COPY]] = True
    worked = np.flatnonzero(work)
    lost = _lost_graphs(activity)
    devices: list[DeviceBusy] = []
    gaps: list[tuple[Column, Column, Column, Column]] = []
    for device, cover in compute.items():
        rows = np.flatnonzero((ops.device == device) & (ops.end > ops.start))
        if not len(rows):
            continue
        processes = distinct(ops.pid[rows])
        near = worked[np.isin(activity.process(worked), processes)]
        low = min([int(ops.start[rows[0]]), *calls.start[near[:1]].tolist()])
        high = max(int(ops.end[rows].max()), int(calls.end[near].max(initial=low)))
        low, high = max(low, window.low), min(high, window.high)
        if low >= high:
            continue
        start, end = intervals.clip(*intervals.union(ops.start[rows], ops.end[rows]), low, high)
        busy = intervals.total(start, end)
        computing = intervals.total(*intervals.clip(*cover, low, high))
        copies = rows[(ops.kind[rows] == MEMCPY) & blocks[activity.launch[rows]]]
        held = intervals.clip(*intervals.union(ops.start[copies], ops.end[copies]), low, high)
        blocking_copy = int((held[1] - held[0] - intervals.measure(*cover, *held)).sum())
        gap_start, gap_end = intervals.gaps(start, end, low, high)
        reason = _lost_reason(sum(lost.get(int(p), 0) for p in processes))
        rest = busy - computing - blocking_copy
        devices.append(DeviceBusy(device, low, high, busy, computing, blocking_copy, rest, len(gap_start), reason))
        if reason is None:
            at = np.searchsorted(ops.start[rows], gap_end, side="left")
            next_op = np.where(at < len(rows), rows[np.minimum(at, len(rows) - 1)], -1)
            gaps.append((np.full(len(gap_start), device, dtype=np.int64), gap_start, gap_end, next_op))
    if not devices and lost and work.any():
        low, high = int(calls.start[work].min()), int(calls.end[work].max())
        devices.append(DeviceBusy(0, low, high, 0, 0, 0, 0, 0, _lost_reason(sum(lost.values()))))
    empty = np.empty(0, dtype=np.int64)
    columns = [np.concatenate(column) for column in zip(*gaps, strict=True)] or [empty] * 4
    del gaps
    device_, start_, end_, next_op = columns
    return devices, Gaps(device_, start_, end_, next_op, np.empty((0, len(CAUSES)), dtype=np.int64), empty)


def _lost_reason(launches: int) -> str | None:
    if not launches:
        return None
    return (
        f"{launches} CUDA graph launches have no recorded work; profile again with --cuda-graph-trace=node, "
        "or with a newer nsys"
    )


def _lost_graphs(activity: Activity) -> dict[int, int]:
    """By process the number of graph launches without any operation in the trace."""
    lost = np.flatnonzero(activity.is_api("graph_launch") & ~activity.launches)
    processes, counts = np.unique(activity.process(lost), return_counts=True)
    return {int(p): int(n) for p, n in zip(processes, counts, strict=True)}


def _copy_in_call(activity: Activity, blocking: Blocking, events: Events, compute: dict[int, Cover]) -> Column:
    """By event the time that its own copy was all its device did, inside the copy call."""
    ops, calls = activity.ops, activity.calls
    event_of = np.full(len(calls) + 1, -1, dtype=np.int64)
    copy = np.flatnonzero(events.copy >= 0)
    event_of[blocking.row[events.copy[copy]]] = copy
    own = np.flatnonzero((ops.kind == MEMCPY) & (event_of[activity.launch] >= 0))
    call = activity.launch[own]
    low = np.maximum(ops.start[own], calls.start[call])
    high = np.maximum(np.minimum(ops.end[own], calls.end[call]), low)
    # One call can copy in several pieces at once.
    place = call * (max(compute, default=0) + 1) + ops.device[own]
    by = order(place, low)
    own, call, low, high = own[by], call[by], low[by], high[by]
    low = np.minimum(_free_start(place[by], low, high), high)
    alone = high - low
    for device, cover in compute.items():
        mine = ops.device[own] == device
        alone[mine] -= intervals.measure(*cover, low[mine], high[mine])
    result = np.zeros(len(events), dtype=np.int64)
    np.add.at(result, event_of[call], alone)
    return result


# --- blame -----------------------------------------------------------------------------------------------------------


#: Gaps that are read at a time.
_SLICE = 1 << 17


@dataclass(frozen=True)
class _Demands:
    """Claims of gaps on the credit of sync events, and the parts of gaps that need no credit.

    gap, event, size, kind (WAIT or REFILL), when (ns; of a REFILL the launch that was late): one row a claim, sorted
    by event, then in the order in which credit is spent. late: claims on credit that was dropped before. plain: shape
    (gaps, 8), host counts as if no refill was granted.
    """

    gap: Column
    event: Column
    size: Column
    kind: npt.NDArray[np.int8]
    when: Column
    late: Mask
    plain: Sizes

    @classmethod
    def of(cls, activity: Activity, blocking: Blocking, events: Events, gaps: Gaps, counted: Mask) -> _Demands:
        """Read each gap as docs/model.md does: waiting, overhead, allocation, host, device, tail, unknown."""
        length = gaps.end - gaps.start
        # The largest table of the analysis: half of it where no gap is longer than two seconds.
        short = length.max(initial=0) <= np.iinfo(np.int32).max
        plain = np.zeros((len(length), len(CAUSES)), dtype=np.int32 if short else np.int64)
        plain[:, TAIL] = np.where(gaps.next_op < 0, length, 0)
        launched = (gaps.next_op >= 0) & (activity.launch[gaps.next_op] >= 0) if len(activity.ops) else length < 0
        plain[:, UNKNOWN] = np.where((gaps.next_op >= 0) & ~launched, length, 0)
        mine = counted[blocking.event]
        event_of_call = np.full(len(activity.calls), -1, dtype=np.int64)
        event_of_call[blocking.row[mine]] = blocking.event[mine]
        by_copy = np.zeros(len(activity.calls), dtype=bool)
        by_copy[blocking.row[mine & (blocking.kind == COPY)]] = True
        holding = activity.is_api("alloc") | (event_of_call >= 0)
        reader = _Reader(activity, events, counted, event_of_call, by_copy, np.flatnonzero(holding))
        known = np.flatnonzero(launched)
        # In slices, so that what is computed on the way stays small beside the trace.
        claims = [reader.read(gaps, known[at : at + _SLICE], plain) for at in range(0, len(known), _SLICE)]
        columns = [np.concatenate(column) for column in zip(*claims, strict=True)]
        del claims
        if not columns:
            columns = [np.empty(0, dtype=np.int64)] * 6
        if len(distinct(gaps.device)) > 1:
            turn = np.empty(len(gaps.start), dtype=np.int64)
            turn[order(gaps.start, gaps.device)] = np.arange(len(gaps.start))
            _rearrange(columns, np.argsort(turn[columns[0]], kind="stable"))
        _rearrange(columns, np.argsort(columns[1], kind="stable"))
        gap, event, size, kind, when, late = columns
        return cls(gap, event, size, kind, when, late, plain)

    def granted(self, credit: Column) -> Column:
        """What each claim gets: an event's credit is spent by its claims one after the other."""
        size = np.where(self.late, 0, self.size)
        spent = np.cumsum(size)
        first = np.searchsorted(self.event, self.event, side="left")
        before = np.concatenate(([0], spent))[first] if len(spent) else spent
        limit = credit[self.event] if len(spent) else spent
        granted: Column = np.minimum(spent - before, limit) - np.minimum(spent - size - before, limit)
        return granted

    def causes(self, granted: Column) -> Sizes:
        """Shape (gaps, 8): what the claims got, and the rest of each gap by its plain cause. Spends ``plain``."""
        result = self.plain
        waits, refills = self.kind == WAIT, self.kind == REFILL
        np.add.at(result[:, WAIT], self.gap[waits], granted[waits])
        np.add.at(result[:, OVERHEAD], self.gap[waits], (self.size - granted)[waits])
        np.add.at(result[:, REFILL], self.gap[refills], granted[refills])
        np.subtract.at(result[:, HOST], self.gap[refills], granted[refills])
        return result

    def by_event(self, gaps: Gaps, granted: Column, events: int, devices: list[int]) -> Column:
        """Shape (events, devices, 3): sync_wait, sync_refill, sync_overhead."""
        result = np.zeros((events, len(devices), 3), dtype=np.int64)
        position = np.searchsorted(devices, gaps.device[self.gap]) if len(devices) else self.gap
        np.add.at(result, (self.event, position, self.kind), granted)
        waits = self.kind == WAIT
        np.add.at(result, (self.event[waits], position[waits], OVERHEAD), (self.size - granted)[waits])
        return result

    def main_event(self, gaps: int, granted: Column) -> Column:
        """For each gap the event with the largest granted claims, -1 = none."""
        result = np.full(gaps, -1, dtype=np.int64)
        paid = np.flatnonzero(granted > 0)
        by = paid[order(self.gap[paid], granted[paid])]
        result[self.gap[by]] = self.event[by]
        return result

    def together(self, events: Events, credit: Column) -> int:
        """Idle (ns) that the claims would get if the credit of a process's earlier events was kept.

        Waiting draws on its own event, catching up on whatever the process's events before the launch have left: a
        stock that events fill and refills empty, whose lowest debt is what stays unmet.
        """
        waits = self.kind == WAIT
        waited = np.zeros(len(events), dtype=np.int64)
        np.add.at(waited, self.event[waits], self.size[waits])
        waited = np.minimum(waited, credit)
        total = int(waited.sum())
        for process in distinct(events.pid):
            refills = np.flatnonzero(~waits & (events.pid[self.event] == process))
            own = np.flatnonzero(events.pid == process)
            when = np.concatenate((events.start[own], self.when[refills]))
            change = np.concatenate(((credit - waited)[own], -self.size[refills]))
            # A wait that begins with the launch is no reason for the launch to be late.
            by = np.lexsort((np.repeat([1, 0], [len(own), len(refills)]), when))
            stock = np.cumsum(change[by])
            unmet = -min(int(stock.min(initial=0)), 0)
            total += int(self.size[refills].sum()) - unmet
        return total


@dataclass(frozen=True)
class _Reader:
    """Reads gaps.

    counted: by event whether it may be blamed; event_of_call: such an event of each call (-1 = none); by_copy: whether
    the call is its blocking copy; held: rows of such calls and of the allocating ones.
    """

    activity: Activity
    events: Events
    counted: Mask
    event_of_call: Column
    by_copy: Mask
    held: Column

    def read(self, gaps: Gaps, known: Column, plain: Sizes) -> list[npt.NDArray[Any]]:
        """Fill the plain causes of these gaps (with a launching call) and return their claims: gap, event, size, kind,
        when, late; in the order in which one device spends credit.
        """
        calls, events = self.activity.calls, self.events
        launch = self.activity.launch[gaps.next_op[known]]
        g0, g1 = gaps.start[known], gaps.end[known]
        a, b = np.clip(calls.start[launch], g0, g1), np.clip(calls.end[launch], g0, g1)
        copying = self.by_copy[launch]

        piece_gap, piece_call, low, high = _pieces(self.activity, self.held, launch, g0, a)
        piece_event = self.event_of_call[piece_call]
        waiting = piece_event >= 0
        allocated = np.zeros(len(known), dtype=np.int64)
        np.add.at(allocated, piece_gap[~waiting], (high - low)[~waiting])

        recent, dropped = _recent_event(self.activity, events, launch)
        if len(events):
            recent = np.where(self.counted[recent], recent, -1)
        since = np.where(recent >= 0, np.maximum(events.start[recent], g0), b) if len(events) else b
        in_pieces = np.zeros(len(known), dtype=np.int64)
        np.add.at(in_pieces, piece_gap, high - low)
        after = np.zeros(len(known), dtype=np.int64)
        np.add.at(after, piece_gap, np.maximum(high - np.maximum(low, since[piece_gap]), 0))
        own_copy = np.where(copying, b - a, 0)
        plain[known, ON_DEVICE] = g1 - b
        plain[known, ALLOC] = allocated
        plain[known, HOST] = b - g0 - in_pieces - own_copy
        refill = np.maximum(b - since - after - own_copy, 0)

        copied = np.flatnonzero(copying & (b > a))
        refilled = np.flatnonzero((refill > 0) & (recent >= 0))
        gap = np.concatenate((piece_gap[waiting], copied, refilled))
        counts = [int(waiting.sum()), len(copied), len(refilled)]
        by = np.argsort(3 * gap + np.repeat([0, 1, 2], counts), kind="stable")
        columns = (
            known[gap],
            np.concatenate((piece_event[waiting], self.event_of_call[launch[copied]], recent[refilled])),
            np.concatenate(((high - low)[waiting], own_copy[copied], refill[refilled])),
            np.repeat(np.array([WAIT, WAIT, REFILL], dtype=np.int8), counts),
            np.concatenate((low[waiting], a[copied], calls.start[launch[refilled]])),
            np.concatenate((np.zeros(counts[0] + counts[1], dtype=bool), dropped[refilled])),
        )
        return [column[by] for column in columns]


def _rearrange(columns: list[npt.NDArray[Any]], by: Column) -> None:
    """Reorder all columns in place of the list, one at a time to hold only one copy."""
    for i, column in enumerate(columns):
        columns[i] = column[by]


def _pieces(
    activity: Activity, held: Column, launch: Column, low: Column, high: Column
) -> tuple[Column, Column, Column, Column]:
    """The parts of each [low, high) that lie in a holding call (row in ``held``) which delayed the launch.

    Calls of the launching thread count, and calls of another thread of the process that lie wholly inside the silence
    of the launching thread before the launch. Returns (row of the interval, call, start, end), sorted by interval and
    start; where calls of several threads overlap, the one begun first has the common part.
    """
    calls = activity.calls
    silence = _silence(activity, launch)
    found: list[tuple[Column, Column]] = []
    open_ = np.flatnonzero(high > low)
    thread, process = calls.tid[launch[open_]], activity.process(launch[open_])
    for tid in distinct(calls.tid[held]):
        theirs = held[calls.tid[held] == tid]
        start, end = calls.start[theirs], calls.end[theirs]
        own = open_[thread == tid]
        first, stop = np.searchsorted(end, low[own], side="right"), np.searchsorted(start, high[own], side="left")
        row, at = expand(first, stop)
        found.append((own[row], theirs[at]))
        other = open_[(thread != tid) & (process == activity.process(theirs[0]))]
        first = np.maximum(
            np.searchsorted(start, silence[other], side="left"), np.searchsorted(end, low[other], side="right")
        )
        stop = np.minimum(
            np.searchsorted(end, calls.start[launch[other]], side="right"),
            np.searchsorted(start, high[other], side="left"),
        )
        row, at = expand(first, stop)
        found.append((other[row], theirs[at]))
    row = np.concatenate([r for r, _ in found] or [open_[:0]])
    call = np.concatenate([c for _, c in found] or [open_[:0]])
    by = order(row, calls.start[call], call)
    row, call = row[by], call[by]
    start, end = np.maximum(calls.start[call], low[row]), np.minimum(calls.end[call], high[row])
    # Overlaps of several threads: within one interval what an earlier call has covered is no longer free.
    start = _free_start(row, start, end)
    real = end > start
    return row[real], call[real], start[real], end[real]


def _free_start(row: Column, start: Column, end: Column) -> Column:
    """Move each start behind what earlier pieces of the same row have covered (rows with an overlap are few)."""
    free = start.copy()
    for crowded in distinct(row[1:][(row[1:] == row[:-1]) & (start[1:] < end[:-1])]):
        first, stop = np.searchsorted(row, [crowded, crowded + 1])
        reach = np.maximum.accumulate(end[first:stop])
        free[first + 1 : stop] = np.maximum(start[first + 1 : stop], reach[:-1])
    return free


def _silence(activity: Activity, launch: Column) -> Column:
    """End of the call before each launch on its thread; before everything where there is none."""
    before = activity.before[launch]
    return np.where(before >= 0, activity.calls.end[before], NEVER) if len(before) else launch


def _recent_event(activity: Activity, events: Events, launch: Column) -> tuple[Column, Mask]:
    """The last event begun before each launch on its thread, or on the thread that handed over to it; and whether it
    has no credit for this launch: its thread had begun another, or the event is only the last of the process.
    """
    calls = activity.calls
    when, thread, process = calls.start[launch], calls.tid[launch], activity.process(launch)
    silence = _silence(activity, launch)
    recent = np.full(len(launch), -1, dtype=np.int64)
    begun = np.full(len(launch), NEVER, dtype=np.int64)
    dropped = np.zeros(len(launch), dtype=bool)
    for tid in distinct(events.tid):
        theirs = np.flatnonzero(events.tid == tid)
        start, end = events.start[theirs], events.end[theirs]
        latest = np.searchsorted(start, when, side="left") - 1
        inside = np.minimum(latest, np.searchsorted(end, when, side="right") - 1)
        candidate = np.where(thread == tid, latest, inside)
        at = np.maximum(candidate, 0)
        handed = (process == events.pid[theirs[0]]) & (start[at] >= silence)
        better = (candidate >= 0) & ((thread == tid) | handed) & (start[at] > begun)
        recent[better] = theirs[at[better]]
        begun[better] = start[at[better]]
        dropped[better] = (candidate < latest)[better]
    for pid in distinct(events.pid):
        theirs = np.flatnonzero(events.pid == pid)
        lone = np.flatnonzero((recent < 0) & (process == pid))
        latest = np.searchsorted(events.start[theirs], when[lone], side="left") - 1
        recent[lone[latest >= 0]] = theirs[latest[latest >= 0]]
        dropped[lone] = True
    return recent, dropped
