"""Host calls: which of them block, what they waited for, how long, and which belong together as one sync event."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nsys_sync.trace.capture_info import MARK_PREFIX
from nsys_sync.trace.columns import distinct, expand, lookup, pack
from nsys_sync.trace.names import SYNC_KINDS, api_kind, is_device_wait
from nsys_sync.trace.reader import Trace
from nsys_sync.trace.tables import DEVICE, PAGEABLE, Calls, Column, Ops, process_of

Mask = npt.NDArray[np.bool_]

#: Cost of a call that does not wait (ns) where a trace has fewer than three such calls of that API.
DEFAULT_SYNC_BASE = 5_000
DEFAULT_COPY_BASE = 8_000
_ENOUGH = 3

#: Kinds of blocking calls as numbers, for columns; NOT_BLOCKING for all other calls.
NOT_BLOCKING, DEVICE_SYNC, STREAM_SYNC, EVENT_SYNC, COPY = -1, 0, 1, 2, 3
KIND_NAMES = ("device_sync", "stream_sync", "event_sync", "copy")

#: Before everything (ns); not the smallest int64, so that differences stay in range.
NEVER = -(1 << 62)


@dataclass(frozen=True)
class Activity:
    """Host calls and GPU operations of a trace, tied together.

    calls: outermost calls only, sorted by (start, -end). ops: GPU operations,
    sorted by start. launch: row in calls of the call that launched each op, -1 = none. launched: start of that call
    (ns), the op's own start where none is known. api: api_kind of each name in calls.names.
    before: row of the previous call on the same thread, -1 = none.
    """

    calls: Calls
    ops: Ops
    launch: Column
    launched: Column
    api: tuple[str, ...]
    before: npt.NDArray[np.int32]

    def process(self, rows: Column) -> Column:
        """Global process ids of these calls."""
        return process_of(self.calls.tid[rows])

    def names_of(self, rows: Column) -> list[str]:
        """Bare API names of these calls."""
        return [self.calls.names[code] for code in self.calls.name[rows]]

    def is_api(self, *kinds: str) -> Mask:
        """Which calls are of these api kinds."""
        wanted = np.array([kind in kinds for kind in self.api], dtype=bool)
        return wanted[self.calls.name] if len(wanted) else np.zeros(len(self.calls), dtype=bool)

    @cached_property
    def launches(self) -> Mask:
        """Which calls launched an operation that is in the trace."""
        mask = np.zeros(len(self.calls), dtype=bool)
        mask[self.launch[self.launch >= 0]] = True
        return mask

    @cached_property
    def waits_on_device(self) -> Mask:
        """Which calls made a stream wait for an event on the device (they never block the host)."""
        wanted = np.array([is_device_wait(name) for name in self.calls.names] or [False], dtype=bool)
        return wanted[self.calls.name] if len(self.calls) else np.zeros(0, dtype=bool)


@dataclass(frozen=True)
class Blocking:
    """The host-blocking calls, in the order of calls.

    row: row in Activity.calls; kind: one of DEVICE_SYNC … COPY; awaited: latest end of the work it waited for (ns,
    NEVER = none); device: the device it is measured against (-1 = unknown); wait: ns; event: row in Events.
    base: cost of a call that does not wait (ns) by API name, for every API that blocks here.
    """

    row: Column
    kind: Column
    awaited: Column
    device: Column
    wait: Column
    event: Column
    base: dict[str, int]


@dataclass(frozen=True)
class Events:
    """Sync events, sorted by start: a blocking copy together with the sync right after it, else a single call.

    copy, sync: rows in Blocking, -1 = none; start, end: ns; wait: sum over its calls (ns).
    """

    copy: Column
    sync: Column
    start: Column
    end: Column
    tid: Column
    pid: Column
    wait: Column

    def __len__(self) -> int:
        return len(self.start)

    @property
    def first(self) -> Column:
        """Row in Blocking of the event's first call."""
        return np.where(self.copy >= 0, self.copy, self.sync)


