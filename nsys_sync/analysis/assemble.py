"""From columns to the values of a report, and to the columns that the timeline pages draw."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import numpy as np

from nsys_sync.analysis import findings as f
from nsys_sync.analysis import timeline as t
from nsys_sync.analysis.calls import Activity, Blocking, Events, Mask, blocked_time, copies_of, low_median
from nsys_sync.analysis.catalogue.evidence import COPY_KINDS, Evidence
from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.headline import Pauses, choose_headline
from nsys_sync.analysis.idle import OVERHEAD, REFILL, WAIT, Blame, DeviceBusy
from nsys_sync.analysis.sites import Place, Users, site_ids
from nsys_sync.analysis.source import Sources
from nsys_sync.analysis.stacks import EXACT, NONE, ORIGINS, Stacks
from nsys_sync.analysis.steps import ProcessSteps
from nsys_sync.analysis.whatif.predictor import Predictor
from nsys_sync.analysis.window import Window
from nsys_sync.trace.capture_info import MARK_PREFIX, CaptureInfo
from nsys_sync.trace.columns import distinct
from nsys_sync.trace.reader import Trace
from nsys_sync.trace.tables import Column, os_pid, process_of

_SHOWN_GAPS = 200
#: Profiling makes no step shorter: below this ratio the steps inside and before the range are not alike.
_SAME_STEPS = 0.8
_STEPS = 3
_NATIVE_FRAMES = 12
_CHAIN_FRAMES = 60

_NOT_RECORDED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "No kernels were recorded.",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "No copies were recorded: copies that block the host cannot be told from others.",
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


@dataclass(frozen=True)
class Findings:
    """Everything that ``analyze`` found, as columns."""

    trace: Trace
    activity: Activity
    blocking: Blocking
    events: Events
    steps: list[ProcessSteps]
    window: Window
    stacks: Stacks
    users: Users
    places: list[Place]
    site: Column
    charged: Blame
    gil_held: Column | None
    predictor: Predictor

    @property
    def counted(self) -> Column:
        """Rows of the events that are reported on."""
        return np.flatnonzero(self.window.counts(self.events.pid, self.events.start, self.events.end))


def api_names(activity: Activity, blocking: Blocking) -> list[str]:
    """Bare API name of each blocking call."""
    return [activity.calls.names[code] for code in activity.calls.name[blocking.row]]


def report(found: Findings, sources: Sources, catalogue: Catalogue) -> f.Report:
    """The report of these findings: sites by wait, most first."""
    devices = [_device(d, found.charged) for d in found.charged.devices]
    measured = bool(devices) and all(d.idle_status == "measured" for d in devices)
    totals = _totals(found, devices, measured=measured)
    sites = _sites(found, sources, catalogue, measured=measured)
    info = _trace_info(found)
    return f.Report(
        format=f.FORMAT,
        tool=f.TOOL,
        trace=info,
        headline=choose_headline(devices, totals, sites, info.capture, _pauses(found)),
        devices=devices,
        totals=totals,
        sites=sites,
        steps=[
            f.Steps(
                pid=os_pid(s.pid), count=len(s.row), source=s.source, mean_ns=s.mean, median_ns=s.median, name=s.name
            )
            for s in found.steps
        ],
        gaps=_gaps(found),
        what_if=_what_ifs(found, sites),
    )


# --- devices, totals -------------------------------------------------------------------------------------


def _device(device: DeviceBusy, charged: Blame) -> f.DeviceTime:
    window = device.high - device.low
    if device.withheld is not None:
        return f.DeviceTime(
            device=device.device,
            window_ns=window,
            busy_ns=None,
            compute_busy_ns=None,
            copy_only_ns=None,
            idle_ns=None,
            idle_by_cause_ns=None,
            idle_status="withheld",
            idle_reason=device.withheld,
            gaps=None,
        )
    first, stop = np.searchsorted(charged.gaps.device, [device.device, device.device + 1])
    causes = charged.gaps.causes[first:stop].sum(axis=0, dtype=np.int64)
    return f.DeviceTime(
        device=device.device,
        window_ns=window,
        busy_ns=device.busy,
        compute_busy_ns=device.compute,
        copy_only_ns=f.CopyOnly(blocking=device.blocking_copy, async_=device.async_copy),
        idle_ns=window - device.busy,
        idle_by_cause_ns=f.IdleByCause(**{name: int(ns) for name, ns in zip(t.CAUSES, causes, strict=True)}),
        idle_status="measured",
        idle_reason=None,
        gaps=device.gaps,
    )


def _totals(found: Findings, devices: Sequence[f.DeviceTime], *, measured: bool) -> f.Totals:
    counted = found.counted
    mine = np.isin(found.blocking.event, counted)
    inside = replace(found.blocking, row=found.blocking.row[mine])
    wall, threads = blocked_time(found.activity, inside)
    idle = found.charged.idle[counted].sum(axis=(0, 1))
    return f.Totals(
        host_blocking_calls=int(mine.sum()),
        sync_events=len(counted),
        device_waits=int(found.activity.waits_on_device.sum()),
        wait_ns=int(found.events.wait[counted].sum()),
        host_blocked_ns=wall,
        thread_blocked_ns=threads,
        idle_ns=sum(d.idle_ns or 0 for d in devices) if measured else None,
        idle_from_syncs_ns=int(idle[WAIT] + idle[REFILL]) if measured else None,
        recoverable_ns=int(found.charged.recoverable[counted].sum()) if measured else None,
        recoverable_all_ns=found.charged.recoverable_all if measured else None,
    )


# --- sites -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Copies:
    """Copies that belong to sync events: event, kind name and bytes of each."""

    event: Column
    kind: list[str]
    bytes: Column


def _event_copies(found: Findings) -> _Copies:
    """The events' own copies, and the non-blocking copy right before a lone sync (``.item()``)."""
    activity, blocking, events = found.activity, found.blocking, found.events
    if not len(events):
        return _Copies(events.start, [], events.start)
    row = blocking.row[events.first]
    before = activity.before[row]
    is_copy = activity.is_api("copy", "async_copy")
    evidence = np.where((before >= 0) & is_copy[before], before, -1)
    rows = np.where(events.copy >= 0, row, evidence)
    event, copy = copies_of(activity, rows)
    copies = activity.ops.copies
    kinds = [COPY_KINDS.get((int(s), int(d)), "other") for s, d in zip(copies.src[copy], copies.dst[copy], strict=True)]
    return _Copies(event, kinds, copies.bytes[copy])


