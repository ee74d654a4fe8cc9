"""From what was seen of a program's syncs to a report: where, how often, and how long if that is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from nsys_sync.analysis.calls import COPY, DEVICE_SYNC, EVENT_SYNC, STREAM_SYNC
from nsys_sync.analysis.catalogue.evidence import Evidence
from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.findings import FORMAT, TOOL, Capture, Frame, Headline, Note, ProcessName, Spread, Steps
from nsys_sync.analysis.sites import Place, Users, site_ids
from nsys_sync.analysis.source import FoundLine, Sources
from nsys_sync.analysis.watch.findings import (
    WatchInfo,
    WatchLoop,
    WatchProcess,
    WatchReport,
    WatchSite,
    WatchTotals,
    WatchTrace,
)
from nsys_sync.analysis.watch.seen import Seen, SeenProcess, SeenStack
from nsys_sync.errors import NothingToAnalyze
from nsys_sync.trace.capture_info import SourceFile

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


def report(seen: Seen, users: Users, catalogue: Catalogue) -> WatchReport:
    """The report on what was seen: sites by calls, most first. Raises NothingToAnalyze if nothing could be seen."""
    _refuse_nothing(seen)
    unsaved = {file: text for process in seen.told for file, text in process.sources.items()}
    cells = tuple(file for file in unsaved if _is_cell(file))
    users = Users(project=(*users.project, *cells), library=users.library)
    sites = _sites(seen, users, catalogue, Sources(_kept(unsaved)))
    totals = _totals(sites)
    return WatchReport(
        format=FORMAT,
        tool=TOOL,
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
            "A program of any kind: nsys-sync profile PROGRAM",
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


def _sites(seen: Seen, users: Users, catalogue: Catalogue, sources: Sources) -> list[WatchSite]:
    gathered = _gather(seen, users)
    ids = site_ids([g.place for g in gathered], users)
    steps = sum(p.steps_counted for p in seen.told)
    sites = [
        _site(g, i, steps, catalogue, _find(sources, g.place.user, seen.started))
        for g, i in zip(gathered, ids, strict=True)
    ]
    return sorted(sites, key=lambda s: (-s.calls, s.file or "", s.line or 0, s.id))


def _site(gathered: _Gathered, site_id: str, steps: int, catalogue: Catalogue, found: FoundLine) -> WatchSite:
    place, stacks = gathered.place, [stack for _, stack in gathered.stacks]
    calls = sum(stack.calls for stack in stacks)
    per_step = round(sum(stack.in_loop for stack in stacks) / steps, 4) if steps else None
    apis = gathered.count("api")
    source, status, readable = found
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


def _kept(texts: dict[str, str]) -> dict[str, SourceFile]:
    """Texts that no file holds, as if they had been kept with a capture."""
    return {
        file: SourceFile(sha256=sha256(text.encode("utf-8", "replace")).hexdigest(), lines={}, text=text)
        for file, text in texts.items()
    }


def _find(sources: Sources, frame: Frame | None, started: int) -> FoundLine:
    """As ``Sources.find``, of a program that was started then (ns since the epoch)."""
    if frame is None:
        return None, "missing", None
    line, status, program = sources.find(frame.file, frame.line)
    if not isinstance(program, Path) or status != "found_unverified":
        return line, status, program
    # The program read its files when it began or later; what has not changed since then is what it ran.
    return (line, "captured", program) if program.stat().st_mtime_ns <= started else (line, "changed", None)


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
    number = "1 site" if len(sites) == 1 else f"{len(sites)} sites"
    steps = sum(p.steps_counted for p in seen.told)
    often = ""
    if steps:
        inside = sum(stack.in_loop for p in seen.told for stack in p.stacks) / steps
        often = f", {inside:.1f} times a step" if inside % 1 else f", {inside:.0f} times a step"
    return Headline(slug="syncs_seen", text=f"The CPU waited for the GPU {calls} at {number}{often}.")
