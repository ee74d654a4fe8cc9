"""A replay of the trace with some blocking calls left out.

It is written in shifts: how much earlier than recorded something happens, in ns. A host thread's shift changes only
where it blocks and where another thread hands over to it. An operation starts when it has been launched, its
predecessor on the stream has ended and the events that it waits for have happened; the latest of these is tight, the
others have slack. So the shift of an operation is the smallest over its conditions of (shift of the condition + slack):
nothing left out gives shift 0 everywhere, and leaving out a call never makes a shift negative.

Along a stream this is a running minimum, once the slack towards the predecessor is summed up (``reserve``). What a
thread launches on a stream between two items (blocking calls, hand-offs, event records and waits, collectives, step
ends) folds into one block, so that a replay walks over items and blocks, not over operations.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsys_sync.analysis.calls import COPY, EVENT_SYNC, NEVER, STREAM_SYNC, Activity, Blocking, Mask, low_median
from nsys_sync.analysis.steps import ProcessSteps
from nsys_sync.trace.columns import distinct, lookup, pack
from nsys_sync.trace.reader import Trace
from nsys_sync.trace.tables import GRAPH, KERNEL, MEMCPY, MEMSET, Column, process_of

FAR = 1 << 60
#: A thread that was silent for longer may have been waiting for another thread (ns).
HAND_OFF_SILENCE = 15_000
#: Launches that can be outstanding on a stream before the next launch blocks.
QUEUE_DEPTH = 1024
_LATENCY = 4_000
_SPACING = 1_000
_TAIL = 3_000
_ENOUGH = 3
_ROUNDS = 50
#: Share of the waits between streams that must be linked to their event; the first ones may wait for earlier events.
_LINKED = 0.8

HAND_OFF, RECORD, WAIT, COLLECTIVE, SYNC, STEP = range(6)
# Order of what happens at one instant: a hand-off, then the launch, then what depends on the launched operation.
_PHASE = {HAND_OFF: 0, RECORD: 2, WAIT: 2, COLLECTIVE: 2, SYNC: 3, STEP: 3}
_LAUNCH_PHASE = 1


class Item(NamedTuple):
    """Where shifts change or are read. key: 4 x its instant + phase; thread: number of the host thread.

    number: SYNC: row in Blocking; HAND_OFF: the thread that handed over; RECORD, WAIT: the event record; COLLECTIVE: its
    place in Model.collectives; STEP: number of the step. at: WAIT, COLLECTIVE: position of the operation in the chains;
    RECORD: number of the stream. slack: WAIT: towards the event.
    """

    key: int
    kind: int
    thread: int
    number: int
    at: int = -1
    slack: int = 0


class Block(NamedTuple):
    """What one thread launched on one stream between two items.

    least: smallest (launch slack - reserve); reserve, end: of the last operation; room: how much earlier the launches
    can come before the stream's queue is full (FAR: it never is), and behind which position.
    """

    stream: int
    thread: int
    least: int
    reserve: int
    end: int
    last: int
    room: int
    behind: int


@dataclass(frozen=True)
class Chains:
    """Operations in the order of their streams, sorted by (stream, start); all ns.

    op: row in Activity.ops; stream, thread: numbers; launched: start of the launching call; slack: towards the launch;
    spare: towards the predecessor; first: whether it is the first of its stream.
    """

    op: Column
    stream: Column
    thread: Column
    launched: Column
    start: Column
    end: Column
    slack: Column
    spare: Column
    first: Mask


@dataclass(frozen=True)
class Sync:
    """A blocking call in a replay, ns. streams: numbers of the streams it waits for; record: the event record that it
    waits for instead (-1 = none). slack_host, slack_device: towards its own start and towards the awaited work."""

    copy: bool
    duration: int
    base: int
    streams: tuple[int, ...]
    record: int
    slack_host: int
    slack_device: int


@dataclass(frozen=True)
class Model:
    """Everything a replay needs. collectives: by place (number of the collective, its group); group_shortest: shortest
    duration (ns) of a collective over its ranks; interval: of each operation in the chains, how many items precede it.
    """

    chains: Chains
    items: list[Item]
    syncs: list[Sync]
    interval: Column
    process_streams: list[int]
    collectives: list[int]
    group_shortest: list[int]
    group_latest: list[int]
    records: int
    threads: int
    steps: int
    begin: int
    waits_linked: bool


@dataclass(frozen=True)
class Outcome:
    """Result of a replay: completions of the steps (ns), and whether collectives came to rest."""

    completions: Column
    settled: bool


def build(
    trace: Trace, activity: Activity, blocking: Blocking, steps: ProcessSteps | None
) -> Model:
    """The model of a trace; steps: the process whose step ends are reported (None: no steps)."""
    calls, ops = activity.calls, activity.ops
    key, _ = pack((ops.pid, ops.pid), (ops.context, ops.context), (ops.stream, ops.stream))
    by = np.argsort(key, kind="stable")
    streams = distinct(key)
    stream = np.searchsorted(streams, key[by])
    tids = distinct(np.sort(calls.tid)) if len(calls) else calls.tid
    launch = activity.launch[by]
    known = launch >= 0
    thread = np.where(known, np.searchsorted(tids, calls.tid[launch]), len(tids)) if len(calls) else launch + 1
    launched = activity.launched[by]
    first = np.concatenate(([True], stream[1:] != stream[:-1])) if len(by) else np.empty(0, dtype=bool)
    start, end = ops.start[by], ops.end[by]
    position = np.empty(len(by), dtype=np.int64)
    position[by] = np.arange(len(by))

    before = np.where(first, NEVER, np.concatenate(([0], end[:-1])) if len(end) else end)
    ready_launch = np.where(known, launched + _latencies(ops.kind[by], start - launched, known & (before < launched)), NEVER)
    ready_before = np.where(first, NEVER, before + _spacing(activity, launch, start, before, first))
    links = _links(trace, activity, streams, key, by, stream, launched, end)
    tight = np.maximum(ready_launch, ready_before)
    np.maximum.at(tight, links.op, links.ready)
    tight = np.where(tight <= NEVER, start, tight)
    slack = np.where(known, tight - ready_launch, np.where(first, 0, FAR))
    spare = np.where(first, 0, tight - ready_before)
    chains = Chains(by, stream, thread, launched, start, end, slack, spare, first)

    items: list[Item] = []
    for number in range(len(links.record)):
        items.append(_item(RECORD, int(links.recorded[number]), -1, number, int(links.record[number])))
    for op, number, ready in zip(links.op, links.number, links.ready, strict=True):
        items.append(_item(WAIT, int(launched[op]), int(thread[op]), int(number), int(op), int(tight[op] - ready)))
    collectives, shortest, latest = _collectives(trace, activity, chains, items)
    syncs = _syncs(trace, activity, blocking, tids, streams, key, links, items)
    _hand_offs(activity, blocking, tids, items)
    if steps is not None:
        items += [_item(STEP, int(when), -1, number) for number, when in enumerate(steps.end)]
    items.sort()
    interval = np.searchsorted([item.key for item in items], 4 * launched + _LAUNCH_PHASE)
    owned = distinct(np.sort(np.searchsorted(streams, key[ops.pid == steps.pid]))) if steps is not None else []
    return Model(
        chains=chains,
        items=items,
        syncs=syncs,
        interval=interval,
        process_streams=[int(s) for s in owned],
        collectives=collectives,
        group_shortest=shortest,
        group_latest=latest,
        records=len(links.record),
        threads=len(tids) + 1,
        steps=len(steps.end) if steps is not None else 0,
        begin=int(calls.start[0]) if len(calls) else 0,
        waits_linked=links.complete,
    )


def _item(kind: int, when: int, thread: int, number: int, at: int = -1, slack: int = 0) -> Item:
    return Item(4 * when + _PHASE[kind], kind, thread, number, at, slack)


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
    ready: when the recorded work had ended (ns). record: stream of each event record, recorded: when it was called (ns);
    event_key: its (process, event) packed as in ``records_of``. complete: whether every wait was found."""

    op: Column
    number: Column
    ready: Column
    record: Column
    recorded: Column
    complete: bool


