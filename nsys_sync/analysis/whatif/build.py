"""From a trace to the model that is replayed: what holds each operation and each blocking call, and with what slack."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nsys_sync.analysis.calls import COPY, EVENT_SYNC, NEVER, STREAM_SYNC, Activity, Blocking, Mask, low_median
from nsys_sync.analysis.steps import ProcessSteps
from nsys_sync.analysis.whatif.model import (
    COLLECTIVE,
    FAR,
    HAND_OFF,
    LAUNCH_PHASE,
    PHASE,
    QUEUE_DEPTH,
    RECORD,
    STEP,
    SYNC,
    WAIT,
    Chains,
    Collectives,
    Grouping,
    Item,
    Model,
    Part,
    Small,
    Sync,
)
from nsys_sync.trace.columns import distinct, lookup, pack
from nsys_sync.trace.reader import Trace
from nsys_sync.trace.tables import GRAPH, KERNEL, MEMCPY, MEMSET, Column, process_of

#: A thread that was silent for longer may have been waiting for another thread (ns).
HAND_OFF_SILENCE = 15_000
#: Usual times (ns) where a trace has too few examples: launch to operation, operation to operation, work to return.
_LATENCY = 4_000
_SPACING = 1_000
_TAIL = 3_000
_ENOUGH = 3
#: Share of the waits between streams that must be linked to their event; the first ones may wait for earlier events.
_LINKED = 0.8


def build_model(trace: Trace, activity: Activity, blocking: Blocking, steps: ProcessSteps | None) -> Model:
    """The model of a trace; steps: the process whose step ends are reported (None: no steps)."""
    calls = activity.calls
    tids = distinct(np.sort(calls.tid)) if len(calls) else calls.tid
    laid = _lay(trace, activity, tids)
    chains, streams, links, visit, coupled = laid.chains, laid.streams, laid.links, laid.visit, laid.coupled
    items = [
        _item(RECORD, int(when), -1, number, int(stream))
        for number, (when, stream) in enumerate(zip(links.recorded, links.record, strict=True))
    ]
    items += [
        _item(WAIT, int(visit[op]), int(chains.thread[op]), int(number), int(op), int(laid.tight[op] - ready))
        for op, number, ready in zip(links.op, links.number, links.ready, strict=True)
    ]
    items += [
        _item(COLLECTIVE, int(when), int(thread), place, int(position))
        for place, (when, thread, position) in enumerate(
            zip(visit[coupled], chains.thread[coupled], coupled, strict=True)
        )
    ]
    threads = np.searchsorted(tids, calls.tid[blocking.row]).tolist()
    items += [
        _item(SYNC, when, thread, number)
        for number, (when, thread) in enumerate(zip(calls.start[blocking.row].tolist(), threads, strict=True))
    ]
    items += _hand_offs(activity, blocking, tids)
    if steps is not None:
        items += [_item(STEP, int(when), -1, number) for number, when in enumerate(steps.end)]
    items.sort()
    interval = _small(np.searchsorted([item.key for item in items], 4 * visit + LAUNCH_PHASE))
    pids = process_of(tids).tolist()
    owner = [_process_of_item(item, chains.stream, streams, pids, steps) for item in items] if len(coupled) else []
    parts, part_of_stream = _parts(interval, chains.stream, streams, owner, pids, len(items))
    owned = [n for n, pid in enumerate(streams.pid) if steps is None or pid == steps.pid]
    return Model(
        chains=chains,
        grouping=_group(chains, interval, laid.end, len(tids) + 1),
        items=items,
        parts=parts,
        part_of_stream=part_of_stream,
        syncs=_syncs(activity, blocking, streams, _awaited(trace, activity, blocking, streams, laid.number, links)),
        interval=interval,
        process_streams=owned,
        collectives=laid.collectives,
        records=len(links.record),
        threads=len(tids) + 1,
        steps=len(steps.end) if steps is not None else 0,
        begin=int(calls.start[0]) if len(calls) else 0,
        waits_linked=links.complete,
    )


@dataclass(frozen=True)
class _Laid:
    """The operations laid out in their chains, by position there: visit, tight (when nothing held them any more), end
    (ns); but number: each operation's stream, in the order of the operations. coupled: positions of the collectives.
    """

    chains: Chains
    visit: Column
    tight: Column
    end: Column
    number: Small
    streams: _Streams
    links: _Links
    collectives: Collectives
    coupled: Column


def _lay(trace: Trace, activity: Activity, tids: Column) -> _Laid:
    """Lay the operations out; a function of its own, so that what is computed on the way is gone afterwards."""
    calls, ops = activity.calls, activity.ops
    number, streams = _number_streams(activity)
    by = np.argsort(number, kind="stable")
    stream = number[by]
    launch = activity.launch[by]
    known = launch >= 0
    thread = np.where(known, np.searchsorted(tids, calls.tid[launch]), len(tids)) if len(calls) else launch + 1
    launched = activity.launched[by]
    first = np.concatenate(([True], stream[1:] != stream[:-1])) if len(by) else np.empty(0, dtype=bool)
    start, end = ops.start[by], ops.end[by]
    before = np.where(first, NEVER, np.concatenate(([0], end[:-1])) if len(end) else end)
    ready_launch = np.where(
        known, launched + _latencies(ops.kind[by], start - launched, known & (before < launched)), NEVER
    )
    ready_before = np.where(first, NEVER, before + _spacing(activity, launch, start, before, first))
    heads = np.flatnonzero(first)
    collectives, coupled = _collectives(trace, activity, by)
    visit = _visits(launched, heads, coupled)
    links = _links(trace, activity, streams, stream, visit, end)
    tight = np.maximum(ready_launch, ready_before)
    np.maximum.at(tight, links.op, links.ready)
    tight = np.where(tight <= NEVER, start, tight)
    slack = np.where(known, tight - ready_launch, np.where(first, 0, FAR))
    spare = np.where(first, 0, tight - ready_before)
    chains = Chains(_small(by), stream, _small(thread), launched, slack, spare, heads)
    return _Laid(chains, visit, tight, end, number, streams, links, collectives, coupled)


def _visits(launched: Column, heads: Column, coupled: Column) -> Column:
    """When (ns) a replay comes to each operation of the chains: at its launch, but never before its predecessor, which
    another thread may have launched by a call that began later, and after a predecessor in ``coupled``.
    """
    apart = np.zeros(len(launched) + 1, dtype=np.int64)
    apart[coupled + 1] = 1
    apart = np.cumsum(apart)[:-1]
    visit = launched - apart
    for low, high in pairwise([*heads, len(visit)]):
        np.maximum.accumulate(visit[low:high], out=visit[low:high])
    return visit + apart


def _small(numbers: Column) -> Small:
    """Rows and numbers of things in half the memory."""
    return numbers.astype(np.int32)


def _item(kind: int, when: int, thread: int, number: int, at: int = -1, slack: int = 0) -> Item:
    return Item(4 * when + PHASE[kind], kind, thread, number, at, slack)


def _latencies(kind: Column, latency: Column, prompt: Mask) -> Column:
    """Usual time (ns) from the start of a launching call to the operation on an idle stream, by kind of operation."""
    usual = np.full(len(kind), _LATENCY, dtype=np.int64)
    for code in (KERNEL, MEMCPY, MEMSET, GRAPH):
        sample = latency[prompt & (kind == code)]
        if len(sample) >= _ENOUGH:
            usual[kind == code] = low_median(sample)
    return usual


def _spacing(activity: Activity, launch: Column, start: Column, before: Column, first: Mask) -> int:
    """Usual time (ns) between operations that follow each other on a stream without waiting for the host."""
    calls = activity.calls
    queued = ~first & (launch >= 0) & (start >= before)
    if len(calls):
        queued &= calls.end[launch] < before
    sample = (start - before)[queued]
    return low_median(sample) if len(sample) >= _ENOUGH else _SPACING


@dataclass(frozen=True)
class _Links:
    """Waits for events on the device. op: position of the first operation behind the wait; number: of the event record;
    ready: when the recorded work had ended (ns). record: stream of each event record (-1 = none), recorded: when it
    was called (ns). complete: whether nearly every wait was found.
    """

    op: Column
    number: Column
    ready: Column
    record: Column
    recorded: Column
    complete: bool


def _links(
    trace: Trace,
    activity: Activity,
    streams: _Streams,
    stream: Small,
    visit: Column,
    end: Column,
) -> _Links:
    calls, ops, syncs, events = activity.calls, activity.ops, trace.syncs, trace.events
    empty = np.empty(0, dtype=np.int64)
    waiting = int(activity.waits_on_device.sum())
    if not len(ops) or not len(events.pid):
        return _Links(empty, empty, empty, empty, empty, not waiting)
    record_stream = streams.number(events.pid, events.context, events.stream)
    call = lookup(*pack((process_of(calls.tid), events.pid), (calls.correlation, events.correlation)))
    recorded = np.where(call >= 0, calls.start[call], NEVER)
    record_stream = np.where(call >= 0, record_stream, -1)

    row = lookup(*pack((process_of(calls.tid), syncs.pid), (calls.correlation, syncs.correlation)))
    wait = np.flatnonzero((row >= 0) & activity.waits_on_device[row] & (syncs.event >= 0))
    number = lookup(*pack((events.pid, syncs.pid[wait]), (events.event, syncs.event[wait])))
    waiter = streams.number(syncs.pid[wait], syncs.context[wait], syncs.stream[wait])
    complete = int((number >= 0).sum()) >= _LINKED * waiting
    found = np.flatnonzero((number >= 0) & (waiter >= 0))
    found = found[record_stream[number[found]] >= 0]
    bounds = np.searchsorted(stream, np.arange(len(streams.pid) + 1))
    position, ready, kept = [], [], []
    for i in found:
        low, high = bounds[waiter[i]], bounds[waiter[i] + 1]
        called = calls.start[row[wait[i]]]
        at = low + int(np.searchsorted(visit[low:high], called))
        low, stop = bounds[record_stream[number[i]]], bounds[record_stream[number[i]] + 1]
        last = low + int(np.searchsorted(visit[low:stop], recorded[number[i]])) - 1
        in_time = recorded[number[i]] <= called
        if at < high and last >= low and in_time and record_stream[number[i]] != waiter[i]:
            position.append(at)
            ready.append(int(end[last]))
            kept.append(int(number[i]))
    return _Links(
        np.array(position, dtype=np.int64),
        np.array(kept, dtype=np.int64),
        np.array(ready, dtype=np.int64),
        record_stream,
        recorded,
        complete,
    )


@dataclass(frozen=True)
class _Streams:
    """The streams that anything ran on: process, context, stream and device of each, by number; begun: when the first
    operation was launched (ns).
    """

    pid: Column
    context: Column
    stream: Column
    device: Column
    begun: Column

    def number(self, pid: Column, context: Column, stream: Column) -> Column:
        """Numbers of streams by (process, context, stream), -1 where nothing ran on them."""
        return lookup(*pack((self.pid, pid), (self.context, context), (self.stream, stream)))


def _number_streams(activity: Activity) -> tuple[Small, _Streams]:
    """The number of each operation's stream, and the streams."""
    ops = activity.ops
    key, _ = pack((ops.pid, ops.pid), (ops.context, ops.context), (ops.stream, ops.stream))
    codes = distinct(key) if len(key) and (np.diff(key) >= 0).all() else distinct(np.sort(key))
    first = lookup(key, codes)
    streams = _Streams(
        ops.pid[first], ops.context[first], ops.stream[first], ops.device[first], activity.launched[first]
    )
    return _small(np.searchsorted(codes, key)), streams


