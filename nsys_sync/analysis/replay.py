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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_sync.analysis.calls import NEVER
from nsys_sync.trace.tables import Column

FAR = 1 << 60
#: Launches that can be outstanding on a stream before the next launch blocks.
QUEUE_DEPTH = 1024
_ROUNDS = 50

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

    op: npt.NDArray[np.int32]
    stream: npt.NDArray[np.int32]
    thread: npt.NDArray[np.int32]
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

    by: npt.NDArray[np.int32]
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
    """Operations that end together with their like on the other ranks.

    group, start (ns): by place; latest: by group, when the last rank's operation started (ns).
    """

    group: list[int]
    start: list[int]
    latest: list[int]


@dataclass(frozen=True)
class Model:
    """Everything a replay needs.

    interval: of each operation in the chains, how many items precede it; process_streams: the streams of the process
    whose steps are timed; records, threads, steps: how many; begin: start of the trace (ns); waits_linked: whether
    nearly every wait between streams is known.
    """

    chains: Chains
    grouping: Grouping
    items: list[Item]
    syncs: list[Sync]
    interval: npt.NDArray[np.int32]
    process_streams: list[int]
    collectives: Collectives
    records: int
    threads: int
    steps: int
    begin: int
    waits_linked: bool


def reserves(chains: Chains, saved: Column | None) -> Column:
    """Slack towards the predecessors (and time saved by faster copies), summed up along each stream."""
    spare = chains.spare if saved is None else chains.spare + saved
    total = np.cumsum(spare)
    before = total[chains.heads] - spare[chains.heads]
    total -= np.repeat(before, np.diff(chains.heads, append=len(total)))
    return total


def blocks(model: Model, saved: Column | None = None, *, unlimited_host: bool = False) -> list[list[Block]]:
    """The blocks before each item (one more entry than items).

    saved: by position in the chains, time (ns) that the operation becomes shorter. unlimited_host: everything is
    launched at once at the beginning.
    """
    chains, grouping = model.chains, model.grouping
    result: list[list[Block]] = [[] for _ in range(len(model.items) + 1)]
    if not len(chains.op):
        return result
    reserve = reserves(chains, saved)
    least = chains.slack - reserve
    if saved is not None:
        least += saved
    if unlimited_host:
        least += np.maximum(chains.launched - model.begin, 0)
    columns = zip(
        grouping.interval,
        grouping.stream,
        grouping.thread,
        np.minimum.reduceat(least[grouping.by], grouping.heads).tolist(),
        reserve[grouping.last].tolist(),
        grouping.end,
        grouping.last.tolist(),
        grouping.room,
        grouping.behind,
        strict=True,
    )
    for interval, *values in columns:
        result[interval].append(Block(*values))
    return result


@dataclass(frozen=True)
class Scenario:
    """What is different from the trace.

    removed: by row in Blocking, whether the call no longer blocks; gain: by row in Blocking, time (ns) that the host
    saves beyond a removed call; saved, unlimited_host: as in ``blocks``.
    """

    removed: Sequence[bool]
    saved: Column | None = None
    gain: Sequence[int] | None = None
    unlimited_host: bool = False


@dataclass(frozen=True)
class Outcome:
    """Result of a replay. completions of the steps (ns); settled: whether collectives came to rest; log: shifts of all
    threads before each item (kept on request); bounds: upper bounds of shifts by position in the chains.
    """

    completions: Column
    settled: bool
    log: list[list[int]]
    bounds: dict[int, int]


def run(model: Model, prepared: list[list[Block]], scenario: Scenario, *, keep_log: bool = False) -> Outcome:
    """Replay a scenario; prepared: its ``blocks``. Collectives are repeated until they end together."""
    limits = [FAR] * len(model.collectives.group)
    walk = _Walk(model, scenario, limits, keep_log=keep_log)
    for _ in range(_ROUNDS):
        walk = _Walk(model, scenario, limits, keep_log=keep_log)
        walk.go(prepared)
        latest, group = model.collectives.latest, model.collectives.group
        moved = [NEVER] * len(latest)
        for place, start in enumerate(walk.starts):
            moved[group[place]] = max(moved[group[place]], start)
        again = [min(limit, max(latest[g] - moved[g], 0)) for g, limit in zip(group, limits, strict=True)]
        if again == limits:
            return Outcome(walk.completions, True, walk.log, walk.bounds)
        limits = again
    return Outcome(walk.completions, False, walk.log, walk.bounds)


def _pass_by(_: Item) -> None:
    """With an unlimited host nothing holds the host."""