def _links(
    trace: Trace,
    activity: Activity,
    streams: Column,
    key: Column,
    by: Column,
    stream: Column,
    launched: Column,
    end: Column,
) -> _Links:
    calls, ops, syncs, events = activity.calls, activity.ops, trace.syncs, trace.events
    empty = np.empty(0, dtype=np.int64)
    waiting = int(activity.waits_on_device.sum())
    if not len(ops) or not len(events.pid):
        return _Links(empty, empty, empty, empty, empty, not waiting)
    stream_of = _stream_numbers(activity, streams, key)
    record_stream = stream_of(events.pid, events.context, events.stream)
    call = lookup(*pack((activity.pid, events.pid), (calls.correlation, events.correlation)))
    recorded = np.where(call >= 0, calls.start[call], NEVER)
    record_stream = np.where(call >= 0, record_stream, -1)

    row = lookup(*pack((activity.pid, syncs.pid), (calls.correlation, syncs.correlation)))
    wait = np.flatnonzero((row >= 0) & activity.waits_on_device[row] & (syncs.event >= 0))
    number = lookup(*pack((events.pid, syncs.pid[wait]), (events.event, syncs.event[wait])))
    waiter = stream_of(syncs.pid[wait], syncs.context[wait], syncs.stream[wait])
    complete = int((number >= 0).sum()) >= _LINKED * waiting
    found = np.flatnonzero((number >= 0) & (waiter >= 0))
    found = found[record_stream[number[found]] >= 0]
    bounds = np.searchsorted(stream, np.arange(len(streams) + 1))
    position, ready, kept = [], [], []
    for i in found:
        low, high = bounds[waiter[i]], bounds[waiter[i] + 1]
        at = low + int(np.searchsorted(launched[low:high], calls.start[row[wait[i]]]))
        low, stop = bounds[record_stream[number[i]]], bounds[record_stream[number[i]] + 1]
        last = low + int(np.searchsorted(launched[low:stop], recorded[number[i]])) - 1
        if at < high and last >= low and record_stream[number[i]] != waiter[i]:
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


