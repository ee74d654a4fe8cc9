"""Predicted step times, worked out by hand. Times are in µs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nsys_sync.analysis.findings import Report, WhatIf
from nsys_sync.analysis.options import Options
from nsys_sync.analysis.run import analyze
from tests.analysis.ask import HOST_TO_DEVICE, PINNED_TO_DEVICE, STREAM_SYNC, US, scale
from tests.builder import MEMCPY, TraceBuilder

STEPS = 9
#: The narrowest range is the replay's value and 3 % on both sides: no two steps of a real program are equal.
SPREAD = 0.03


def copying(*, marks: bool = True, lost_graph: bool = False) -> TraceBuilder:
    """Steps of 1000: a pageable copy of 5,000,000 bytes that blocks for 500 (380 of them on the GPU), then a kernel of
    80, which the host launches 10 after the copy.
    """
    t = TraceBuilder()
    th = t.process().thread()
    for number in range(STEPS):
        at = 1_000 * number
        if marks:
            th.range(f"step {number}", at, at + 900)
        th.copy(at, at + 500, (at + 100, at + 480), kind=HOST_TO_DEVICE, size=5_000_000)
        th.launch(at + 510, at + 515, (at + 520, at + 600))
    if lost_graph:
        th.graph_launch(9_100, 9_105)
    return t


def report_of(t: TraceBuilder, folder: Path, **options: Any) -> Report:
    return analyze(scale(t).write(folder / "trace.sqlite"), Options(**options))


def predicted(report: Report) -> WhatIf:
    assert report.what_if.all is not None
    return report.what_if.all


def about(us: int) -> Any:
    return pytest.approx(us * US, rel=0.002)


def test_a_pageable_copy_comes_from_pinned_memory(tmp_path: Path) -> None:
    what_if = predicted(report_of(copying(), tmp_path))
    assert what_if.step_ns_now == 1_000 * US
    # The call costs 8 instead of 500: 508 of host time are left in a step. The GPU copies for 100, at 50 GB/s, waits 1
    # for its next operation and runs a kernel for 80.
    assert what_if.step_ns_high == about(round(508 * (1 + SPREAD)))
    assert what_if.gpu_bound_ns == about(100 + 1 + 80 + 1)
    assert any("50 GB/s" in reason for reason in what_if.reasons)


def test_the_speed_of_pinned_copies_is_the_user_s(tmp_path: Path) -> None:
    what_if = predicted(report_of(copying(), tmp_path, copy_gbps=25.0))
    assert what_if.gpu_bound_ns == about(200 + 1 + 80 + 1)
    assert not any("GB/s" in reason for reason in what_if.reasons)


def test_the_speed_of_pinned_copies_is_the_trace_s(tmp_path: Path) -> None:
    t = copying()
    # 4,000,000 bytes in 200: 20 GB/s.
    t._processes[0].thread(5).copy(8_950, 8_955, (8_960, 9_160), kind=PINNED_TO_DEVICE, size=4_000_000)
    what_if = predicted(report_of(t, tmp_path))
    assert what_if.gpu_bound_ns == about(250 + 1 + 80 + 1)
    assert not any("GB/s" in reason for reason in what_if.reasons)


@pytest.mark.parametrize("size", [-1, 0, 1 << 62])
def test_sizes_that_no_copy_has(tmp_path: Path, size: int) -> None:
    t = copying()
    for row in t.tables[MEMCPY]:
        row["bytes"] = size
    assert predicted(report_of(t, tmp_path, copy_gbps=0.001)).step_ns_now == 1_000 * US


def test_a_copy_that_is_faster_than_pinned_ones_stays_as_it_is(tmp_path: Path) -> None:
    what_if = predicted(report_of(copying(), tmp_path, copy_gbps=1.0))
    assert what_if.gpu_bound_ns == about(380 + 1 + 80 + 1)


def test_a_sync_that_the_gpu_needs_no_less_time_for(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    for number in range(STEPS):
        at = 1_000 * number
        th.range(f"step {number}", at, at + 999)
        th.launch(at, at + 5, (at + 4, at + 900))
        th.sync(STREAM_SYNC, at + 10, at + 903)
    # Without the sync the host needs 107 a step, the GPU 896 and 1 between two kernels.
    what_if = predicted(report_of(t, tmp_path))
    assert what_if.gpu_bound_ns == about(897)
    assert what_if.step_ns_high == about(round(897 * (1 + SPREAD)))
    assert what_if.step_ns_low == about(round(897 * (1 - SPREAD)))


def test_single_sites_and_all_of_them(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    for number in range(STEPS):
        at = 1_000 * number
        th.range(f"step {number}", at, at + 990)
        th.launch(at, at + 5, (at + 4, at + 300))
        th.sync(STREAM_SYNC, at + 10, at + 303, frames=[("a", "/proj/train.py", 1)])
        th.launch(at + 400, at + 405, (at + 404, at + 600))
        th.sync(STREAM_SYNC, at + 410, at + 603, frames=[("b", "/proj/train.py", 2)])
    report = report_of(t, tmp_path)
    highs = {site.line: site.what_if.step_ns_high for site in report.sites if site.what_if}
    # Of a step of 1000 the first sync takes 293, the second 193. Without the first the second kernel runs right behind
    # the first one, until 497, and the second sync returns at 500 instead of 603: 897. Without the second: 807.
    # Without both the host needs 514, the GPU 296 + 196 + 2 x 1. The savings, 103 and 193, do not add up to 486.
    assert highs[1] == about(round(897 * (1 + SPREAD)))
    assert highs[2] == about(round(807 * (1 + SPREAD)))
    assert predicted(report).step_ns_high == about(round(514 * (1 + SPREAD)))


@pytest.mark.parametrize("options", [{"marks": False}, {"lost_graph": True}])
def test_nothing_is_predicted_without_steps_or_with_work_missing(tmp_path: Path, options: dict[str, bool]) -> None:
    report = report_of(copying(**options), tmp_path)
    assert report.what_if.all is None
    assert report.what_if.by_class == {}
    assert [site.what_if for site in report.sites] == [None]
