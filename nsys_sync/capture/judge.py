"""Finds the report of a run and says what went wrong if there is none. nsys's exit code tells nothing about it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from glob import escape
from pathlib import Path

from nsys_sync.capture.launch import Run, identity
from nsys_sync.capture.naming import with_suffix
from nsys_sync.capture.space import full_disk
from nsys_sync.errors import CaptureError, NothingToAnalyze

#: File times may be coarser than the clock.
_TOLERANCE_NS = 2_000_000_000
#: Wherever a path may begin: folders have blanks in their names.
_PATH = re.compile(r"(?<![^\s'\"])(?=(/[^'\"\n]*?nsys-report-\w+\.(?:nsys-rep|qdrep|qdstrm)))")
_PROGRESS = re.compile(r"^\[\d+/\d+\]|^Processing |^\s*$")
_LAST_LINES = 5


def find_report(run: Run) -> Path:
    """The report that this run wrote, where it was asked for; never one that was there before.

    Raises NothingToAnalyze if the range never began, CaptureError with the cause if there is no report otherwise.
    """
    report = run.launch.report
    if is_new(report, run):
        return report
    for stray in _elsewhere(run, (".nsys-rep", ".qdrep")):
        return _moved(stray, report)
    for stream in _elsewhere(run, (".qdstrm",)):
        return _converted(stream, report, run)
    raise _why_none(run)


def other_reports(run: Run) -> list[Path]:
    """Further reports of a run with several ranges (``--capture-range-end=repeat``): NAME.2.nsys-rep and so on."""
    return [path for path in _numbered(run)[1:] if is_new(path, run)]


def partial_report(run: Run) -> Path | None:
    """What an interrupted run left behind: a report, or the stream that one can be made from."""
    if is_new(run.launch.report, run):
        return run.launch.report
    return next(_elsewhere(run, (".nsys-rep", ".qdrep", ".qdstrm")), None)


def last_words(run: Run) -> str:
    """The last lines of nsys's own output, without its progress bars."""
    lines = [line.strip() for line in re.split(r"[\r\n]", run.log)]
    kept = [line for line in lines if not _PROGRESS.match(line)]
    return "\n".join(kept[-_LAST_LINES:])


def is_new(path: Path, run: Run) -> bool:
    """Whether the file has content and was written since the run began."""
    found = identity(path)
    _, _, changed, size = found
    return size > 0 and changed >= run.started - _TOLERANCE_NS and found not in run.before


def _numbered(run: Run) -> list[Path]:
    stem = run.launch.report.name.removesuffix(".nsys-rep")
    found = run.launch.report.parent.glob(f"{escape(stem)}.*.nsys-rep")
    numbers = {path: path.name.removeprefix(f"{stem}.").removesuffix(".nsys-rep") for path in found}
    return sorted((path for path, number in numbers.items() if number.isdigit()), key=lambda path: int(numbers[path]))


