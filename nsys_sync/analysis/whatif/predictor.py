"""What if these syncs no longer blocked: the range of step times that the replay supports, and how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from nsys_sync.analysis.calls import COPY, NEVER, Activity, Blocking, Events, Mask
from nsys_sync.analysis.findings import Confidence, WhatIf
from nsys_sync.analysis.idle import Blame
from nsys_sync.analysis.intervals import measure, union
from nsys_sync.analysis.options import Options
from nsys_sync.analysis.steps import ProcessSteps
from nsys_sync.analysis.whatif import replay
from nsys_sync.analysis.whatif.build import build_model
from nsys_sync.analysis.whatif.model import Block, Model
from nsys_sync.trace.columns import distinct
from nsys_sync.trace.reader import Trace
from nsys_sync.trace.tables import MEMCPY, PINNED, Column

#: How long after a wait the host may still be slower than usual (ns), but no longer than it waited.
RECOVERY = 1_000_000
#: Speed of pinned copies (bytes a ns = GB/s) where the trace has no large one: PCIe 5 x16, as measured on an H200.
PINNED_GBPS = 50.0
_LARGE_COPY = 1 << 20
_ENOUGH = 8
#: Share of the step time below which faster copies are not worth a replay of their own.
_NOTICEABLE = 0.001
_SMALLEST_SPREAD = 0.03
_ACTIVE = 0.85
_SLOWED = 1.10
_ALTERNATION = 0.05
#: Replayed items over all predictions of one report; beyond it the sites with little wait get none.
_BUDGET = 6_000_000


@dataclass(frozen=True)
class _Savings:
    """What blocking copies would save from pinned memory. at: position in the chains; event; time: ns; assumed: whether
    the speed of pinned copies is assumed.
    """

    at: Column
    event: Column
    time: Column
    assumed: bool

    @classmethod
    def of(cls, activity: Activity, blocking: Blocking, model: Model | None, gbps: float | None) -> _Savings:
        """Savings of all blocking copies; gbps: the speed of pinned copies, None for the trace's own."""
        ops, copies = activity.ops, activity.ops.copies
        empty = np.empty(0, dtype=np.int64)
        if model is None:
            return cls(empty, empty, empty, assumed=False)
        duration = np.maximum(ops.end[copies.op] - ops.start[copies.op], 1)
        large = (copies.bytes >= _LARGE_COPY) & ((copies.src == PINNED) | (copies.dst == PINNED))
        speed = gbps or (float(np.median(copies.bytes[large] / duration[large])) if large.any() else PINNED_GBPS)
        event_of_call = np.full(len(activity.calls) + 1, -1, dtype=np.int64)
        is_copy = blocking.kind == COPY
        event_of_call[blocking.row[is_copy]] = blocking.event[is_copy]
        event = event_of_call[activity.launch[copies.op]]
        own = event >= 0
        position = np.empty(len(ops), dtype=np.int32)
        position[model.chains.op] = np.arange(len(ops), dtype=np.int32)
        needed = np.clip(np.ceil(copies.bytes / speed), 0, duration).astype(np.int64)
        saved = np.maximum(duration - needed, 0)
        assumed = gbps is None and not large.any() and bool(own.any())
        return cls(position[copies.op[own]].astype(np.int64), event[own], saved[own], assumed)

    def without(self, gone: Mask, operations: int) -> Column | None:
        """By position in the chains the time (ns) saved when these events are gone; None where nothing is."""
        chosen = gone[self.event]
        if not self.time[chosen].any():
            return None
        saved = np.zeros(operations, dtype=np.int64)
        saved[self.at[chosen]] = self.time[chosen]
        return saved


