"""A plotly figure for notebooks: the timeline, or without one the sites by recoverable time."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from nsys_sync.analysis.timeline import KINDS
from nsys_sync.report import drawing, words
from nsys_sync.report.words import Places, duration, harmless

if TYPE_CHECKING:
    from nsys_sync.analysis.findings import Report
    from nsys_sync.analysis.timeline import Timeline
    from nsys_sync.report.drawing import Bars, Drawing, GapBars, Lane

#: Bars that a notebook's figure draws.
BARS = 6_000

_CALLS = ("API call", "launch", "blocking call", "allocation", "wait on the device")
_COLOURS = {
    "API call": "#c3cbd6",
    "launch": "#8fa3bd",
    "blocking call": words.CAUSES["sync_wait"].light,
    "allocation": words.CAUSES["alloc"].light,
    "wait on the device": "#5b6472",
    "kernel": "#5f7089",
    "memcpy": "#237a59",
    "memset": "#66751c",
    "graph": "#51618f",
    "range": "#d3d9e4",
    "step": "#b9c2cf",
} | {f"idle: {cause.label}": cause.light for cause in words.CAUSES.values()}


def figure(report: Report, timeline: Timeline | None) -> go.Figure:
    """The timeline as a figure that zooms, times in ms; without a timeline the sites by recoverable time."""
    return _sites(report) if timeline is None else _timeline(report, timeline)


@dataclass
class _Trace:
    """Bars of one colour: start and length (ms), lane, text under the pointer."""

    base: list[float] = field(default_factory=list)
    length: list[float] = field(default_factory=list)
    lane: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


def _timeline(report: Report, timeline: Timeline) -> go.Figure:
    picture = drawing.draw(timeline, report, BARS)
    places = Places(report.sites)
    sites = [places.site(s) for s in report.sites]
    traces: dict[str, _Trace] = {}
    rows = [f"{lane.group} · {lane.title}" for lane in picture.lanes]
    for row, lane in zip(rows, picture.lanes, strict=True):
        for kind, start, end, text in _bars(lane, picture, sites):
            trace = traces.setdefault(kind, _Trace())
            trace.base.append((start - timeline.start_ns) / 1e6)
            trace.length.append((end - start) / 1e6)
            trace.lane.append(_text(row))
            trace.text.append(text)
    drawn = go.Figure(
        [
            go.Bar(
                name=kind,
                orientation="h",
                base=traces[kind].base,
                x=traces[kind].length,
                y=traces[kind].lane,
                hovertext=traces[kind].text,
                hovertemplate="%{hovertext}<extra></extra>",
                marker={"color": colour, "line": {"width": 0}},
            )
            for kind, colour in _COLOURS.items()
            if kind in traces
        ]
    )
    merged = f"; bars below {duration(picture.resolution_ns)} are merged" if picture.resolution_ns else ""
    drawn.update_layout(
        title=_text(harmless(report.headline.text, 300)),
        barmode="overlay",
        bargap=0.15,
        height=max(320, 140 + 26 * len(rows)),
        xaxis={"title": f"ms{merged}"},
        yaxis={"categoryorder": "array", "categoryarray": [_text(r) for r in rows], "autorange": "reversed"},
    )
    return drawn


def _bars(lane: Lane, picture: Drawing, sites: list[str]) -> list[tuple[str, int, int, str]]:
    if isinstance(lane.bars, drawing.Bars):
        return _plain_bars(lane, lane.bars, picture.names[lane.kind], sites)
    return _gap_bars(lane.bars, sites)


def _plain_bars(lane: Lane, bars: Bars, names: list[str], sites: list[str]) -> list[tuple[str, int, int, str]]:
    kinds = {"ops": KINDS, "ranges": ("range", "step")}.get(lane.kind, _CALLS)
    columns = (bars.start, bars.end, bars.count, bars.category, bars.name, bars.site)
    found = []
    for start, end, count, category, name, site in zip(*(c.tolist() for c in columns), strict=True):
        kind = kinds[category]
        title = sites[site] if site >= 0 else harmless(names[name], 120) if name >= 0 else kind
        text = title if count == 1 else f"{words.count(count, kind)}, longest: {title}"
        found.append((kind, start, end, f"{_text(text)}<br>{duration(end - start)}"))
    return found


def _gap_bars(gaps: GapBars, sites: list[str]) -> list[tuple[str, int, int, str]]:
    labels = [cause.label for cause in words.CAUSES.values()]
    largest = np.argmax(gaps.causes, axis=1).tolist() if len(gaps.start) else []
    columns = (gaps.start, gaps.end, gaps.count, gaps.site)
    found = []
    for number, (start, end, count, site) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        shares = [
            f"{label} {duration(ns)}" for label, ns in zip(labels, gaps.causes[number].tolist(), strict=True) if ns
        ]
        head = "idle" if count == 1 else words.count(count, "gap")
        by = f"<br>mainly {_text(sites[site])}" if site >= 0 else ""
        text = f"{head}, {duration(end - start)}{by}<br>" + "<br>".join(shares)
        found.append((f"idle: {labels[largest[number]]}", start, end, text))
    return found


def _sites(report: Report) -> go.Figure:
    places = Places(report.sites)
    found = [(s, s.recoverable_ns) for s in report.sites if s.recoverable_ns]
    found.sort(key=lambda item: -item[1])
    unit = words.scale(ns for _, ns in found)
    drawn = go.Figure(
        go.Bar(
            orientation="h",
            x=[ns / unit.per_unit for _, ns in found[:20]],
            y=[_text(f"{place}. {places.site(s)}") for place, (s, _) in enumerate(found[:20], 1)],
            hovertext=[_text(harmless(s.title, 120)) for s, _ in found[:20]],
            hovertemplate="%{hovertext}: %{x:.3g} " + unit.unit + "<extra></extra>",
            marker={"color": words.CAUSES["sync_wait"].light},
        )
    )
    drawn.update_layout(
        title=_text(harmless(report.headline.text, 300)),
        xaxis={"title": f"recoverable, {unit.unit}"},
        yaxis={"autorange": "reversed"},
    )
    return drawn


def _text(text: str) -> str:
    """Text for plotly, which reads some markup in it."""
    return escape(text, quote=False)
