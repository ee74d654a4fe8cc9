"""The door between analysis and everything that shows its result: ``Report``, plain values with a JSON round trip.

Format 1 of the JSON is a contract: keys are only ever added. What was not measured is null, never 0.
Times are integer nanoseconds; totals sum the devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from nsys_sync._version import __version__
from nsys_sync.errors import InputError
from nsys_sync.paths import read_bytes

FORMAT = 1

SiteClass = Literal["avoidable", "deferrable", "needed", "intentional", "unknown"]
StackOrigin = Literal["exact", "neighbour", "sampled", "native", "none"]
SourceStatus = Literal["captured", "found_unverified", "changed", "missing"]
PythonFrames = Literal["recorded", "not_exported", "not_recorded"]
Confidence = Literal["high", "medium", "low"]


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all values of a report: immutable, keyword-only, compared by value."""


class Tool(Plain, frozen=True, kw_only=True):
    """Who wrote a document."""

    name: str
    version: str


#: Us.
TOOL = Tool(name="nsys-sync", version=__version__)


class Document(Plain, frozen=True, kw_only=True):
    """Base of what is written as one JSON file: the number of its format, who wrote it, and what a kind adds."""

    format: int
    tool: Tool

    def to_json(self) -> bytes:
        """All of it as UTF-8 JSON, indented, byte for byte the same for the same values."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


class Note(Plain, frozen=True, kw_only=True):
    """Something a reader must know about the measurement; slug is an anchor in docs/errors.md."""

    slug: str
    text: str


class Slowdown(Plain, frozen=True, kw_only=True):
    """Step time without and with the profiler, as the target itself measured them (ns), and their ratio."""

    step_ns_before: int
    step_ns_inside: int
    ratio: float


class Capture(Plain, frozen=True, kw_only=True):
    """How the trace was taken, as far as it is recorded."""

    flags: list[str]
    backtrace: str | None
    sampling: bool | None
    graphs: Literal["graph", "node"] | None
    slowdown: Slowdown | None
    target_exit: int | None
    range: str | None = None
    steps_run: int | None = None


class DeviceName(Plain, frozen=True, kw_only=True):
    """A GPU: its CUDA ordinal and its name."""

    id: int
    name: str


class ProcessName(Plain, frozen=True, kw_only=True):
    """A process with CUDA calls; rank is null unless the capture marked it."""

    pid: int
    name: str
    rank: int | None


class TraceInfo(Plain, frozen=True, kw_only=True):
    """Where the numbers come from."""

    file: str
    sha256: str
    nsys_version: str | None
    schema_version: str | None
    driver: str | None
    cuda: str | None
    captured_utc: str | None
    python_frames: PythonFrames
    capture: Capture
    devices: list[DeviceName]
    processes: list[ProcessName]
    warnings: list[Note]


class CopyOnly(Plain, frozen=True, kw_only=True):
    """Time a device did nothing but copy (ns): copies that blocked a host thread, and the others."""

    blocking: int
    async_: int = msgspec.field(name="async")


class IdleByCause(Plain, frozen=True, kw_only=True):
    """Idle time (ns) by its one cause; the fields add up to the idle time.

    sync_wait: inside a blocking call; sync_refill: the host catching up after one; sync_overhead: the part of a
    blocking call that is not waiting; host: Python and launch code; device: launched, not yet started;
    alloc: inside an allocation; tail: after the last operation; unknown: no launching call recorded.
    """

    sync_wait: int
    sync_refill: int
    sync_overhead: int
    host: int
    device: int
    alloc: int
    tail: int
    unknown: int

    @property
    def total(self) -> int:
        """Sum of all causes (ns)."""
        return sum(getattr(self, name) for name in self.__struct_fields__)


class DeviceTime(Plain, frozen=True, kw_only=True):
    """One device's time (ns): busy + idle = window, compute_busy + copy_only = busy, causes add up to idle.

    When work is missing from the trace everything that depends on it is null and ``idle_reason`` says why.
    """

    device: int
    window_ns: int
    busy_ns: int | None
    compute_busy_ns: int | None
    copy_only_ns: CopyOnly | None
    idle_ns: int | None
    idle_by_cause_ns: IdleByCause | None
    idle_status: Literal["measured", "withheld"]
    idle_reason: str | None
    gaps: int | None

    @classmethod
    def withheld(cls, device: int, window_ns: int, reason: str) -> DeviceTime:
        """Of a device whose idle time is not known."""
        return cls(
            device=device,
            window_ns=window_ns,
            busy_ns=None,
            compute_busy_ns=None,
            copy_only_ns=None,
            idle_ns=None,
            idle_by_cause_ns=None,
            idle_status="withheld",
            idle_reason=reason,
            gaps=None,
        )


class Totals(Plain, frozen=True, kw_only=True):
    """Sums over all sites and devices (ns, counts).

    host_blocked_ns is wall time: the union over the threads of a process, summed over processes;
    thread_blocked_ns sums the threads. Recoverable of single sites does not add up to recoverable_all_ns.
    """

    host_blocking_calls: int
    sync_events: int
    device_waits: int
    wait_ns: int
    host_blocked_ns: int
    thread_blocked_ns: int
    idle_ns: int | None
    idle_from_syncs_ns: int | None
    recoverable_ns: int | None
    recoverable_all_ns: int | None


class Frame(Plain, frozen=True, kw_only=True):
    """One frame of a stack; line 0 where none is known."""

    function: str
    file: str
    line: int


class Spread(Plain, frozen=True, kw_only=True):
    """Total, lower median and largest of a site's events (ns)."""

    total: int
    median: int
    max: int


