"""What a replay walks over: operations in chains, what holds each of them and each blocking call, and by how much.

How these make a replay is said in ``replay``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_sync.trace.tables import Column

#: Rows and numbers of things, in half the memory.
Small = npt.NDArray[np.int32]

FAR = 1 << 60
#: Launches that can be outstanding on a stream before the next launch blocks.
QUEUE_DEPTH = 1024

HAND_OFF, RECORD, WAIT, COLLECTIVE, SYNC, STEP = range(6)
# Order of what happens at one instant: a hand-off, then the launch, then what depends on the launched operation.
PHASE = {HAND_OFF: 0, RECORD: 2, WAIT: 2, COLLECTIVE: 2, SYNC: 3, STEP: 3}
LAUNCH_PHASE = 1


class Item(NamedTuple):
    """Where shifts change or are read. key: 4 x its instant + phase; thread: number of the host thread.

    number: SYNC: row in Blocking; HAND_OFF: the thread that handed over; RECORD, WAIT: the event record; COLLECTIVE:
    its place in Model.collectives; STEP: number of the step. at: WAIT, COLLECTIVE: position of the operation in the
    chains; RECORD: number of the stream. slack: WAIT: towards the event.
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
    spare: towards the predecessor; heads: positions of the first of each stream.
    """

    op: Small
    stream: Small
    thread: Small
    launched: Column
    slack: Column
    spare: Column
    heads: Column


@dataclass(frozen=True)
class Sync:
    """A blocking call in a replay, ns. streams: numbers of the streams it waits for; record: the event record that it
    waits for instead (-1 = none). slack_host, slack_device: towards its own start and towards the awaited work.
    """

    copy: bool
    duration: int
    base: int
    streams: tuple[int, ...]
    record: int
    slack_host: int
    slack_device: int


@dataclass(frozen=True)
class Grouping:
    """Which operations fold into which block. by: the chains' positions, block by block; heads: where each block begins
    in ``by``; last: its last operation; interval, end, stream, thread, room, behind: of each block, as in Block.
    """

    by: Small
    heads: Column
    last: Column
    end: list[int]
    interval: list[int]
    stream: list[int]
    thread: list[int]
    room: list[int]
    behind: list[int]


@dataclass(frozen=True)
class Collectives:
    """Operations that end together with their like on the other ranks, a fixed time after the last of them started.

    group, start (ns): by place; latest: by group, when the last rank's operation started (ns); members: how many.
    """

    group: list[int]
    start: list[int]
    latest: list[int]
    members: list[int]


@dataclass(frozen=True)
class Part:
    """What a replay can walk over by itself: a process that meets others only in collectives, or all there is.

    intervals: those in which it launches or that its items end, ascending; own: its items; threads: their numbers.
    """

    intervals: list[int]
    own: frozenset[int]
    threads: Column


@dataclass(frozen=True)
class Model:
    """Everything a replay needs.

    parts: one without collectives, else one for each process; part_of_stream: number of each stream's part. interval:
    of each operation in the chains, how many items precede it; process_streams: the streams of the process whose steps
    are timed; records, threads, steps: how many; begin: start of the trace (ns); waits_linked: whether nearly every
    wait between streams is known.
    """

    chains: Chains
    grouping: Grouping
    items: list[Item]
    parts: list[Part]
    part_of_stream: list[int]
    syncs: list[Sync]
    interval: Small
    process_streams: list[int]
    collectives: Collectives
    records: int
    threads: int
    steps: int
    begin: int
    waits_linked: bool