def _elsewhere(run: Run, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Files of this run that nsys put somewhere else: beside the report, where its log says, where it keeps drafts."""
    base = run.launch.report.with_name(run.launch.report.name.removesuffix(".nsys-rep"))
    places = [*_numbered(run), *(with_suffix(base, suffix) for suffix in suffixes)]
    places += [Path(found) for found in reversed(_PATH.findall(run.log))]
    for path in places:
        if path.suffix in suffixes and is_new(path, run):
            yield path


def _moved(stray: Path, report: Path) -> Path:
    try:
        shutil.move(stray, report)
    except OSError as error:
        raise CaptureError(
            "report-elsewhere",
            f"nsys could not write {report} and put the report at {stray}; it cannot be moved: {error.strerror}.",
            f"Analyse it there: nsys-sync report {shlex.quote(str(stray))}",
        ) from None
    return report


def _converted(stream: Path, report: Path, run: Run) -> Path:
    nsys = run.launch.nsys
    if nsys.importer is None:
        raise CaptureError(
            "qdstrm-only",
            f"nsys left {stream} and could not make a report of it: its host part is not beside {nsys.path}.",
            f"Where all of nsys {nsys.version_name} is installed: QdstrmImporter -i {shlex.quote(str(stream))}",
        )
    command = [str(nsys.importer), "-i", str(stream), "-o", str(report)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not is_new(report, run):
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise CaptureError(
            "qdstrm-only",
            f"nsys left {stream}, and its importer failed: {said[-1] if said else 'it does not say why'}",
            f"Try again: {shlex.join(command)}",
        )
    stream.unlink(missing_ok=True)
    return report


def _why_none(run: Run) -> CaptureError | NothingToAnalyze:
    full = full_disk((run.launch.report.parent, Path(tempfile.gettempdir())), run.log)
    if full is not None:
        return full
    if not run.program_started:
        return CaptureError(
            "nsys-failed",
            f"nsys did not start the program. {_words(run)}",
            f"The command was: {_shown(run)}",
        )
    if not run.range_began:
        return _never_began(run)
    if run.stuck:
        return CaptureError(
            "range-stuck",
            "The driver call that ends the capture did not return, and nsys left no report.",
            "Worth a try: --light, which traces without backtraces, or --nsys-arg=--flush-on-cudaprofilerstop=false",
        )
    return CaptureError(
        "no-report",
        f"nsys wrote no report (it ended with {run.exit_code}). {_words(run)}",
        f"The command was: {_shown(run)}",
    )


def _words(run: Run) -> str:
    words = last_words(run)
    return f"It says:\n{words}" if words else "It says nothing."


def _never_began(run: Run) -> NothingToAnalyze:
    text, hint = _cause(run)
    return NothingToAnalyze("range-never-started", f"The capture range never started: {text}.", hint)


def _cause(run: Run) -> tuple[str, str]:
    """Why the range never began, and how to capture without it; most certain causes first."""
    if run.exit_code:
        text = f"the program ended with exit code {run.exit_code} before that"
        return text, "Its own message is above. To capture how it fails: --capture all"
    mode = run.launch.captured.mode
    if mode == "nvtx":
        name = run.launch.captured.spec.partition(":")[2]
        return f"no NVTX range “{name}” was opened", _nvtx_hint(run)
    if mode == "script":
        return "the program never called cudaProfilerStart", "Let nsys-sync choose the range: --capture steps:10:20"
    if not run.loaded:
        return "no Python of the program loaded the step module", "Record everything: --capture all"
    call = next((report["script_call"] for report in run.reports if report.get("script_call")), None)
    if mode == "auto" and call:
        return f"the program's own call at {call} was never reached", "Ignore it: --capture steps:10:20"
    steps = max((report["steps_run"] or 0 for report in run.reports), default=0)
    if not any(report.get("cuda") for report in run.reports):
        return "the program did not use CUDA through Python", "Record everything: --capture all"
    if steps:
        skip = run.launch.captured.target.get("skip", 10)
        return (
            f"the program ran {steps} steps, and the capture begins after {skip}",
            f"Begin earlier: --capture steps:{max(1, steps // 3)}:{max(1, steps // 2)}",
        )
    return (
        "the program took no optimizer step and ended before the capture by time began",
        "Begin earlier (--capture time:2:5), or record everything: --capture all",
    )


def _nvtx_hint(run: Run) -> str:
    version = run.launch.nsys.version
    dropped = f" nsys {run.launch.nsys.version_name} drops the ranges of the Python package nvtx from 0.2.13 on."
    hint = "Check the name (NAME@DOMAIN for one domain), or record everything: --capture all."
    return hint + dropped if version < (2024, 1, 0) else hint


def _shown(run: Run) -> str:
    return shlex.join([str(run.launch.nsys.path), "profile", *run.launch.arguments, "…", *run.launch.program.command])
