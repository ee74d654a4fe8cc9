"""From a command line to a report: run it under nsys, export, note what only the launcher knows, analyse."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nsys_sync._version import __version__
from nsys_sync.capture import judge, launch
from nsys_sync.capture.export import export
from nsys_sync.capture.naming import with_suffix
from nsys_sync.capture.plan import CaptureRange
from nsys_sync.capture.prepare import Launch, check_place
from nsys_sync.errors import CaptureError, NothingToAnalyze, NsysSyncError
from nsys_sync.trace.annotate import annotate
from nsys_sync.trace.capture_info import CaptureInfo, SourceFile

if TYPE_CHECKING:
    from nsys_sync.analysis.findings import Report
    from nsys_sync.analysis.timeline import Timeline

Say = Callable[[str], None]

#: Larger source files are not kept whole, only the lines that the report shows.
_LARGEST_SOURCE = 1 << 20


@dataclass(frozen=True)
class Profiled:
    """What a run gave. Without a report ``error`` says why.

    program_exit: the program's own exit code. speaks: whether this run prints its report; of several ranks one does.
    source: whether source code may be written into the run's files.
    """

    base: Path
    program_exit: int
    report: Report | None = None
    timeline: Timeline | None = None
    error: NsysSyncError | None = None
    written: tuple[Path, ...] = ()
    speaks: bool = True
    source: bool = True

    @property
    def stored(self) -> Report | None:
        """The report as it may be written to files."""
        if self.report is None or self.source:
            return self.report
        sites = [msgspec.structs.replace(s, source=None, source_status="missing") for s in self.report.sites]
        return msgspec.structs.replace(self.report, sites=sites)

    def path(self, suffix: str) -> Path:
        """The run's file with this ending."""
        return with_suffix(self.base, suffix)

    @property
    def exit_code(self) -> int:
        """The program's own failure first, then ours."""
        return self.program_exit or (0 if self.error is None else int(self.error.exit_code))


def profile(prepared: Launch, say: Say, environment: Mapping[str, str] | None = None) -> Profiled:
    """Run the program, export and analyse what was captured.

    What goes wrong once the program has run is returned, together with the program's exit code; only a folder that
    cannot be written (OutputError) and an nsys that cannot be started (CaptureError) raise.
    """
    prepared = replace(prepared, warnings=[*prepared.warnings, *check_place(prepared.base)])
    for _, text in prepared.warnings:
        say(text)
    say(f"Running {prepared.program.shown} under nsys {prepared.nsys.version_name}.")
    run = launch.run(prepared, dict(os.environ) if environment is None else environment, say)
    try:
        return _analyzed(run, say)
    except NsysSyncError as error:
        left = [path for path in (prepared.report, with_suffix(prepared.base, ".sqlite")) if judge.is_new(path, run)]
        return Profiled(prepared.base, run.exit_code, error=error, written=tuple(left))


def _analyzed(run: launch.Run, say: Say) -> Profiled:
    from nsys_sync.analysis.run import analyze_and_draw

    if run.signals > 1:
        raise _stopped(run)
    base = run.launch.base
    found = judge.find_report(run)
    database = export(run.launch.nsys, found, with_suffix(base, ".sqlite"), say, force=True)
    info = _capture_info(run)
    annotate(database, info)
    say("Analysing.")
    try:
        report, timeline = analyze_and_draw(database)
    except NothingToAnalyze as error:
        raise _nothing(error, run) from None
    return Profiled(
        base,
        run.exit_code,
        report=_with_sources(report, database, info) if run.launch.source else _bound(report, database),
        source=run.launch.source,
        timeline=timeline,
        written=(found, database),
        speaks=run.launch.speaks,
    )


def _with_sources(report: Report, database: Path, info: CaptureInfo) -> Report:
    """Keep the source files that the report shows in the trace; the report as it reads the trace from then on."""
    kept: dict[str, SourceFile] = {}
    for site in report.sites:
        if site.file is not None and site.source is not None and site.source_status == "found_unverified":
            before = kept.get(site.file)
            kept[site.file] = SourceFile(
                sha256=site.source.sha256,
                lines={**(before.lines if before else {}), **site.source.lines},
                text=before.text if before else _text_of(Path(site.file), site.source.sha256),
            )
    annotate(database, msgspec.structs.replace(info, sources=kept))
    sites = [
        msgspec.structs.replace(site, source_status="captured")
        if site.file in kept and site.source is not None
        else site
        for site in report.sites
    ]
    return _bound(msgspec.structs.replace(report, sites=sites), database)