def connect(trace: Trace) -> Activity:
    """Tie operations to the calls that launched them; drop nested calls and all that begins while the launcher closes
    the capture.
    """
    calls, ops = trace.calls, trace.ops
    by_thread = np.argsort(calls.tid, kind="stable")
    outer = _outermost(calls, by_thread)
    launch = _launching(calls, ops)
    launch = np.where(launch >= 0, outer[launch], -1) if len(calls) else launch
    closing = _closing(trace)
    keep = (outer == np.arange(len(calls))) & ~closing
    if not keep.all():
        within = (launch < 0) | ~closing[launch]
        if not within.all():
            ops, launch = ops.only(within), launch[within]
        number = np.cumsum(keep) - 1
        launch = np.where((launch >= 0) & keep[launch], number[launch], -1)
        calls = Calls(
            calls.start[keep], calls.end[keep], calls.tid[keep], calls.correlation[keep], calls.name[keep], calls.names
        )
        by_thread = np.argsort(calls.tid, kind="stable")
    before = np.full(len(calls), -1, dtype=np.int32)
    same = np.flatnonzero(calls.tid[by_thread[1:]] == calls.tid[by_thread[:-1]])
    before[by_thread[same + 1]] = by_thread[same]
    known = launch >= 0
    launched = np.where(known, calls.start[launch], ops.start) if len(calls) else ops.start
    api = tuple(api_kind(name) for name in calls.names)
    return Activity(calls, ops, launch, launched, api, before)


def _outermost(calls: Calls, by_thread: Column) -> Column:
    """For each call the outermost call of its thread that contains it (itself, if none)."""
    outer = np.arange(len(calls))
    tid = calls.tid[by_thread]
    bounds = np.flatnonzero(np.diff(tid, prepend=-1, append=-1)) if len(tid) else np.empty(0, dtype=np.int64)
    for first, stop in pairwise(bounds):
        rows = by_thread[first:stop]
        reach = np.maximum.accumulate(calls.end[rows])
        inside = np.concatenate(([False], (calls.end[rows][1:] <= reach[:-1]) & (calls.start[rows][1:] < reach[:-1])))
        if inside.any():
            top = np.maximum.accumulate(np.where(inside, 0, np.arange(len(rows))))
            outer[rows] = rows[top]
    return outer


def _launching(calls: Calls, ops: Ops) -> Column:
    """Row of the call with each op's process and correlation id, -1 = none."""
    table, keys = pack((process_of(calls.tid), ops.pid), (calls.correlation, ops.correlation))
    found = lookup(table, keys)
    return np.where(ops.correlation >= 0, found, -1)


def _closing(trace: Trace) -> Mask:
    """Calls made while the launcher's target module was closing the capture."""
    closing = np.zeros(len(trace.calls), dtype=bool)
    ranges = trace.ranges
    marks = [code for code, name in enumerate(ranges.names) if name == f"{MARK_PREFIX}close"]
    rows = np.flatnonzero(np.isin(ranges.name, marks))
    pid = process_of(trace.calls.tid)
    for row in rows:
        process = process_of(ranges.tid[row : row + 1])[0]
        closing |= (pid == process) & (trace.calls.start >= ranges.start[row])
    return closing


def find_blocking(trace: Trace, activity: Activity) -> tuple[Blocking, Events]:
    """Every host-blocking call with its wait, and the sync events they form."""
    kind = _kinds(activity)
    row = np.flatnonzero(kind != NOT_BLOCKING)
    awaited, device = _awaited(trace, activity, row, kind[row])
    base = _bases(activity, kind, row, awaited)
    wait = _waits(activity, row, kind[row], awaited, base)
    return _group(activity, row, kind[row], awaited, device, wait, base)


def _kinds(activity: Activity) -> Column:
    codes = {"device_sync": DEVICE_SYNC, "stream_sync": STREAM_SYNC, "event_sync": EVENT_SYNC, "copy": COPY}
    by_name = np.array([codes.get(api, NOT_BLOCKING) for api in activity.api], dtype=np.int64)
    kind = by_name[activity.calls.name] if len(by_name) else np.empty(0, dtype=np.int64)
    copies = activity.ops.copies
    call = activity.launch[copies.op]
    launched = call >= 0
    call, src, dst = call[launched], copies.src[launched], copies.dst[launched]
    pageable = ((src == PAGEABLE) & (dst == DEVICE)) | ((src == DEVICE) & (dst == PAGEABLE))
    asynchronous = activity.is_api("async_copy")
    kind[call[pageable & asynchronous[call]]] = COPY
    on_device = call[(src == DEVICE) & (dst == DEVICE)]
    kind[on_device[kind[on_device] == COPY]] = NOT_BLOCKING
    return kind


