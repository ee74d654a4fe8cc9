"""Small worlds of host calls and GPU operations, as values and as the tables that the analysis reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import numpy as np
from hypothesis import strategies as st

from nsys_sync.trace.database import Database
from nsys_sync.trace.meta import Meta
from nsys_sync.trace.reader import Trace
from nsys_sync.trace.tables import (
    DEVICE,
    KERNEL,
    MEMCPY,
    MEMSET,
    PAGEABLE,
    PINNED,
    Brackets,
    Calls,
    Column,
    Copies,
    EventRecords,
    Marks,
    Ops,
    Ranges,
    SyncRecords,
)

Row = TypeVar("Row")

STREAM_SYNC, DEVICE_SYNC, EVENT_SYNC = "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"
LAUNCH, MEMSET_CALL, MALLOC = "cudaLaunchKernel", "cudaMemsetAsync", "cudaMalloc"
COPY, ASYNC_COPY = "cudaMemcpy", "cudaMemcpyAsync"
RECORD, DEVICE_WAIT, QUERY = "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventQuery"


def process(number: int) -> int:
    """Global process id."""
    return number << 24


def context_of(device: int) -> int:
    """The context that every process of these worlds has on a device."""
    return device + 1


@dataclass(frozen=True)
class HostCall:
    """An API call [start, end) in ns of a thread (global id)."""

    tid: int
    start: int
    end: int
    name: str
    corr: int

    @property
    def pid(self) -> int:
        return self.tid & ~0xFFFFFF


@dataclass(frozen=True)
class GpuOp:
    """A GPU operation [start, end) in ns; corr -1: nobody knows who launched it; name: a kernel's place in NAMES."""

    pid: int
    start: int
    end: int
    corr: int
    device: int = 0
    stream: int = 7
    kind: int = KERNEL
    src: int = -1
    dst: int = -1
    size: int = 4
    name: int = 0

    @property
    def row(self) -> tuple[int, ...]:
        """The order of operations that a trace promises."""
        context = context_of(self.device)
        return (self.start, self.end, self.pid, self.device, context, self.stream, self.corr, self.kind)


@dataclass(frozen=True)
class SyncRecord:
    """What the synchronising call with this correlation id waited for."""

    pid: int
    corr: int
    device: int
    stream: int = -1
    event: int = -1


@dataclass(frozen=True)
class EventRecord:
    """The record of an event by the call with this correlation id."""

    pid: int
    corr: int
    device: int
    stream: int
    event: int


@dataclass(frozen=True)
class Step:
    """An NVTX range of the default domain on a thread."""

    tid: int
    start: int
    end: int
    name: str