def _collectives(trace: Trace, activity: Activity, by: Column) -> tuple[Collectives, Column]:
    """The k-th NCCL kernels of all processes, and their positions in the chains (``by``: their rows)."""
    ops = activity.ops
    none = Collectives([], [], [], []), np.empty(0, dtype=np.int64)
    if len(distinct(np.sort(ops.pid))) < 2:
        return none
    names = trace.strings(distinct(np.sort(ops.name[ops.kind == KERNEL])))
    nccl = [key for key, text in names.items() if text.lower().startswith("nccl")]
    at = np.flatnonzero(np.isin(ops.name[by], nccl) & (ops.kind[by] == KERNEL))
    pid, start = ops.pid[by[at]], ops.start[by[at]]
    pids = distinct(np.sort(pid))
    if len(pids) < 2:
        return none
    group = np.empty(len(at), dtype=np.int64)
    for process in pids:
        mine = np.flatnonzero(pid == process)
        group[mine[np.argsort(start[mine], kind="stable")]] = np.arange(len(mine))
    groups = min(int((pid == process).sum()) for process in pids)
    inside = group < groups
    at, group, start = at[inside], group[inside], start[inside]
    latest = np.full(groups, NEVER, dtype=np.int64)
    np.maximum.at(latest, group, start)
    return Collectives(group.tolist(), start.tolist(), latest.tolist(), [len(pids)] * groups), at


