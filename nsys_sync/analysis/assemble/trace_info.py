"""Where the numbers come from: the trace, how it was taken, and what it lacks."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

import numpy as np

from nsys_sync.analysis import findings as f
from nsys_sync.analysis.assemble.found import Findings
from nsys_sync.trace.capture_info import MARK_PREFIX, CaptureInfo
from nsys_sync.trace.columns import distinct
from nsys_sync.trace.reader import Trace
from nsys_sync.trace.tables import os_pid, process_of

#: Profiling makes no step shorter: below this ratio the steps inside and before the range are not alike.
_SAME_STEPS = 0.8

_NOT_RECORDED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "No kernels were recorded.",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "No copies were recorded: copies that block the CPU cannot be told from others.",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "No synchronisation records: a wait for a stream is measured against its whole device."
    ),
    "CUDA_CALLCHAINS": "No native call chains were recorded.",
    "NVTX_EVENTS": "No NVTX events were recorded: no steps and no Python lines.",
}
_FRAMES = {
    "not_exported": (
        "python-frames-not-exported",
        "Python frames were recorded but are not in this export: nsys-sync export REPORT.nsys-rep",
    ),
    "not_recorded": (
        "python-frames-not-recorded",
        (
            "No Python frames were recorded: nsys-sync profile SCRIPT (or nsys profile --python-backtrace=cuda "
            "--cudabacktrace=sync:0 --python-sampling=true …)"
        ),
    ),
}


def trace_info(found: Findings) -> f.TraceInfo:
    """What a report says about its trace."""
    trace, meta, capture = found.trace, found.trace.meta, found.trace.capture
    slowdown = _slowdown(capture)
    pids = distinct(np.sort(np.concatenate((process_of(found.activity.calls.tid), found.activity.ops.pid))))
    ranks = _ranks(trace)
    return f.TraceInfo(
        file=os.fsencode(trace.path.name).decode("utf-8", "replace"),
        sha256=trace.sha256,
        nsys_version=(capture.nsys_version if capture else None) or meta.exporter_version,
        schema_version=meta.schema_version,
        driver=meta.driver,
        cuda=meta.cuda,
        captured_utc=meta.captured_utc,
        python_frames=trace.python_frames,
        capture=f.Capture(
            flags=list(capture.flags if capture else meta.flags),
            backtrace=meta.backtrace,
            sampling=meta.sampling,
            graphs=meta.graphs,
            slowdown=slowdown,
            target_exit=capture.target_exit if capture else None,
            range=capture.range if capture else None,
            steps_run=capture.steps_run if capture else None,
        ),
        devices=[f.DeviceName(id=d.device, name=trace.devices.get(d.device, "GPU")) for d in found.charged.devices],
        processes=[
            f.ProcessName(
                pid=os_pid(int(pid)),
                name=PurePosixPath(trace.processes.get(int(pid), "?")).name,
                rank=ranks.get(int(pid)),
            )
            for pid in pids
        ],
        warnings=[f.Note(slug=slug, text=text) for slug, text in _notes(trace, slowdown)],
    )


def _notes(trace: Trace, slowdown: f.Slowdown | None) -> list[tuple[str, str]]:
    """Slug and text of what a reader must know about the measurement."""
    capture = trace.capture
    notes = [*trace.warnings, *(capture.warnings if capture else [])]
    if slowdown is None and capture and capture.step_ns_before and capture.step_ns_inside:
        text = "The steps inside the range are of another kind than those before it: the profiler's cost is unknown."
        notes.append(("steps-differ", text))
    if lost := _lost_calls(trace):
        text = (
            f"{lost:,} calls that can block have a stack in the trace but no times: another profiler or a library that "
            "traces CUDA itself took the tracing over."
        )
        notes.append(("calls-lost", text))
    notes += [("not-recorded", text) for table, text in _NOT_RECORDED.items() if table in trace.missing]
    if trace.python_frames in _FRAMES:
        notes.append(_FRAMES[trace.python_frames])
    exporter = trace.meta.exporter_version
    if capture and _release(capture.nsys_version) != _release(exporter):
        notes.append(("nsys-versions", f"Captured by nsys {capture.nsys_version}, exported by nsys {exporter}."))
    return notes


def _lost_calls(trace: Trace) -> int:
    """How many calls nsys took a stack of and did not record, where that is most of them."""
    stacked = trace.brackets.names
    timed = [code for code, name in enumerate(trace.calls.names) if name in stacked]
    lost = len(trace.brackets.start) - int(np.isin(trace.calls.name, timed).sum())
    return lost if 2 * lost > len(trace.brackets.start) else 0


def _slowdown(capture: CaptureInfo | None) -> f.Slowdown | None:
    """What profiling cost a step; None where it was not measured, or the steps before cannot be compared."""
    if capture is None or not capture.step_ns_before or not capture.step_ns_inside:
        return None
    ratio = capture.step_ns_inside / capture.step_ns_before
    if ratio < _SAME_STEPS:
        return None
    return f.Slowdown(
        step_ns_before=capture.step_ns_before, step_ns_inside=capture.step_ns_inside, ratio=round(ratio, 4)
    )


def _release(version: str | None) -> str:
    """Year and number of an nsys release: what its tools say beyond that differs within one installation."""
    return ".".join((version or "").split(".")[:2])


def _ranks(trace: Trace) -> dict[int, int]:
    """Ranks by global process id, from the launcher's marks ``nsys-sync:rank R/W``."""
    ranges, prefix = trace.ranges, f"{MARK_PREFIX}rank "
    ranks = {}
    for code, name in enumerate(ranges.names):
        number = name.removeprefix(prefix).partition("/")[0]
        if name.startswith(prefix) and number.isdigit():
            for pid in process_of(ranges.tid[ranges.name == code]):
                ranks[int(pid)] = int(number)
    return ranks