def _redundant(found: Findings) -> Column:
    """1 for each event before which its thread launched nothing since its last event."""
    activity, events = found.activity, found.events
    result = np.zeros(len(events), dtype=np.int64)
    launches = np.flatnonzero(activity.launches)
    for tid in distinct(np.sort(events.tid)):
        mine = np.flatnonzero(events.tid == tid)
        when = activity.calls.start[launches[activity.calls.tid[launches] == tid]]
        done = np.searchsorted(when, events.start[mine])
        since = np.searchsorted(when, events.end[mine])
        result[mine[1:]] = done[1:] == since[:-1]
    return result


def _calls_in_steps(found: Findings) -> Mask:
    """For each blocking call whether it began inside a step of its process."""
    start = found.activity.calls.start[found.blocking.row]
    pid = found.activity.process(found.blocking.row)
    inside = np.zeros(len(start), dtype=bool)
    for steps in found.steps:
        mine = np.flatnonzero(pid == steps.pid)
        at = np.searchsorted(steps.start, start[mine], side="right") - 1
        inside[mine] = (at >= 0) & (start[mine] < steps.end[at])
    return inside


def _sites(found: Findings, sources: Sources, catalogue: Catalogue, *, measured: bool) -> list[f.Site]:
    events, blocking, charged = found.events, found.blocking, found.charged
    counted = found.counted
    ids = site_ids(found.places, found.users)
    copies = _event_copies(found)
    redundant = _redundant(found)
    in_steps = _calls_in_steps(found)
    names = np.array(api_names(found.activity, blocking), dtype=object)
    steps = sum(len(s.start) for s in found.steps)
    by_site = np.argsort(found.site[counted], kind="stable")
    members = np.split(counted[by_site], np.flatnonzero(np.diff(found.site[counted][by_site])) + 1)
    call_order = np.argsort(blocking.event, kind="stable")
    copy_order = np.argsort(copies.event, kind="stable")
    result = []
    for event in members:
        if not len(event):
            continue
        index = int(found.site[event[0]])
        place = found.places[index]
        calls = _rows_of(blocking.event, call_order, event)
        copy = _rows_of(copies.event, copy_order, event)
        per_step = round(int(in_steps[calls].sum()) / steps, 4) if steps else None
        source, status, readable = sources.find(
            place.user.file if place.user else None, place.user.line if place.user else None
        )
        verdict = catalogue.judge(
            Evidence(
                apis=frozenset(names[calls]),
                copies=frozenset(copies.kind[i] for i in copy),
                max_bytes=int(copies.bytes[copy].max(initial=0)),
                native=place.native,
                stack=place.stack,
                user=place.user,
                leaf=place.leaf,
                source=readable,
                events=len(event),
                redundant=int(redundant[event].sum()),
                calls_per_step=_in_own_processes(found, calls, in_steps),
            )
        )
        idle = charged.idle[event]
        unique, counts = np.unique(names[calls], return_counts=True)
        result.append(
            f.Site(
                id=ids[index],
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
                stack_origin=ORIGINS[_origin(found, event)],
                apis={str(name): int(n) for name, n in zip(unique, counts, strict=True)},
                calls=len(calls),
                events=len(event),
                calls_per_step=per_step,
                wait_ns=f.Spread(
                    total=int(events.wait[event].sum()),
                    median=low_median(events.wait[event]),
                    max=int(events.wait[event].max()),
                ),
                idle_ns=_site_idle(idle) if measured else None,
                copy_in_call_ns=int(charged.copy_in_call[event].sum()) if measured else None,
                recoverable_ns=int(charged.recoverable[event].sum()) if measured else None,
                bytes=int(copies.bytes[copy].sum()),
                by_process=_by_process(found, event, calls, measured=measured),
                by_device=_by_device(charged, event) if measured else [],
                threads=len(distinct(np.sort(events.tid[event]))),
                what_if=found.predictor.of(found.site == index, needed=verdict.class_ == "needed"),
                native=list(place.native[:_NATIVE_FRAMES]),
                origins=_origins(found, calls),
                blocks_graph_capture=verdict.blocks_graph_capture,
                gil_held_ns=None if found.gil_held is None else int(found.gil_held[event].sum()),
            )
        )
    return sorted(result, key=lambda s: (-s.wait_ns.total, s.id))


