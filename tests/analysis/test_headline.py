"""The sentence on top: what the loop suffers from, not what happened once before or after it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nsys_sync.analysis import run
from nsys_sync.analysis.assemble.headline import choose_headline, ms
from nsys_sync.analysis.findings import (
    Capture,
    CopyOnly,
    DeviceTime,
    IdleByCause,
    Report,
    Slowdown,
    Totals,
)
from nsys_sync.analysis.options import Options
from nsys_sync.analysis.timeline import CAUSES
from tests.builder import TraceBuilder

US = 1_000
MS = 1_000_000
UNKNOWN = Capture(flags=[], backtrace=None, sampling=None, graphs=None, slowdown=None, target_exit=None)
LONG = 100_000


def read(t: TraceBuilder, folder: Path) -> Report:
    return run.analyze(t.write(folder / f"{len(list(folder.iterdir()))}.sqlite"), Options(predict=False))


def loop(path: Path, *, work: int, sync: bool = False, pause: int = 0, steps: int = 10) -> Report:
    """Steps of 1 ms whose kernel runs for ``work`` µs, after one kernel and a pause (µs) without any."""
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5 * US, (10 * US, 20 * US))
    for step in range(steps):
        at = (20 + pause + 1_000 * step) * US
        th.range(f"step {step}", at, at + 990 * US)
        th.launch(at + 10 * US, at + 20 * US, (at + 20 * US, at + (20 + work) * US))
        if sync:
            th.sync("cudaStreamSynchronize_v3020", at + (10 + work) * US, at + (25 + work) * US)
    return read(t, path)


@pytest.mark.parametrize(
    ("work", "sync", "slug"), [(960, False, "no_syncs"), (960, True, "gpu_bound"), (300, True, "launch_bound")]
)
def test_a_long_pause_does_not_decide(work: int, sync: bool, slug: str, tmp_path: Path) -> None:
    plain = loop(tmp_path, work=work, sync=sync)
    paused = loop(tmp_path, work=work, sync=sync, pause=LONG)
    assert plain.headline.slug == paused.headline.slug == slug
    assert "pause" not in plain.headline.text
    assert "100 ms of it in a pause longer than a step" in paused.headline.text
    assert paused.totals.idle_ns == (plain.totals.idle_ns or 0) + LONG * US


def test_what_is_left_beside_the_pause_is_said(tmp_path: Path) -> None:
    text = loop(tmp_path, work=960, sync=True, pause=LONG).headline.text
    assert text.startswith(
        "GPU idle 91 % of 110 ms (100 ms, 100 ms of it in a pause longer than a step) and busy 96 % of"
    )


def test_without_enough_steps_nothing_is_called_a_pause(tmp_path: Path) -> None:
    assert "pause" not in loop(tmp_path, work=960, sync=True, pause=LONG, steps=2).headline.text


def test_two_ranks_whose_start_took_long_are_not_launch_bound(tmp_path: Path) -> None:
    t = TraceBuilder()
    for rank in (0, 1):
        th = t.process(pid=10 + rank).thread()
        th.launch(0, 5 * US, (10 * US, 20 * US), device=rank)
        for step in range(8):
            at = (40_000 + 1_000 * step) * US
            th.range(f"step {step}", at, at + 990 * US)
            th.launch(at + 10 * US, at + 20 * US, (at + 20 * US, at + 960 * US), device=rank)
            th.sync("cudaStreamSynchronize_v3020", at + 30 * US, at + 990 * US, device=rank)
    headline = read(t, tmp_path).headline
    assert headline.slug != "launch_bound"
    assert "on 2 GPUs" in headline.text
    assert "in 2 pauses longer than a step" in headline.text


@pytest.mark.parametrize(("idle", "slug"), [(9, "gpu_bound"), (12, "mixed"), (30, "launch_bound")])
def test_idle_that_no_sync_caused_has_to_be_worth_a_headline(idle: int, slug: str) -> None:
    """4 % of the time comes back. 8 % more are no case for CUDA graphs, 26 % are."""
    device = DeviceTime(
        device=0,
        window_ns=100 * MS,
        busy_ns=(100 - idle) * MS,
        compute_busy_ns=(100 - idle) * MS,
        copy_only_ns=CopyOnly(blocking=0, async_=0),
        idle_ns=idle * MS,
        idle_by_cause_ns=IdleByCause(**dict.fromkeys(CAUSES, 0) | {"host": idle * MS}),
        idle_status="measured",
        idle_reason=None,
        gaps=1,
    )
    totals = Totals(
        host_blocking_calls=1,
        sync_events=1,
        device_waits=0,
        wait_ns=4 * MS,
        host_blocked_ns=4 * MS,
        thread_blocked_ns=4 * MS,
        idle_ns=idle * MS,
        idle_from_syncs_ns=4 * MS,
        recoverable_ns=4 * MS,
        recoverable_all_ns=4 * MS,
    )
    assert choose_headline([device], totals, [], UNKNOWN).slug == slug


@pytest.mark.parametrize(("ratio", "sentence"), [(1.17, "made the steps 17 % longer"), (1.004, "did not slow")])
def test_less_than_a_percent_is_no_slowdown(ratio: float, sentence: str, tmp_path: Path) -> None:
    report = loop(tmp_path, work=300, sync=True)
    slowdown = Slowdown(step_ns_before=MS, step_ns_inside=int(ratio * MS), ratio=ratio)
    capture = msgspec.structs.replace(UNKNOWN, slowdown=slowdown)
    assert sentence in choose_headline(report.devices, report.totals, report.sites, capture).text


@pytest.mark.parametrize(("ns", "text"), [(0, "nothing"), (400, "less than 0.001 ms"), (30_500, "at most 0.030 ms")])
def test_what_comes_back_is_never_zero_by_rounding(ns: int, text: str, tmp_path: Path) -> None:
    report = loop(tmp_path, work=300, sync=True)
    totals = msgspec.structs.replace(report.totals, recoverable_all_ns=ns)
    assert f"gives back {text}" in choose_headline(report.devices, totals, [], UNKNOWN).text


@pytest.mark.parametrize("cause", ["device", "alloc", "tail", "unknown", "host"])
def test_a_host_is_launch_bound_only_where_it_was_at_work(cause: str, tmp_path: Path) -> None:
    report = loop(tmp_path, work=300, sync=True)
    (device,) = report.devices
    causes = IdleByCause(**(dict.fromkeys(CAUSES, 0) | {cause: device.idle_ns or 0}))
    device = msgspec.structs.replace(device, idle_by_cause_ns=causes)
    headline = choose_headline([device], report.totals, report.sites, UNKNOWN)
    assert (headline.slug == "launch_bound") == (cause == "host")
    assert ("launch-bound" in headline.text) == (cause == "host")


@pytest.mark.parametrize(
    ("ns", "text"),
    [(527_000, "0.527 ms"), (9_999 * MS, "9,999 ms"), (12_345 * MS, "12.3 s"), (10**17, "100,000,000 s")],
)
def test_times_have_a_unit_that_fits(ns: int, text: str) -> None:
    assert ms(ns) == text