class SiteIdle(Plain, frozen=True, kw_only=True):
    """Idle (ns) that a site's events caused on all devices."""

    sync_wait: int
    sync_refill: int
    sync_overhead: int


class InLoop(Plain, frozen=True, kw_only=True):
    """The part of a site's events that began between a process's first step's start and its last step's end."""

    events: int
    wait_ns: int


class SiteProcess(Plain, frozen=True, kw_only=True):
    """A site's share in one process; in_loop is null where the process has no steps."""

    pid: int
    calls: int
    events: int
    wait_ns: int
    recoverable_ns: int | None
    in_loop: InLoop | None


class SiteDevice(Plain, frozen=True, kw_only=True):
    """Idle (ns) that a site caused on one device."""

    device: int
    sync_wait: int
    sync_refill: int
    sync_overhead: int


class WhatIf(Plain, frozen=True, kw_only=True):
    """Predicted median step time (ns) if the syncs in question no longer blocked.

    low..high is the model's range; gpu_bound_ns the bound with an infinitely fast host; reasons say what the
    confidence rests on.
    """

    step_ns_now: int
    step_ns_low: int
    step_ns_high: int
    gpu_bound_ns: int
    confidence: Confidence
    reasons: list[str]


class Fix(Plain, frozen=True, kw_only=True):
    """What to write instead. effort: 1 (remove a line) … 7 (keep it, outside the captured region)."""

    text: str
    before: str
    after: str
    effort: int
    docs: str


class SourceLine(Plain, frozen=True, kw_only=True):
    """The line of a site and its neighbours: text by line number, and the file's hash when it was read."""

    lines: dict[int, str]
    sha256: str


class SyncPlace(Plain, frozen=True, kw_only=True):
    """One place in the program that blocks: the innermost user frame together with the leaf frame below it, and what
    the catalogue makes of it.
    """

    id: str
    rule: str
    title: str
    class_: SiteClass = msgspec.field(name="class")
    class_basis: str
    fix: Fix | None
    file: str | None
    line: int | None
    function: str | None
    source: SourceLine | None
    source_status: SourceStatus
    leaf: Frame | None
    stack: list[Frame]


class Site(SyncPlace, frozen=True, kw_only=True):
    """A place, what its syncs cost, and what to expect without them."""

    stack_origin: StackOrigin
    apis: dict[str, int]
    calls: int
    events: int
    calls_per_step: float | None
    wait_ns: Spread
    idle_ns: SiteIdle | None
    copy_in_call_ns: int | None
    recoverable_ns: int | None
    bytes: int
    by_process: list[SiteProcess]
    by_device: list[SiteDevice]
    threads: int
    what_if: WhatIf | None
    native: list[str] = []
    origins: dict[str, int] = {}
    blocks_graph_capture: bool = False
    gil_held_ns: int | None = None


class Steps(Plain, frozen=True, kw_only=True):
    """A process's steps: time between consecutive completions on the GPU (ns); null with fewer than two."""

    pid: int
    count: int
    source: Literal["marks", "nvtx"]
    mean_ns: int | None
    median_ns: int | None
    name: str


class Gap(Plain, frozen=True, kw_only=True):
    """One idle interval of a device: its largest cause and the site that caused it, if any."""

    device: int
    start_ns: int
    end_ns: int
    cause: str
    site: str | None


class Gaps(Plain, frozen=True, kw_only=True):
    """The longest gaps; ``shown`` of ``total`` are listed, totals elsewhere count all of them."""

    total: int
    shown: int
    items: list[Gap]


class WhatIfs(Plain, frozen=True, kw_only=True):
    """Predictions for groups of sites: all of them, and each class."""

    all: WhatIf | None
    by_class: dict[str, WhatIf]


class Headline(Plain, frozen=True, kw_only=True):
    """The one honest sentence.

    slug: no_syncs, launch_bound, sync_bound, mixed, gpu_bound, nothing_measured or withheld.
    """

    slug: str
    text: str


class Report(Document, frozen=True, kw_only=True):
    """Everything found in one trace. ``save`` and ``load`` are exact inverses."""

    trace: TraceInfo
    headline: Headline
    devices: list[DeviceTime]
    totals: Totals
    sites: list[Site]
    steps: list[Steps]
    gaps: Gaps
    what_if: WhatIfs

    @classmethod
    def from_json(cls, data: bytes, name: str = "the report") -> Self:
        """Read a report back. Raises InputError when it is not a report, or of a newer format."""
        try:
            head = msgspec.json.decode(data, type=_Head)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            raise InputError(
                "not-a-report",
                f"{name} is not a report saved by nsys-sync.",
                "Make one: nsys-sync report TRACE --json PATH",
            ) from None
        if head.format != FORMAT:
            raise InputError(
                "report-format",
                f"{name} has report format {head.format}; this nsys-sync reads format {FORMAT}.",
                "Make it again from its trace, or update nsys-sync.",
            )
        if head.watch is not None:
            raise InputError(
                "watch-report",
                f"{name} was saved by watch, which sees where the CPU waits but not what that costs.",
                "Profile the program: nsys-sync profile SCRIPT",
            )
        if head.before is not None:
            raise InputError(
                "not-a-report", f"{name} is a comparison, not a report of one trace.", "Give the traces it compares."
            )
        if head.ranks is not None:
            raise InputError(
                "not-a-report", f"{name} compares ranks, it is no report of one trace.", "Give the traces it compares."
            )
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
            raise InputError(
                "not-a-report", f"{name} is a damaged report: {error}.", "Make it again from its trace."
            ) from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a saved report (.json). Raises InputError."""
        path = Path(path)
        return cls.from_json(read_bytes(path), str(path))


class _Head(msgspec.Struct):
    format: int
    tool: Tool
    watch: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    ranks: list[Any] | None = None
