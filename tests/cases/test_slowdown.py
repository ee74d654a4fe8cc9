"""What a report says of the profiler's own cost."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nsys_sync.analysis.run import analyze
from nsys_sync.trace.capture_info import CaptureInfo
from tests.builder import TraceBuilder


@pytest.mark.parametrize(
    ("before", "inside", "ratio", "notes"),
    [
        (10_000, 12_000, 1.2, []),
        (10_000, 9_000, 0.9, []),
        (191_000, 20_000, None, ["steps-differ"]),
        (None, 20_000, None, []),
    ],
)
def test_the_profilers_cost_is_told_only_of_steps_that_are_alike(
    tmp_path: Path, before: int | None, inside: int, ratio: float | None, notes: list[str]
) -> None:
    trace = TraceBuilder()
    process = trace.process(pid=100)
    thread = process.thread(100)
    thread.call("cudaLaunchKernel_v7000", 0, 5, corr=1)
    trace.kernel(process, 10, 30, corr=1, device=0, stream=7)
    info = CaptureInfo(tool_version="1", step_ns_before=before, step_ns_inside=inside)
    trace.capture_info(msgspec.json.encode(info).decode())
    path = tmp_path / "trace.sqlite"
    trace.write(path)
    report = analyze(path)
    told = report.trace.capture.slowdown
    assert (told.ratio if told else None) == ratio
    assert [note.slug for note in report.trace.warnings if note.slug == "steps-differ"] == notes