def _process_of_item(item: Item, stream: Small, streams: _Streams, pids: list[int], steps: ProcessSteps | None) -> int:
    """The process that an item belongs to, -1 where it changes nothing. pids: by thread."""
    if item.kind == STEP:
        return steps.pid if steps is not None else -1
    if item.kind == RECORD:
        return int(streams.pid[item.at]) if item.at >= 0 else -1
    if item.kind in (WAIT, COLLECTIVE):
        return int(streams.pid[stream[item.at]])
    return pids[item.thread]


def _parts(
    interval: Small,
    stream: Small,
    streams: _Streams,
    owner: list[int],
    pids: list[int],
    items: int,
) -> tuple[list[Part], list[int]]:
    """The parts of a replay, and the part of each stream. owner: process of each item, nothing without collectives."""
    if not owner:
        whole = Part(list(range(items + 1)), frozenset(range(items)), np.arange(len(pids)))
        return [whole], [0] * len(streams.pid)
    owners, processes = np.array(owner), distinct(np.sort(np.concatenate((streams.pid, pids))))
    parts = []
    for pid in processes:
        own = np.flatnonzero(owners == pid)
        launches = interval[streams.pid[stream] == pid].astype(np.int64)
        visited = distinct(np.sort(np.concatenate((own, launches))))
        parts.append(Part(visited.tolist(), frozenset(own.tolist()), np.flatnonzero(np.array(pids) == pid)))
    return parts, np.searchsorted(processes, streams.pid).tolist()


