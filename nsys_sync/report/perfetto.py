"""The timeline in the Chrome trace format (ui.perfetto.dev, chrome://tracing): every call, operation and gap."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from nsys_sync.analysis.timeline import CAUSES, KINDS
from nsys_sync.errors import UsageError
from nsys_sync.paths import writing
from nsys_sync.report import words
from nsys_sync.report.words import Places, harmless
from nsys_sync.trace.tables import os_pid, os_tid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    return cast("IO[bytes]", gzip.open(path, "wb", compresslevel=1)) if packed else path.open("wb")


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
    return f"{'-' * (ns < 0)}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _head(name: str, category: str) -> str:
    """A slice up to its time; name as JSON."""
    return f'{{"ph":"X","name":{name},"cat":"{category}","ts":'


def _track(pid: int, track: int) -> str:
    return f',"pid":{pid},"tid":{track}'


def _slices(start: Column, end: Column, heads: Iterable[str], tails: Iterable[str]) -> Iterator[str]:
    """Slices from columns of equal length; a tail is all that follows the length."""
    length = np.maximum(end - start, 0)
    times = _rows(start, abs(start) // 1000, abs(start) % 1000, length // 1000, length % 1000)
    for (signed, at, at_ns, for_, for_ns), head, tail in zip(times, heads, tails, strict=True):
        yield f'{head}{"-" * (signed < 0)}{at}.{at_ns:03d},"dur":{for_}.{for_ns:03d}{tail}}}'


def _pick(values: Sequence[str], index: Column) -> Iterator[str]:
    """values[index], row by row."""
    for (place,) in _rows(index):
        yield values[place]


def _threads(tid: Column) -> Iterator[str]:
    """Where the slices of threads (nsys's global ids) belong."""
    known = {t: _track(os_pid(t), os_tid(t)) for t in np.unique(tid).tolist()}
    for (thread,) in _rows(tid):
        yield known[thread]


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


def _tracks(timeline: Timeline) -> dict[tuple[int, ...], int]:
    """A track for each stream of each context of each device."""
    return {key: track for track, key in enumerate(sorted(set(_streams(timeline))), 1)}


def _streams(timeline: Timeline) -> Iterator[tuple[int, ...]]:
    """(device, context, stream) of each operation."""
    ops = timeline.ops
    return _rows(ops.device, ops.context, ops.stream)


def _rows(*columns: Column) -> Iterator[tuple[int, ...]]:
    """Rows of columns as plain numbers; a stretch at a time, so that not all of them are in memory at once."""
    for low in range(0, len(columns[0]), 100_000):
        yield from zip(*(c[low : low + 100_000].tolist() for c in columns), strict=True)


def _ranges(timeline: Timeline) -> Iterator[str]:
    r = timeline.ranges
    heads = [_head(_text(name), kind) for kind in ("range", "step") for name in timeline.range_names]
    steps = (_args({"step": step}) if step >= 0 else "" for (step,) in _rows(r.step))
    tails = (thread + args for thread, args in zip(_threads(r.tid), steps, strict=True))
    yield from _slices(r.start, r.end, _pick(heads, r.name + (r.step >= 0) * len(timeline.range_names)), tails)


def _syncs(report: Report, timeline: Timeline) -> Iterator[str]:
    """One slice a sync event, around its calls, named after its Python line."""
    c = timeline.calls
    rows = np.flatnonzero((c.site >= 0) & (c.event >= 0))
    rows = rows[np.lexsort((c.start[rows], c.event[rows]))]
    first = np.flatnonzero(np.diff(c.event[rows], prepend=-1))
    if not len(first):
        return
    end = np.maximum.reduceat(c.end[rows], first)
    rows = rows[first]
    places = Places(report.sites)
    heads = [_head(json.dumps(places.site(site)), "sync") for site in report.sites]
    about = [_about(site) for site in report.sites]
    tails = (thread + args for thread, args in zip(_threads(c.tid[rows]), _pick(about, c.site[rows]), strict=True))
    yield from _slices(c.start[rows], end, _pick(heads, c.site[rows]), tails)


def _about(site: Site) -> str:
    return _args(
        {
            "site": harmless(site.id, _NAME),
            "function": harmless(site.function or "", _NAME),
            "source": harmless(words.source_line(site) or "", _NAME),
            "title": harmless(site.title, _NAME),
            "class": site.class_,
            "stack": [harmless(f"{f.file}:{f.line} {f.function}", 300) for f in site.stack],
        }
    )


def _calls(timeline: Timeline) -> Iterator[str]:
    c = timeline.calls
    heads = [_head(_text(name), category) for name in timeline.call_names for category in _CATEGORIES]
    yield from _slices(c.start, c.end, _pick(heads, c.name * len(_CATEGORIES) + c.category), _threads(c.tid))


def _ops(timeline: Timeline) -> Iterator[str]:
    o = timeline.ops
    names = [json.dumps(kind) for kind in KINDS] + [_text(name) for name in timeline.op_names]
    heads = [_head(name, kind) for name in names for kind in KINDS]
    name = np.where(o.name >= 0, o.name + len(KINDS), o.kind)
    tracks = _tracks(timeline)
    tails = (_track(_GPU + row[0], tracks[row]) for row in _streams(timeline))
    yield from _slices(o.start, o.end, _pick(heads, name * len(KINDS) + o.kind), tails)


def _gaps(report: Report, timeline: Timeline) -> Iterator[str]:
    """Gaps by their largest cause; from those that a sync caused an arrow over the launch to the operation after."""
    g, ops, calls = timeline.gaps, timeline.ops, timeline.calls
    places = Places(report.sites)
    sites = [json.dumps(places.site(s)) for s in report.sites]
    heads = [_head(json.dumps(words.CAUSES[cause].label), f"idle,{cause}") for cause in CAUSES]
    largest = g.causes.argmax(axis=1) if len(g.start) else g.start
    yield from _slices(g.start, g.end, _pick(heads, largest), _gap_tails(timeline, sites))
    tracks = _tracks(timeline)
    ended = np.flatnonzero((g.site >= 0) & (g.next_op >= 0))
    ended = ended[ops.call[g.next_op[ended]] >= 0]
    op = g.next_op[ended]
    call = ops.call[op]
    of_op = np.stack((ops.device[op], ops.context[op], ops.stream[op]))
    for number, start, launched, tid, begun, device, context, stream in _rows(
        ended, g.start[ended], calls.start[call], calls.tid[call], ops.start[op], *of_op
    ):
        gpu = _GPU + device
        way = (
            ("s", start, _track(gpu, _IDLE)),
            ("t", launched, _track(os_pid(tid), os_tid(tid))),
            ("f", begun, _track(gpu, tracks[device, context, stream])),
        )
        for phase, at, track in way:
            yield (f'{{"ph":"{phase}","bp":"e","id":{number},"name":"ends the gap","cat":"gap","ts":{_us(at)}{track}}}')


def _gap_tails(timeline: Timeline, sites: list[str]) -> Iterator[str]:
    g = timeline.gaps
    for device, site, *causes in _rows(g.device, g.site, *g.causes.T):
        args = [f'"{name}_ns":{ns}' for name, ns in zip(CAUSES, causes, strict=True) if ns]
        args += [f'"site":{sites[site]}'] if site >= 0 else []
        yield f'{_track(_GPU + device, _IDLE)},"args":{{{",".join(args)}}}'