class _StreamNumbers:
    """Numbers of streams by (process, context, stream), -1 where nothing ran on them."""

    def __init__(self, activity: Activity, streams: Column, key: Column) -> None:
        ops = activity.ops
        first = lookup(key, streams)
        self._pid, self._context, self._stream = ops.pid[first], ops.context[first], ops.stream[first]

    def __call__(self, pid: Column, context: Column, stream: Column) -> Column:
        return lookup(*pack((self._pid, pid), (self._context, context), (self._stream, stream)))


def _stream_numbers(activity: Activity, streams: Column, key: Column) -> _StreamNumbers:
    return _StreamNumbers(activity, streams, key)


def _collectives(
    trace: Trace, activity: Activity, chains: Chains, items: list[Item]
) -> tuple[list[int], list[int], list[int]]:
    """The k-th NCCL kernels of all processes end together. Adds their items; returns the group of each place, and of
    each group the shortest duration and the latest start (ns)."""
    ops = activity.ops
    names = trace.strings(distinct(np.sort(ops.name[ops.kind == KERNEL])))
    nccl = [key for key, text in names.items() if text.lower().startswith("nccl")]
    at = np.flatnonzero(np.isin(ops.name[chains.op], nccl) & (ops.kind[chains.op] == KERNEL))
    pids = distinct(np.sort(ops.pid[chains.op[at]]))
    if len(pids) < 2:
        return [], [], []
    number = np.empty(len(at), dtype=np.int64)
    counts = []
    for pid in pids:
        mine = np.flatnonzero(ops.pid[chains.op[at]] == pid)
        number[mine[np.argsort(chains.start[at[mine]], kind="stable")]] = np.arange(len(mine))
        counts.append(len(mine))
    groups = min(counts)
    duration = chains.end[at] - chains.start[at]
    shortest = np.full(groups, FAR, dtype=np.int64)
    latest = np.full(groups, NEVER, dtype=np.int64)
    inside = number < groups
    np.minimum.at(shortest, number[inside], duration[inside])
    np.maximum.at(latest, number[inside], chains.start[at[inside]])
    places = []
    for position, group in zip(at[inside], number[inside], strict=True):
        items.append(
            _item(
                COLLECTIVE, int(chains.launched[position]), int(chains.thread[position]), len(places), int(position)
            )
        )
        places.append(int(group))
    return places, shortest.tolist(), latest.tolist()