@dataclass
class Predictor:
    """Predicts the median step time without some of the sync events.

    host_speed: host time away from waits over host time right after one (1: no difference, 0: unknown, everything
    was near a wait). near: by event the host time (ns) right after its wait; lasted: by event how long its calls took.
    """

    model: Model | None
    blocking: Blocking
    events: Events
    steps: ProcessSteps | None
    now: int
    spread: float
    savings: _Savings
    host_speed: float
    near: Column
    lasted: Column
    busy_per_step: int
    compute_per_step: int
    reasons: list[str]
    keep: Mask
    _spent: int = 0
    _bounds: dict[bool, int] = field(default_factory=dict)
    _plain: list[list[Block]] = field(default_factory=list)

    @classmethod
    def build(
        cls,
        trace: Trace,
        activity: Activity,
        blocking: Blocking,
        events: Events,
        steps: list[ProcessSteps],
        charged: Blame,
        options: Options,
    ) -> Predictor:
        """Prepare predictions for the process with the longest steps. Without steps every answer is None."""
        usable = [s for s in steps if len(s.durations) and (s.completion > NEVER).all() and s.median]
        chosen = max(usable, key=lambda s: (s.median or 0, -s.pid), default=None)
        if not options.predict or not len(events) or any(d.withheld for d in charged.devices):
            chosen = None
        model = None if chosen is None else build_model(trace, activity, blocking, chosen)
        savings = _Savings.of(activity, blocking, model, options.copy_gbps)
        speed, near = (1.0, events.wait) if model is None else _host_speed(activity, events)
        return cls(
            model=model,
            blocking=blocking,
            events=events,
            steps=chosen,
            now=(chosen.median or 0) if chosen else 0,
            spread=_spread(chosen.durations) if chosen else 0.0,
            savings=savings,
            host_speed=speed,
            near=near,
            lasted=_lasted(activity, blocking, events),
            busy_per_step=int(np.mean(_active(activity, chosen, copies=True))) if chosen else 0,
            compute_per_step=int(np.median(_active(activity, chosen, copies=False))) if chosen else 0,
            reasons=_reasons(trace, activity, model, assumed=savings.assumed) if model else [],
            keep=_last_of_process(events),
        )

    def of(self, wanted: Mask, *, needed: bool = False) -> WhatIf | None:
        """The prediction without these events (mask over events); None without steps or beyond the budget.

        needed: whether the program needs the awaited values, which the replay does not know.
        """
        model = self.model
        if model is None or self.steps is None or self._spent > _BUDGET:
            return None
        self._spent += 3 * len(model.items)
        gone = wanted & ~self.keep
        if int(self.lasted[gone].sum()) <= _NOTICEABLE * self.now * len(self.steps.row):
            # So short that the replay could not tell: the steps stay as long as they are.
            bound = max(self._bound(None), self.compute_per_step)
            return self._answer(self.now, self.now, bound, settled=True, needed=needed)
        removed: list[bool] = gone[self.blocking.event].tolist()
        saved = self.savings.without(gone, len(model.chains.op))
        if saved is not None and int(saved.sum()) <= _NOTICEABLE * self.now * len(self.steps.row):
            saved = None
        gain = np.round(self.near * (1 - self.host_speed)).astype(np.int64)
        prepared = self._blocks(saved)
        settled = []
        medians = []
        for extra in (None, self._by_call(gain)) if gain[gone].any() else (None,):
            outcome = replay.run(model, prepared, replay.Scenario(removed, saved, extra))
            settled.append(outcome.settled)
            medians.append(int(np.median(np.diff(outcome.completions))))
        # On several streams the replay lets kernels run side by side that would contend for the GPU.
        medians = [max(median, self.compute_per_step) for median in medians]
        bound = max(self._bound(saved), self.compute_per_step)
        # Where everything was near a wait the host's own speed is unknown: it may be fast enough not to matter.
        unknown = self.host_speed == 0 and bool(gain[gone].any())
        low, high = min(*medians, bound) if unknown else min(medians), max(medians)
        return self._answer(max(low, min(bound, high)), high, bound, settled=all(settled), needed=needed)

    def _answer(self, low: int, high: int, bound: int, *, settled: bool, needed: bool) -> WhatIf:
        low, high = int(low * (1 - self.spread)), int(high * (1 + self.spread))
        confidence, reasons = self._confidence(high, settled=settled, needed=needed)
        return WhatIf(
            step_ns_now=self.now,
            step_ns_low=low,
            step_ns_high=high,
            gpu_bound_ns=bound,
            confidence=confidence,
            reasons=reasons,
        )

    def _by_call(self, gain: Column) -> list[int]:
        """Spread a gain by event over the calls: to the last call of each event."""
        by_call = np.zeros(len(self.blocking.row), dtype=np.int64)
        by_call[np.where(self.events.sync >= 0, self.events.sync, self.events.copy)] = gain
        return list(by_call.tolist())

    def _blocks(self, saved: Column | None) -> list[list[Block]]:
        assert self.model is not None
        if saved is not None:
            return replay.blocks(self.model, saved)
        if not self._plain:
            self._plain = replay.blocks(self.model)
        return self._plain

    def _bound(self, saved: Column | None) -> int:
        """Median step time (ns) with a host that is infinitely fast."""
        assert self.model is not None
        if saved is None and False in self._bounds:
            return self._bounds[False]
        prepared = replay.blocks(self.model, saved, unlimited_host=True)
        nothing = [False] * len(self.blocking.row)
        outcome = replay.run(self.model, prepared, replay.Scenario(nothing, saved, unlimited_host=True))
        bound = max(int(np.median(np.diff(outcome.completions))), 0)
        if saved is None:
            self._bounds[False] = bound
        return bound

    def _confidence(self, high: int, *, settled: bool, needed: bool) -> tuple[Confidence, list[str]]:
        reasons = list(self.reasons)
        active = min(self.busy_per_step / high, 1.0) if high else 0.0
        if active < _ACTIVE:
            reasons.append(f"the GPU would be active for {100 * active:.0f} % of the step: the CPU's speed decides")
        if not settled:
            reasons.append("the collectives of the ranks did not come to rest in the replay")
        if needed:
            reasons.append("the program needs the awaited values: data dependence is not modelled")
        return ("high", "medium")[len(reasons)] if len(reasons) < 2 else "low", reasons or [
            "one thread launches at a time, the GPU stays active, the profiler cost less than 10 %"
        ]


