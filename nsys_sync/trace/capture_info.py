"""What the launcher knows about a capture and nsys does not record: kept in a table of its own inside the .sqlite.

The launcher writes it with ``annotate``; the reader hands it on as ``Trace.capture``. A .sqlite made by nsys alone has
none of it. The table is TABLE(name TEXT, value TEXT) with one row named ``capture`` holding JSON.
"""

from __future__ import annotations

import msgspec

TABLE = "NSYS_SYNC_CAPTURE"

#: Every NVTX text that the target module writes begins with this; steps are ranges ``nsys-sync:step K``, regions
#: ``nsys-sync:region NAME``, and the marks are ``nsys-sync:rank R/W`` and ``nsys-sync:close`` (the capture is being
#: closed: blocking calls of that process from here on are the tool's own).
MARK_PREFIX = "nsys-sync:"


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """One source file as it was at capture time: sha256 is of the whole file, lines are those that the report shows.

    text: all of it, which the rules read; None where the file is too large for that, or where a copy was scrubbed.
    """

    sha256: str
    lines: dict[int, str]
    text: str | None = None


class CaptureInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A capture as the launcher saw it. Times in ns, dates in UTC (ISO 8601)."""

    format: int = 1
    tool_version: str
    nsys_version: str | None = None
    flags: list[str] = []
    range: str | None = None
    steps_run: int | None = None
    steps_captured: int | None = None
    step_ns_before: int | None = None
    step_ns_inside: int | None = None
    target_exit: int | None = None
    started_utc: str | None = None
    warnings: list[tuple[str, str]] = []
    sources: dict[str, SourceFile] = {}