def _awaited(trace: Trace, activity: Activity, row: Column, kind: Column) -> tuple[Column, Column]:
    """Latest end of the work that each blocking call waited for, and the device that it is measured against."""
    calls, ops = activity.calls, activity.ops
    awaited = np.full(len(row), NEVER, dtype=np.int64)
    start, pid = calls.start[row], activity.process(row)
    device = _current_device(activity, row)

    copy = np.flatnonzero(kind == COPY)
    latest = np.full(len(calls), NEVER, dtype=np.int64)
    own = np.flatnonzero(activity.launch >= 0)
    np.maximum.at(latest, activity.launch[own], ops.end[own])
    awaited[copy] = latest[row[copy]]
    own_device = np.full(len(calls), -1, dtype=np.int64)
    own_device[activity.launch[own]] = ops.device[own]
    device[copy] = np.where(own_device[row[copy]] >= 0, own_device[row[copy]], device[copy])

    syncs = trace.syncs
    record = lookup(*pack((syncs.pid, pid), (syncs.correlation, calls.correlation[row])))
    record[kind == COPY] = -1
    stream = np.flatnonzero((kind == STREAM_SYNC) & (record >= 0))
    at = record[stream]
    # The device of a record is not to be trusted with several processes; a context belongs to one device.
    device[stream] = _device_of_context(ops, pid[stream], syncs.context[at], device[stream])
    awaited[stream] = _latest_end(
        activity,
        (ops.pid, ops.context, ops.stream),
        (pid[stream], syncs.context[at], syncs.stream[at]),
        start[stream],
    )

    event = np.flatnonzero((kind == EVENT_SYNC) & (record >= 0))
    event = event[syncs.event[record[event]] >= 0]
    recorded = trace.events
    known = lookup(*pack((recorded.pid, pid[event]), (recorded.event, syncs.event[record[event]])))
    event, known = event[known >= 0], known[known >= 0]
    call = lookup(*pack((process_of(calls.tid), recorded.pid[known]), (calls.correlation, recorded.correlation[known])))
    event, known, call = event[call >= 0], known[call >= 0], call[call >= 0]
    device[event] = _device_of_context(ops, pid[event], recorded.context[known], device[event])
    awaited[event] = _latest_end(
        activity,
        (ops.pid, ops.context, ops.stream),
        (pid[event], recorded.context[known], recorded.stream[known]),
        calls.start[call],
    )

    precise = np.zeros(len(row), dtype=bool)
    precise[stream] = precise[event] = True
    rest = np.flatnonzero((kind != COPY) & ~precise)
    awaited[rest] = _latest_end(activity, (ops.pid, ops.device), (pid[rest], device[rest]), start[rest])
    return awaited, device


def _device_of_context(ops: Ops, pid: Column, context: Column, default: Column) -> Column:
    """The device on which a process's context ran anything, else the default."""
    if not len(pid) or not len(ops):
        return default
    op_key, asked = pack((ops.pid, pid), (ops.context, context))
    at = lookup(op_key, asked)
    return np.where(at >= 0, ops.device[at], default)


def _current_device(activity: Activity, row: Column) -> Column:
    """The device that each call's thread last launched on, else the first device that its process uses, else -1."""
    calls, ops = activity.calls, activity.ops
    device = np.full(len(row), -1, dtype=np.int64)
    if not len(row) or not len(ops):
        return device
    for process in distinct(activity.process(row)):
        used = distinct(ops.device[ops.pid == process])
        if len(used):
            device[activity.process(row) == process] = used[0]
        if len(used) < 2:
            continue
        launched = np.flatnonzero((ops.pid == process) & (activity.launch >= 0))
        call = activity.launch[launched]
        for thread in distinct(calls.tid[row[activity.process(row) == process]]):
            mine = launched[calls.tid[call] == thread]
            by = mine[np.argsort(activity.launched[mine], kind="stable")]
            asked = np.flatnonzero(calls.tid[row] == thread)
            last = np.searchsorted(activity.launched[by], calls.start[row[asked]]) - 1
            device[asked[last >= 0]] = ops.device[by[last[last >= 0]]]
    return device


def _latest_end(
    activity: Activity, op_key: tuple[Column, ...], asked_key: tuple[Column, ...], before: Column
) -> Column:
    """Latest end of the ops with the same key that were launched before each instant; NEVER where there is none."""
    latest = np.full(len(before), NEVER, dtype=np.int64)
    if not len(before) or not len(activity.ops):
        return latest
    op_group, asked_group = pack(*zip(op_key, asked_key, strict=True))
    for group in distinct(asked_group):
        mine = np.flatnonzero(op_group == group)
        if not len(mine):
            continue
        by = mine[np.argsort(activity.launched[mine], kind="stable")]
        reach = np.maximum.accumulate(activity.ops.end[by])
        asked = np.flatnonzero(asked_group == group)
        last = np.searchsorted(activity.launched[by], before[asked]) - 1
        latest[asked[last >= 0]] = reach[last[last >= 0]]
    return latest