def _spread(durations: Column) -> float:
    """Standard error of the median step time, relative, from the median deviation; at least 3 %."""
    middle = float(np.median(durations))
    deviation = 1.4826 * float(np.median(np.abs(durations - middle)))
    error = 1.2533 * deviation / math.sqrt(len(durations)) / max(middle, 1.0)
    return min(max(error, _SMALLEST_SPREAD), 0.5)


def _lasted(activity: Activity, blocking: Blocking, events: Events) -> Column:
    """How long (ns) each event's calls took."""
    lasted = np.zeros(len(events), dtype=np.int64)
    np.add.at(lasted, blocking.event, activity.calls.end[blocking.row] - activity.calls.start[blocking.row])
    return lasted


def _last_of_process(events: Events) -> Mask:
    """The last sync event of each process: it ends the capture and stays."""
    last = np.zeros(len(events), dtype=bool)
    for pid in distinct(np.sort(events.pid)):
        last[np.flatnonzero(events.pid == pid)[-1]] = True
    return last


def _host_speed(activity: Activity, events: Events) -> tuple[float, Column]:
    """Host time of a launch away from waits over host time right after a wait (0: all were near a wait, 1: none was);
    and by event the host time (ns) right after its wait and before the next event of its thread.

    Launches are compared with launches of the same API: from the end of the call before to their own end.
    """
    calls = activity.calls
    cold = np.minimum(events.wait, RECOVERY)
    near = cold.copy()
    close = np.zeros(len(calls), dtype=bool)
    launches = np.flatnonzero(activity.launches)
    for tid in distinct(np.sort(events.tid)):
        mine = np.flatnonzero(events.tid == tid)
        near[mine[:-1]] = np.minimum(cold[mine[:-1]], np.maximum(events.start[mine[1:]] - events.end[mine[:-1]], 0))
        waited = mine[events.wait[mine] > 0]
        rows = launches[calls.tid[launches] == tid]
        last = np.searchsorted(events.end[waited], calls.start[rows], side="right") - 1
        rows, last = rows[last >= 0], waited[last[last >= 0]]
        close[rows] = calls.start[rows] - events.end[last] < cold[last]
    before = activity.before[launches]
    cost = calls.end[launches] - np.where(before >= 0, calls.end[before], calls.start[launches])
    close = close[launches]
    slow = fast = 0.0
    for name in distinct(np.sort(calls.name[launches])):
        same = calls.name[launches] == name
        near_cost, away_cost = cost[same & close], cost[same & ~close]
        if len(near_cost) >= _ENOUGH and len(away_cost) >= _ENOUGH:
            slow += len(near_cost) * float(np.median(near_cost))
            fast += len(near_cost) * float(np.median(away_cost))
    if not close.any():
        return 1.0, near
    return (min(fast / slow, 1.0) if slow else 0.0), near


def _active(activity: Activity, steps: ProcessSteps, *, copies: bool) -> Column:
    """By step the time (ns) between completions in which the process's busiest device was active, with or without
    copies counted.
    """
    ops = activity.ops
    most = np.zeros(len(steps.durations), dtype=np.int64)
    for device in distinct(np.sort(ops.device[ops.pid == steps.pid])):
        rows = np.flatnonzero((ops.device == device) & (copies | (ops.kind != MEMCPY)))
        active = measure(*union(ops.start[rows], ops.end[rows]), steps.completion[:-1], steps.completion[1:])
        if active.sum() > most.sum():
            most = active
    return most


def _reasons(trace: Trace, activity: Activity, model: Model, *, assumed: bool) -> list[str]:
    """What lowers the confidence of every prediction from this trace."""
    reasons = []
    if _concurrent(activity):
        reasons.append("several threads launch at the same time: they contend for the GIL and the GPU, not modelled")
    if not model.waits_linked:
        reasons.append("waits between streams are not linked to events in this trace: their order is not modelled")
    if assumed:
        reasons.append(f"the speed of pinned copies is assumed ({PINNED_GBPS:.0f} GB/s): the trace has no large one")
    capture = trace.capture
    if capture is None or not capture.step_ns_before or not capture.step_ns_inside:
        reasons.append("how much the profiler slowed the steps was not measured")
    elif capture.step_ns_inside / capture.step_ns_before >= _SLOWED:
        reasons.append(f"the profiler slowed the steps to {capture.step_ns_inside / capture.step_ns_before:.2f} x")
    return reasons


def _concurrent(activity: Activity) -> bool:
    """Whether threads of a process launch in turns: more than one launch in twenty comes from another thread than the
    one before. A hand-over to autograd's thread and back is two in a step.
    """
    calls, rows = activity.calls, np.flatnonzero(activity.launches)
    for pid in distinct(np.sort(activity.process(rows))):
        tid = calls.tid[rows[activity.process(rows) == pid]]
        if len(tid) > 1 and float((tid[1:] != tid[:-1]).mean()) > _ALTERNATION:
            return True
    return False