def _in_own_processes(found: Findings, calls: Column, in_steps: Mask) -> float | None:
    """Calls a step of the processes that make these calls at all; None where those have no steps."""
    pids = distinct(np.sort(found.activity.process(found.blocking.row[calls])))
    steps = sum(len(s.start) for s in found.steps if s.pid in pids)
    return float(in_steps[calls].sum()) / steps if steps else None


def _rows_of(column: Column, by: Column, wanted: Column) -> Column:
    """Rows whose value is among ``wanted`` (ascending); ``by`` sorts the column."""
    ordered = column[by]
    first = np.searchsorted(ordered, wanted, side="left")
    stop = np.searchsorted(ordered, wanted, side="right")
    return np.concatenate([by[a:b] for a, b in zip(first, stop, strict=True)] or [by[:0]])


def _origin(found: Findings, event: Column) -> int:
    """The origin of most events' costlier call; of equally many the vaguer."""
    copy, sync = found.events.copy[event], found.events.sync[event]
    main = np.where(copy >= 0, copy, sync)
    counts = np.bincount(found.stacks.origin[main], minlength=NONE + 1)
    return int(np.flatnonzero(counts == counts.max())[-1])


def _origins(found: Findings, calls: Column) -> dict[str, int]:
    counts = np.bincount(found.stacks.origin[calls], minlength=NONE + 1)
    return {ORIGINS[i]: int(counts[i]) for i in range(EXACT, NONE + 1) if counts[i]}


