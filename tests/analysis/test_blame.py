"""Device time and blame: against the definitions, nanosecond by nanosecond, and by what must hold whatever happens."""

from __future__ import annotations

import dataclasses
from collections import Counter
from unittest import mock

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsys_sync.analysis import calls
from nsys_sync.analysis.calls import Activity, Blocking, Events, connect, find_blocking
from nsys_sync.analysis.idle import Blame, blame
from nsys_sync.analysis.timeline import CAUSES
from nsys_sync.analysis.window import ALL, Parts, Window
from tests.analysis.brute import Brute
from tests.analysis.worlds import WAITING, GpuOp, World, process, worlds

# Microseconds are too long to count nanosecond by nanosecond.
SYNC_BASE, COPY_BASE = 1, 2

any_worlds = worlds()
#: Three threads that wait for two devices and start each other's work: most of their time is a gap.
waiting_worlds = worlds(WAITING, processes=1, threads=3, calls=10, free=0, longest=3)


def find(world: World) -> tuple[Activity, Blocking, Events]:
    trace = world.trace()
    with mock.patch.multiple(calls, DEFAULT_SYNC_BASE=SYNC_BASE, DEFAULT_COPY_BASE=COPY_BASE):
        activity = connect(trace)
        return activity, *find_blocking(trace, activity)


def charge(world: World, window: Window = ALL) -> Blame:
    return blame(*find(world), window)


def by_cause(found: Blame, device: int) -> Counter[str]:
    causes = found.gaps.causes[found.gaps.device == device].sum(axis=0)
    return Counter(dict(zip(CAUSES, map(int, causes), strict=True)))


def values(found: object) -> list[object]:
    """All that a result holds, as plain lists."""
    if dataclasses.is_dataclass(found):
        return [values(getattr(found, field.name)) for field in dataclasses.fields(found)]
    if isinstance(found, list):
        return [values(item) for item in found]
    return [found.tolist() if isinstance(found, np.ndarray) else found]


def check_against_definitions(world: World) -> None:
    activity, blocking, events = find(world)
    found = blame(activity, blocking, events)
    true = Brute(world, SYNC_BASE, COPY_BASE)
    assert blocking.base == true.base
    assert list(zip(events.tid, events.start, events.wait, strict=True)) == [
        (e.tid, e.start, e.wait) for e in true.events
    ]
    for got, device in zip(found.devices, true.devices, strict=True):
        assert (got.device, got.low, got.high) == (device.number, device.low, device.high)
        assert (got.busy, got.compute) == (len(device.busy), len(device.compute))
        assert (got.blocking_copy, got.async_copy) == (len(device.blocking_copy), len(device.async_copy))
        here = found.gaps.device == got.device
        assert list(zip(found.gaps.start[here], found.gaps.end[here], strict=True)) == device.gaps
        assert by_cause(found, got.device) == device.causes
    assert found.copy_in_call.tolist() == [e.copy_in_call for e in true.events]
    assert found.idle.tolist() == [
        [[e.idle[d.number, cause] for cause in ("sync_wait", "sync_refill", "sync_overhead")] for d in true.devices]
        for e in true.events
    ]
    assert found.recoverable.tolist() == [e.recoverable for e in true.events]
    assert found.recoverable_all == true.recoverable_all


@settings(max_examples=250)
@given(any_worlds)
@example(World((), (GpuOp(1 << 24, 0, 1, -1),)))
def test_any_world_is_charged_by_the_definitions(world: World) -> None:
    check_against_definitions(world)


@settings(max_examples=500)
@given(waiting_worlds)
def test_threads_that_wait_are_charged_by_the_definitions(world: World) -> None:
    check_against_definitions(world)