def _text_of(path: Path, digest: str) -> str | None:
    """The whole file if it is not too large and still the one with this digest."""
    from nsys_sync.analysis.source import decoded

    try:
        data = path.read_bytes() if path.stat().st_size <= _LARGEST_SOURCE else b""
    except OSError:
        return None
    return decoded(data) if sha256(data).hexdigest() == digest else None


def _bound(report: Report, database: Path) -> Report:
    """The report with the digest of the trace as it is now."""
    from nsys_sync.trace.files import sha256 as digest_of

    return msgspec.structs.replace(report, trace=msgspec.structs.replace(report.trace, sha256=digest_of(database)))


def _capture_info(run: launch.Run) -> CaptureInfo:
    told = _leading(run.reports)
    steps_run = [report["steps_run"] for report in run.reports if report.get("steps_run") is not None]
    return CaptureInfo(
        tool_version=__version__,
        nsys_version=run.launch.nsys.build,
        flags=run.launch.arguments,
        range=_range_name(run.launch.captured, told),
        steps_run=max(steps_run, default=None),
        steps_captured=told.get("steps_captured"),
        step_ns_before=told.get("step_ns_before"),
        step_ns_inside=told.get("step_ns_inside"),
        target_exit=run.exit_code,
        started_utc=datetime.fromtimestamp(run.started / 1e9, UTC).isoformat(timespec="seconds"),
        warnings=[*run.launch.warnings, *_findings(run, told)],
    )


def _leading(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """What the process that opened the range told; nothing if none did."""
    return next((report for report in reports if report.get("opened_by") in ("steps", "time", "script")), {})


def _range_name(captured: CaptureRange, told: dict[str, Any]) -> str:
    """The range as it came about: what ``auto`` chose, with the steps that it really held."""
    opened_by, steps = told.get("opened_by"), told.get("steps_captured")
    if captured.mode not in ("auto", "steps") or opened_by is None:
        return captured.spec
    if opened_by == "steps":
        return f"steps:{captured.target.get('skip', 10)}:{steps}"
    return str(opened_by)


def _findings(run: launch.Run, told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a reader of the report must know about the capture."""
    if run.exit_code:
        yield (
            "program-failed",
            f"The program ended with exit code {run.exit_code}; this is what was captured until then.",
        )
    if run.stuck:
        text = "The driver call that ends the capture did not return: the capture goes on to the end of the program."
        yield "range-stuck", text
    if not run.loaded:
        yield "no-handshake", "No Python of the program loaded the step module: steps and ranks are not marked."
    wanted, closed_by = run.launch.captured.target.get("steps", 20), told.get("closed_by")
    if told.get("opened_by") == "steps" and closed_by in ("exit", "stall"):
        reason = "the program ended" if closed_by == "exit" else "no further step came"
        yield "few-steps", f"{told.get('steps_captured')} of {wanted} steps were captured, then {reason}."
    if (told.get("script_ranges") or 0) > 1:
        yield "first-range-only", f"The program opened {told['script_ranges']} ranges; only the first is captured."
    others = judge.other_reports(run)
    if others:
        yield "first-range-only", f"nsys wrote {len(others) + 1} reports; this is the first. Another: {others[0].name}"


def _nothing(error: NothingToAnalyze, run: launch.Run) -> NothingToAnalyze:
    """The same error, with the cause if the target module saw it."""
    other = next((report["other_profiler"] for report in run.reports if report.get("other_profiler")), None)
    if other is None:
        return error
    return NothingToAnalyze(
        "other-profiler",
        f"No CUDA activity was recorded: the program starts its own profiler at {other}, and CUDA serves only one.",
        "Switch that one off for this run.",
    )


def _stopped(run: launch.Run) -> CaptureError:
    left = judge.partial_report(run)
    if left is None:
        return CaptureError("interrupted", "Stopped; nsys left no report.")
    return CaptureError(
        "interrupted", f"Stopped. The partial report is {left}.", f"To look at it: nsys-sync report {left}"
    )
