from __future__ import annotations

import numpy as np
import pytest

from nsys_sync.report import drawing
from nsys_sync.report.drawing import Bars, Drawing, GapBars
from tests.report.factory import make_report, make_timeline


def plain(picture: Drawing, kind: str) -> list[Bars]:
    return [lane.bars for lane in picture.lanes if lane.kind == kind and isinstance(lane.bars, Bars)]


def gaps(picture: Drawing) -> list[GapBars]:
    return [lane.bars for lane in picture.lanes if isinstance(lane.bars, GapBars)]


def test_a_small_timeline_is_drawn_whole() -> None:
    timeline = make_timeline(steps=5, kernels=14)
    picture = drawing.draw(timeline, make_report())
    assert (picture.resolution_ns, picture.detailed) == (0, [])
    assert picture.drawn == picture.total == 5 + 5 + 70 + 70 + 4
    assert [(lane.kind, lane.group, lane.title) for lane in picture.lanes] == [
        ("ranges", "pid 41", "steps"),
        ("syncs", "pid 41", "python 1041: syncs"),
        ("calls", "pid 41", "python 1041: calls"),
        ("gaps", "GPU 0", "idle by cause"),
        ("ops", "GPU 0", "stream 7"),
        ("ops", "GPU 0", "stream 14"),
    ]


@pytest.mark.parametrize(("steps", "kernels"), [(3_000, 5), (20, 2_000), (300, 60)])
@pytest.mark.parametrize("bars", [2_000, 9_000])
def test_merging_keeps_within_the_limit_and_loses_nothing(steps: int, kernels: int, bars: int) -> None:
    timeline = make_timeline(steps=steps, kernels=kernels)
    picture = drawing.draw(timeline, make_report(), bars)
    assert picture.drawn <= bars < picture.total
    ops = plain(picture, "ops")
    assert sum(int(b.count.sum()) for b in ops) == len(timeline.ops.start)
    assert sum(int(b.filled.sum()) for b in ops) == int((timeline.ops.end - timeline.ops.start).sum())
    calls = plain(picture, "calls") + plain(picture, "syncs")
    assert sum(int(b.count.sum()) for b in calls) == len(timeline.calls.start)
    (idle,) = gaps(picture)
    assert idle.causes.sum(axis=0).tolist() == timeline.gaps.causes.sum(axis=0).tolist()
    for lane in picture.lanes:
        assert (np.diff(lane.bars.start) >= 0).all()
        assert (lane.bars.end >= lane.bars.start).all()


def test_nothing_is_merged_around_the_longest_sync_gaps() -> None:
    timeline = make_timeline(steps=2_000, kernels=10)
    timeline.gaps.end[1234] += 50_000
    timeline.gaps.causes[1234, 1] += 50_000
    picture = drawing.draw(timeline, make_report(), 9_000)
    start, end = int(timeline.gaps.start[1234]), int(timeline.gaps.end[1234])
    assert any(low <= start and end <= high for low, high in picture.detailed)
    (idle,) = gaps(picture)
    here = np.flatnonzero(idle.start == start)
    assert idle.count[here].tolist() == [1]


def test_a_merged_bar_is_named_after_the_longest_in_it() -> None:
    timeline = make_timeline(steps=3_000, kernels=5)
    timeline.ops.end[7_000] += 500
    name = int(timeline.ops.name[7_000])
    picture = drawing.draw(timeline, make_report(), 2_000)
    bars = plain(picture, "ops")[0]
    bar = int(np.searchsorted(bars.start, timeline.ops.start[7_000], side="right")) - 1
    assert bars.count[bar] > 1
    assert bars.name[bar] == name


def test_a_gap_knows_the_event_that_caused_it_and_the_launch_that_ended_it() -> None:
    timeline = make_timeline(steps=4, kernels=6, processes=2, sites=1)
    picture = drawing.draw(timeline, make_report())
    first, second = gaps(picture)
    calls = timeline.calls
    for idle, pid in ((first, 41), (second, 42)):
        syncs = np.flatnonzero((calls.category == 2) & (calls.pid >> 24 == pid))
        assert idle.event.tolist() == calls.event[syncs][:3].tolist()
        assert idle.caused_start.tolist() == calls.start[syncs][:3].tolist()
        assert idle.caused_end.tolist() == calls.end[syncs][:3].tolist()
        launches = np.flatnonzero((calls.category == 1) & (calls.pid >> 24 == pid))
        assert idle.launch_start.tolist() == calls.start[launches][6::6].tolist()
        assert idle.launch_blocks.tolist() == [0, 0, 0]


def test_many_streams_share_the_last_row() -> None:
    timeline = make_timeline(steps=40, kernels=5)
    timeline.ops.stream[:] = np.arange(len(timeline.ops.stream)) % 40
    titles = [lane.title for lane in drawing.draw(timeline, make_report()).lanes if lane.kind == "ops"]
    assert len(titles) == drawing.ROWS
    assert titles[-1] == "29 other streams"


def test_nested_ranges_get_rows_of_their_own() -> None:
    start, end = np.array([0, 10, 20, 50, 100]), np.array([100, 90, 30, 60, 200])
    assert drawing._depth(start, end, np.zeros(5, dtype=np.int64)).tolist() == [0, 1, 2, 2, 0]
    assert drawing._depth(start, end, np.array([0, 0, 1, 1, 1])).tolist() == [0, 1, 0, 0, 0]


def test_an_empty_timeline_has_no_lanes() -> None:
    timeline = make_timeline(steps=0)
    picture = drawing.draw(timeline, make_report())
    assert (picture.lanes, picture.drawn, picture.total) == ([], 0, 0)
