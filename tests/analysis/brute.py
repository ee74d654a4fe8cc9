"""The definitions of wait, busy, idle and blame once more, one nanosecond at a time, for small worlds.

Written from the words of docs/model.md; shares no code with the analysis. Slow on purpose: a set of nanoseconds is an
interval, and each idle nanosecond asks for its cause on its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from nsys_sync.trace.tables import DEVICE, MEMCPY, PAGEABLE
from tests.analysis import worlds
from tests.analysis.worlds import GpuOp, HostCall, World

SYNCS = {
    "cudaStreamSynchronize": "stream",
    "cuStreamSynchronize": "stream",
    "cudaDeviceSynchronize": "device",
    "cudaEventSynchronize": "event",
}
ALLOCATIONS = {"cudaMalloc"}
ENOUGH = 3
LONG_AGO = -(10**9)


@dataclass(eq=False)
class Event:
    """One or two blocking calls of a thread that a person would call one wait."""

    calls: list[HostCall]
    wait: int = 0
    copy_in_call: int = 0
    idle: Counter[tuple[int, str]] = field(default_factory=Counter)

    @property
    def start(self) -> int:
        return self.calls[0].start

    @property
    def end(self) -> int:
        return self.calls[-1].end

    @property
    def tid(self) -> int:
        return self.calls[0].tid

    @property
    def pid(self) -> int:
        return self.calls[0].pid

    @property
    def credit(self) -> int:
        return max(0, self.wait - self.copy_in_call)

    @property
    def recoverable(self) -> int:
        caused = sum(ns for (_, cause), ns in self.idle.items() if cause != "sync_overhead")
        return min(self.wait, caused + self.copy_in_call)


@dataclass
class Device:
    """What one GPU did in its window [low, high)."""

    number: int
    low: int
    high: int
    busy: set[int]
    compute: set[int]
    blocking_copy: set[int]
    async_copy: set[int]
    gaps: list[tuple[int, int]]
    causes: Counter[str] = field(default_factory=Counter)


class Brute:
    """All numbers of a world; sync_base, copy_base: cost of a call that does not wait, unless it can be measured."""

    def __init__(self, world: World, sync_base: int, copy_base: int) -> None:
        self.world = world
        self.calls = sorted(world.calls, key=lambda c: (c.start, -c.end, c.tid, c.corr, c.name))
        self.ops = sorted(world.ops, key=lambda o: o.row)
        self.outer = {call: self._outermost(call) for call in self.calls}
        self.threads: dict[int, list[HostCall]] = {}
        for call in self.calls:
            if self.outer[call] is call:
                self.threads.setdefault(call.tid, []).append(call)
        self.launch = {id(op): self._launch(op) for op in self.ops}
        self.blocking = [call for row in self.threads.values() for call in row if self._blocks(call)]
        self.base = self._bases(sync_base, copy_base)
        self.events = self._events()
        self.event_of = {call: event for event in self.events for call in event.calls}
        # What takes no time neither works nor ends a gap.
        self.working = [op for op in self.ops if op.end > op.start]
        self.devices = [self._device(number) for number in sorted({op.device for op in self.working})]
        for event in self.events:
            event.wait = sum(self.wait(call) for call in event.calls)
            event.copy_in_call = self._copy_in_call(event)
        self._charge_all()
        self.recoverable_all = self._together()

    # Calls

    def _outermost(self, call: HostCall) -> HostCall:
        around = [o for o in self.calls if o.tid == call.tid and o.start <= call.start < o.end and call.end <= o.end]
        return (around or [call])[0]

    def _launch(self, op: GpuOp) -> HostCall | None:
        found = [call for call in self.calls if call.pid == op.pid and call.corr == op.corr]
        return self.outer[found[0]] if found else None

    def own_ops(self, call: HostCall) -> list[GpuOp]:
        return [op for op in self.ops if self.launch[id(op)] == call]

    def _blocks(self, call: HostCall) -> bool:
        copies = {(op.src, op.dst) for op in self.own_ops(call) if op.kind == MEMCPY}
        if call.name == worlds.ASYNC_COPY:
            return bool(copies & {(DEVICE, PAGEABLE), (PAGEABLE, DEVICE)})
        return call.name in SYNCS or (call.name == worlds.COPY and (DEVICE, DEVICE) not in copies)

    def is_copy(self, call: HostCall) -> bool:
        return call.name not in SYNCS

    def _launched(self, op: GpuOp) -> int:
        """When the op was launched; without a launching call nobody saw it before it ran."""
        launch = self.launch[id(op)]
        return op.start if launch is None else launch.start

    def awaited(self, call: HostCall) -> int:
        """The awaited end of a blocking call."""
        if self.is_copy(call):
            return max((op.end for op in self.own_ops(call)), default=LONG_AGO)
        before, ops = call.start, [op for op in self.ops if op.pid == call.pid]
        record = next((r for r in self.world.syncs if (r.pid, r.corr) == (call.pid, call.corr)), None)
        stream: tuple[int, int] | None = None
        if record is not None and SYNCS[call.name] == "stream":
            stream = (record.device, record.stream)
        if record is not None and SYNCS[call.name] == "event":
            for known in self.world.events:
                if (known.pid, known.event) == (call.pid, record.event):
                    recorder = next(c for c in self.calls if (c.pid, c.corr) == (known.pid, known.corr))
                    stream, before = (known.device, known.stream), self.outer[recorder].start
        if stream is None:
            ops = [op for op in ops if op.device == self._current_device(call)]
        else:
            ops = [op for op in ops if (op.device, op.stream) == stream]
        return max((op.end for op in ops if self._launched(op) < before), default=LONG_AGO)

    def _current_device(self, call: HostCall) -> int:
        """The device that the call's thread last launched on, else the first one that its process uses."""
        mine = [op for op in self.ops if op.pid == call.pid]
        launched = [
            (launch.start, at)
            for at, op in enumerate(mine)
            if (launch := self.launch[id(op)]) is not None and launch.tid == call.tid and launch.start < call.start
        ]
        if launched:
            return mine[max(launched)[1]].device
        return min((op.device for op in mine), default=-1)

    def _bases(self, sync_base: int, copy_base: int) -> dict[str, int]:
        base = {}
        for name in {call.name for call in self.blocking}:
            calls = [call for row in self.threads.values() for call in row if call.name == name]
            if name in SYNCS:
                sample = [c.end - c.start for c in calls if self.awaited(c) <= c.start]
            else:
                sample = [c.end - c.start for c in calls if c not in self.blocking]
            default = sync_base if name in SYNCS else copy_base
            base[name] = sorted(sample)[(len(sample) - 1) // 2] if len(sample) >= ENOUGH else default
        return base

    def wait(self, call: HostCall) -> int:
        """How long a blocking call really waited."""
        waits = self.is_copy(call) or self.awaited(call) > call.start
        return max(0, call.end - call.start - self.base[call.name]) if waits else 0

    def _events(self) -> list[Event]:
        events: list[Event] = []
        for row in self.threads.values():
            before: HostCall | None = None
            for call in row:
                if call in self.blocking:
                    if before in self.blocking and self.is_copy(before) and not self.is_copy(call):
                        events[-1].calls.append(call)
                    else:
                        events.append(Event([call]))
                before = call
        return sorted(events, key=lambda e: self.calls.index(e.calls[0]))

    # Device time

    def _device(self, number: int) -> Device:
        ops = [op for op in self.working if op.device == number]
        users = {op.pid for op in ops}
        launches = {self.launch[id(op)] for op in self.ops}
        marks = [
            (call.start, call.end)
            for row in self.threads.values()
            for call in row
            if call.pid in users and (call in launches or call in self.blocking or call.name in ALLOCATIONS)
        ]
        marks += [(op.start, op.end) for op in ops]
        low, high = min(start for start, _ in marks), max(end for _, end in marks)
        busy = covered(ops)
        compute = covered([op for op in ops if op.kind != MEMCPY])
        blocking = covered([op for op in ops if op.kind == MEMCPY and self.launch[id(op)] in self.blocking])
        copy_only = busy - compute
        gaps: list[tuple[int, int]] = []
        for ns in range(low, high):
            if ns not in busy:
                if gaps and gaps[-1][1] == ns:
                    gaps[-1] = (gaps[-1][0], ns + 1)
                else:
                    gaps.append((ns, ns + 1))
        return Device(number, low, high, busy, compute, copy_only & blocking, copy_only - blocking, gaps)

    def _copy_in_call(self, event: Event) -> int:
        call, alone = event.calls[0], 0
        if not self.is_copy(call):
            return 0
        for device in self.devices:
            own = covered([op for op in self.own_ops(call) if op.device == device.number and op.kind == MEMCPY])
            alone += len(own & set(range(call.start, call.end)) - device.compute)
        return alone

    # Blame

    def _gaps(self) -> list[tuple[int, int, Device]]:
        return sorted(
            ((low, high, device) for device in self.devices for low, high in device.gaps),
            key=lambda gap: (gap[0], gap[2].number),
        )

    def _charge_all(self) -> None:
        """Spend each event's credit once, gap after gap."""
        left = {event: event.credit for event in self.events}

        def charge(device: Device, cause: str, ns: int, event: Event | None = None) -> None:
            device.causes[cause] += ns
            if event is not None:
                event.idle[device.number, cause] += ns

        for low, high, device in self._gaps():
            claims = self._claims(low, high, device)
            device.causes.update(claims.plain)
            for event in claims.waits:
                paid = left[event] > 0
                left[event] -= paid
                charge(device, "sync_wait" if paid else "sync_overhead", 1, event)
            given = 0
            if claims.payer is not None:
                given = min(claims.refill_of(claims.payer), left[claims.payer])
                left[claims.payer] -= given
                charge(device, "sync_refill", given, claims.payer)
            device.causes["host"] += len(claims.host) - given

    def _together(self) -> int:
        """The most that the credit of all events can pay for if none of it is dropped: waiting by its own event,
        catching up by any event of the process that had begun before the launch.
        """
        left = {event: event.credit for event in self.events}
        given = 0
        refills: list[tuple[int, int, list[Event]]] = []
        for gap in self._gaps():
            claims = self._claims(*gap)
            for event in claims.waits:
                given += left[event] > 0
                left[event] = max(0, left[event] - 1)
            if claims.begun:
                last = claims.recent or claims.begun[-1]
                refills.append((claims.launched, claims.refill_of(last), claims.begun))
        for _, size, payers in sorted(refills, key=lambda refill: refill[0]):
            wanted = size
            for event in payers:
                paid = min(wanted, left[event])
                left[event] -= paid
                wanted -= paid
            given += size - wanted
        return given + sum(min(event.wait, event.copy_in_call) for event in self.events)

    def _claims(self, low: int, high: int, device: Device) -> Claims:
        op = next((op for op in self.working if op.device == device.number and op.start == high), None)
        launch = None if op is None else self.launch[id(op)]
        if launch is None:
            return Claims(Counter({"tail" if op is None else "unknown": high - low}))
        a, b = (min(max(at, low), high) for at in (launch.start, launch.end))
        silent_from = max((c.end for c in self.threads[launch.tid] if c.start < launch.start), default=LONG_AGO)

        def counts(what: HostCall | Event) -> bool:
            inside = silent_from <= what.start and what.end <= launch.start
            return what.pid == launch.pid and (what.tid == launch.tid or inside)

        claims = Claims(Counter(device=high - b), launched=launch.start)
        for ns in range(low, b):
            inside = [c for row in self.threads.values() for c in row if counts(c) and c.start <= ns < c.end]
            if ns >= a:
                inside = [launch] if launch in self.blocking and self.is_copy(launch) else []
            inside = [c for c in inside if c in self.blocking or c.name in ALLOCATIONS]
            if not inside:
                claims.host.append(ns)
                continue
            first = min(inside, key=self.calls.index)
            if first in self.event_of:
                claims.waits.append(self.event_of[first])
            else:
                claims.plain["alloc"] += 1

        claims.begun = [e for e in self.events if e.pid == launch.pid and e.start < launch.start]
        claims.recent = max((e for e in claims.begun if counts(e)), key=lambda e: (e.start, -e.tid), default=None)
        return claims


@dataclass
class Claims:
    """What a gap asks for.

    plain: ns by causes that need no credit; waits: the event of each ns inside one of its calls; host: the other ns
    before the launch had returned; begun: the events of the process before the launch; recent: the last of those on
    the launching thread, or on the thread that handed over to it.
    """

    plain: Counter[str]
    launched: int = 0
    waits: list[Event] = field(default_factory=list)
    host: list[int] = field(default_factory=list)
    begun: list[Event] = field(default_factory=list)
    recent: Event | None = None

    @property
    def payer(self) -> Event | None:
        """The recent event, unless its credit was dropped: its thread had begun another."""
        last = self.recent
        if last is None or any(e.tid == last.tid and e.start > last.start for e in self.begun):
            return None
        return last

    def refill_of(self, event: Event) -> int:
        """Host time from the event's first call on."""
        return sum(ns >= event.start for ns in self.host)


def covered(ops: list[GpuOp]) -> set[int]:
    """The nanoseconds in which any of the ops runs."""
    return {ns for op in ops for ns in range(op.start, op.end)}
