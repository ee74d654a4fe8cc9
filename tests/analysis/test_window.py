"""A part of a trace: by steps, by time, by the name of a range. Times are in µs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nsys_sync.analysis.findings import DeviceTime, Report
from nsys_sync.analysis.options import Options
from nsys_sync.analysis.run import analyze
from nsys_sync.errors import UsageError
from tests.analysis.ask import STREAM_SYNC, US, in_us, nonzero, scale
from tests.builder import TraceBuilder


@pytest.fixture
def four_steps(tmp_path: Path) -> Path:
    """Four steps of 1000 with ranges of 900. In each, counted from its start:

        host   launch 0-5, sync 20-310, launch 400-405
        GPU    10-300, 410-700

    The sync waits 290 - 5 = 285. Gap 300-410: 10 in the sync, 95 catching up, 5 on the device. Gap 700-1010: 305 of
    host time for which the sync has 180 left, and 5 on the device.
    """
    t = TraceBuilder()
    th = t.process().thread()
    for step in range(4):
        at = step * 1_000
        th.range(f"step {step}", at, at + 900)
        th.launch(at, at + 5, (at + 10, at + 300))
        th.sync(STREAM_SYNC, at + 20, at + 310)
        th.launch(at + 400, at + 405, (at + 410, at + 700))
        if step in (0, 2):
            th.range("forward", at, at + 350)
    return scale(t).write(tmp_path / "steps.sqlite")


def causes(report: Report) -> dict[str, int]:
    (device,) = report.devices
    assert device.idle_by_cause_ns is not None
    return nonzero({name: in_us(ns) for name, ns in msgspec.to_builtins(device.idle_by_cause_ns).items()})


def check(report: Report) -> None:
    """What must hold in every window."""
    for device in report.devices:
        assert device.window_ns == (device.busy_ns or 0) + (device.idle_ns or 0)
        assert device.idle_by_cause_ns is not None
        assert device.idle_by_cause_ns.total == device.idle_ns
    for cause in ("sync_wait", "sync_refill", "sync_overhead"):
        on_devices = sum(getattr(device.idle_by_cause_ns, cause) for device in report.devices)
        assert sum(getattr(site.idle_ns, cause) for site in report.sites) == on_devices, cause
    totals = report.totals
    assert totals.sync_events == sum(site.events for site in report.sites)
    assert totals.host_blocking_calls == sum(site.calls for site in report.sites)
    assert totals.wait_ns == sum(site.wait_ns.total for site in report.sites)
    assert totals.recoverable_ns == sum(site.recoverable_ns or 0 for site in report.sites)
    assert totals.recoverable_ns <= (totals.recoverable_all_ns or 0) <= totals.wait_ns


def ask(path: Path, **options: Any) -> Report:
    report = analyze(path, Options(**options))
    check(report)
    return report


def window_of(report: Report) -> int:
    device: DeviceTime = report.devices[0]
    return in_us(device.window_ns)


def test_all_of_it(four_steps: Path) -> None:
    report = ask(four_steps)
    # 4 gaps of 110, 3 of 310, and the first 10, half of it in the launch.
    assert window_of(report) == 3_700
    assert causes(report) == {"sync_wait": 40, "sync_refill": 4 * 95 + 3 * 180, "host": 5 + 3 * 125, "device": 40}
    assert report.totals.sync_events == 4


def test_without_the_first_step(four_steps: Path) -> None:
    report = ask(four_steps, skip_first=1)
    # From 900, where the first step ends. Of its last gap [900, 1010) is left, and its sync is not in the window: 105
    # of it are host time.
    assert window_of(report) == 2_800
    assert causes(report) == {"sync_wait": 30, "sync_refill": 3 * 95 + 2 * 180, "host": 105 + 2 * 125, "device": 30}
    assert report.totals.sync_events == 3
    assert report.steps[0].count == 3


def test_from_one_instant_to_another(four_steps: Path) -> None:
    report = ask(four_steps, low=310 * US, high=2_000 * US)
    # The first sync ends where the window begins and is not in it: [310, 405) and [700, 1005) are host time. The second
    # step's last gap ends with the window, before its launch: 300 of host time, 180 of credit.
    assert window_of(report) == 1_690
    assert causes(report) == {"sync_wait": 10, "sync_refill": 95 + 180, "host": 95 + 305 + 120, "device": 15}
    assert report.totals.sync_events == 1
    assert in_us(report.totals.wait_ns) == 285


def test_within_one_range(four_steps: Path) -> None:
    report = ask(four_steps, within="step 2")
    # [2000, 2900): 5 and 5 before the first kernel; the first gap whole; 200 of the last, 180 of them paid for.
    assert window_of(report) == 900
    assert causes(report) == {"sync_wait": 10, "sync_refill": 95 + 180, "host": 5 + 20, "device": 10}
    assert report.totals.sync_events == 1


def test_within_several_ranges(four_steps: Path) -> None:
    report = ask(four_steps, within="forward")
    # From the first range's start to the last one's end, [0, 2350). Two of three syncs begin in a range; what the
    # third causes (10, 95 and 180) is nobody's here: host time.
    assert window_of(report) == 2_350
    assert report.totals.sync_events == 2
    # Third step: 10 in the sync, 40 of catching up until the window ends.
    assert causes(report) == {
        "sync_wait": 10 + 10,
        "sync_refill": 95 + 180 + 40,
        "host": 5 + 125 + (10 + 95) + 305,
        "device": 5 + 5 + 5 + 5 + 5,
    }
    assert in_us(report.totals.recoverable_all_ns or 0) == 20 + 315


def test_within_ranges_a_sync_that_does_not_wait_hides_the_one_before_it(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.range("forward", 0, 80)
    th.launch(0, 5, (5, 50))
    th.sync(STREAM_SYNC, 20, 60)
    th.sync(STREAM_SYNC, 60, 70)
    th.launch(90, 95, (95, 100))
    th.sync(STREAM_SYNC, 98, 120)
    totals = ask(scale(t).write(tmp_path / "t.sqlite"), within="forward").totals
    # Until 80: 10 in the first sync; of the 10 after the second one the first could pay for all.
    assert (totals.sync_events, in_us(totals.recoverable_ns or 0), in_us(totals.recoverable_all_ns or 0)) == (2, 10, 20)


def test_a_window_cuts_a_sync(four_steps: Path) -> None:
    report = ask(four_steps, low=100 * US, high=305 * US)
    # The sync lies over both edges: it counts, with all that it waited. Of the gap [300, 310) in it 5 are left.
    assert causes(report) == {"sync_wait": 5}
    assert in_us(report.totals.wait_ns) == 285


@pytest.mark.parametrize("options", [{"low": 4_000 * US}, {"high": 0}])
def test_a_window_without_work_is_not_called_healthy(four_steps: Path, options: dict[str, Any]) -> None:
    report = analyze(four_steps, Options(**options))
    assert report.headline.slug == "nothing_measured"
    assert (report.devices, report.sites, report.totals.idle_ns) == ([], [], None)


@pytest.mark.parametrize(
    "options",
    [
        {"low": 500 * US, "high": 500 * US},
        {"within": "backward"},
        {"within": "step 1", "high": 500 * US},
        {"skip_first": 4},
    ],
)
def test_a_window_that_cannot_be(four_steps: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        analyze(four_steps, Options(**options))
    assert caught.value.hint


@pytest.mark.parametrize("low", range(0, 2_000, 130))
def test_any_window(four_steps: Path, low: int) -> None:
    report = ask(four_steps, low=low * US, high=(low + 777) * US)
    assert window_of(report) == 777


@pytest.mark.parametrize("named", [lambda name: Options(step=name), lambda name: Options(within=name)])
def test_a_name_that_no_range_has(named: Callable[[str], Options], tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 1, (2, 3))
    for number, name in enumerate(
        ["epoch 0", "epoch 1", "nsys-sync:step 7", "nsys-sync:region fit", "nsys-sync:close"]
    ):
        th.range(name, 10 * number, 10 * number + 5)
    path = t.write(tmp_path / "t.sqlite")
    with pytest.raises(UsageError) as caught:
        analyze(path, named("validation"))
    assert caught.value.slug == "window"
    assert caught.value.hint == "The trace has: epoch 0, fit, step 7"
    for name in ("epoch 1", "step 7", "fit"):
        analyze(path, named(name))