@dataclass(frozen=True)
class _Awaited:
    """What each blocking call waits for, by row in Blocking. streams: their numbers; record: the number of the event
    record that it waits for instead (-1 = none).
    """

    streams: list[tuple[int, ...]]
    record: Column


def _awaited(
    trace: Trace, activity: Activity, blocking: Blocking, streams: _Streams, number: Small, links: _Links
) -> _Awaited:
    calls, syncs, row = activity.calls, trace.syncs, blocking.row
    known = lookup(*pack((syncs.pid, activity.process(row)), (syncs.correlation, calls.correlation[row])))
    stream = np.full(len(row), -1, dtype=np.int64)
    found = np.flatnonzero((blocking.kind == STREAM_SYNC) & (known >= 0))
    if len(found):
        at = known[found]
        stream[found] = streams.number(syncs.pid[at], syncs.context[at], syncs.stream[at])
    record = np.full(len(row), -1, dtype=np.int64)
    found = np.flatnonzero((blocking.kind == EVENT_SYNC) & (known >= 0))
    if len(found) and len(links.record):
        at = known[found]
        record[found] = lookup(*pack((trace.events.pid, syncs.pid[at]), (trace.events.event, syncs.event[at])))
        begun = (links.record[record] >= 0) & (streams.begun[links.record[record]] <= links.recorded[record])
        record[~begun | (links.recorded[record] > calls.start[row])] = -1
    of_device: dict[tuple[int, int], tuple[int, ...]] = {}
    for number_, place in enumerate(zip(streams.pid.tolist(), streams.device.tolist(), strict=True)):
        of_device[place] = (*of_device.get(place, ()), number_)
    places = list(zip(activity.process(row).tolist(), blocking.device.tolist(), strict=True))
    # A call that is known to wait for an event, or for a stream on which nothing ran, does not wait for the device.
    narrow = (record >= 0) | ((blocking.kind == STREAM_SYNC) & (known >= 0))
    waits_for = [
        (of,) if of >= 0 else () if is_narrow else of_device.get(place, ())
        for of, is_narrow, place in zip(stream.tolist(), narrow.tolist(), places, strict=True)
    ]
    own = _own_streams(activity, blocking, number)
    for copy in np.flatnonzero(blocking.kind == COPY):
        waits_for[copy] = own[copy]
    return _Awaited(waits_for, record)


def _syncs(activity: Activity, blocking: Blocking, streams: _Streams, awaited: _Awaited) -> list[Sync]:
    calls, row = activity.calls, blocking.row
    usual, begun = _usual_tails(activity, blocking), streams.begun.tolist()
    columns = (blocking.kind, calls.start[row], calls.end[row], calls.name[row], blocking.awaited, awaited.record)
    result = []
    for i, (kind, start, end, name, last, record) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        waits_for = awaited.streams[i]
        duration, base, copy = end - start, blocking.base[calls.names[name]], kind == COPY
        ready_host = start + min(base, duration)
        waits = record >= 0 or any(begun[number] <= start for number in waits_for)
        ended = last if waits else NEVER
        if copy:
            early = NEVER < ended <= end
            slack_host, slack_device = (end - ready_host, 0) if early else (0, FAR)
        else:
            # A call that returned before its work is known to have ended was not held by more than its own length.
            ready_device = min(ended + usual.get(name, _TAIL), end) if ended > NEVER else NEVER
            tight = max(ready_host, ready_device)
            slack_host, slack_device = tight - ready_host, min(tight - ready_device, FAR)
        result.append(Sync(copy, duration, base, waits_for, record, slack_host, slack_device))
    return result


