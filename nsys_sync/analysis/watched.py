"""What was seen of a program's syncs from inside it becomes a report: where, how often, and how long if that is known.

A ``WatchReport`` has the keys of a ``Report`` wherever it has something to say: the same paths, the same meaning. What
watching does not measure is null.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from nsys_sync._version import __version__
from nsys_sync.analysis.calls import COPY, DEVICE_SYNC, EVENT_SYNC, STREAM_SYNC
from nsys_sync.analysis.catalogue.evidence import Evidence
from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.findings import (
    FORMAT,
    Capture,
    Fix,
    Frame,
    Headline,
    Note,
    Plain,
    ProcessName,
    SiteClass,
    SourceLine,
    SourceStatus,
    Spread,
    Steps,
    Tool,
)
from nsys_sync.analysis.sites import Place, Users, site_ids
from nsys_sync.analysis.source import Sources
from nsys_sync.errors import NothingToAnalyze
from nsys_sync.trace.tables import StackFrame

#: What PyTorch's warning is called in ``seen_by``; other names are those of calls.
PYTORCH = "pytorch"
#: What this mode does not see, in words.
BLIND = (
    "Not seen: waits inside C++ code and CUDA libraries, collectives, and frameworks other than PyTorch, CuPy and JAX. "
    "nsys-sync profile sees every CUDA call and measures what it costs."
)

_KINDS = {
    "cudaDeviceSynchronize": DEVICE_SYNC,
    "cudaStreamSynchronize": STREAM_SYNC,
    "cudaEventSynchronize": EVENT_SYNC,
    "cudaMemcpyAsync": COPY,
}
_AROUND = 3


class SeenStack(msgspec.Struct, frozen=True):
    """Syncs of one process with one Python stack, as the program's process tells them.

    frames: positions in the process's frames, innermost first. allowed: calls within ``allow_syncs``. in_loop: calls
    between the first and the last step boundary. waits: calls by their time (ns, three digits), of those whose time is
    known; total_ns, max_ns: of the same calls, exact. copy: direction of a copy as in COPY_KINDS; max_bytes: of the
    largest one.
    """

    seen_by: str
    api: str | None
    frames: list[int]
    calls: int
    allowed: int
    in_loop: int
    waits: dict[int, int]
    total_ns: int | None
    max_ns: int | None
    copy: str | None
    max_bytes: int | None
    threads: list[int]


class SeenProcess(msgspec.Struct, frozen=True):
    """What one process of the program tells.

    steps: boundaries seen; steps_counted: steps between those that count. left_out: calls before the steps that count.
    frames: (function, file, line). sources: texts that no file holds. cuda: whether CUDA was in use. debug_mode:
    whether its PyTorch has the sync debug mode. final: false if the process could not tell its last words.
    """

    pid: int
    name: str
    rank: int | None
    steps: int
    steps_counted: int
    steps_from: Literal["optimizer", "user"] | None
    left_out: int
    stopped_at: str | None
    frames: list[StackFrame]
    stacks: list[SeenStack]
    sources: dict[str, str]
    torch: str | None
    debug_mode: bool
    frameworks: list[str]
    cuda: bool
    final: bool = True


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


class WatchSite(Plain, frozen=True, kw_only=True):
    """One place in the program that waits.

    wait_ns: wall time of the calls that Python could time (timed_calls of calls), null where it could time none.
    seen_by: calls by how they were seen: PyTorch's warning, or the call itself. allowed: calls in ``allow_syncs``.
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


class WatchReport(Plain, frozen=True, kw_only=True):
    """Everything that was seen; ``save`` it as JSON of format 1."""

    format: int
    tool: Tool
    trace: WatchTrace
    watch: WatchInfo
    headline: Headline
    devices: None
    totals: WatchTotals
    sites: list[WatchSite]
    steps: list[Steps]
    gaps: None
    what_if: None

    def to_json(self) -> bytes:
        """The report as UTF-8 JSON, indented."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @property
    def not_allowed(self) -> int:
        """Calls that ``allow_syncs`` does not cover."""
        return self.totals.host_blocking_calls - self.totals.allowed_calls


@dataclass(frozen=True)
class Seen:
    """A finished watch.

    program: its name. told: what the processes told. exit_code: the program's, None for a part of this process.
    started: ns since the epoch. after_steps: steps that were to be left out.
    """

    program: str
    told: Sequence[SeenProcess]
    started: int
    exit_code: int | None = None
    after_steps: int = 0


def decode(told: Sequence[dict[str, Any]]) -> list[SeenProcess]:
    """The processes' own words, checked."""
    return [msgspec.convert(words, SeenProcess, str_keys=True) for words in told]


