"""A report of Nsight Systems becomes the .sqlite that can be read, Python frames included.

Everything is written under a temporary name beside its place and then moved: nsys deletes the old file before it
fails, and a half-written one must never look like an export.
"""

from __future__ import annotations

import base64
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from nsys_sync.capture.nsys import Nsys
from nsys_sync.capture.space import full_disk
from nsys_sync.errors import CaptureError, InputError, OutputError
from nsys_sync.paths import check_file, check_new, is_file, unreadable
from nsys_sync.trace.annotate import RawMark, is_whole, stacks_missing, write_frames

Say = Callable[[str], None]

REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_HEADER = re.compile(rb"NVIDIA Tegra Profiler Report (\d{4})[@.](\d+)[@.](\d+)")


def report_version(report: Path) -> tuple[int, int, int] | None:
    """Version of the nsys that wrote a report, from its first bytes; None if they do not tell."""
    with report.open("rb") as file:
        found = _HEADER.match(file.read(64))
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def existing_export(report: Path) -> Path | None:
    """The export beside a report if it can be used: newer than the report, and complete."""
    for path in (report.with_suffix(".sqlite"), _own_name(report)):
        if _is_current(path, report):
            return path
    return None


def _is_current(path: Path, report: Path) -> bool:
    return is_file(path) and path.stat().st_mtime_ns >= report.stat().st_mtime_ns and is_whole(path)


def ensure_export(report: Path, find_nsys: Callable[[], Nsys], say: Say) -> Path:
    """An .sqlite of the report: the one beside it if it can be used, else a new one; no other file is touched.

    Raises InputError, CaptureError (with the command for another machine where there is no nsys), OutputError.
    """
    _check(report)
    found = existing_export(report)
    if found is not None:
        return found
    try:
        nsys = find_nsys()
    except CaptureError as error:
        version = report_version(report)
        wanted = "nsys" if version is None else f"nsys {'.'.join(map(str, version))} or newer"
        raise CaptureError(
            "nsys-not-found",
            f"{report} must be exported first, and there is no nsys here.",
            f"Where there is {wanted}: nsys-sync export {shlex.quote(report.name)}; then bring the .sqlite here.",
        ) from error
    beside = report.with_suffix(".sqlite")
    return export(nsys, report, _own_name(report) if beside.exists() else beside, say, force=True)


def export(nsys: Nsys, report: Path, output: Path | None, say: Say, *, force: bool = False) -> Path:
    """Export a report (.nsys-rep, .qdrep) to ``output``, else beside it; the absolute path. A current export is left as
    it is.

    Raises InputError if the report is not one, OutputError if ``output`` exists (without ``force``) or cannot be
    written, CaptureError if nsys cannot export it.
    """
    _check(report)
    if output is not None and output.name == "-":
        raise OutputError(
            "stdout-file", "An export is a database, which is no text for stdout.", "Name a file: -o PATH"
        )
    output = check_new(output or report.with_suffix(".sqlite"), force=True, reads=[report], plain=True)
    if not force and _is_current(output, report):
        say(f"{output} is complete and newer than its report; nothing to do.")
        return output
    check_new(output, force=force)
    try:
        draft = tempfile.TemporaryDirectory(prefix=".nsys-sync-", dir=output.parent, ignore_cleanup_errors=True)
    except OSError as error:
        elsewhere = f"Write elsewhere: nsys-sync export {shlex.quote(str(report))} -o PATH"
        raise OutputError("unwritable", f"{output} cannot be written: {error.strerror}.", elsewhere) from None
    with draft as folder:
        database = Path(folder, "export.sqlite")
        say(f"Exporting {report.name}.")
        _run(nsys, report, database, "sqlite")
        if stacks_missing(database):
            say("This version of nsys leaves the Python frames out; fetching them from its JSON export.")
            _fetch_frames(nsys, report, database, Path(folder, "export.json"))
        database.replace(output)
    return output


def _own_name(report: Path) -> Path:
    return report.with_suffix(".nsys-sync.sqlite")


def _check(report: Path) -> None:
    check_file(report)
    if report.suffix == ".qdstrm":
        raise InputError(
            "qdstrm-only",
            f"{report} is the raw stream of a capture, not a report.",
            f"Make one, with nsys's own importer: QdstrmImporter -i {shlex.quote(report.name)}",
        )
    if report.suffix not in REPORT_SUFFIXES:
        raise InputError(
            "not-a-report-file", f"{report} is no report of Nsight Systems.", "Reports end in .nsys-rep or .qdrep."
        )
    try:
        with report.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise unreadable(report, error) from None
    if empty:
        raise InputError("not-a-report-file", f"{report} is empty.", "Capture again.")


def _run(nsys: Nsys, report: Path, output: Path, kind: str) -> None:
    known = nsys.export_options
    wanted = ["--quiet=true", "--lazy=true", "--include-json=true", "--include-blobs=true"]
    options = [option for option in wanted if known.name_of(option) in known]
    command = [str(nsys.path), "export", f"--type={kind}", *options, f"--output={output}", str(report.absolute())]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=nsys.environment,
        check=False,
    )
    if done.returncode == 0 and output.exists() and output.stat().st_size:
        return
    text = done.stdout.decode("utf-8", "replace")
    full = full_disk([output.parent.parent], text)
    if full is not None:
        raise full
    said = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    raise _failed(nsys, report, said[-1].strip() if said else f"exit code {done.returncode}")


def _failed(nsys: Nsys, report: Path, reason: str) -> CaptureError:
    version = report_version(report)
    if version is not None and version[:2] != nsys.version[:2]:
        written = ".".join(map(str, version))
        return CaptureError(
            "export-version",
            f"nsys {nsys.version_name} cannot export {report.name}, which nsys {written} wrote: {reason}",
            f"Use nsys {written} or newer: --nsys PATH",
        )
    return CaptureError(
        "export-failed",
        f"nsys {nsys.version_name} cannot export {report}: {reason}",
        "The report may be incomplete; capture again, or copy it again.",
    )


class _Payload(msgspec.Struct):
    data: str = msgspec.field(name="Data", default="")


class _Payloads(msgspec.Struct):
    binary: list[_Payload] = msgspec.field(name="BinaryData", default_factory=list)


class _Nvtx(msgspec.Struct):
    time: str = msgspec.field(name="Timestamp", default="")
    tid: str = msgspec.field(name="GlobalTid", default="")
    domain: str = msgspec.field(name="DomainId", default="")
    payload: _Payloads = msgspec.field(name="Payload", default_factory=_Payloads)


class _Line(msgspec.Struct):
    nvtx: _Nvtx = msgspec.field(name="NvtxEvent", default_factory=_Nvtx)


def _fetch_frames(nsys: Nsys, report: Path, database: Path, draft: Path) -> None:
    _run(nsys, report, draft, "json")
    write_frames(database, read_marks(draft))


def read_marks(export: Path) -> Iterator[RawMark]:
    """The binary payloads of a JSON export, an object a line; the other lines are not even parsed."""
    decoder = msgspec.json.Decoder(_Line)
    with export.open("rb") as file:
        for line in file:
            if b'"BinaryData"' not in line:
                continue
            nvtx = decoder.decode(line).nvtx
            for payload in nvtx.payload.binary:
                yield RawMark(int(nvtx.tid), int(nvtx.time), int(nvtx.domain or 0), base64.b64decode(payload.data))
