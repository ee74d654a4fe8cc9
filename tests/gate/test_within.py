"""What ``--within`` and ``--skip-first`` leave to be counted: events in the named ranges, and steps of the window."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from nsys_sync.analysis.findings import Report
from nsys_sync.analysis.options import Options
from nsys_sync.analysis.run import analyze
from nsys_sync.gate import check, parse_limit
from tests.builder import Process, Thread, TraceBuilder

STEP = 1_000_000


def sync(trace: TraceBuilder, process: Process, thread: Thread, at: int, function: str) -> None:
    """A kernel of 50 µs that the thread waits for, at one line of this function."""
    trace_launch = thread.call("cudaLaunchKernel_v7000", at, at + 5_000)
    trace.kernel(process, at + 6_000, at + 56_000, corr=trace_launch)
    line = 10 if function == "forward" else 20
    thread.sync("cudaStreamSynchronize_v3020", at + 7_000, at + 60_000, frames=[(function, "/proj/train.py", line)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two processes of four steps; in each step two syncs in a region "forward" and one outside it.

    The second process has its regions at other times, where the first one is outside of its own.
    """
    built = TraceBuilder()
    for number in range(2):
        process = built.process(pid=100 + number)
        thread = process.thread()
        for step in range(4):
            start = step * STEP
            thread.range(f"step {step}", start, start + STEP - 1_000)
            first = start + 100_000 + number * 400_000
            thread.range("nsys-sync:region forward", first, first + 200_000)
            sync(built, process, thread, first + 10_000, "forward")
            sync(built, process, thread, first + 110_000, "forward")
            sync(built, process, thread, start + (600_000 if number == 0 else 110_000), "log")
    path = tmp_path / "trace.sqlite"
    built.write(path)
    return path


def events(report: Report) -> dict[str | None, int]:
    return {s.function: s.events for s in report.sites}


def per_step(report: Report) -> dict[str | None, float | None]:
    return {s.function: s.calls_per_step for s in report.sites}


def test_without_options_everything_is_counted(trace: Path) -> None:
    report = analyze(trace)
    assert events(report) == {"forward": 16, "log": 8}
    assert per_step(report) == {"forward": 2, "log": 1}


def test_only_what_begins_in_a_region_of_its_process_counts(trace: Path) -> None:
    report = analyze(trace, Options(within="forward"))
    assert events(report) == {"forward": 16}
    assert per_step(report) == {"forward": 2}
    assert report.totals.sync_events == 16
    assert report.totals.wait_ns == report.sites[0].wait_ns.total
    assert report.totals.recoverable_ns == 348_000
    assert report.totals.recoverable_all_ns == 351_000  # one sync hides what another could give back
    assert report.headline.slug != "withheld"


def test_a_region_of_one_step_is_one_step(trace: Path) -> None:
    report = analyze(trace, Options(within="step 2"))
    assert events(report) == {"forward": 4, "log": 2}
    assert per_step(report) == {"forward": 2, "log": 1}
    assert [s.count for s in report.steps] == [1, 1]


def test_steps_that_are_skipped_do_not_divide(trace: Path) -> None:
    report = analyze(trace, Options(skip_first=3))
    assert events(report) == {"forward": 4, "log": 2}
    assert per_step(report) == {"forward": 2, "log": 1}
    assert {p.in_loop.events for s in report.sites for p in s.by_process if p.in_loop} == {1, 2}
    assert [s.count for s in report.steps] == [1, 1]


def test_a_nested_region_is_not_left_at_its_inner_end(tmp_path: Path) -> None:
    built = TraceBuilder()
    process = built.process()
    thread = process.thread()
    thread.range("nsys-sync:region r", 0, 1_000_000)
    thread.range("nsys-sync:region r", 100_000, 200_000)
    sync(built, process, thread, 500_000, "forward")
    sync(built, process, thread, 1_500_000, "forward")
    path = tmp_path / "nested.sqlite"
    built.write(path)
    report = analyze(path, Options(within="r"))
    assert events(report) == {"forward": 1}


def test_a_region_in_which_nothing_happened_is_not_measured(tmp_path: Path) -> None:
    built = TraceBuilder()
    process = built.process()
    thread = process.thread()
    thread.range("nsys-sync:region pause", 700_000, 900_000)
    thread.range("nsys-sync:region after", 5_000_000, 6_000_000)
    for start in (100_000, 1_100_000):
        sync(built, process, thread, start, "forward")
    path = tmp_path / "pause.sqlite"
    built.write(path)
    for region in ("pause", "after"):
        report = analyze(path, Options(within=region))
        limits = [parse_limit("wait", "1s/capture"), parse_limit("idle_from_syncs", "99%")]
        assert check([report], limits, today=dt.date(2025, 6, 1)).status == "not_measured"
