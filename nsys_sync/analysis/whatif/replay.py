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
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nsys_sync.analysis.calls import NEVER
from nsys_sync.analysis.whatif.model import (
    COLLECTIVE,
    FAR,
    HAND_OFF,
    RECORD,
    STEP,
    SYNC,
    WAIT,
    Block,
    Chains,
    Item,
    Model,
)
from nsys_sync.trace.tables import Column

_ROUNDS = 50


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
    """Result of a replay. completions of the steps (ns); settled: whether collectives came to rest; log: shifts of the
    threads (columns) in each interval (kept on request). By position in the chains: bounds: upper bounds of shifts;
    fixed: the shifts themselves, whatever the conditions on the operation's own rank.
    """

    completions: Column
    settled: bool
    log: Column
    bounds: dict[int, int]
    fixed: dict[int, int]


def run(model: Model, prepared: list[list[Block]], scenario: Scenario, *, keep_log: bool = False) -> Outcome:
    """Replay a scenario; prepared: its ``blocks``. Where the ranks come to their collectives in different orders the
    replay is repeated until these end together.
    """
    walk = _Walk(model, scenario, [FAR] * len(model.collectives.latest), keep_log=keep_log)
    walk.go(prepared)
    for _ in range(_ROUNDS):
        if walk.settled:
            break
        walk = _Walk(model, scenario, walk.ended, keep_log=keep_log)
        walk.go(prepared)
    return Outcome(walk.completions, walk.settled, walk.log, walk.bounds, walk.fixed)


def _pass_by(_: Item) -> None:
    """With an unlimited host nothing holds the host."""


class _Walk:
    """One pass over the items. lead: of each stream, the shift of its last operation less its reserve; held: that
    reserve; end: when that operation ended in the trace (ns). ended: of each group of collectives, how much earlier it
    ends: as the walk before found it (FAR: there was none), until all its members have been visited in this one.
    """

    def __init__(self, model: Model, scenario: Scenario, ended: Sequence[int], *, keep_log: bool) -> None:
        chains = model.chains
        streams = int(chains.stream[-1]) + 1 if len(chains.op) else 0
        self.model, self.scenario, self.ended, self.keep_log = model, scenario, list(ended), keep_log
        self.reserve = reserves(chains, scenario.saved) if model.records or model.collectives.group else None
        self.shift = [0] * model.threads
        self.lead = [FAR] * streams
        self.held = [0] * streams
        self.end = [NEVER] * streams
        self.history: list[tuple[list[int], list[int]]] = [([], []) for _ in range(streams)]
        self.record = [FAR] * model.records
        self.started = [NEVER] * len(ended)
        self.missing = list(model.collectives.members)
        self.completions = np.full(model.steps, NEVER, dtype=np.int64)
        self.log = np.zeros((len(model.items) + 1 if keep_log else 0, model.threads), dtype=np.int64)
        self.bounds: dict[int, int] = {}
        self.fixed: dict[int, int] = {}
        self.met: dict[int, int] = {}
        self.settled = True

    def go(self, prepared: list[list[Block]]) -> None:
        """Walk all parts, each as far as the next collective, which lets them go on when all have come to it."""
        waiting: dict[int, list[Iterator[int]]] = {}
        arriving = [self._walk(part, prepared) for part in range(len(self.model.parts))]
        while arriving:
            for part in arriving:
                for group in itertools.islice(part, 1):
                    waiting.setdefault(group, []).append(part)
            met = [group for group in waiting if not self.missing[group]]
            # Where each waits for another one, the first in the trace goes by what is known.
            arriving = [part for group in met or sorted(waiting)[:1] for part in waiting.pop(group)]
        self.settled = all(self.fixed[at] == self.ended[group] for at, group in self.met.items())

    def _walk(self, number: int, prepared: list[list[Block]]) -> Iterator[int]:
        """Visit blocks and items of a part in the order of the trace; stop at each collective with its group."""
        model, part = self.model, self.model.parts[number]
        visit: dict[int, Callable[[Item], None]] = {
            HAND_OFF: self._hand_off,
            RECORD: self._record,
            WAIT: self._wait,
            COLLECTIVE: self._end_together,
            SYNC: self._sync,
            STEP: self._step,
        }
        if self.scenario.unlimited_host:
            visit[SYNC] = visit[HAND_OFF] = _pass_by
        alone = len(model.parts) == 1
        for at in part.intervals:
            self._launch(
                prepared[at] if alone else [b for b in prepared[at] if model.part_of_stream[b.stream] == number]
            )
            if self.keep_log:
                self.log[at, part.threads] = [self.shift[thread] for thread in part.threads]
            if at in part.own:
                item = model.items[at]
                if item.kind == COLLECTIVE:
                    yield self._arrive(item)
                visit[item.kind](item)

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

    def _wait(self, item: Item) -> None:
        """Hold an operation that waits for an event."""
        stream, kept = self._place(item)
        limit = self.record[item.number] + item.slack
        if self.scenario.saved is not None:
            limit += int(self.scenario.saved[item.at])
        self.lead[stream] = min(self.lead[stream], limit - kept)
        self.bounds[item.at] = min(self.bounds.get(item.at, FAR), limit)

    def _arrive(self, item: Item) -> int:
        """Start an operation of a collective; its group."""
        stream, kept = self._place(item)
        collectives = self.model.collectives
        group = collectives.group[item.number]
        start = collectives.start[item.number] - self.lead[stream] - kept
        self.started[group] = max(self.started[group], start)
        self.missing[group] -= 1
        if not self.missing[group]:
            self.ended[group] = collectives.latest[group] - self.started[group]
        return group

    def _end_together(self, item: Item) -> None:
        """End it with its like on the other ranks, sooner or later than it would by itself."""
        stream, kept = self._place(item)
        group = self.model.collectives.group[item.number]
        self.met[item.at], known = group, self.ended[group]
        self.fixed[item.at] = self.lead[stream] + kept if known == FAR else known
        self.lead[stream] = self.fixed[item.at] - kept

    def _place(self, item: Item) -> tuple[int, int]:
        """The stream of an item's operation, and the operation's reserve."""
        assert self.reserve is not None
        return int(self.model.chains.stream[item.at]), int(self.reserve[item.at])

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
    reserve = reserves(chains, saved)
    limit = outcome.log[model.interval, chains.thread] + chains.slack
    if saved is not None:
        limit += saved
    for position, bound in outcome.bounds.items():
        limit[position] = min(limit[position], bound)
    for position, shift in outcome.fixed.items():
        limit[position] = shift
    lead = limit - reserve
    result = np.empty(len(lead), dtype=np.int64)
    for low, high in pairwise([*sorted({*chains.heads.tolist(), *outcome.fixed}), len(lead)]):
        result[low:high] = np.minimum.accumulate(lead[low:high]) + reserve[low:high]
    return result
