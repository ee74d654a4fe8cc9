from __future__ import annotations

import pytest

from nsys_sync.report.figure import BARS, figure
from tests.report.factory import HOSTILE, make_report, make_site, make_timeline


def test_the_timeline_has_a_row_a_lane_and_its_syncs_by_line() -> None:
    drawn = figure(make_report(), make_timeline())
    assert list(drawn.layout.yaxis.categoryarray)[:3] == [
        "pid 41 · steps",
        "pid 41 · python 1041: syncs",
        "pid 41 · python 1041: calls",
    ]
    syncs = next(t for t in drawn.data if t.name == "blocking call")
    assert syncs.hovertext[0] == "train.py:14<br>180 µs"
    assert sum(syncs.x) == pytest.approx(1.8)
    assert any("refilling after a sync" in text for t in drawn.data for text in t.hovertext)


def test_a_large_timeline_is_thinned_and_says_so() -> None:
    drawn = figure(make_report(), make_timeline(steps=3_000))
    assert sum(len(t.x) for t in drawn.data) <= BARS
    assert "are merged" in drawn.layout.xaxis.title.text


def test_without_a_timeline_sites_are_shown() -> None:
    drawn = figure(make_report(), None)
    assert list(drawn.data[0].x) == [10.0, 9.5, 9.0]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_are_text(hostile: str) -> None:
    report = make_report([make_site(file=hostile, title=hostile)] * 3)
    for timeline in (make_timeline(steps=2, hostile=hostile), None):
        text = figure(report, timeline).to_json()
        assert "<script" not in text
        assert "\x1b" not in text
