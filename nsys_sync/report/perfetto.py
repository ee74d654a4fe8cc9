"""The timeline in the Chrome trace format (ui.perfetto.dev, chrome://tracing): every call, operation and gap."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from nsys_sync.analysis.timeline import CAUSES, KINDS
from nsys_sync.errors import UsageError
from nsys_sync.report import words
from nsys_sync.report.files import writing
from nsys_sync.report.words import Places, harmless
from nsys_sync.trace.tables import os_pid, os_tid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nsys_sync.analysis.findings import Report, Site
    from nsys_sync.analysis.timeline import Column, Timeline

#: GPUs are shown as processes with numbers that Linux gives to none.
_GPU = 1_000_000_000
_IDLE = 0
_CATEGORIES = ("call", "launch", "blocking", "allocation", "device wait")
_NAME = 2_000


def write(report: Report, timeline: Timeline | None, path: str | Path, *, force: bool = False) -> Path:
    """Write the trace, compressed if the name ends in .gz; returns the absolute path.

    Raises UsageError without a timeline (a saved report holds none), OutputError if it cannot be written.
    """
    if timeline is None:
        raise UsageError(
            "no-timeline",
            "A saved report holds no timeline, so there is nothing for Perfetto to show.",
            "Give the trace itself: nsys-sync report TRACE.sqlite --perfetto PATH",
        )
    with writing(path, force=force) as temporary, _open(temporary, packed=str(path).endswith(".gz")) as file:
        for piece in pieces(report, timeline):
            file.write(piece.encode("ascii"))
    return Path(path).absolute()


def _open(path: Path, *, packed: bool) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "wb", compresslevel=4)) if packed else path.open("wb")


def pieces(report: Report, timeline: Timeline) -> Iterator[str]:
    """The trace as ASCII, in pieces of a few thousand events."""
    yield '{"displayTimeUnit":"ns","traceEvents":[\n'
    first = True
    for batch in _batches(_events(report, timeline), 5_000):
        yield ("" if first else ",\n") + ",\n".join(batch)
        first = False
    yield "\n]}\n"


def _batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    batch: list[str] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _events(report: Report, timeline: Timeline) -> Iterator[str]:
    yield from _names(report, timeline)
    yield from _ranges(timeline)
    yield from _syncs(report, timeline)
    yield from _calls(timeline)
    yield from _ops(timeline)
    yield from _gaps(report, timeline)


def _text(text: str) -> str:
    return json.dumps(harmless(text, _NAME))


def _us(ns: int) -> str:
    """Microseconds with all digits: a float would lose the last ones of a long trace."""
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _slice(name: str, category: str, start: int, end: int, pid: int, tid: int, args: str = "") -> str:
    return (
        f'{{"ph":"X","name":{name},"cat":"{category}","ts":{_us(start)},"dur":{_us(max(0, end - start))},'
        f'"pid":{pid},"tid":{tid}{args}}}'
    )


def _on_thread(name: str, category: str, start: int, end: int, tid: int, args: str = "") -> str:
    """A slice on the thread with nsys's global id ``tid``."""
    return _slice(name, category, start, end, os_pid(tid), os_tid(tid), args)


def _args(values: dict[str, Any]) -> str:
    return f',"args":{json.dumps(values)}'


def _meta(kind: str, pid: int, tid: int, key: str, value: str | int) -> str:
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{"{key}":{json.dumps(value)}}}}}'


def _names(report: Report, timeline: Timeline) -> Iterator[str]:
    for place, process in enumerate(report.trace.processes):
        name = f"{words.process_label(process)} {harmless(process.name, 60)}".strip()
        yield _meta("process_name", process.pid, 0, "name", name)
        yield _meta("process_sort_index", process.pid, 0, "sort_index", place)
    for tid in np.unique(np.concatenate((timeline.calls.tid, timeline.ranges.tid))).tolist():
        name = harmless(timeline.thread_names.get(tid, "thread"), 60)
        yield _meta("thread_name", os_pid(tid), os_tid(tid), "name", name)
    models = {d.id: harmless(d.name, 60) for d in report.trace.devices}
    tracks = _tracks(timeline)
    for device in sorted({device for device, _, _ in tracks} | set(np.unique(timeline.gaps.device).tolist())):
        yield _meta("process_name", _GPU + device, 0, "name", f"GPU {device} {models.get(device, '')}".strip())
        yield _meta("process_sort_index", _GPU + device, 0, "sort_index", 10_000 + device)
        yield _meta("thread_name", _GPU + device, _IDLE, "name", "idle by cause")
        yield _meta("thread_sort_index", _GPU + device, _IDLE, "sort_index", -1)
    for (device, context, stream), track in tracks.items():
        yield _meta("thread_name", _GPU + device, track, "name", f"stream {stream}, context {context}")


