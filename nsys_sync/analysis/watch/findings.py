"""The report on a watched program: the keys of a ``Report`` wherever it has something to say, with the same meaning.

What watching does not measure is null.
"""

from __future__ import annotations

from typing import Literal

from nsys_sync.analysis.findings import (
    Capture,
    Document,
    Headline,
    Note,
    Plain,
    ProcessName,
    Spread,
    Steps,
    SyncPlace,
)

#: What PyTorch's warning is called in ``seen_by``; other names are those of calls.
PYTORCH = "pytorch"


class WatchInfo(Plain, frozen=True, kw_only=True):
    """How the program was watched. steps_skipped: of ``--after-steps``; stopped_at: where ``--error`` stopped it."""

    pytorch: str | None
    frameworks: list[str]
    steps_skipped: int
    calls_left_out: int
    stopped_at: str | None


class WatchTrace(Plain, frozen=True, kw_only=True):
    """Where the numbers come from; file is the program's name."""

    file: str
    sha256: None
    nsys_version: None
    schema_version: None
    driver: None
    cuda: None
    captured_utc: str
    python_frames: Literal["recorded"]
    capture: Capture
    devices: None
    processes: list[ProcessName]
    warnings: list[Note]


class WatchTotals(Plain, frozen=True, kw_only=True):
    """Sums over all sites. wait_ns is that of the calls whose time is known (timed_calls)."""

    host_blocking_calls: int
    sync_events: int
    timed_calls: int
    allowed_calls: int
    device_waits: None
    wait_ns: int | None
    host_blocked_ns: None
    thread_blocked_ns: None
    idle_ns: None
    idle_from_syncs_ns: None
    recoverable_ns: None
    recoverable_all_ns: None


class WatchLoop(Plain, frozen=True, kw_only=True):
    """The part of a site's calls between a process's first and last step boundary."""

    events: int
    wait_ns: None


class WatchProcess(Plain, frozen=True, kw_only=True):
    """A site's share in one process; in_loop is null where the process has no steps."""

    pid: int
    calls: int
    events: int
    wait_ns: int | None
    recoverable_ns: None
    in_loop: WatchLoop | None


class WatchSite(SyncPlace, frozen=True, kw_only=True):
    """One place in the program that waits.

    wait_ns: wall time of the calls that Python could time (timed_calls of calls), null where it could time none.
    seen_by: calls by how they were seen: PyTorch's warning, or the call itself. allowed: calls in ``allow_syncs``.
    """

    stack_origin: Literal["exact"]
    apis: dict[str, int]
    calls: int
    events: int
    calls_per_step: float | None
    wait_ns: Spread | None
    idle_ns: None
    copy_in_call_ns: None
    recoverable_ns: None
    bytes: None
    by_process: list[WatchProcess]
    by_device: None
    threads: int
    what_if: None
    native: list[str]
    origins: dict[str, int]
    blocks_graph_capture: bool
    gil_held_ns: None
    seen_by: dict[str, int]
    timed_calls: int
    allowed: int


class WatchReport(Document, frozen=True, kw_only=True):
    """Everything that was seen, as JSON of format 1."""

    trace: WatchTrace
    watch: WatchInfo
    headline: Headline
    devices: None
    totals: WatchTotals
    sites: list[WatchSite]
    steps: list[Steps]
    gaps: None
    what_if: None

    @property
    def not_allowed(self) -> int:
        """Calls that ``allow_syncs`` does not cover."""
        return self.totals.host_blocking_calls - self.totals.allowed_calls