def _syncs(
    trace: Trace,
    activity: Activity,
    blocking: Blocking,
    tids: Column,
    streams: Column,
    key: Column,
    links: _Links,
    items: list[Item],
) -> list[Sync]:
    calls, ops, syncs = activity.calls, activity.ops, trace.syncs
    row = blocking.row
    start, end = calls.start[row], calls.end[row]
    names = [calls.names[code] for code in calls.name[row]]
    tails: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if blocking.kind[i] != COPY and start[i] < blocking.awaited[i] <= end[i]:
            tails.setdefault(name, []).append(int(end[i] - blocking.awaited[i]))
    usual = {name: low_median(np.array(sample)) if len(sample) >= _ENOUGH else _TAIL for name, sample in tails.items()}

    stream_of = _stream_numbers(activity, streams, key) if len(ops) else None
    record = lookup(*pack((syncs.pid, activity.pid[row]), (syncs.correlation, calls.correlation[row])))
    waited = np.full(len(row), -1, dtype=np.int64)
    if stream_of is not None and len(row):
        found = np.flatnonzero((blocking.kind == STREAM_SYNC) & (record >= 0))
        at = record[found]
        waited[found] = stream_of(syncs.pid[at], syncs.context[at], syncs.stream[at])
    event = np.full(len(row), -1, dtype=np.int64)
    found = np.flatnonzero((blocking.kind == EVENT_SYNC) & (record >= 0))
    if len(found) and len(links.record):
        at = record[found]
        event[found] = lookup(*pack((trace.events.pid, syncs.pid[at]), (trace.events.event, syncs.event[at])))
        event[(event >= 0) & (links.record[event] < 0)] = -1
    of_device: dict[tuple[int, int], tuple[int, ...]] = {}
    first = lookup(key, streams)
    for number, op in enumerate(first):
        place = (int(ops.pid[op]), int(ops.device[op]))
        of_device[place] = (*of_device.get(place, ()), number)
    own = _own_streams(activity, blocking, streams, key)

    result = []
    for i, name in enumerate(names):
        duration, base = int(end[i] - start[i]), blocking.base[name]
        copy = bool(blocking.kind[i] == COPY)
        awaited = int(blocking.awaited[i])
        ready_host = int(start[i]) + min(base, duration)
        if copy:
            early = awaited <= int(end[i])
            slack_host, slack_device = (int(end[i]) - ready_host, 0) if early and awaited > NEVER else (0, FAR)
            waits_for = own[i]
        else:
            ready_device = awaited + usual.get(name, _TAIL) if awaited > NEVER else NEVER
            tight = max(ready_host, ready_device)
            slack_host, slack_device = tight - ready_host, min(tight - ready_device, FAR)
            device = of_device.get((int(activity.pid[row[i]]), int(blocking.device[i])), ())
            waits_for = (int(waited[i]),) if waited[i] >= 0 else () if event[i] >= 0 else device
            if blocking.kind[i] == STREAM_SYNC and record[i] >= 0 and waited[i] < 0:
                waits_for = ()
        result.append(Sync(copy, duration, base, waits_for, int(event[i]), slack_host, slack_device))
        items.append(_item(SYNC, int(start[i]), int(np.searchsorted(tids, calls.tid[row[i]])), i))
    return result


def _own_streams(activity: Activity, blocking: Blocking, streams: Column, key: Column) -> list[tuple[int, ...]]:
    """By blocking call the streams that its own operations ran on."""
    number = np.full(len(activity.calls) + 1, -1, dtype=np.int64)
    launched = np.flatnonzero(activity.launch >= 0)
    number[activity.launch[launched]] = np.searchsorted(streams, key[launched])
    return [(int(number[r]),) if number[r] >= 0 else () for r in blocking.row]


def _hand_offs(activity: Activity, blocking: Blocking, tids: Column, items: list[Item]) -> None:
    """Where a thread goes on because another thread of the process, that ended a call in its silence, let it."""
    calls = activity.calls
    active = activity.launches | activity.is_api("alloc")
    active[blocking.row] = True
    busy = distinct(np.sort(calls.tid[active]))
    pids = process_of(busy)
    for pid in distinct(pids):
        # Threads that only poll (watchdogs) neither hand over nor are handed to.
        threads = busy[pids == pid]
        if len(threads) < 2:
            continue
        mine = np.flatnonzero(np.isin(calls.tid, threads))
        mine = mine[np.argsort(calls.end[mine], kind="stable")]
        for tid in threads:
            others = mine[calls.tid[mine] != tid]
            own = mine[calls.tid[mine] == tid]
            before = activity.before[own]
            silent_since = np.where(before >= 0, calls.end[before], NEVER)
            own = own[calls.start[own] - silent_since > HAND_OFF_SILENCE]
            silent_since = np.where(activity.before[own] >= 0, calls.end[activity.before[own]], NEVER)
            last = np.searchsorted(calls.end[others], calls.start[own], side="right") - 1
            handed = (last >= 0) & (calls.end[others[np.maximum(last, 0)]] >= silent_since)
            number = int(np.searchsorted(tids, tid))
            for call, other in zip(own[handed], others[last[handed]], strict=True):
                source = int(np.searchsorted(tids, calls.tid[other]))
                items.append(_item(HAND_OFF, int(calls.start[call]), number, source))