def _tracks(timeline: Timeline) -> dict[tuple[int, int, int], int]:
    """A track for each stream of each context of each device."""
    ops = timeline.ops
    keys = np.unique(np.stack((ops.device, ops.context, ops.stream)), axis=1).T.tolist() if len(ops.start) else []
    return {(device, context, stream): track for track, (device, context, stream) in enumerate(keys, 1)}


def _rows(*columns: Column) -> Iterator[tuple[int, ...]]:
    return zip(*(c.tolist() for c in columns), strict=True)


def _ranges(timeline: Timeline) -> Iterator[str]:
    names = [_text(n) for n in timeline.range_names]
    r = timeline.ranges
    for start, end, tid, name, step in _rows(r.start, r.end, r.tid, r.name, r.step):
        args = f',"args":{{"step":{step}}}' if step >= 0 else ""
        yield _on_thread(names[name], "step" if step >= 0 else "range", start, end, tid, args)


def _syncs(report: Report, timeline: Timeline) -> Iterator[str]:
    """One slice a sync event, around its calls, named after its Python line."""
    c = timeline.calls
    rows = np.flatnonzero((c.site >= 0) & (c.event >= 0))
    rows = rows[np.lexsort((c.start[rows], c.event[rows]))]
    first = np.flatnonzero(np.diff(c.event[rows], prepend=-1))
    if not len(first):
        return
    end = np.maximum.reduceat(c.end[rows], first)
    heads = rows[first]
    shown = [_site(site, Places(report.sites)) for site in report.sites]
    for start, last, tid, site in _rows(c.start[heads], end, c.tid[heads], c.site[heads]):
        name, args = shown[site]
        yield _on_thread(name, "sync", start, last, tid, args)


def _site(site: Site, places: Places) -> tuple[str, str]:
    line = words.source_line(site)
    return json.dumps(places.site(site)), _args(
        {
            "site": harmless(site.id, _NAME),
            "function": harmless(site.function or "", _NAME),
            "source": harmless(line or "", _NAME),
            "rule": harmless(site.rule, _NAME),
            "class": site.class_,
            "stack": [harmless(f"{f.file}:{f.line} {f.function}", 300) for f in site.stack],
        }
    )


def _calls(timeline: Timeline) -> Iterator[str]:
    names = [_text(n) for n in timeline.call_names]
    c = timeline.calls
    for start, end, tid, name, category in _rows(c.start, c.end, c.tid, c.name, c.category):
        yield _on_thread(names[name], _CATEGORIES[category], start, end, tid)


def _ops(timeline: Timeline) -> Iterator[str]:
    names = [_text(n) for n in timeline.op_names]
    kinds = [json.dumps(k) for k in KINDS]
    tracks = _tracks(timeline)
    o = timeline.ops
    for start, end, device, context, stream, kind, name in _rows(
        o.start, o.end, o.device, o.context, o.stream, o.kind, o.name
    ):
        title = names[name] if name >= 0 else kinds[kind]
        yield _slice(title, KINDS[kind], start, end, _GPU + device, tracks[device, context, stream])


def _gaps(report: Report, timeline: Timeline) -> Iterator[str]:
    """Gaps named by their largest cause, with an arrow over the launch that ended them to the operation after them."""
    g, ops, calls = timeline.gaps, timeline.ops, timeline.calls
    places = Places(report.sites)
    sites = [places.site(s) for s in report.sites]
    labels = [c.label for c in words.CAUSES.values()]
    tracks = _tracks(timeline)
    rows = _rows(g.start, g.end, g.device, g.site, g.next_op, g.causes.argmax(axis=1))
    for number, (start, end, device, site, op, cause) in enumerate(rows):
        shares = dict(zip(CAUSES, g.causes[number].tolist(), strict=True))
        args: dict[str, Any] = {f"{name}_ns": ns for name, ns in shares.items() if ns}
        args |= {"site": sites[site]} if site >= 0 else {}
        pid = _GPU + device
        yield _slice(json.dumps(labels[cause]), f"idle,{CAUSES[cause]}", start, end, pid, _IDLE, _args(args))
        call = int(ops.call[op]) if op >= 0 else -1
        if call < 0:
            continue
        track = tracks[int(ops.device[op]), int(ops.context[op]), int(ops.stream[op])]
        tid = int(calls.tid[call])
        launch = (int(calls.start[call]), os_pid(tid), os_tid(tid))
        for phase, at, of, on in (("s", start, pid, _IDLE), ("t", *launch), ("f", int(ops.start[op]), pid, track)):
            yield (
                f'{{"ph":"{phase}","bp":"e","id":{number},"name":"ends the gap","cat":"gap","ts":{_us(at)},'
                f'"pid":{of},"tid":{on}}}'
            )