@settings(max_examples=200)
@given(any_worlds | waiting_worlds, st.data())
def test_everything_adds_up_in_any_window(world: World, data: st.DataObject) -> None:
    low, high = sorted(data.draw(st.tuples(st.integers(-5, 70), st.integers(-5, 70))))
    middle = np.array([low + (high - low) // 3, high])
    parts = Parts(np.full(2, process(1)), np.array([low, low + (high - low) // 2]), middle)
    window = data.draw(st.sampled_from([ALL, Window(low, high + 1), Window(low, high + 1, parts)]))
    activity, blocking, events = find(world)
    found = blame(activity, blocking, events, window)
    gaps = found.gaps
    assert (gaps.causes >= 0).all()
    assert (gaps.causes.sum(axis=1) == gaps.end - gaps.start).all()
    for device in found.devices:
        here = gaps.device == device.device
        assert device.busy + int((gaps.end - gaps.start)[here].sum()) == device.high - device.low
        assert device.compute + device.blocking_copy + device.async_copy == device.busy
        assert min(device.compute, device.blocking_copy, device.async_copy) >= 0
        assert (gaps.start[here] >= device.low).all()
        assert (gaps.end[here] <= device.high).all()
        for op in world.ops:
            if op.device == device.device and op.end > op.start:
                assert not ((gaps.start[here] < op.end) & (gaps.end[here] > op.start)).any()
    for position, device in enumerate(found.devices):
        cause = by_cause(found, device.device)
        charged = found.idle[:, position, :].sum(axis=0).tolist()
        assert charged == [cause["sync_wait"], cause["sync_refill"], cause["sync_overhead"]]
    counted = window.counts(events.pid, events.start, events.end)
    assert not found.idle[~counted].any()
    assert (found.recoverable <= np.where(counted, events.wait, 0)).all()
    assert (found.recoverable >= 0).all()
    assert found.recoverable.sum() <= found.recoverable_all <= events.wait.sum()


@settings(max_examples=150)
@given(any_worlds | waiting_worlds, st.integers(0, 60))
def test_two_windows_side_by_side_hold_what_one_holds(world: World, middle: int) -> None:
    whole, left, right = (charge(world, w) for w in (ALL, Window(ALL.low, middle), Window(middle, ALL.high)))

    def sums(found: Blame) -> dict[int, Counter[str]]:
        result = {}
        for d in found.devices:
            cause = by_cause(found, d.device)
            # Credit of a sync counts only where the sync overlaps the window; what it can pay for is cut anywhere.
            result[d.device] = Counter(
                window=d.high - d.low,
                compute=d.compute,
                blocking=d.blocking_copy,
                others=d.async_copy,
                waiting=cause["sync_wait"] + cause["sync_overhead"],
                host=cause["sync_refill"] + cause["host"],
                **{name: cause[name] for name in ("device", "alloc", "tail", "unknown")},
            )
        return result

    before, after = sums(left), sums(right)
    for device, total in sums(whole).items():
        assert before.get(device, Counter()) + after.get(device, Counter()) == +total


@settings(max_examples=150)
@given(any_worlds | waiting_worlds, st.data())
def test_an_operation_in_two_adjacent_parts_is_the_same_work(world: World, data: st.DataObject) -> None:
    long = [op for op in world.ops if op.end - op.start > 1]
    if not long:
        return
    op = data.draw(st.sampled_from(long))
    middle = data.draw(st.integers(op.start + 1, op.end - 1))
    at = world.ops.index(op)
    parts = (dataclasses.replace(op, end=middle), dataclasses.replace(op, start=middle))
    split = dataclasses.replace(world, ops=(*world.ops[:at], *parts, *world.ops[at + 1 :]))
    one, two = charge(world), charge(split)
    assert values(one.devices) == values(two.devices)
    if sum((other.device, other.start) == (op.device, op.start) for other in world.ops) > 1:
        return  # Of several that end a gap the one that ends first is asked, and the split decides which that is.
    if not any(call.corr == op.corr for call in world.calls):
        return  # Without a launch an operation counts as launched when it starts: its second part later than the first.
    assert values(one.gaps.causes) == values(two.gaps.causes)
    assert values(one.copy_in_call) == values(two.copy_in_call)
    assert values(one.recoverable) == values(two.recoverable)
    assert one.recoverable_all == two.recoverable_all


@settings(max_examples=150)
@given(any_worlds | waiting_worlds, st.integers(-(10**15), 10**15))
def test_only_differences_of_times_count(world: World, by: int) -> None:
    here, there = charge(world), charge(world.shifted(by))
    devices = [dataclasses.replace(d, low=d.low - by, high=d.high - by) for d in there.devices]
    gaps = dataclasses.replace(there.gaps, start=there.gaps.start - by, end=there.gaps.end - by)
    assert values(here) == values(dataclasses.replace(there, devices=devices, gaps=gaps))