def reserves(chains: Chains, saved: Column | None) -> Column:
    """Slack towards the predecessors (and time saved by faster copies), summed up along each stream."""
    spare = chains.spare if saved is None else chains.spare + saved
    total = np.cumsum(spare)
    heads = np.flatnonzero(chains.first)
    offset = np.zeros(len(total), dtype=np.int64)
    if len(heads):
        offset[heads] = np.diff(np.concatenate(([0], (total - spare)[heads])))
    return total - np.cumsum(offset)


def blocks(model: Model, saved: Column | None, unlimited_host: bool) -> list[list[Block]]:
    """The blocks before each item (one more entry than items)."""
    chains = model.chains
    result: list[list[Block]] = [[] for _ in range(len(model.items) + 1)]
    if not len(chains.op):
        return result
    reserve = reserves(chains, saved)
    least = chains.slack - reserve + (0 if saved is None else saved)
    if unlimited_host:
        least = least + np.maximum(chains.launched - model.begin, 0)
    streams = int(chains.stream[-1]) + 1
    code = (model.interval * model.threads + chains.thread) * streams + chains.stream
    by = np.argsort(code, kind="stable")
    heads = np.flatnonzero(np.concatenate(([True], code[by][1:] != code[by][:-1])))
    tails = np.concatenate((heads[1:], [len(by)])) - 1
    position = np.arange(len(by))
    far_enough = np.zeros(len(by), dtype=bool)
    far_enough[QUEUE_DEPTH:] = chains.stream[QUEUE_DEPTH:] == chains.stream[:-QUEUE_DEPTH]
    behind = np.maximum(position - QUEUE_DEPTH, 0)
    room = np.where(far_enough, np.maximum(chains.launched - chains.end[behind], 0), FAR)
    least_of = np.minimum.reduceat(least[by], heads)
    room_of = np.minimum.reduceat(room[by], heads)
    behind_of = behind[by[heads]]
    last = by[tails]
    columns = (
        model.interval[last],
        chains.stream[last],
        chains.thread[last],
        least_of,
        reserve[last],
        chains.end[last],
        last,
        room_of,
        behind_of,
    )
    for interval, *values in zip(*(column.tolist() for column in columns), strict=True):
        result[interval].append(Block(*values))
    return result


def run(
    model: Model,
    prepared: list[list[Block]],
    removed: Sequence[bool],
    *,
    saved: Column | None = None,
    gain: Sequence[int] | None = None,
    unlimited_host: bool = False,
    log: list[list[int]] | None = None,
    bounds: dict[int, int] | None = None,
) -> Outcome:
    """Replay without the removed blocking calls (by row in Blocking).

    prepared: from ``blocks`` with the same saved and unlimited_host. gain: time (ns) that the host saves beyond each
    removed call. log: filled with the shifts of all threads before each item. bounds: filled with upper bounds of
    shifts by position in the chains. Collectives are repeated to a fixpoint.
    """
    limits = [FAR] * len(model.collectives)
    for _ in range(_ROUNDS):
        completions, starts = _walk(
            model, prepared, removed, saved, gain, unlimited_host, limits, log, bounds
        )
        if not model.collectives:
            return Outcome(completions, True)
        reached = list(model.group_latest)
        moved = [NEVER] * len(reached)
        for place, start in enumerate(starts):
            group = model.collectives[place]
            moved[group] = max(moved[group], start)
        again = [max(reached[g] - moved[g], 0) for g in model.collectives]
        if again == limits:
            return Outcome(completions, True)
        limits = [min(a, b) for a, b in zip(again, limits, strict=True)]
        if log is not None:
            log.clear()
    return Outcome(completions, False)


