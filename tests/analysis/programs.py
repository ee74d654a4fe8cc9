"""Programs for a machine whose every cost is known, run with and without some of their blocking calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st

from nsys_sync.trace.tables import DEVICE, MEMCPY, PAGEABLE
from tests.analysis import worlds
from tests.analysis.worlds import Draft, EventRecord, GpuOp, HostCall, Step, SyncRecord, World, process

US = 1_000
#: Costs (ns) of the machine: launch to operation, operation to operation on a stream, work to return of a sync.
LATENCY, SPACING, TAIL = 4 * US, 1 * US, 3 * US
#: Costs (ns) of calls that do not wait.
LAUNCH_COST, SYNC_COST, COPY_COST = 6 * US, 5 * US, 8 * US
#: Bytes a ns of a copy from pinned memory.
PINNED_SPEED = 50

LAUNCH, COPY, STREAM_SYNC, DEVICE_SYNC, EVENT_SYNC, RECORD, WAIT = range(7)
BLOCKING = (COPY, STREAM_SYNC, DEVICE_SYNC, EVENT_SYNC)
NAMES = {
    LAUNCH: worlds.LAUNCH,
    COPY: worlds.ASYNC_COPY,
    STREAM_SYNC: worlds.STREAM_SYNC,
    DEVICE_SYNC: worlds.DEVICE_SYNC,
    EVENT_SYNC: worlds.EVENT_SYNC,
    RECORD: worlds.RECORD,
    WAIT: worlds.DEVICE_WAIT,
}


class Do(NamedTuple):
    """One call of the program's thread: what, after how much Python (ns), on which stream, for how long (ns; of a copy
    from pageable memory).
    """

    what: int
    think: int
    stream: int = 7
    work: int = 0


@dataclass(frozen=True)
class Run:
    """What happened: the world, and when each call's operation ended (ns, by place in the program)."""

    world: World
    ended: dict[int, int]


def run(program: Sequence[Do], removed: frozenset[int] = frozenset()) -> Run:
    """Run it. removed: places of calls that do not block: a sync is not there, a copy comes from pinned memory."""
    draft, pid = Draft(), process(1)
    now = 0
    last: dict[int, int] = {}
    held: dict[int, int] = {}
    events: list[int] = []
    ended: dict[int, int] = {}

    def start_on(stream: int, launched: int) -> int:
        start = max(launched + LATENCY, held.pop(stream, 0))
        return max(start, last[stream] + SPACING) if stream in last else start

    for place, do in enumerate(program):
        now += do.think
        gone = place in removed
        if gone and do.what != COPY:
            continue
        corr, start = place + 1, now
        if do.what in (LAUNCH, COPY):
            begin = start_on(do.stream, start)
            size = do.work * PINNED_SPEED // 4
            work = -(-size // PINNED_SPEED) if gone else do.work
            ended[place] = last[do.stream] = begin + work
            kind = (MEMCPY, PAGEABLE, DEVICE) if do.what == COPY else (0, -1, -1)
            draft.ops.append(GpuOp(pid, begin, begin + work, corr, 0, do.stream, *kind, size=size))
            now += COPY_COST if do.what == COPY else LAUNCH_COST
            if do.what == COPY and not gone:
                now = max(now, ended[place])
        elif do.what == RECORD:
            events.append(last.get(do.stream, 0))
            draft.events.append(EventRecord(pid, corr, 0, do.stream, len(events)))
            now += US
        elif do.what == WAIT:
            held[do.stream] = max(held.get(do.stream, 0), events[-1] if events else 0)
            draft.syncs.append(SyncRecord(pid, corr, 0, do.stream, len(events) or -1))
            now += US
        else:
            if do.what == STREAM_SYNC:
                awaited = last.get(do.stream)
                draft.syncs.append(SyncRecord(pid, corr, 0, do.stream))
            elif do.what == EVENT_SYNC and events:
                awaited = events[-1] or None
                draft.syncs.append(SyncRecord(pid, corr, 0, event=len(events)))
            else:
                awaited = max(last.values(), default=None)
            now = max(now + SYNC_COST, (awaited + TAIL) if awaited is not None and awaited > start else 0)
        draft.calls.append(HostCall(pid | 1, start, now, NAMES[do.what], corr))
    return Run(draft.world(), ended)


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

programs = st.lists(instructions, max_size=12).map(lambda body: [*PROLOGUE, *body])


def steps(program_world: World, number: int) -> World:
    """The same world with its time in equal steps."""
    last = max(call.end for call in program_world.calls)
    length = last // number + 1
    tid = program_world.calls[0].tid
    ranges = tuple(Step(tid, i * length, (i + 1) * length, f"step {i}") for i in range(number))
    return World(program_world.calls, program_world.ops, program_world.syncs, program_world.events, ranges)