class _Walk:
    """One pass over the items. lead: of each stream, the shift of its last operation less its reserve; held: that
    reserve; end: when that operation ended in the trace (ns).
    """

    def __init__(self, model: Model, scenario: Scenario, limits: Sequence[int], *, keep_log: bool) -> None:
        chains = model.chains
        streams = int(chains.stream[-1]) + 1 if len(chains.op) else 0
        self.model, self.scenario, self.limits, self.keep_log = model, scenario, limits, keep_log
        self.reserve = reserves(chains, scenario.saved) if model.records or model.collectives.group else None
        self.shift = [0] * model.threads
        self.lead = [FAR] * streams
        self.held = [0] * streams
        self.end = [NEVER] * streams
        self.history: list[tuple[list[int], list[int]]] = [([], []) for _ in range(streams)]
        self.record = [FAR] * model.records
        self.starts = [NEVER] * len(model.collectives.group)
        self.completions = np.full(model.steps, NEVER, dtype=np.int64)
        self.log: list[list[int]] = []
        self.bounds: dict[int, int] = {}

    def go(self, prepared: list[list[Block]]) -> None:
        """Visit blocks and items in the order of the trace."""
        visit: dict[int, Callable[[Item], None]] = {
            HAND_OFF: self._hand_off,
            RECORD: self._record,
            WAIT: self._bound,
            COLLECTIVE: self._bound,
            SYNC: self._sync,
            STEP: self._step,
        }
        if self.scenario.unlimited_host:
            visit[SYNC] = visit[HAND_OFF] = _pass_by
        for before, item in zip(prepared, self.model.items, strict=False):
            self._launch(before)
            visit[item.kind](item)
        self._launch(prepared[-1])

    def _launch(self, blocks: list[Block]) -> None:
        shift, lead = self.shift, self.lead
        for stream, thread, least, kept, finish, last, room, behind in blocks:
            positions, shifts = self.history[stream]
            if room < shift[thread]:
                # The queue is full: the launch waits for the operation that is QUEUE_DEPTH before it.
                at = bisect.bisect_left(positions, behind)
                shift[thread] = min(shift[thread], room + (shifts[at] if at < len(shifts) else 0))
            lead[stream] = min(lead[stream], shift[thread] + least)
            # Two threads may launch on one stream between two items: the later operation stands for both.
            if not positions or last > positions[-1]:
                self.held[stream], self.end[stream] = kept, finish
                positions.append(last)
                shifts.append(lead[stream] + kept)
            else:
                shifts[-1] = min(shifts[-1], lead[stream] + self.held[stream])
        if self.keep_log:
            self.log.append(list(shift))

    def _sync(self, item: Item) -> None:
        sync, thread = self.model.syncs[item.number], item.thread
        if self.scenario.removed[item.number]:
            cost = min(sync.base, sync.duration) if sync.copy else 0
            gain = self.scenario.gain[item.number] if self.scenario.gain else 0
            self.shift[thread] += sync.duration - cost + gain
        else:
            awaited = self.record[sync.record] if sync.record >= 0 else self._earlier(sync.streams)
            self.shift[thread] = min(self.shift[thread] + sync.slack_host, awaited + sync.slack_device)

    def _hand_off(self, item: Item) -> None:
        self.shift[item.thread] = self.shift[item.number]

    def _record(self, item: Item) -> None:
        if item.at >= 0 and self.end[item.at] > NEVER:
            self.record[item.number] = self.lead[item.at] + self.held[item.at]

    def _bound(self, item: Item) -> None:
        """Hold an operation that waits for an event, or for the other ranks of a collective."""
        chains, saved = self.model.chains, self.scenario.saved
        assert self.reserve is not None
        stream, kept = int(chains.stream[item.at]), int(self.reserve[item.at])
        extra = 0 if saved is None else int(saved[item.at])
        if item.kind == WAIT:
            limit = self.record[item.number] + item.slack + extra
        else:
            self.starts[item.number] = self.model.collectives.start[item.number] - (self.lead[stream] + kept - extra)
            limit = self.limits[item.number]
        self.lead[stream] = min(self.lead[stream], limit - kept)
        self.bounds[item.at] = min(self.bounds.get(item.at, FAR), limit)

    def _step(self, item: Item) -> None:
        self.completions[item.number] = max(
            (self.end[s] - self.lead[s] - self.held[s] for s in self.model.process_streams if self.end[s] > NEVER),
            default=NEVER,
        )

    def _earlier(self, streams: tuple[int, ...]) -> int:
        """How much earlier the last work on these streams ends."""
        end, lead, held = self.end, self.lead, self.held
        if len(streams) == 1:
            return lead[streams[0]] + held[streams[0]] if end[streams[0]] > NEVER else FAR
        used = [s for s in streams if end[s] > NEVER]
        if not used:
            return FAR
        return max(end[s] for s in used) - max(end[s] - lead[s] - held[s] for s in used)


def op_shifts(model: Model, scenario: Scenario) -> Column:
    """By position in the chains how much earlier each operation ends (ns): the replay in full."""
    outcome = run(model, blocks(model, scenario.saved), scenario, keep_log=True)
    chains, saved = model.chains, scenario.saved
    shifts = np.array(outcome.log, dtype=np.int64)
    reserve = reserves(chains, saved)
    limit = shifts[model.interval, chains.thread] + chains.slack
    if saved is not None:
        limit += saved
    for position, bound in outcome.bounds.items():
        limit[position] = min(limit[position], bound)
    lead = limit - reserve
    result = np.empty(len(lead), dtype=np.int64)
    for low, high in pairwise([*chains.heads, len(lead)]):
        result[low:high] = np.minimum.accumulate(lead[low:high]) + reserve[low:high]
    return result