def _usual_tails(activity: Activity, blocking: Blocking) -> dict[int, int]:
    """Usual time (ns) from the end of the awaited work to the return of a call, by name of the API."""
    start, end = activity.calls.start[blocking.row], activity.calls.end[blocking.row]
    name = activity.calls.name[blocking.row]
    held = (blocking.kind != COPY) & (start < blocking.awaited) & (blocking.awaited <= end)
    tail = end - blocking.awaited
    samples = {int(code): tail[held & (name == code)] for code in distinct(np.sort(name[held]))}
    return {code: low_median(sample) for code, sample in samples.items() if len(sample) >= _ENOUGH}


def _own_streams(activity: Activity, blocking: Blocking, number: Small) -> list[tuple[int, ...]]:
    """By blocking call the streams that its own operations ran on."""
    of_call = np.full(len(activity.calls), -1, dtype=np.int32)
    launched = np.flatnonzero(activity.launch >= 0)
    of_call[activity.launch[launched]] = number[launched]
    return [(stream,) if stream >= 0 else () for stream in of_call[blocking.row].tolist()]


def _hand_offs(activity: Activity, blocking: Blocking, tids: Column) -> list[Item]:
    """Where a thread goes on because another thread of the process, that ended a call in its silence, let it."""
    calls = activity.calls
    items: list[Item] = []
    active = activity.launches | activity.is_api("alloc")
    active[blocking.row] = True
    busy = distinct(np.sort(calls.tid[active]))
    pids = process_of(busy)
    after_silence = np.flatnonzero(calls.start - _silent_since(activity) > HAND_OFF_SILENCE)
    for pid in distinct(pids):
        # Threads that only poll (watchdogs) neither hand over nor are handed to.
        threads = busy[pids == pid]
        if len(threads) < 2:
            continue
        ends = {int(tid): calls.end[calls.tid == tid] for tid in threads}
        for tid in ends:
            own = after_silence[calls.tid[after_silence] == tid]
            latest = np.full(len(own), NEVER, dtype=np.int64)
            source = np.full(len(own), -1, dtype=np.int64)
            for other, end in ends.items():
                last = np.searchsorted(end, calls.start[own], side="right") - 1
                ended = np.where(last >= 0, end[np.maximum(last, 0)], NEVER)
                later = (other != tid) & (ended > latest)
                latest[later], source[later] = ended[later], other
            handed = (source >= 0) & (latest >= _silent_since(activity, own))
            number = int(np.searchsorted(tids, tid))
            items += [
                _item(HAND_OFF, int(when), number, int(from_))
                for when, from_ in zip(calls.start[own[handed]], np.searchsorted(tids, source[handed]), strict=True)
            ]
    return items


def _silent_since(activity: Activity, rows: Column | slice = slice(None)) -> Column:
    """When (ns) the thread's call before each of these calls had ended."""
    before = activity.before[rows]
    return np.where(before >= 0, activity.calls.end[before], NEVER)


def _group(chains: Chains, interval: Small, end: Column, threads: int) -> Grouping:
    empty = np.empty(0, dtype=np.int64)
    if not len(chains.op):
        return Grouping(_small(empty), empty, empty, [], [], [], [], [], [])
    streams = int(chains.stream[-1]) + 1
    code = (interval.astype(np.int64) * threads + chains.thread) * streams + chains.stream
    by = np.argsort(code, kind="stable")
    code = code[by]
    heads = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1])))
    last: Column = by[np.concatenate((heads[1:], [len(by)])) - 1]
    room = np.full(len(by), FAR, dtype=np.int64)
    queued = np.flatnonzero(chains.stream[QUEUE_DEPTH:] == chains.stream[:-QUEUE_DEPTH]) + QUEUE_DEPTH
    room[queued] = np.maximum(chains.launched[queued] - end[queued - QUEUE_DEPTH], 0)
    return Grouping(
        _small(by),
        heads,
        last,
        end[last].tolist(),
        interval[last].tolist(),
        chains.stream[last].tolist(),
        chains.thread[last].tolist(),
        np.minimum.reduceat(room[by], heads).tolist(),
        np.maximum(by[heads] - QUEUE_DEPTH, 0).tolist(),
    )