def report(seen: Seen, users: Users, catalogue: Catalogue) -> WatchReport:
    """The report on what was seen: sites by calls, most first. Raises NothingToAnalyze if nothing could be seen."""
    _refuse_nothing(seen)
    unsaved = {file: text for process in seen.told for file, text in process.sources.items()}
    cells = tuple(file for file in unsaved if _is_cell(file))
    users = Users(project=(*users.project, *cells), library=users.library)
    with _text_files(unsaved) as files:
        lines = _Lines(seen.started, unsaved, files)
        sites = _sites(seen, users, catalogue, lines)
    totals = _totals(sites)
    return WatchReport(
        format=FORMAT,
        tool=Tool(name="nsys-sync", version=__version__),
        trace=_trace(seen),
        watch=WatchInfo(
            pytorch=next((p.torch for p in seen.told if p.torch), None),
            frameworks=sorted({name for p in seen.told for name in p.frameworks}),
            steps_skipped=seen.after_steps,
            calls_left_out=sum(p.left_out for p in seen.told),
            stopped_at=next((p.stopped_at for p in seen.told if p.stopped_at), None),
        ),
        headline=_headline(seen, sites, totals),
        devices=None,
        totals=totals,
        sites=sites,
        steps=[
            Steps(
                pid=p.pid, count=p.steps_counted, source="marks", mean_ns=None, median_ns=None, name=p.steps_from or ""
            )
            for p in seen.told
            if p.steps_counted
        ],
        gaps=None,
        what_if=None,
    )


def _refuse_nothing(seen: Seen) -> None:
    """Nothing seen is a finding only where something could have been."""
    if seen.exit_code and not any(p.cuda or p.stacks or p.left_out for p in seen.told):
        raise NothingToAnalyze(
            "nothing-watched", f"The program ended with exit code {seen.exit_code} before there was anything to see."
        )
    if not any(p.frameworks for p in seen.told):
        raise NothingToAnalyze(
            "nothing-watched",
            "The program imported neither PyTorch nor CuPy nor JAX, so nothing could be seen.",
            "Any program: nsys-sync profile",
        )
    if not any(p.cuda or p.stacks or p.left_out for p in seen.told):
        raise NothingToAnalyze(
            "nothing-watched",
            "The program did not use CUDA, so nothing could be seen.",
            "Check that it runs on the GPU: nsys-sync doctor",
        )
    most = max(p.steps for p in seen.told)
    if most < seen.after_steps:
        raise NothingToAnalyze(
            "few-steps-watched",
            f"The program ended after {most} steps, so --after-steps {seen.after_steps} left everything out.",
            f"Leave out fewer: --after-steps {most // 2}"
            if most
            else "It took no optimizer step; mark its steps with nsys_sync.step().",
        )


# --- sites -----------------------------------------------------------------------------------------------


@dataclass
class _Gathered:
    """The stacks of one site."""

    place: Place
    stacks: list[tuple[SeenProcess, SeenStack]] = field(default_factory=list)

    @cached_property
    def timed(self) -> Counter[int]:
        """Calls by their time (ns)."""
        times: Counter[int] = Counter()
        for _, stack in self.stacks:
            times.update(stack.waits)
        return times

    def spread(self) -> Spread | None:
        """Total, lower median and largest of the times that are known."""
        if not self.timed:
            return None
        middle, passed = (self.timed.total() - 1) // 2, 0
        median = 0
        for ns in sorted(self.timed):
            passed += self.timed[ns]
            if passed > middle:
                median = ns
                break
        largest = max(stack.max_ns or 0 for _, stack in self.stacks)
        total = sum(stack.total_ns or 0 for _, stack in self.stacks)
        return Spread(total=total, median=min(median, largest), max=largest)

    def count(self, key: str) -> dict[str, int]:
        """Calls by the stacks' ``api`` or ``seen_by``."""
        calls: Counter[str] = Counter()
        for _, stack in self.stacks:
            name = getattr(stack, key)
            if name is not None:
                calls[name] += stack.calls
        return dict(sorted(calls.items()))


def _gather(seen: Seen, users: Users) -> list[_Gathered]:
    found: dict[tuple[object, ...], _Gathered] = {}
    most: dict[tuple[object, ...], int] = {}
    for process in seen.told:
        for stack in process.stacks:
            frames = [process.frames[number] for number in stack.frames]
            if not frames:
                continue
            user = frames[users.frame(frames)]
            leaf = frames[0]
            kind = _KINDS.get(stack.api or "", STREAM_SYNC)
            key = (*user, leaf.function, leaf.file, kind)
            # The stack that most calls have stands for the site.
            if key not in found or stack.calls > most[key]:
                most[key] = stack.calls
                shown = tuple(Frame(function=f.function, file=f.file, line=f.line) for f in frames)
                place = Place(shown[users.frame(frames)], shown[0], kind, shown, (), stack.api or "")
                found[key] = _Gathered(place, found[key].stacks if key in found else [])
            found[key].stacks.append((process, stack))
    return list(found.values())