@dataclass(frozen=True)
class World:
    calls: tuple[HostCall, ...]
    ops: tuple[GpuOp, ...]
    syncs: tuple[SyncRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    steps: tuple[Step, ...] = ()

    def shifted(self, by: int) -> World:
        """The same world, all times later."""
        return replace(
            self,
            calls=tuple(replace(c, start=c.start + by, end=c.end + by) for c in self.calls),
            ops=tuple(replace(o, start=o.start + by, end=o.end + by) for o in self.ops),
            steps=tuple(replace(s, start=s.start + by, end=s.end + by) for s in self.steps),
        )

    def trace(self) -> Trace:
        """The tables that a reader would make of this world's export."""
        calls = sorted(self.calls, key=lambda c: (c.start, -c.end, c.tid, c.corr, c.name))
        ops = sorted(self.ops, key=lambda o: o.row)
        copies = [(at, op) for at, op in enumerate(ops) if op.kind == MEMCPY]
        syncs = sorted(self.syncs, key=lambda r: (r.pid, r.corr))
        events = sorted(self.events, key=lambda r: (r.pid, r.event))
        steps = sorted(self.steps, key=lambda s: (s.start, -s.end))
        name, names = coded([c.name for c in calls])
        step, steps_named = coded([s.name for s in steps])
        return Trace(
            path=Path("world.sqlite"),
            meta=Meta(None, None, None, None, None, (), None, None, None),
            calls=Calls(
                column(calls, lambda c: c.start),
                column(calls, lambda c: c.end),
                column(calls, lambda c: c.tid),
                column(calls, lambda c: c.corr),
                name,
                names,
            ),
            ops=Ops(
                column(ops, lambda o: o.start),
                column(ops, lambda o: o.end),
                column(ops, lambda o: o.pid),
                column(ops, lambda o: o.device),
                column(ops, lambda o: context_of(o.device)),
                column(ops, lambda o: o.stream),
                column(ops, lambda o: o.corr),
                column(ops, lambda o: o.kind),
                column(ops, lambda o: o.name if o.kind == KERNEL else -1),
                Copies(
                    column(copies, lambda c: c[0]),
                    column(copies, lambda c: c[1].size),
                    column(copies, lambda c: c[1].src),
                    column(copies, lambda c: c[1].dst),
                ),
            ),
            syncs=SyncRecords(
                column(syncs, lambda r: r.pid),
                column(syncs, lambda r: r.corr),
                column(syncs, lambda r: r.device),
                column(syncs, lambda r: context_of(r.device)),
                column(syncs, lambda r: r.stream),
                column(syncs, lambda r: r.event),
            ),
            events=EventRecords(
                column(events, lambda r: r.pid),
                column(events, lambda r: r.corr),
                column(events, lambda r: r.device),
                column(events, lambda r: context_of(r.device)),
                column(events, lambda r: r.stream),
                column(events, lambda r: r.event),
            ),
            brackets=Brackets(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, ()),
            at_call=Marks(NOTHING, NOTHING, NOTHING),
            samples=Marks(NOTHING, NOTHING, NOTHING),
            ranges=Ranges(
                column(steps, lambda s: s.start),
                column(steps, lambda s: s.end),
                column(steps, lambda s: s.tid),
                step,
                column(steps, lambda s: 1),
                steps_named,
            ),
            gil=None,
            devices={},
            processes={},
            threads={},
            capture=None,
            python_frames="not_recorded",
            missing=frozenset(),
            warnings=[],
            _digest=known(""),
            _db=cast("Database", Names()),
        )


NOTHING = np.empty(0, dtype=np.int64)

#: Kernels by name.
NAMES = ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL")


class Names:
    """What a world's trace needs of an open file: its strings."""

    def strings(self, ids: Iterable[int]) -> dict[int, str]:
        return {number: NAMES[number] for number in ids if number >= 0}


def known(text: str) -> Future[str]:
    """What took no time to find out."""
    future: Future[str] = Future()
    future.set_result(text)
    return future


def column(rows: Iterable[Row], value: Callable[[Row], int]) -> Column:
    """One column of a table."""
    return np.array([value(row) for row in rows], dtype=np.int64)


def coded(texts: Sequence[str]) -> tuple[Column, tuple[str, ...]]:
    """Texts as indices into their own sorted list."""
    names = tuple(sorted(set(texts)))
    return column(texts, names.index), names


@dataclass
class Draft:
    """A world in the making: the threads of its processes draw correlation ids and events from here."""

    calls: list[HostCall] = field(default_factory=list)
    ops: list[GpuOp] = field(default_factory=list)
    syncs: list[SyncRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)

    def world(self) -> World:
        return World(tuple(self.calls), tuple(self.ops), tuple(self.syncs), tuple(self.events))


#: (call, source, target) of a copy.
COPIES = [
    (ASYNC_COPY, DEVICE, PAGEABLE),
    (ASYNC_COPY, PAGEABLE, DEVICE),
    (ASYNC_COPY, PINNED, DEVICE),
    (ASYNC_COPY, DEVICE, DEVICE),
    (COPY, DEVICE, PINNED),
    (COPY, DEVICE, PAGEABLE),
    (COPY, DEVICE, DEVICE),
]

#: What a thread of ``worlds`` calls, by frequency.
KINDS = [LAUNCH] * 3 + [ASYNC_COPY] * 3 + [STREAM_SYNC] * 2 + [DEVICE_SYNC, EVENT_SYNC, EVENT_SYNC, RECORD]
KINDS += [MEMSET_CALL, MALLOC, DEVICE_WAIT, QUERY]

#: What threads call that mostly wait and hand over to each other.
WAITING = [LAUNCH, LAUNCH, STREAM_SYNC, DEVICE_SYNC, ASYNC_COPY, ASYNC_COPY, MALLOC]

small = st.integers(0, 6)


@st.composite
def worlds(
    draw: st.DrawFn,
    kinds: Sequence[str] = KINDS,
    *,
    processes: int = 2,
    threads: int = 2,
    devices: int = 2,
    calls: int = 6,
    free: int = 2,
    longest: int = 14,
) -> World:
    """Any world: operations start when they like, calls end when they like; calls of a thread are disjoint or nested.

    kinds: what is called; processes, threads (of each), devices: at most; calls: at most, of each thread; free:
    operations without a launch, at most; longest: operation, in ns.
    """
    draft = Draft()
    within = Limits(draw(st.integers(1, devices)), longest)
    for number in range(1, draw(st.integers(1, processes)) + 1):
        for thread in range(1, draw(st.integers(1, threads)) + 1):
            at = draw(small)
            for _ in range(draw(st.integers(0, calls))):
                at = draw(small) + _any_call(draw, draft, kinds, process(number) | thread, at, within)
        for _ in range(draw(st.integers(0, free))):
            _any_op(draw, draft, process(number), draw(st.integers(0, 60)), draw(st.sampled_from([-1, 9_999])), within)
    return draft.world()


class Limits(NamedTuple):
    """How many devices there are, and how long an operation may take (ns)."""

    devices: int
    longest: int


def _any_call(draw: st.DrawFn, draft: Draft, kinds: Sequence[str], tid: int, start: int, within: Limits) -> int:
    """Add one call, now and then with another one inside it, and what belongs to it; when it ends."""
    name, end, pid = draw(st.sampled_from(kinds)), start + draw(st.integers(1, 9)), tid & ~0xFFFFFF
    corr = launcher = 1 + sum(call.pid == pid for call in draft.calls)
    if end - start > 1 and draw(st.integers(0, 7)) == 0:
        first = draw(st.integers(start, end - 1))
        inner = draw(st.sampled_from(["cuLaunchKernel", "cuStreamSynchronize", MALLOC]))
        last = draw(st.integers(first + 1, end - (first == start)))
        draft.calls.append(HostCall(tid, first, last, inner, corr))
        corr += draw(st.integers(0, 1))
        launcher = draw(st.integers(launcher, corr))
    device, stream = draw(st.integers(0, within.devices - 1)), draw(st.integers(7, 8))
    source = target = -1
    if name == ASYNC_COPY:
        name, source, target = draw(st.sampled_from(COPIES))
    draft.calls.append(HostCall(tid, start, end, name, corr))
    if name in (LAUNCH, ASYNC_COPY, COPY, MEMSET_CALL):
        kind = {LAUNCH: KERNEL, MEMSET_CALL: MEMSET}.get(name, MEMCPY)
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 1, 2]))):
            _any_op(draw, draft, pid, start + draw(st.integers(-1, 12)), launcher, within, (kind, source, target))
    elif name == STREAM_SYNC and draw(st.integers(0, 5)):
        draft.syncs.append(SyncRecord(pid, corr, device, stream))
    elif name == RECORD:
        draft.events.append(EventRecord(pid, corr, device, stream, len(draft.events) + 1))
    elif name in (EVENT_SYNC, DEVICE_WAIT, QUERY):
        mine = [record.event for record in draft.events if record.pid == pid]
        draft.syncs.append(SyncRecord(pid, corr, device, event=draw(st.sampled_from([-1, *mine]))))
    return end


def _any_op(
    draw: st.DrawFn,
    draft: Draft,
    pid: int,
    start: int,
    corr: int,
    within: Limits,
    what: tuple[int, int, int] = (KERNEL, -1, -1),
) -> None:
    start = max(start, 0)
    end = start + draw(st.integers(0, within.longest))
    device, stream = draw(st.integers(0, within.devices - 1)), draw(st.integers(7, 8))
    name = int(draw(st.integers(0, 3)) == 0)
    draft.ops.append(GpuOp(pid, start, end, corr, device, stream, *what, name=name))
