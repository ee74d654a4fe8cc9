"""Single situations in the replay, worked out by hand. Times are in µs.

An operation follows its launch by 4 on an idle stream and its predecessor by 1; a sync returns 3 after its work; a sync
that does not wait costs 5, a copy 8: the usual values of a trace with too few examples of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nsys_sync.analysis.calls import connect, find_blocking
from nsys_sync.analysis.whatif.build import build_model
from nsys_sync.analysis.whatif.replay import Scenario, op_shifts
from nsys_sync.trace.reader import open_trace
from tests.analysis.ask import EVENT_SYNC, STREAM_SYNC, in_us, scale
from tests.builder import TraceBuilder


def earlier(t: TraceBuilder, folder: Path, *removed: int) -> dict[int, int]:
    """By start of each operation how much earlier it ends without these blocking calls (by number, in time order)."""
    with open_trace(scale(t).write(folder / "trace.sqlite")) as trace:
        activity = connect(trace)
        blocking, _ = find_blocking(trace, activity)
        model = build_model(trace, activity, blocking, None)
        shifts = op_shifts(model, Scenario([at in removed for at in range(len(blocking.row))]))
        starts = activity.ops.start[model.chains.op]
    by = np.argsort(starts, kind="stable")
    return {in_us(start): in_us(shift) for start, shift in zip(starts[by], shifts[by], strict=True)}


def test_without_a_sync_the_stream_decides(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (4, 100))
    th.sync(STREAM_SYNC, 20, 103)
    th.launch(150, 155, (154, 200))
    th.launch(300, 305, (304, 310))
    # The thread is 83 ahead after the sync. Its launch at 67 would start at 71, but the stream is busy until 100: from
    # 101 on, 53 earlier. The one after that is launched at 217, when the stream has been idle since 147: 83 earlier.
    assert earlier(t, tmp_path, 0) == {4: 0, 154: 53, 304: 83}


def test_a_sync_that_stays_takes_up_what_was_won(tmp_path: Path) -> None:
    def two_syncs() -> TraceBuilder:
        t = TraceBuilder()
        th = t.process().thread()
        th.launch(0, 5, (4, 100))
        th.sync(STREAM_SYNC, 20, 103)
        th.launch(150, 155, (154, 200))
        th.sync(STREAM_SYNC, 160, 203)
        th.launch(250, 255, (254, 260))
        return t

    # Without the first one the second kernel ends at 147, and the sync returns at 150 instead of 203.
    assert earlier(two_syncs(), tmp_path, 0) == {4: 0, 154: 53, 254: 53}
    # Without the second one the host goes on 43 earlier, at 207 + 4; the stream has been free since 200.
    (tmp_path / "second").mkdir()
    assert earlier(two_syncs(), tmp_path / "second", 1) == {4: 0, 154: 0, 254: 43}
    # Without both: 126 for the host (launched at 124), but the second kernel runs until 147: from 148 on.
    (tmp_path / "both").mkdir()
    assert earlier(two_syncs(), tmp_path / "both", 0, 1) == {4: 0, 154: 53, 254: 106}


def test_a_sync_that_does_not_wait_costs_its_call(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (4, 10))
    th.sync(STREAM_SYNC, 20, 25)
    th.launch(50, 55, (54, 60))
    assert earlier(t, tmp_path, 0) == {4: 0, 54: 5}


def test_a_call_never_gains_more_than_its_length(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (4, 14))
    th.sync(STREAM_SYNC, 6, 17)
    th.launch(30, 35, (34, 50), stream=8)
    th.launch(35, 40, (44, 300), stream=9)
    th.sync(EVENT_SYNC, 40, 60)
    th.launch(100, 105, (104, 110), stream=8)
    # What the event waited for is not known: it is measured against the device, busy until 300, and yet it returned at
    # 60. Without the first sync (11) it begins 11 earlier and returns 11 earlier, not later work's 300 - 60.
    assert earlier(t, tmp_path, 0) == {4: 0, 34: 11, 44: 11, 104: 11}


def test_a_stream_waits_for_an_event_of_another(tmp_path: Path) -> None:
    def waiting_stream(schema: str) -> TraceBuilder:
        t = TraceBuilder(schema)
        th = t.process().thread()
        th.launch(0, 5, (4, 100), stream=9)
        th.launch(5, 6, (9, 500), stream=7)
        done = th.record_event(6, 8, stream=7)
        th.sync(STREAM_SYNC, 20, 103, stream=9)
        th.wait_event(104, 106, done, stream=8)
        th.launch(520, 525, (524, 600), stream=8)
        return t

    # 83 earlier it would start at 441, but the event is at 500: 24.
    assert earlier(waiting_stream("3.20.3"), tmp_path, 0) == {4: 0, 9: 0, 524: 24}
    # An export without event records cannot know it.
    (tmp_path / "old").mkdir()
    assert earlier(waiting_stream("3.7.2"), tmp_path / "old", 0) == {4: 0, 9: 0, 524: 83}


def test_collectives_of_two_ranks_end_together(tmp_path: Path) -> None:
    def ranks() -> TraceBuilder:
        t = TraceBuilder()
        late, early = t.process(pid=100).thread(), t.process(pid=200).thread()
        late.launch(0, 5, (4, 100))
        late.sync(STREAM_SYNC, 20, 103)
        late.launch(296, 298, (300, 400), name="ncclDevKernel_AllReduce")
        late.launch(298, 300, (401, 450))
        early.launch(60, 62, (64, 100), device=1, context=2)
        early.sync(STREAM_SYNC, 70, 103, device=1, context=2)
        early.launch(196, 198, (200, 400), name="ncclDevKernel_AllReduce", device=1, context=2)
        early.launch(198, 200, (401, 460), device=1, context=2)
        return t

    # The late rank's sync (0) held both: without it its kernel starts at 217, after the early one's 200, and both end
    # 100 later, as they did: 83 earlier, and so does what follows on either.
    assert earlier(ranks(), tmp_path, 0) == {4: 0, 64: 0, 200: 83, 300: 83, 401: 83}
    # The early rank's sync (1) held nobody: its kernel would only wait longer for the other.
    (tmp_path / "early").mkdir()
    assert earlier(ranks(), tmp_path / "early", 1) == {4: 0, 64: 0, 200: 0, 300: 0, 401: 0}
    # Without both the early rank comes at 167, the late one still at 217.
    (tmp_path / "both").mkdir()
    assert earlier(ranks(), tmp_path / "both", 0, 1) == {4: 0, 64: 0, 200: 83, 300: 83, 401: 83}


def test_a_late_rank_limits_what_both_gain(tmp_path: Path) -> None:
    t = TraceBuilder()
    late, early = t.process(pid=100).thread(), t.process(pid=200).thread()
    late.launch(0, 5, (4, 100))
    late.sync(STREAM_SYNC, 20, 103)
    late.launch(296, 298, (300, 400), name="ncclDevKernel_AllReduce")
    early.launch(250, 252, (254, 400), name="ncclDevKernel_AllReduce", device=1, context=2)
    # The late rank would come at 217 instead of 300. Now the other is the last, at 254: both gain 46.
    assert earlier(t, tmp_path, 0) == {4: 0, 254: 46, 300: 46}


def test_ranks_whose_hosts_run_ahead_of_each_other(tmp_path: Path) -> None:
    t = TraceBuilder()
    one, two = t.process(pid=100).thread(), t.process(pid=200).thread()
    name = "ncclDevKernel_AllReduce"
    one.launch(0, 5, (4, 100))
    one.sync(STREAM_SYNC, 20, 103)
    for number in range(40):
        at = 300 + 100 * number
        one.launch(at, at + 1, (at + 10, at + 60), name=name)
        one.launch(at + 1, at + 2, (at + 61, at + 100))
        begin = at + 5 if number else 120
        two.launch(110 + 2 * number, 111 + 2 * number, (begin, at + 60), name=name, device=1, context=2)
        two.launch(111 + 2 * number, 112 + 2 * number, (at + 61, at + 104), device=1, context=2)
    # The second rank has launched everything before the first one's first collective. Each collective ends 83 earlier,
    # and the replay knows it after one walk.
    shifts = earlier(t, tmp_path, 0)
    assert set(shifts.values()) == {0, 83}
    assert [start for start, shift in shifts.items() if not shift] == [4]


def test_a_thread_that_another_handed_over_to(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process()
    main, backward = p.thread(), p.thread(2)
    main.launch(0, 5, (4, 100))
    main.sync(STREAM_SYNC, 20, 103)
    backward.launch(130, 135, (134, 140))
    main.launch(160, 165, (164, 170))
    # The second thread was silent until 130 and the first ended a call meanwhile: it goes on 83 earlier, at 47, and its
    # kernel starts when the stream is free, at 101. So does the first one's next, behind it: at 108.
    assert earlier(t, tmp_path, 0) == {4: 0, 134: 33, 164: 56}


def test_a_thread_that_was_not_silent_goes_on_as_it_did(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process()
    main, other = p.thread(), p.thread(2)
    main.launch(0, 5, (4, 100))
    main.sync(STREAM_SYNC, 20, 103)
    other.launch(118, 124, (122, 123), stream=8)
    other.launch(130, 135, (134, 140), stream=8)
    main.launch(160, 165, (164, 170))
    # Six after its own last call nobody handed over to it: the launch at 130 comes when it came. The one at 118 is the
    # thread's first, after a long silence.
    assert earlier(t, tmp_path, 0) == {4: 0, 122: 83, 134: 83, 164: 63}


def test_the_launch_queue_is_finite(tmp_path: Path) -> None:
    def launches(number: int) -> TraceBuilder:
        t = TraceBuilder()
        th = t.process().thread()
        th.launch(0, 1, (4, 5_000))
        th.sync(STREAM_SYNC, 10, 5_003)
        for at in range(6_000, 6_000 + 2 * number, 2):
            th.launch(at, at + 1, (at + 4, at + 5))
        th.launch(20_000, 20_001, (20_004, 20_010), stream=8)
        return t

    # Without the sync (4993) a thousand launches all come before the first kernel ends, at 5000.
    assert earlier(launches(1_000), tmp_path, 0)[20_004] == 4_993
    # The queue holds 1024. Of 1100 launches the one at 8046 has to wait for that end instead of coming at 3053: the
    # thread is at most 3046 ahead after it. What is launched between two syncs is taken together, which may cost it the
    # 1003 that the kernel behind the first one gains.
    (tmp_path / "full").mkdir()
    assert 3_046 - 1_003 <= earlier(launches(1_100), tmp_path / "full", 0)[20_004] <= 3_046