def _sites(seen: Seen, users: Users, catalogue: Catalogue, lines: _Lines) -> list[WatchSite]:
    gathered = _gather(seen, users)
    ids = site_ids([g.place for g in gathered], users)
    steps = sum(p.steps_counted for p in seen.told)
    sites = [_site(g, i, steps, catalogue, lines) for g, i in zip(gathered, ids, strict=True)]
    return sorted(sites, key=lambda s: (-s.calls, s.file or "", s.line or 0, s.id))


def _site(gathered: _Gathered, site_id: str, steps: int, catalogue: Catalogue, lines: _Lines) -> WatchSite:
    place, stacks = gathered.place, [stack for _, stack in gathered.stacks]
    calls = sum(stack.calls for stack in stacks)
    per_step = round(sum(stack.in_loop for stack in stacks) / steps, 4) if steps else None
    apis = gathered.count("api")
    source, status, readable = lines.find(place.user)
    verdict = catalogue.judge(
        Evidence(
            apis=frozenset(apis),
            copies=frozenset(stack.copy for stack in stacks if stack.copy),
            max_bytes=max((stack.max_bytes or 0 for stack in stacks), default=0),
            stack=place.stack,
            user=place.user,
            leaf=place.leaf,
            source=readable,
            events=calls,
            calls_per_step=per_step,
        )
    )
    return WatchSite(
        id=site_id,
        rule=verdict.rule,
        title=verdict.title,
        class_=verdict.class_,
        class_basis=verdict.class_basis,
        fix=verdict.fix,
        file=place.user.file if place.user else None,
        line=place.user.line if place.user else None,
        function=place.user.function if place.user else None,
        source=source,
        source_status=status,
        leaf=place.leaf,
        stack=list(place.stack),
        stack_origin="exact",
        apis=apis,
        calls=calls,
        events=calls,
        calls_per_step=per_step,
        wait_ns=gathered.spread(),
        idle_ns=None,
        copy_in_call_ns=None,
        recoverable_ns=None,
        bytes=None,
        by_process=_by_process(gathered),
        by_device=None,
        threads=len({(process.pid, thread) for process, stack in gathered.stacks for thread in stack.threads}),
        what_if=None,
        native=[],
        origins={"exact": calls},
        blocks_graph_capture=verdict.blocks_graph_capture,
        gil_held_ns=None,
        seen_by=gathered.count("seen_by"),
        timed_calls=gathered.timed.total(),
        allowed=sum(stack.allowed for stack in stacks),
    )


def _by_process(gathered: _Gathered) -> list[WatchProcess]:
    found = []
    for process in sorted({process.pid: process for process, _ in gathered.stacks}.values(), key=lambda p: p.pid):
        stacks = [stack for of, stack in gathered.stacks if of.pid == process.pid]
        known = [stack.total_ns for stack in stacks if stack.total_ns is not None]
        inside = WatchLoop(events=sum(stack.in_loop for stack in stacks), wait_ns=None)
        calls = sum(stack.calls for stack in stacks)
        found.append(
            WatchProcess(
                pid=process.pid,
                calls=calls,
                events=calls,
                wait_ns=sum(known) if known else None,
                recoverable_ns=None,
                in_loop=inside if process.steps_counted else None,
            )
        )
    return found


def _totals(sites: Sequence[WatchSite]) -> WatchTotals:
    waits = [site.wait_ns.total for site in sites if site.wait_ns is not None]
    calls = sum(site.calls for site in sites)
    return WatchTotals(
        host_blocking_calls=calls,
        sync_events=calls,
        timed_calls=sum(site.timed_calls for site in sites),
        allowed_calls=sum(site.allowed for site in sites),
        device_waits=None,
        wait_ns=sum(waits) if waits else None,
        host_blocked_ns=None,
        thread_blocked_ns=None,
        idle_ns=None,
        idle_from_syncs_ns=None,
        recoverable_ns=None,
        recoverable_all_ns=None,
    )


# --- source ----------------------------------------------------------------------------------------------


def _is_cell(file: str) -> bool:
    """Whether a file name stands for what a person typed, in a notebook or an interactive Python."""
    return "ipykernel_" in file or file.startswith(("<ipython-input", "<stdin>", "<python-input"))