def _walk(
    model: Model,
    prepared: list[list[Block]],
    removed: Sequence[bool],
    saved: Column | None,
    gain: Sequence[int] | None,
    unlimited_host: bool,
    limits: Sequence[int],
    log: list[list[int]] | None,
    bounds: dict[int, int] | None,
) -> tuple[Column, list[int]]:
    chains = model.chains
    reserve = reserves(chains, saved) if model.records or model.collectives else None
    streams = int(chains.stream[-1]) + 1 if len(chains.op) else 0
    shift = [0] * model.threads
    lead = [FAR] * streams
    held = [0] * streams
    end = [int(NEVER)] * streams
    history: list[tuple[list[int], list[int]]] = [([], []) for _ in range(streams)]
    record = [FAR] * model.records
    starts = [int(NEVER)] * len(model.collectives)
    completions = np.full(model.steps, NEVER, dtype=np.int64)
    for number in range(len(model.items) + 1):
        for stream, thread, least, kept, finish, last, room, behind in prepared[number]:
            if room < shift[thread] and not unlimited_host:
                positions, shifts = history[stream]
                at = bisect.bisect_left(positions, behind)
                shift[thread] = min(shift[thread], room + (shifts[at] if at < len(shifts) else 0))
            lead[stream] = min(lead[stream], shift[thread] + least)
            positions, shifts = history[stream]
            # Two threads may launch on one stream between two items: the later operation stands for both.
            if not positions or last > positions[-1]:
                held[stream], end[stream] = kept, finish
                positions.append(last)
                shifts.append(lead[stream] + kept)
            else:
                shifts[-1] = min(shifts[-1], lead[stream] + held[stream])
        if log is not None:
            log.append(list(shift))
        if number == len(model.items):
            break
        item = model.items[number]
        if item.kind == SYNC:
            if unlimited_host:
                continue
            sync = model.syncs[item.number]
            if removed[item.number]:
                cost = min(sync.base, sync.duration) if sync.copy else 0
                shift[item.thread] += sync.duration - cost + (gain[item.number] if gain else 0)
            else:
                awaited = record[sync.record] if sync.record >= 0 else _awaited(sync.streams, end, lead, held)
                shift[item.thread] = min(shift[item.thread] + sync.slack_host, awaited + sync.slack_device)
        elif item.kind == HAND_OFF:
            shift[item.thread] = shift[item.number]
        elif item.kind == RECORD:
            if item.at >= 0 and end[item.at] > NEVER:
                record[item.number] = lead[item.at] + held[item.at]
        elif item.kind == STEP:
            completions[item.number] = max(
                (end[s] - lead[s] - held[s] for s in model.process_streams if end[s] > NEVER), default=NEVER
            )
        else:
            assert reserve is not None
            stream, kept = int(chains.stream[item.at]), int(reserve[item.at])
            extra = 0 if saved is None else int(saved[item.at])
            if item.kind == WAIT:
                limit = record[item.number] + item.slack + extra
            else:
                starts[item.number] = int(chains.start[item.at]) - (lead[stream] + kept - extra)
                limit = limits[item.number]
            lead[stream] = min(lead[stream], limit - kept)
            if bounds is not None:
                bounds[item.at] = min(bounds.get(item.at, FAR), limit)
    return completions, starts


def _awaited(streams: tuple[int, ...], end: list[int], lead: list[int], held: list[int]) -> int:
    """How much earlier the last work on these streams ends."""
    used = [s for s in streams if end[s] > NEVER]
    if not used:
        return FAR
    return max(end[s] for s in used) - max(end[s] - lead[s] - held[s] for s in used)


def op_shifts(model: Model, removed: Sequence[bool], saved: Column | None = None) -> Column:
    """By position in the chains how much earlier each operation ends (ns): the replay in full, for checks."""
    log: list[list[int]] = []
    bounds: dict[int, int] = {}
    run(model, blocks(model, saved, False), removed, saved=saved, log=log, bounds=bounds)
    chains = model.chains
    shifts = np.array(log, dtype=np.int64)
    reserve = reserves(chains, saved)
    limit = shifts[model.interval, chains.thread] + chains.slack + (0 if saved is None else saved)
    for position, bound in bounds.items():
        limit[position] = min(limit[position], bound)
    lead = limit - reserve
    result = np.empty(len(lead), dtype=np.int64)
    heads = [*np.flatnonzero(chains.first), len(lead)]
    for low, high in zip(heads[:-1], heads[1:], strict=True):
        result[low:high] = np.minimum.accumulate(lead[low:high]) + reserve[low:high]
    return result