def low_median(values: Column) -> int:
    """The middle value; of an even number the lower of the two."""
    return int(np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2])


def _bases(activity: Activity, kind: Column, row: Column, awaited: Column) -> dict[str, int]:
    calls = activity.calls
    duration = calls.end - calls.start
    idle = np.zeros(len(calls), dtype=bool)
    idle[row[(kind[row] != COPY) & (awaited <= calls.start[row])]] = True
    idle |= (kind == NOT_BLOCKING) & activity.is_api("copy", "async_copy")
    base: dict[str, int] = {}
    for code in distinct(calls.name[row]):
        name = calls.names[code]
        sample = duration[idle & (calls.name == code)]
        default = DEFAULT_SYNC_BASE if activity.api[code] in SYNC_KINDS else DEFAULT_COPY_BASE
        base[name] = low_median(sample) if len(sample) >= _ENOUGH else default
    return base


def _waits(activity: Activity, row: Column, kind: Column, awaited: Column, base: dict[str, int]) -> Column:
    calls = activity.calls
    by_name = np.array([base.get(name, 0) for name in calls.names], dtype=np.int64)
    start = calls.start[row]
    beyond = np.maximum(calls.end[row] - start - by_name[calls.name[row]], 0) if len(row) else start
    return np.where((kind == COPY) | (awaited > start), beyond, 0)


def _group(
    activity: Activity,
    row: Column,
    kind: Column,
    awaited: Column,
    device: Column,
    wait: Column,
    base: dict[str, int],
) -> tuple[Blocking, Events]:
    calls = activity.calls
    follower = _followers(activity, row)
    paired = np.flatnonzero((kind == COPY) & (follower >= 0))
    paired = paired[kind[follower[paired]] != COPY]
    leads = np.ones(len(row), dtype=bool)
    leads[follower[paired]] = False
    first = np.flatnonzero(leads)
    event = np.full(len(row), -1, dtype=np.int64)
    event[first] = np.arange(len(first))
    event[follower[paired]] = event[paired]
    copy = np.where(kind[first] == COPY, first, -1)
    sync = np.where(kind[first] == COPY, -1, first)
    sync[event[paired]] = follower[paired]
    last = np.where(sync >= 0, sync, copy)
    total = np.zeros(len(first), dtype=np.int64)
    np.add.at(total, event, wait)
    events = Events(
        copy,
        sync,
        calls.start[row[first]],
        calls.end[row[last]],
        calls.tid[row[first]],
        activity.process(row[first]),
        total,
    )
    return Blocking(row, kind, awaited, device, wait, event, base), events


def _followers(activity: Activity, row: Column) -> Column:
    """For each blocking call the position of the blocking call that is the very next call on its thread, -1 = none."""
    position = np.full(len(activity.calls) + 1, -1, dtype=np.int64)
    position[row] = np.arange(len(row))
    follower = np.full(len(row), -1, dtype=np.int64)
    led = position[activity.before[row]] if len(row) else row
    follower[led[led >= 0]] = np.flatnonzero(led >= 0)
    return follower


def blocked_time(activity: Activity, blocking: Blocking) -> tuple[int, int]:
    """Time in blocking calls: (wall time, the union over the threads of each process, summed over processes; the sum
    over all threads), in ns.
    """
    from nsys_sync.analysis.intervals import total, union

    start, end = activity.calls.start[blocking.row], activity.calls.end[blocking.row]
    pid = activity.process(blocking.row)
    wall = sum(total(*union(start[pid == p], end[pid == p])) for p in distinct(pid))
    return wall, int((end - start).sum())


def copies_of(activity: Activity, rows: Column) -> tuple[Column, Column]:
    """(index into rows, row in ops.copies) of all copies that these calls launched."""
    copies = activity.ops.copies
    call = activity.launch[copies.op]
    by = np.argsort(call, kind="stable")
    first = np.searchsorted(call[by], rows, side="left")
    stop = np.searchsorted(call[by], rows, side="right")
    index, at = expand(first, np.where(rows >= 0, stop, first))
    return index, by[at]
