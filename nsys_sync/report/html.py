"""The dashboard: one HTML file that works from disk, sends nothing anywhere and reads without JavaScript."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nsys_sync.paths import write_new
from nsys_sync.report import drawing, words
from nsys_sync.report.compare_html import write_comparison
from nsys_sync.report.page import NAME, fill
from nsys_sync.report.words import Places, harmless

if TYPE_CHECKING:
    from nsys_sync.analysis.findings import DeviceTime, Report, Site, WhatIf
    from nsys_sync.analysis.timeline import Column, Timeline
    from nsys_sync.report.drawing import Bars, Drawing, GapBars, Lane, LaneKind

__all__ = ["page", "write", "write_comparison"]

#: Steps that the page can jump to.
STEPS = 5_000


def write(
    report: Report,
    timeline: Timeline | None,
    path: str | Path,
    *,
    source: bool = True,
    force: bool = False,
) -> Path:
    """Write the dashboard; returns its absolute path.

    timeline: None for a saved report; the page then says why it has none. source: embed the lines of source code.
    Raises OutputError if the file exists (without force) or cannot be written.
    """
    return write_new(path, page(report, timeline, source=source).encode("utf-8"), force=force)


def page(report: Report, timeline: Timeline | None, *, source: bool = True) -> str:
    """The dashboard as text."""
    picture = drawing.draw(timeline, report) if timeline is not None else None
    data = _data(report, timeline, picture, source=source)
    return fill("report.html.jinja", data, _Page(report, picture, source=source).values(), plotly=picture is not None)


# --- what the scripts read -------------------------------------------------------------------------------------------


def _data(report: Report, timeline: Timeline | None, picture: Drawing | None, *, source: bool) -> dict[str, Any]:
    places = Places(report.sites)
    frames: dict[tuple[str, str, int], int] = {}
    sites = [_site(s, places, frames, source=source) for s in report.sites]
    return {
        "sites": sites,
        "frames": [[harmless(fn, NAME), harmless(file, NAME), line] for fn, file, line in frames],
        "processes": {p.pid: words.process_label(p) for p in report.trace.processes},
        "causes": [[c.label, c.meaning] for c in words.CAUSES.values()],
        "classes": words.CLASSES,
        "origins": words.ORIGINS,
        "timeline": _picture(timeline, picture) if timeline is not None and picture is not None else None,
    }


def _site(site: Site, places: Places, frames: dict[tuple[str, str, int], int], *, source: bool) -> dict[str, Any]:
    stack = [frames.setdefault((f.function, f.file, f.line), len(frames)) for f in site.stack]
    lines = site.source.lines if site.source is not None and source else {}
    return {
        "id": harmless(site.id, NAME),
        "rule": harmless(site.rule, NAME),
        "title": harmless(site.title, NAME),
        "class": site.class_,
        "basis": harmless(site.class_basis, 2000),
        "fix": _fix(site),
        "place": places.site(site),
        "file": harmless(site.file, NAME) if site.file else None,
        "line": site.line,
        "function": harmless(site.function, NAME) if site.function else None,
        "source": [[number, _code(lines[number])] for number in sorted(lines)],
        "status": site.source_status,
        "stack": stack,
        "native": [harmless(n, NAME) for n in site.native],
        "origin": site.stack_origin,
        "origins": {harmless(k, NAME): v for k, v in site.origins.items()},
        "apis": [[harmless(name, NAME), calls] for name, calls in sorted(site.apis.items(), key=lambda i: -i[1])],
        "calls": site.calls,
        "events": site.events,
        "perStep": site.calls_per_step,
        "wait": [site.wait_ns.total, site.wait_ns.median, site.wait_ns.max],
        "idle": [getattr(site.idle_ns, n) for n in site.idle_ns.__struct_fields__] if site.idle_ns else None,
        "copy": site.copy_in_call_ns,
        "recoverable": site.recoverable_ns,
        "bytes": site.bytes,
        "threads": site.threads,
        "byProcess": [[p.pid, p.calls, p.wait_ns, p.recoverable_ns] for p in site.by_process],
        "byDevice": [[d.device, d.sync_wait, d.sync_refill, d.sync_overhead] for d in site.by_device],
        "whatIf": _what_if(site.what_if),
        "blocksGraph": site.blocks_graph_capture,
        "gil": site.gil_held_ns,
    }


def _fix(site: Site) -> dict[str, Any] | None:
    fix = site.fix
    if fix is None:
        return None
    return {
        "text": harmless(fix.text, 2000),
        "before": [_code(line) for line in fix.before.splitlines()],
        "after": [_code(line) for line in fix.after.splitlines()],
        "effort": fix.effort,
        "docs": harmless(fix.docs, NAME) if fix.docs.startswith(("https://", "http://")) else None,
    }


def _what_if(what_if: WhatIf | None) -> dict[str, Any] | None:
    if what_if is None:
        return None
    return {
        "now": what_if.step_ns_now,
        "low": what_if.step_ns_low,
        "high": what_if.step_ns_high,
        "bound": what_if.gpu_bound_ns,
        "confidence": what_if.confidence,
        "reasons": [harmless(r, 500) for r in what_if.reasons],
    }


def _code(line: str) -> str:
    """A line of code, indentation kept."""
    return harmless(line.expandtabs(4).rstrip(), NAME)


def _picture(timeline: Timeline, picture: Drawing) -> dict[str, Any]:
    origin = timeline.start_ns
    names: dict[str, int] = {}
    places = {(tid, lane.kind): place for place, lane in enumerate(picture.lanes) for tid in lane.tids}
    lanes = [_lane(lane, picture, origin, names, places) for lane in picture.lanes]
    steps = np.flatnonzero(timeline.ranges.step >= 0)[:STEPS]
    return {
        "length": timeline.end_ns - origin,
        "resolution": picture.resolution_ns,
        "detailed": [[start - origin, end - origin] for start, end in picture.detailed],
        "drawn": picture.drawn,
        "total": picture.total,
        "names": list(names),
        "lanes": lanes,
        "steps": [
            _column(timeline.ranges.step[steps]),
            (timeline.ranges.start[steps] - origin).tolist(),
            (timeline.ranges.end[steps] - origin).tolist(),
        ],
    }


def _lane(
    lane: Lane, picture: Drawing, origin: int, names: dict[str, int], places: dict[tuple[int, LaneKind], int]
) -> dict[str, Any]:
    head = {"kind": lane.kind, "group": lane.group, "title": lane.title}
    if isinstance(lane.bars, drawing.Bars):
        return head | _bars(lane.bars, picture.names[lane.kind], origin, names)
    return head | _gap_bars(lane.bars, origin, places)


def _bars(bars: Bars, own: list[str], origin: int, names: dict[str, int]) -> dict[str, Any]:
    used, index = np.unique(bars.name, return_inverse=True)
    place = [names.setdefault(harmless(own[n], NAME), len(names)) if 0 <= n < len(own) else -1 for n in used.tolist()]
    return {
        "start": _steps(bars.start, origin),
        "length": _column(bars.end - bars.start),
        "count": _column(bars.count),
        "filled": _column(np.where(bars.count > 1, bars.filled, 0)),
        "category": _column(bars.category),
        "name": _column(np.array(place, dtype=np.int64)[index.reshape(-1)]),
        "site": _column(bars.site),
        "event": _column(bars.event),
    }


def _gap_bars(gaps: GapBars, origin: int, places: dict[tuple[int, LaneKind], int]) -> dict[str, Any]:
    kinds: tuple[LaneKind, LaneKind] = ("calls", "syncs")
    launching = [(tid, kinds[b]) for tid, b in zip(gaps.launch_tid.tolist(), gaps.launch_blocks.tolist(), strict=True)]

    def at(column: Column) -> Any:
        return _column(np.where(column >= 0, column - origin, -1))

    return {
        "start": _steps(gaps.start, origin),
        "length": _column(gaps.end - gaps.start),
        "count": _column(gaps.count),
        "causes": [_column(gaps.causes[:, i]) for i in range(gaps.causes.shape[1])],
        "site": _column(gaps.site),
        "event": _column(gaps.event),
        "causedStart": at(gaps.caused_start),
        "causedEnd": at(gaps.caused_end),
        "launchStart": at(gaps.launch_start),
        "launchEnd": at(gaps.launch_end),
        "launchLane": _column(np.array([places.get(thread, -1) for thread in launching], dtype=np.int64)),
    }


def _steps(start: Column, origin: int) -> list[int]:
    """Starts as differences to the one before, the first to the origin: short numbers."""
    differences: list[int] = np.diff(start, prepend=origin).tolist()
    return differences


def _column(values: Column) -> list[int] | int:
    """The column, or its one value where all are equal."""
    if len(values) and (values == values[0]).all():
        return int(values[0])
    column: list[int] = values.tolist()
    return column


# --- what stands in the page itself ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tile:
    """A figure with its name and what it is made of."""

    name: str
    value: str
    detail: str


def _legend_rows(rows: list[tuple[str, str, str, int]]) -> list[dict[str, str]]:
    unit, total = words.scale(ns for *_, ns in rows), sum(ns for *_, ns in rows)
    return [
        {
            "name": name,
            "label": label,
            "meaning": meaning,
            "value": f"{unit.show(ns)} {unit.unit}",
            "share": words.percent(ns, total),
        }
        for name, label, meaning, ns in rows
    ]


class _Page:
    """The values that the template shows as text."""

    def __init__(self, report: Report, picture: Drawing | None, *, source: bool) -> None:
        self.report, self.picture, self.source = report, picture, source
        self.places = Places(report.sites)

    def values(self) -> dict[str, Any]:
        report = self.report
        return {
            "title": f"{harmless(report.trace.file, 80)} – nsys-sync",
            "trace": self._facts(),
            "headline": harmless(report.headline.text, 1000),
            "no_sites": words.no_sites(report),
            "prediction": words.prediction(report.what_if.all) if report.what_if.all else None,
            "reasons": [harmless(r, 500) for r in report.what_if.all.reasons] if report.what_if.all else [],
            "tiles": self._tiles(),
            "devices": [self._device(d) for d in report.devices],
            "legend": self._legend(),
            "ranked": self._ranked(),
            "rows": self._rows(),
            "units": self._units(),
            "many_processes": len(report.trace.processes) > 1,
            "processes": [(p.pid, words.process_label(p)) for p in report.trace.processes],
            "totals": self._totals(),
            "missing": [(m.what, m.command) for m in words.missing(report)],
            "warnings": words.notes(report),
            "picture": self.picture,
            "thinned": self._thinned(),
            "perfetto": f"nsys-sync report {words.quoted(report.trace.file)} --perfetto OUT.json",
            "report_command": f"nsys-sync report {words.quoted(report.trace.file)} --html OUT.html",
        }

    def _facts(self) -> list[tuple[str, str]]:
        trace = self.report.trace
        facts = [
            ("Trace", harmless(trace.file, NAME)),
            ("GPU", ", ".join(words.gpus(self.report))),
            (
                "Captured",
                f"{trace.captured_utc.replace('T', ' ').removesuffix('Z')} UTC" if trace.captured_utc else None,
            ),
            ("nsys", trace.nsys_version),
            ("Schema", trace.schema_version),
            ("Driver", trace.driver),
            ("CUDA", trace.cuda),
            ("Options of nsys", " ".join(trace.capture.flags)),
            ("SHA-256", trace.sha256),
            ("Report", f"{self.report.tool.name} {self.report.tool.version}"),
        ]
        return [(name, harmless(value, 2000)) for name, value in facts if value]

    def _tiles(self) -> list[Tile]:
        report, totals = self.report, self.report.totals
        window = sum(d.window_ns for d in report.devices)
        busy = None if any(d.busy_ns is None for d in report.devices) else sum(d.busy_ns or 0 for d in report.devices)
        medians = [s.median_ns for s in report.steps if s.median_ns is not None]
        counts = sum(s.count for s in report.steps)
        often = [s.calls_per_step for s in report.sites if s.calls_per_step is not None]
        slowdown, what_if = report.trace.capture.slowdown, report.what_if.all
        return [
            Tile(
                "Step time",
                words.span(min(medians), max(medians)) if medians else words.NOT_MEASURED,
                f"median of {counts:,} steps" if medians else "no steps marked",
            ),
            Tile(
                "Step if nothing blocked",
                words.span(what_if.step_ns_low, what_if.step_ns_high) if what_if else words.NOT_MEASURED,
                f"predicted; confidence {what_if.confidence}" if what_if else "not predicted",
            ),
            Tile(
                "GPU busy",
                words.percent(busy, window),
                f"{words.duration(busy)} of {words.duration(window)}" if busy is not None else "withheld",
            ),
            Tile(
                "GPU idle from syncs",
                words.duration(totals.idle_from_syncs_ns),
                f"{words.percent(totals.idle_from_syncs_ns, totals.idle_ns)} of {words.duration(totals.idle_ns)} idle",
            ),
            Tile("Recoverable", words.duration(totals.recoverable_all_ns), "all sites together"),
            Tile(
                "Blocking calls a step",
                words.per_step(sum(often)) if often else words.NOT_MEASURED,
                f"{totals.host_blocking_calls:,} in all, {words.duration(totals.wait_ns)} waited",
            ),
            Tile(
                "Profiler's slowdown",
                f"{slowdown.ratio:.2f} ×" if slowdown else words.NOT_MEASURED,
                f"{words.duration(slowdown.step_ns_before)} → {words.duration(slowdown.step_ns_inside)} a step"
                if slowdown
                else "not measured",
            ),
        ]

    def _device(self, device: DeviceTime) -> dict[str, Any]:
        causes, busy = device.idle_by_cause_ns, words.busy([device])
        names = {d.id: d.name for d in self.report.trace.devices}
        parts = [(name, label, busy[name]) for name, (label, _) in words.BUSY.items()] if busy else []
        parts += [(name, cause.label, getattr(causes, name)) for name, cause in words.CAUSES.items()] if causes else []
        return {
            "name": f"GPU {device.device}",
            "model": harmless(names.get(device.device, ""), 60),
            "window": words.duration(device.window_ns),
            "busy": words.duration(device.busy_ns),
            "busy_share": words.percent(device.busy_ns, device.window_ns),
            "idle": words.duration(device.idle_ns),
            "idle_share": words.percent(device.idle_ns, device.window_ns),
            "withheld": harmless(device.idle_reason or "unknown", 500) if device.idle_status == "withheld" else None,
            "parts": [
                (name, label, f"{100 * ns / device.window_ns:.3f}", words.duration(ns))
                for name, label, ns in parts
                if ns and device.window_ns and causes
            ],
        }

    def _legend(self) -> dict[str, list[dict[str, str]]]:
        """Rows of the legend under two headings: name, label, meaning, value, share."""
        causes, busy = words.idle_by_cause(self.report), words.busy(self.report.devices)
        if causes is None or busy is None:
            return {}
        idle = [(name, cause.label, cause.meaning, getattr(causes, name)) for name, cause in words.CAUSES.items()]
        groups = {
            "Busy": [(name, label, meaning, busy[name]) for name, (label, meaning) in words.BUSY.items()],
            "Idle by cause": idle,
        }
        return {heading: _legend_rows(rows) for heading, rows in groups.items()}

    def _ranked(self) -> list[dict[str, Any]]:
        """Sites by recoverable time, the ten largest, for the bar chart."""
        found = [(i, s, s.recoverable_ns) for i, s in enumerate(self.report.sites) if s.recoverable_ns]
        found.sort(key=lambda item: -item[2])
        unit = words.scale(ns for _, _, ns in found)
        return [
            {
                "index": index,
                "place": self.places.site(site),
                "value": f"{unit.show(ns)} {unit.unit}",
                "width": f"{100 * ns / found[0][2]:.2f}",
                "class": site.class_,
            }
            for index, site, ns in found[:10]
        ]

    def _units(self) -> dict[str, words.Scale]:
        sites = self.report.sites
        return {
            "wait": words.scale(s.wait_ns.total for s in sites),
            "median": words.scale(s.wait_ns.median for s in sites),
            "recoverable": words.scale(s.recoverable_ns for s in sites),
        }

    def _rows(self) -> list[dict[str, Any]]:
        units = self._units()
        index = {id(site): i for i, site in enumerate(self.report.sites)}
        rows = []
        for site in words.by_wait(self.report.sites):
            line = words.source_line(site) if self.source else None
            rows.append(
                {
                    "index": index[id(site)],
                    "place": self.places.site(site),
                    "file": self.places.file(site.file) if site.file else "",
                    "function": harmless(site.function, 80) if site.function else "",
                    "source": harmless(line, 160) if line else "",
                    "title": harmless(site.title, 120),
                    "class": site.class_,
                    "origin": site.stack_origin,
                    "api": ", ".join(harmless(api, 60) for api in site.apis),
                    "wait": (site.wait_ns.total, units["wait"].show(site.wait_ns.total)),
                    "median": (site.wait_ns.median, units["median"].show(site.wait_ns.median)),
                    "recoverable": (
                        -1 if site.recoverable_ns is None else site.recoverable_ns,
                        units["recoverable"].show(site.recoverable_ns),
                    ),
                    "often": (
                        -1 if site.calls_per_step is None else site.calls_per_step,
                        words.per_step(site.calls_per_step),
                    ),
                    "calls": (site.calls, f"{site.calls:,}"),
                    "pids": " ".join(str(p.pid) for p in site.by_process),
                }
            )
        return rows

    def _totals(self) -> str:
        totals = self.report.totals
        blocked = f"{words.duration(totals.host_blocked_ns)} of wall time"
        if totals.thread_blocked_ns != totals.host_blocked_ns:
            blocked += f" ({words.duration(totals.thread_blocked_ns)} summed over threads)"
        return (
            f"{words.count(totals.host_blocking_calls, 'blocking call')} in {words.count(totals.sync_events, 'sync')}, "
            f"{words.duration(totals.wait_ns)} of waiting; the CPU was blocked for {blocked}"
        )

    def _thinned(self) -> str | None:
        picture = self.picture
        if picture is None or not picture.resolution_ns:
            return None
        places = words.count(len(picture.detailed), "stretch", "stretches")
        detail = f" Nothing is merged in {places} around the longest gaps." if picture.detailed else ""
        return (
            f"{picture.drawn:,} bars stand for {picture.total:,} calls, operations and gaps: those shorter than "
            f"{words.duration(picture.resolution_ns)} are merged with their neighbours.{detail} "
            "All figures and tables count everything."
        )
