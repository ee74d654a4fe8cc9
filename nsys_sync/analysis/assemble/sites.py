"""The sites of a report: what the catalogue is told of each one and says, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_sync.analysis import findings as f
from nsys_sync.analysis.assemble.found import Findings
from nsys_sync.analysis.calls import Mask, copies_of, low_median
from nsys_sync.analysis.catalogue.evidence import COPY_KINDS, Evidence
from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.idle import OVERHEAD, REFILL, WAIT, Blame
from nsys_sync.analysis.sites import site_ids
from nsys_sync.analysis.source import Sources
from nsys_sync.analysis.stacks import EXACT, NONE, ORIGINS
from nsys_sync.trace.columns import distinct
from nsys_sync.trace.tables import Column, os_pid

_NATIVE_FRAMES = 12


def make_sites(found: Findings, sources: Sources, catalogue: Catalogue, *, measured: bool) -> list[f.Site]:
    """The sites that are reported on, by wait, most first. measured: whether the idle time of all devices is known."""
    rows = _Rows.of(found)
    sites = [_site(found, rows, event, sources, catalogue, measured=measured) for event in _members(found)]
    return sorted(sites, key=lambda s: (-s.wait_ns.total, s.id))


def _members(found: Findings) -> list[Column]:
    """The events of each site."""
    counted = found.counted
    by_site = counted[np.argsort(found.site[counted], kind="stable")]
    members = np.split(by_site, np.flatnonzero(np.diff(found.site[by_site])) + 1)
    return [event for event in members if len(event)]


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


@dataclass(frozen=True)
class _Rows:
    """What sites are made of, for all of them at once.

    ids: by place. name, in_steps: by blocking call, its API and whether it began inside a step; redundant: by event.
    call_order, copy_order: sort the blocking calls and the copies by event. steps: of all processes together.
    """

    ids: list[str]
    name: npt.NDArray[np.object_]
    in_steps: Mask
    redundant: Column
    copies: _Copies
    call_order: Column
    copy_order: Column
    steps: int

    @classmethod
    def of(cls, found: Findings) -> _Rows:
        copies = _event_copies(found)
        return cls(
            ids=site_ids(found.places, found.users),
            name=np.array(found.activity.names_of(found.blocking.row), dtype=object),
            in_steps=_calls_in_steps(found),
            redundant=_redundant(found),
            copies=copies,
            call_order=np.argsort(found.blocking.event, kind="stable"),
            copy_order=np.argsort(copies.event, kind="stable"),
            steps=sum(len(s.start) for s in found.steps),
        )


def _site(
    found: Findings, rows: _Rows, event: Column, sources: Sources, catalogue: Catalogue, *, measured: bool
) -> f.Site:
    """The site of these events."""
    events, charged, copies = found.events, found.charged, rows.copies
    index = int(found.site[event[0]])
    place = found.places[index]
    calls = _rows_of(found.blocking.event, rows.call_order, event)
    copy = _rows_of(copies.event, rows.copy_order, event)
    user = place.user
    source, status, readable = sources.find(user.file if user else None, user.line if user else None)
    apis, counts = np.unique(rows.name[calls], return_counts=True)
    verdict = catalogue.judge(
        Evidence(
            apis=frozenset(apis),
            copies=frozenset(copies.kind[i] for i in copy),
            max_bytes=int(copies.bytes[copy].max(initial=0)),
            native=place.native,
            stack=place.stack,
            user=user,
            leaf=place.leaf,
            source=readable,
            events=len(event),
            redundant=int(rows.redundant[event].sum()),
            calls_per_step=_in_own_processes(found, calls, rows.in_steps),
        )
    )
    wait = events.wait[event]
    return f.Site(
        id=rows.ids[index],
        rule=verdict.rule,
        title=verdict.title,
        class_=verdict.class_,
        class_basis=verdict.class_basis,
        fix=verdict.fix,
        file=user.file if user else None,
        line=user.line if user else None,
        function=user.function if user else None,
        source=source,
        source_status=status,
        leaf=place.leaf,
        stack=list(place.stack),
        stack_origin=ORIGINS[_origin(found, event)],
        apis={str(name): int(n) for name, n in zip(apis, counts, strict=True)},
        calls=len(calls),
        events=len(event),
        calls_per_step=round(int(rows.in_steps[calls].sum()) / rows.steps, 4) if rows.steps else None,
        wait_ns=f.Spread(total=int(wait.sum()), median=low_median(wait), max=int(wait.max())),
        idle_ns=_site_idle(charged.idle[event]) if measured else None,
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
