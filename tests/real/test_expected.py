"""The recorded traces, number by number, as two other implementations of the definitions found them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

from nsys_sync.analysis.calls import connect, find_blocking
from nsys_sync.analysis.findings import Report, Site
from nsys_sync.trace.reader import open_trace
from tests.conftest import SAMPLES
from tests.real.conftest import Analyzed

NAMES = sorted(path.name.removesuffix(".sqlite.xz") for path in SAMPLES.glob("*.sqlite.xz"))

Expected = dict[str, Any]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def test_every_recorded_trace_has_its_numbers(expected: Expected) -> None:
    assert len(NAMES) == 15
    assert sorted(expected) == NAMES


def line_of(site: Site) -> str | None:
    """``file:line`` as long as a frame was recorded at the call itself, or at the sync that follows a copy."""
    recorded = site.file is not None and "sampled" not in site.origins
    return f"{PurePosixPath(site.file or '').name}:{site.line}" if recorded else None


def calls_by_line(report: Report) -> dict[str, int]:
    calls: Counter[str] = Counter()
    for site in report.sites:
        for api, number in site.apis.items():
            calls[line_of(site) or f"?:{api}"] += number
    return dict(calls)


def sites_by_line(report: Report) -> dict[str, dict[str, int]]:
    """Sums of the sites of one line. A site without one goes by the API that its events begin with: the copy's."""
    lines: dict[str, Counter[str]] = {}
    for site in report.sites:
        first = next((api for api in site.apis if "Memcpy" in api), next(iter(site.apis)))
        assert site.idle_ns is not None
        lines.setdefault(line_of(site) or f"?:{first}", Counter()).update(
            events=site.events,
            wait_ns=site.wait_ns.total,
            sync_wait_ns=site.idle_ns.sync_wait,
            sync_refill_ns=site.idle_ns.sync_refill,
            sync_overhead_ns=site.idle_ns.sync_overhead,
            copy_in_call_ns=site.copy_in_call_ns or 0,
            recoverable_ns=site.recoverable_ns or 0,
        )
    return {line: dict(sums) for line, sums in lines.items()}


def test_calls_and_events(name: str, analyzed: Analyzed, expected: Expected) -> None:
    report = analyzed(name)
    assert report.totals.host_blocking_calls == expected[name]["host_blocking_calls"]
    assert report.totals.sync_events == expected[name]["sync_events"]
    assert calls_by_line(report) == expected[name]["calls_by_site"]


def test_cost_of_a_call_that_does_not_wait(name: str, sample: Callable[[str], Path], expected: Expected) -> None:
    with open_trace(sample(name)) as trace:
        assert find_blocking(trace, connect(trace))[0].base == expected[name]["base_ns"]


def test_steps(name: str, analyzed: Analyzed, expected: Expected) -> None:
    found = {
        str(number): {"count": steps.count, "mean_ns": steps.mean_ns, "median_ns": steps.median_ns}
        for number, steps in enumerate(sorted(analyzed(name).steps, key=lambda steps: steps.pid))
    }
    assert found == expected[name]["steps"]


def test_sites(name: str, analyzed: Analyzed, expected: Expected) -> None:
    assert sites_by_line(analyzed(name)) == expected[name]["sites"]


def test_devices(name: str, analyzed: Analyzed, expected: Expected) -> None:
    keys = ("window_ns", "busy_ns", "compute_busy_ns", "copy_only_ns", "idle_ns", "gaps", "idle_by_cause_ns")
    found = {str(device.device): msgspec.to_builtins(device) for device in analyzed(name).devices}
    assert {number: {key: device[key] for key in keys} for number, device in found.items()} == expected[name]["devices"]


def test_recoverable_together(name: str, analyzed: Analyzed, expected: Expected) -> None:
    assert analyzed(name).totals.recoverable_all_ns == expected[name]["recoverable_all_ns"]


def test_invariants(name: str, analyzed: Analyzed) -> None:
    report = analyzed(name)
    for device in report.devices:
        assert device.idle_by_cause_ns is not None
        assert device.copy_only_ns is not None
        assert device.window_ns == (device.busy_ns or 0) + (device.idle_ns or 0)
        assert device.idle_by_cause_ns.total == device.idle_ns
        copy_only = device.copy_only_ns.blocking + device.copy_only_ns.async_
        assert device.busy_ns == (device.compute_busy_ns or 0) + copy_only
    for cause in ("sync_wait", "sync_refill", "sync_overhead"):
        on_devices = sum(getattr(device.idle_by_cause_ns, cause) for device in report.devices)
        assert sum(getattr(site.idle_ns, cause) for site in report.sites) == on_devices
        assert sum(getattr(share, cause) for site in report.sites for share in site.by_device) == on_devices
    for site in report.sites:
        assert site.recoverable_ns is not None
        assert site.recoverable_ns <= site.wait_ns.total
        assert sum(share.recoverable_ns or 0 for share in site.by_process) == site.recoverable_ns
        assert sum(share.wait_ns for share in site.by_process) == site.wait_ns.total
    assert report.totals.recoverable_ns == sum(site.recoverable_ns or 0 for site in report.sites)
    assert report.totals.wait_ns == sum(site.wait_ns.total for site in report.sites)


def test_samples_name_the_lines_that_no_call_recorded(analyzed: Analyzed) -> None:
    sampled: Counter[int | None] = Counter()
    for site in analyzed("probe-seedflags").sites:
        if "sampled" in site.origins:
            assert PurePosixPath(site.file or "").name == "probe_train.py"
            sampled[site.line] += site.origins["sampled"]
    # Each step waits in .item() and in .cpu(), five steps: 25 other calls are too short to hold a sample.
    assert sampled == {6: 5, 14: 5}


def test_a_copy_that_blocks_comes_before_all_synchronize_calls(analyzed: Analyzed, expected: Expected) -> None:
    report = analyzed("probe-sync")
    first, steps = report.sites[0], report.steps[0].count
    assert line_of(first) == "probe_train.py:14"
    assert first.apis == {"cudaMemcpyAsync": 5, "cudaStreamSynchronize": 5}
    assert 27.5e6 < first.wait_ns.total / steps < 28.5e6
    # The time is in the copy: the sync right after it finds nothing left to wait for.
    assert first.wait_ns.total == expected["probe-sync"]["sites"]["probe_train.py:14"]["wait_ns"]


def test_two_processes_have_rows_of_their_own(analyzed: Analyzed) -> None:
    report = analyzed("ddp-fix0")
    first, second = (process.pid for process in report.trace.processes)
    assert [steps.pid for steps in report.steps] == [first, second]
    rows: dict[str | None, Counter[int]] = {}
    for site in report.sites:
        rows.setdefault(line_of(site), Counter()).update({share.pid: share.calls for share in site.by_process})
    # Only the first rank reaches line 238: a pageable copy with its sync, and a device sync.
    assert rows == {
        "workloads.py:237": {first: 10, second: 10},
        "workloads.py:238": {first: 30},
        "workloads.py:26": {first: 1, second: 1},
    }
    assert report.totals.host_blocking_calls == 52
    assert report.totals.device_waits > 0
    assert not any("WaitEvent" in api for site in report.sites for api in site.apis)