@contextmanager
def _text_files(texts: dict[str, str]) -> Iterator[dict[str, Path]]:
    """Files with the texts that have none, while they are looked at."""
    with tempfile.TemporaryDirectory(prefix="nsys-sync-") as folder:
        files = {}
        for number, (name, text) in enumerate(texts.items()):
            files[name] = Path(folder, f"{number}.py")
            files[name].write_text(text, "utf-8", "replace")
        yield files


@dataclass
class _Lines:
    """Source lines as they were when the program ran. started: ns since the epoch."""

    started: int
    texts: dict[str, str]
    files: dict[str, Path]
    saved: Sources = field(default_factory=Sources)

    def find(self, frame: Frame | None) -> tuple[SourceLine | None, SourceStatus, Path | str | None]:
        """As ``Sources.find``: the line, how far to trust it, and a file with the program around it."""
        if frame is None:
            return None, "missing", None
        if frame.file in self.texts:
            text = self.texts[frame.file]
            lines = text.splitlines()
            near = range(max(1, frame.line - _AROUND), min(frame.line + _AROUND, len(lines)) + 1)
            shown = SourceLine(lines={n: lines[n - 1] for n in near}, sha256=sha256(text.encode()).hexdigest())
            return shown, "captured", self.files[frame.file]
        line, status, path = self.saved.find(frame.file, frame.line)
        if not isinstance(path, Path) or status != "found_unverified":
            return line, status, path
        # The program read its files when it began or later; what has not changed since then is what it ran.
        return (line, "captured", path) if path.stat().st_mtime_ns <= self.started else (line, "changed", None)


# --- around them -----------------------------------------------------------------------------------------


def _trace(seen: Seen) -> WatchTrace:
    steps = [p.steps for p in seen.told if p.steps]
    return WatchTrace(
        file=seen.program,
        sha256=None,
        nsys_version=None,
        schema_version=None,
        driver=None,
        cuda=None,
        captured_utc=datetime.fromtimestamp(seen.started / 1e9, UTC).isoformat(timespec="seconds"),
        python_frames="recorded",
        capture=Capture(
            flags=[],
            backtrace=None,
            sampling=None,
            graphs=None,
            slowdown=None,
            target_exit=seen.exit_code,
            range="watch",
            steps_run=max(steps, default=None),
        ),
        devices=None,
        processes=[
            ProcessName(pid=p.pid, name=p.name, rank=p.rank) for p in seen.told if p.cuda or p.stacks or p.left_out
        ],
        warnings=list(_notes(seen)),
    )


def _notes(seen: Seen) -> Iterator[Note]:
    stopped = next((p.stopped_at for p in seen.told if p.stopped_at), None)
    if stopped is not None:
        yield Note(slug="stopped-at-sync", text=f"The program was stopped at its first sync: {stopped}.")
    elif seen.exit_code:
        yield Note(
            slug="program-failed",
            text=f"The program ended with exit code {seen.exit_code}; this is what was seen until then.",
        )
    left_out = sum(p.left_out for p in seen.told)
    if left_out:
        calls = "1 call" if left_out == 1 else f"{left_out:,} calls"
        yield Note(slug="left-out", text=f"{calls} in the first {seen.after_steps} steps are left out.")
    cut = [p.pid for p in seen.told if not p.final]
    if cut:
        pids = ", ".join(map(str, cut))
        yield Note(slug="no-last-words", text=f"Killed before it could tell its last second: pid {pids}.")
    if any("torch" in p.frameworks and not p.debug_mode for p in seen.told):
        yield Note(
            slug="no-debug-mode",
            text="This PyTorch has no sync debug mode (built without CUDA, or older than 1.10): its own operations are "
            "not seen.",
        )
    yield Note(slug="watch-blind", text=BLIND)


def _headline(seen: Seen, sites: Sequence[WatchSite], totals: WatchTotals) -> Headline:
    if not sites:
        return Headline(slug="no_syncs", text="No wait for the GPU was seen.")
    calls = "once" if totals.host_blocking_calls == 1 else f"{totals.host_blocking_calls:,} times"
    places = "1 place" if len(sites) == 1 else f"{len(sites)} places"
    steps = sum(p.steps_counted for p in seen.told)
    often = ""
    if steps:
        inside = sum(stack.in_loop for p in seen.told for stack in p.stacks) / steps
        often = f", {inside:.1f} times a step" if inside % 1 else f", {inside:.0f} times a step"
    return Headline(slug="syncs_seen", text=f"The CPU waited for the GPU {calls} at {places}{often}.")
