"""Whatever a timeline holds, every renderer draws it and loses nothing."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from nsys_sync.analysis.timeline import Timeline
from nsys_sync.report import drawing, html, perfetto
from nsys_sync.report.drawing import Bars, GapBars
from nsys_sync.report.figure import figure
from tests.report.factory import make_report, make_site, timelines

REPORT = make_report([make_site(n) for n in range(5)])


@settings(max_examples=200, deadline=None)
@given(timelines(), st.sampled_from([1, 20, 60, 100_000]))
def test_drawing_loses_nothing(timeline: Timeline, bars: int) -> None:
    picture = drawing.draw(timeline, REPORT, bars)
    plain = [(lane.kind, lane.bars) for lane in picture.lanes if isinstance(lane.bars, Bars)]
    for kinds, table in ((("calls", "syncs"), timeline.calls), (("ops",), timeline.ops)):
        assert sum(int(b.count.sum()) for kind, b in plain if kind in kinds) == len(table.start)
    gaps = [lane.bars for lane in picture.lanes if isinstance(lane.bars, GapBars)]
    assert sum(int(b.count.sum()) for b in gaps) == len(timeline.gaps.start)
    assert sum(int(b.causes.sum()) for b in gaps) == int(timeline.gaps.causes.sum())
    for lane in picture.lanes:
        assert (np.diff(lane.bars.start) >= 0).all()
        assert (lane.bars.end >= lane.bars.start).all()


@settings(max_examples=50, deadline=None)
@given(timelines())
def test_a_page_and_a_figure_are_made(timeline: Timeline) -> None:
    html.page(REPORT, timeline).encode("utf-8")
    figure(REPORT, timeline).to_json()


@settings(max_examples=100, deadline=None)
@given(timelines())
def test_a_trace_for_perfetto_is_made(timeline: Timeline) -> None:
    events = json.loads("".join(perfetto.pieces(REPORT, timeline)))["traceEvents"]
    slices = [e for e in events if e["ph"] == "X" and e["cat"] != "sync"]
    tables = (timeline.calls, timeline.ops, timeline.gaps, timeline.ranges)
    assert len(slices) == sum(len(t.start) for t in tables)
    starts = sorted(float(t) / 1000 for table in tables for t in table.start.tolist())
    assert np.allclose(sorted(e["ts"] for e in slices), starts, rtol=1e-12)
