"""Sums that tools like this one have been seen to get wrong. Times are in µs."""

from __future__ import annotations

from pathlib import Path

from nsys_sync.analysis.findings import DeviceTime, Report
from nsys_sync.analysis.run import analyze
from tests.analysis.ask import DEVICE_SYNC, PINNED_TO_DEVICE, STREAM_SYNC, Gpu, ask, in_us, scale
from tests.builder import TraceBuilder


def report_of(t: TraceBuilder, folder: Path) -> Report:
    return analyze(scale(t).write(folder / "trace.sqlite"))


def idle_of(device: DeviceTime) -> int:
    assert device.idle_ns is not None
    return in_us(device.idle_ns)


def test_a_device_is_idle_only_while_all_its_streams_are(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 2, (0, 100), stream=7)
    th.launch(2, 4, (10, 20), stream=8)
    th.launch(4, 6, (80, 90), stream=8)
    # Stream 8 has a hole of 60, the device none.
    assert ask(t, tmp_path).gpu == Gpu((0, 100), 100)


def test_overlapping_kernels_are_counted_once(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 2, (0, 10), stream=7)
    th.launch(2, 4, (5, 15), stream=8)
    # [0, 10) and [5, 15): busy 15, not 20, of 15.
    assert ask(t, tmp_path).gpu == Gpu((0, 15), 15)


def test_a_gap_filled_by_a_copy_is_not_idle(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 2, (0, 10))
    th.copy(2, 4, (10, 40), kind=PINNED_TO_DEVICE, stream=8)
    th.launch(4, 6, (40, 50))
    assert ask(t, tmp_path).gpu == Gpu((0, 50), 20, async_copy=30)


def test_two_threads_blocked_over_the_same_time(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process()
    one, two = p.thread(), p.thread(2)
    one.launch(0, 5, (5, 10_010))
    one.sync(STREAM_SYNC, 10, 10_010)
    two.sync(STREAM_SYNC, 10, 10_010)
    totals = report_of(t, tmp_path).totals
    # 10 ms on the clock, 20 ms of threads' time.
    assert (in_us(totals.host_blocked_ns), in_us(totals.thread_blocked_ns)) == (10_000, 20_000)


def test_processes_blocked_at_once_are_summed(tmp_path: Path) -> None:
    t = TraceBuilder()
    for number in (100, 200):
        th = t.process(pid=number).thread()
        th.launch(0, 5, (5, 110))
        th.sync(STREAM_SYNC, 10, 110)
    totals = report_of(t, tmp_path).totals
    # The clock of each process is its own: a sum over processes.
    assert (in_us(totals.host_blocked_ns), in_us(totals.thread_blocked_ns)) == (200, 200)


def test_ten_thousand_small_gaps_are_all_counted(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    at = idle = 0
    for number in range(10_000):
        length = 5 + number % 96
        th.launch(at, at + 2, (at + 2, at + 2 + 3 * length))
        at += 2 + 4 * length
        idle += 2 + (length if number < 9_999 else 0)
    # Gaps of 7 to 102: after each kernel a third of its length, and 2 for the next launch.
    report = report_of(t, tmp_path)
    (device,) = report.devices
    assert idle_of(device) == idle
    assert 0.24 < idle_of(device) / in_us(device.window_ns) < 0.27
    # One before each kernel; none after the last.
    assert device.gaps == report.gaps.total == 10_000
    assert report.gaps.shown == len(report.gaps.items) < report.gaps.total
    # The list is cut, and it is the longest that stay: of each length there are 104.
    assert {in_us(gap.end_ns - gap.start_ns) for gap in report.gaps.items} <= {102, 101, 100}


def test_counts_and_totals_are_of_one_population(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    for number in range(56):
        at = number * 1_000
        th.launch(at, at + 5, (at + 5, at + 100))
        th.sync(STREAM_SYNC, at + 10, at + 110, frames=[(f"f{number}", "/proj/train.py", number + 1)])
        th.sync(DEVICE_SYNC, at + 120, at + 130, frames=[("step", "/proj/train.py", 900)])
    report = report_of(t, tmp_path)
    assert len(report.sites) == 57
    assert sum(site.calls for site in report.sites) == report.totals.host_blocking_calls == 112
    assert sum(site.events for site in report.sites) == report.totals.sync_events == 112
    assert sum(site.wait_ns.total for site in report.sites) == report.totals.wait_ns == 56 * 95_000
    assert sum(site.recoverable_ns or 0 for site in report.sites) == report.totals.recoverable_ns