def _site_idle(idle: Column) -> f.SiteIdle:
    total = idle.sum(axis=(0, 1))
    return f.SiteIdle(sync_wait=int(total[WAIT]), sync_refill=int(total[REFILL]), sync_overhead=int(total[OVERHEAD]))


def _by_device(charged: Blame, event: Column) -> list[f.SiteDevice]:
    total = charged.idle[event].sum(axis=0)
    return [
        f.SiteDevice(
            device=device.device,
            sync_wait=int(total[i, WAIT]),
            sync_refill=int(total[i, REFILL]),
            sync_overhead=int(total[i, OVERHEAD]),
        )
        for i, device in enumerate(charged.devices)
        if total[i].any()
    ]


def _by_process(found: Findings, event: Column, calls: Column, *, measured: bool) -> list[f.SiteProcess]:
    events, charged = found.events, found.charged
    pid = found.activity.process(found.blocking.row[calls])
    return [
        f.SiteProcess(
            pid=os_pid(int(process)),
            calls=int((pid == process).sum()),
            events=int((events.pid[event] == process).sum()),
            wait_ns=int(events.wait[event][events.pid[event] == process].sum()),
            recoverable_ns=int(charged.recoverable[event][events.pid[event] == process].sum()) if measured else None,
            in_loop=_in_loop(found, event[events.pid[event] == process], int(process)),
        )
        for process in distinct(np.sort(pid))
    ]


def _in_loop(found: Findings, event: Column, process: int) -> f.InLoop | None:
    """Those of a process's events that began between its first step's start and its last step's end."""
    loop = next(((s.start.min(), s.end.max()) for s in found.steps if s.pid == process and len(s.start)), None)
    if loop is None:
        return None
    start = found.events.start[event]
    inside = event[(start >= loop[0]) & (start < loop[1])]
    return f.InLoop(events=len(inside), wait_ns=int(found.events.wait[inside].sum()))


def _what_ifs(found: Findings, sites: Sequence[f.Site]) -> f.WhatIfs:
    ids = site_ids(found.places, found.users)
    class_of = {s.id: s.class_ for s in sites}
    classes = (
        np.array([class_of.get(i, "") for i in ids] or [""], dtype=object)[found.site] if len(found.site) else None
    )
    if classes is None:
        return f.WhatIfs(all=None, by_class={})
    by_class: dict[str, f.WhatIf] = {}
    for name in sorted(set(class_of.values())):
        prediction = found.predictor.of(classes == name)
        if prediction is not None:
            by_class[name] = prediction
    return f.WhatIfs(all=found.predictor.of(np.ones(len(found.events), dtype=bool)), by_class=by_class)


def _pauses(found: Findings) -> Pauses:
    """The gaps in which a step would have had room; none where steps are too few to know how long one is."""
    step = max((s.median or 0 for s in found.steps if len(s.row) >= _STEPS), default=0)
    gaps = found.charged.gaps
    if not step:
        return Pauses()
    long = np.flatnonzero(gaps.end - gaps.start >= step)
    caused = gaps.causes[long][:, [t.CAUSES.index("sync_wait"), t.CAUSES.index("sync_refill")]].sum(dtype=np.int64)
    return Pauses(len(long), int((gaps.end - gaps.start)[long].sum() - caused))


