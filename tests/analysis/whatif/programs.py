"""Programs for a machine whose every cost is known, run with and without some of their blocking calls."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hypothesis import strategies as st

from nsys_sync.trace.tables import DEVICE, KERNEL, MEMCPY, PAGEABLE
from tests.analysis import worlds
from tests.analysis.worlds import Draft, EventRecord, GpuOp, HostCall, Step, SyncRecord, World, process

US = 1_000
#: Costs (ns) of the machine: launch to operation, operation to operation on a stream, work to return of a sync.
LATENCY, SPACING, TAIL = 4 * US, 1 * US, 3 * US
#: Costs (ns) of calls that do not wait.
LAUNCH_COST, SYNC_COST, COPY_COST = 6 * US, 5 * US, 8 * US
#: Bytes a ns of a copy from pinned memory.
PINNED_SPEED = 50

LAUNCH, COPY, STREAM_SYNC, DEVICE_SYNC, EVENT_SYNC, RECORD, WAIT, COLLECTIVE = range(8)
BLOCKING = (COPY, STREAM_SYNC, DEVICE_SYNC, EVENT_SYNC)
NAMES = {
    LAUNCH: worlds.LAUNCH,
    COLLECTIVE: worlds.LAUNCH,
    COPY: worlds.ASYNC_COPY,
    STREAM_SYNC: worlds.STREAM_SYNC,
    DEVICE_SYNC: worlds.DEVICE_SYNC,
    EVENT_SYNC: worlds.EVENT_SYNC,
    RECORD: worlds.RECORD,
    WAIT: worlds.DEVICE_WAIT,
}


class Do(NamedTuple):
    """One call: what, after how much Python (ns) since the call before, on which stream, for how long (ns; of a copy
    from pageable memory), by which thread. One thread runs at a time.
    """

    what: int
    think: int
    stream: int = 7
    work: int = 0
    thread: int = 1


Place = tuple[int, int]


@dataclass(frozen=True)
class Run:
    """What happened: the world, and when the operation of each (process, place in its program) ended (ns)."""

    world: World
    ended: dict[Place, int]


def run(ranks: Sequence[Sequence[Do]], removed: frozenset[Place] = frozenset()) -> Run:
    """Run a program on each rank, with a device of its own. removed: calls that do not block: a sync is not there, a
    copy comes from pinned memory. All ranks have equally many collectives.
    """
    draft, ended = Draft(), dict[Place, int]()
    running = [_Rank(number, draft, ended).steps(program, removed) for number, program in enumerate(ranks)]
    # A collective ends its own work after the last rank's has started.
    begun = [next(rank, None) for rank in running]
    while all(begun):
        latest = max(begin for begin in begun if begin is not None)
        begun = [_send(rank, latest) for rank in running]
    return Run(draft.world(), ended)


def _send(rank: Generator[int, int], latest: int) -> int | None:
    try:
        return rank.send(latest)
    except StopIteration:
        return None


class _Rank:
    """One process and its device. now: of the thread that runs; last: end of each stream's work; held: until when a
    stream waits for an event; events: when the work before each record ends (ns).
    """

    def __init__(self, number: int, draft: Draft, ended: dict[Place, int]) -> None:
        self.number, self.pid = number, process(number + 1)
        self.draft, self.ended = draft, ended
        self.now = 0
        self.last: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self.events: list[int] = []

    def steps(self, program: Sequence[Do], removed: frozenset[Place]) -> Generator[int, int]:
        """Run; at each collective give its start and take the last rank's."""
        for place, do in enumerate(program):
            self.now += do.think
            gone = (self.number, place) in removed
            if gone and do.what != COPY:
                continue
            corr, start = place + 1, self.now
            if do.what in (LAUNCH, COPY, COLLECTIVE):
                begin = self._start_on(do.stream)
                latest = (yield begin) if do.what == COLLECTIVE else begin
                self._work(do, place, begin, latest, gone=gone)
            elif do.what in (RECORD, WAIT):
                self._order(do, corr)
            else:
                self._wait(do, corr)
            name = NAMES[do.what]
            self.draft.calls.append(HostCall(self.pid | do.thread, start, self.now, name, corr))

    def _start_on(self, stream: int) -> int:
        start = max(self.now + LATENCY, self.held.pop(stream, 0))
        return max(start, self.last[stream] + SPACING) if stream in self.last else start

    def _work(self, do: Do, place: int, begin: int, latest: int, *, gone: bool) -> None:
        size = do.work * PINNED_SPEED // 4
        end = latest + (-(-size // PINNED_SPEED) if gone else do.work)
        self.ended[self.number, place] = self.last[do.stream] = end
        kind = (MEMCPY, PAGEABLE, DEVICE) if do.what == COPY else (KERNEL, -1, -1)
        name = int(do.what == COLLECTIVE)
        self.draft.ops.append(
            GpuOp(self.pid, begin, end, place + 1, self.number, do.stream, *kind, size=size, name=name)
        )
        self.now += COPY_COST if do.what == COPY else LAUNCH_COST
        if do.what == COPY and not gone:
            self.now = max(self.now, end)

    def _order(self, do: Do, corr: int) -> None:
        # Records are numbered over all ranks; the number of one that is not there is -1.
        known = self.number << 16
        if do.what == RECORD:
            self.events.append(self.last.get(do.stream, 0))
            self.draft.events.append(EventRecord(self.pid, corr, self.number, do.stream, known + len(self.events)))
        else:
            self.held[do.stream] = max(self.held.get(do.stream, 0), self.events[-1] if self.events else 0)
            event = known + len(self.events) if self.events else -1
            self.draft.syncs.append(SyncRecord(self.pid, corr, self.number, do.stream, event))
        self.now += US

    def _wait(self, do: Do, corr: int) -> None:
        start = self.now
        if do.what == STREAM_SYNC:
            awaited = self.last.get(do.stream, 0)
            self.draft.syncs.append(SyncRecord(self.pid, corr, self.number, do.stream))
        elif do.what == EVENT_SYNC and self.events:
            awaited = self.events[-1]
            event = (self.number << 16) + len(self.events)
            self.draft.syncs.append(SyncRecord(self.pid, corr, self.number, event=event))
        else:
            awaited = max(self.last.values(), default=0)
        self.now = max(start + SYNC_COST, awaited + TAIL if awaited > start else 0)


#: Enough plain examples of each cost that the analysis finds all of them as the usual ones.
PROLOGUE = [
    Do(what, 10 * US, stream, work)
    for stream in (7, 8, 9)
    for _ in range(4)
    for what, work in ((LAUNCH, 30 * US), (LAUNCH, 30 * US), (STREAM_SYNC, 0))
] + [
    Do(what, 10 * US, 7, work)
    for _ in range(8)
    for what, work in ((LAUNCH, 40 * US), (RECORD, 0), (EVENT_SYNC, 0), (LAUNCH, 30 * US), (DEVICE_SYNC, 0))
]

thinking = st.integers(0, 12).map(lambda us: us * US)
working = st.integers(1, 60).map(lambda us: us * US)
streams = st.integers(7, 9)

instructions = st.one_of(
    st.builds(Do, st.just(LAUNCH), thinking, streams, working),
    st.builds(Do, st.just(LAUNCH), thinking, streams, working),
    st.builds(Do, st.just(COPY), thinking, streams, st.integers(5, 60).map(lambda us: us * US)),
    st.builds(Do, st.sampled_from([STREAM_SYNC, DEVICE_SYNC, EVENT_SYNC, RECORD, WAIT]), thinking, streams),
)

#: More than the silence after which a thread is taken to have waited for another.
HAND_OVER = 20 * US


def fork(one: int, other: int, work: int, between: Do) -> list[Do]:
    """Work on one stream, and on another one that waits for it."""
    return [Do(LAUNCH, US, one, work), Do(RECORD, US, one), between, Do(WAIT, US, other), Do(LAUNCH, US, other, work)]


pieces = st.lists(
    st.one_of(
        instructions.map(lambda do: [do]),
        instructions.map(lambda do: [do]),
        st.builds(fork, streams, streams, working, instructions),
    ),
    max_size=4,
).map(lambda parts: [do for part in parts for do in part])


@st.composite
def programs(draw: st.DrawFn, ranks: int = 2) -> list[list[Do]]:
    """A program for each rank: pieces of two threads in turn, now and then a collective of all ranks between them."""
    number, joined = draw(st.integers(1, ranks)), draw(st.lists(st.booleans(), max_size=4))
    bodies = []
    for _ in range(number):
        body = list(PROLOGUE)
        for turn, together in enumerate([False, *joined]):
            thread = 1 + turn % 2
            work = [*draw(pieces), *([Do(COLLECTIVE, US, 8, 20 * US)] if together else [])]
            body += [do._replace(thread=thread, think=do.think + HAND_OVER * (at == 0)) for at, do in enumerate(work)]
        bodies.append(body)
    return bodies


def in_steps(world: World, number: int) -> World:
    """The same world with its time in equal steps."""
    length = max(call.end for call in world.calls) // number + 1
    tid = world.calls[0].tid
    return replace(world, steps=tuple(Step(tid, i * length, (i + 1) * length, f"step {i}") for i in range(number)))