def _gaps(found: Findings) -> f.Gaps:
    gaps = found.charged.gaps
    ids = site_ids(found.places, found.users)
    length = gaps.end - gaps.start
    enough = (
        np.flatnonzero(length >= np.partition(length, -_SHOWN_GAPS)[-_SHOWN_GAPS])
        if len(length) > _SHOWN_GAPS
        else (np.arange(len(length)))
    )
    longest = enough[np.lexsort((gaps.start[enough], gaps.device[enough], -length[enough]))][:_SHOWN_GAPS]
    items = []
    for gap in longest:
        event = int(gaps.event[gap])
        items.append(
            f.Gap(
                device=int(gaps.device[gap]),
                start_ns=int(gaps.start[gap]),
                end_ns=int(gaps.end[gap]),
                cause=t.CAUSES[int(gaps.causes[gap].argmax())],
                site=ids[int(found.site[event])] if event >= 0 else None,
            )
        )
    return f.Gaps(total=len(gaps.start), shown=len(items), items=items)


# --- where the numbers come from -------------------------------------------------------------------------


def _trace_info(found: Findings) -> f.TraceInfo:
    trace, meta, capture = found.trace, found.trace.meta, found.trace.capture
    slowdown = _slowdown(capture)
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
    if capture and _release(capture.nsys_version) != _release(meta.exporter_version):
        notes.append(
            ("nsys-versions", f"Captured by nsys {capture.nsys_version}, exported by nsys {meta.exporter_version}.")
        )
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
        warnings=[f.Note(slug=slug, text=text) for slug, text in notes],
    )


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


# --- the timeline ----------------------------------------------------------------------------------------


def timeline(found: Findings, shown: f.Report) -> t.Timeline:
    """The columns that the pages draw; site numbers are positions in the report's sites."""
    activity, gaps = found.activity, found.charged.gaps
    calls, ops = activity.calls, activity.ops
    position = {site.id: i for i, site in enumerate(shown.sites)}
    place = np.array([position.get(i, -1) for i in site_ids(found.places, found.users)] or [-1], dtype=np.int64)
    event_site = place[found.site] if len(found.site) else found.site
    category = np.zeros(len(calls), dtype=np.int64)
    category[activity.launches] = 1
    category[activity.is_api("alloc")] = 3
    category[activity.waits_on_device] = 4
    category[found.blocking.row] = 2
    site = np.full(len(calls), -1, dtype=np.int64)
    event = np.full(len(calls), -1, dtype=np.int64)
    event[found.blocking.row] = found.blocking.event
    site[found.blocking.row] = event_site[found.blocking.event]
    name_ids = distinct(ops.name[ops.name >= 0])
    texts = found.trace.strings(name_ids)
    ranges = found.trace.ranges
    drawn = ranges.pushed >= 0
    step = np.full(len(ranges.start), -1, dtype=np.int64)
    for steps in found.steps:
        step[steps.row] = np.arange(len(steps.row))
    starts = [int(c.start.min()) for c in (calls, ops) if len(c)]
    ends = [int(c.end.max()) for c in (calls, ops) if len(c)]
    return t.Timeline(
        calls=t.CallColumns(
            calls.start, calls.end, calls.tid, process_of(calls.tid), calls.name, category, site, event
        ),
        ops=t.OpColumns(
            ops.start,
            ops.end,
            ops.device,
            ops.context,
            ops.stream,
            ops.pid,
            ops.kind,
            np.where(ops.name >= 0, np.searchsorted(name_ids, ops.name), -1),
            activity.launch,
        ),
        gaps=t.GapColumns(
            gaps.device,
            gaps.start,
            gaps.end,
            gaps.next_op,
            np.where(gaps.event >= 0, event_site[gaps.event], -1) if len(event_site) else gaps.event,
            gaps.causes.astype(np.int64),
        ),
        ranges=t.RangeColumns(
            ranges.start[drawn],
            ranges.end[drawn],
            ranges.tid[drawn],
            process_of(ranges.tid[drawn]),
            ranges.name[drawn],
            step[drawn],
        ),
        call_names=list(calls.names),
        op_names=[texts.get(int(i), "?") for i in name_ids],
        range_names=list(ranges.names),
        thread_names=dict(found.trace.threads),
        start_ns=max(min(starts, default=0), found.window.low),
        end_ns=min(max(ends, default=0), found.window.high),
    )
