"""Ranks side by side: worked out by hand, against a plain model, and on recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_sync.analysis.collectives import Collectives
from nsys_sync.errors import UsageError
from nsys_sync.inputs import read, read_ranks
from nsys_sync.ranks import Member, Rank, Ranks, compare_ranks, members
from tests.analysis.ask import STREAM_SYNC, US, scale
from tests.builder import Process, Thread, TraceBuilder
from tests.report.factory import make_report

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
BOTH = SAMPLES / "captures/ddp-both.sqlite.xz"
APART = [SAMPLES / f"captures/ddp-rank{rank}.sqlite.xz" for rank in (0, 1)]
GIVEN = SAMPLES / "ddp-fix0.sqlite.xz"

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def ranks(*paths: Path) -> Ranks:
    return compare_ranks(members(read_ranks(paths)))


# --- by hand: times in µs -----------------------------------------------------------------------------------------


@dataclass
class Run:
    """Two ranks that meet twice a step, 1000 µs long; the second one reads a value before the first meeting.

    own_clock: by how much the second rank's clock is ahead; None: both are in one trace, on one clock.
    """

    steps: int = 4
    first_step: int = 0
    own_clock: int | None = None
    marked: bool = True
    other: str = ALL_REDUCE

    def write(self, folder: Path) -> list[Path]:
        traces = [TraceBuilder()] if self.own_clock is None else [TraceBuilder(), TraceBuilder()]
        for rank in (0, 1):
            process = traces[rank % len(traces)].process(1000 + rank)
            self._work(process, process.thread(), rank, rank * (self.own_clock or 0))
        paths = [folder / f"rank{i}.sqlite" for i in range(len(traces))]
        return [scale(trace).write(path) for trace, path in zip(traces, paths, strict=True)]

    def _work(self, process: Process, thread: Thread, rank: int, clock: int) -> None:
        thread.mark(f"nsys-sync:rank {rank}/2", clock)
        for number in range(self.steps):
            b = clock + 1000 * number
            if self.marked:
                thread.range(f"nsys-sync:step {self.first_step + number}", b, b + 1000)
            launch = partial(thread.launch, device=rank, context=1 + rank)
            launch(b, b + 5, (b + 10, b + 200))
            if rank == 0:
                launch(b + 20, b + 25, (b + 200, b + 500), name=ALL_REDUCE)
            else:
                thread.sync(STREAM_SYNC, b + 20, b + 205, device=rank, context=2)
                launch(b + 300, b + 305, (b + 310, b + 500), name=self.other)
            launch(b + 590, b + 595, (b + 600, b + 650), name=ALL_REDUCE)


def in_us(found: Rank) -> dict[str, object]:
    assert found.waits_ns is not None
    assert found.holds_ns is not None
    assert found.by_syncs_ns is not None
    assert found.held is not None
    held = [found.held.idle, found.held.work, found.held.clock]
    return {
        "waits": found.waits_ns / US,
        "holds": found.holds_ns / US,
        "held": [ns / US for ns in held],
        "by_syncs": found.by_syncs_ns / US,
    }


def test_the_last_rank_holds_the_other_until_it_comes(tmp_path: Path) -> None:
    found = ranks(*Run().write(tmp_path))
    # Rank 0 comes at 200, rank 1 at 310: in each of three steps (the first is left out) 110 µs, in which its GPU was
    # idle: 5 in the sync, 100 until the launch after it had returned, 5 on the way. Before that both did the same. At
    # 600 they come together.
    assert (found.meetings.count, found.meetings.steps, found.meetings.tolerance_ns) == (6, 3, 0)
    first, second = found.ranks
    assert in_us(first) == {"waits": 330, "holds": 0, "held": [0, 0, 0], "by_syncs": 0}
    assert in_us(second) == {"waits": 0, "holds": 330, "held": [330, 0, 0], "by_syncs": 315}
    (site,) = found.sites
    assert (site.events, site.holds_ns) == ([None, 4], 315 * US)


@pytest.mark.parametrize("clock", [0, 7, 123_456_789])
def test_traces_with_clocks_of_their_own_say_the_same(tmp_path: Path, clock: int) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = ranks(*Run().write(tmp_path / "one"))
    two = ranks(*Run(own_clock=clock).write(tmp_path / "two"))
    assert [in_us(r) for r in two.ranks] == [in_us(r) for r in one.ranks]
    assert [(s.events, s.wait_ns, s.holds_ns) for s in two.sites] == [
        (s.events, s.wait_ns, s.holds_ns) for s in one.sites
    ]


def test_ranks_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    paths = Run(own_clock=5).write(tmp_path)
    assert ranks(*reversed(paths)).to_json() == ranks(*paths).to_json()


def test_without_steps_one_clock_is_enough(tmp_path: Path) -> None:
    found = ranks(*Run(marked=False).write(tmp_path))
    assert found.basis == "capture"
    assert (found.meetings.count, found.meetings.steps) == (7, 1)
    assert [r.holds_ns for r in found.ranks] == [0, 330 * US]


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (Run(own_clock=5, marked=False), "steps are not marked on every rank"),
        (Run(own_clock=5, steps=1), "no step in common after the first of the capture"),
        (Run(other="ncclDevKernel_Broadcast_RING_LL(args)"), "the ranks run different collectives"),
        (Run(other="gemm"), "the ranks run different collectives"),
    ],
)
def test_what_cannot_be_matched_is_withheld_with_the_reason(tmp_path: Path, run: Run, reason: str) -> None:
    found = ranks(*run.write(tmp_path))
    assert found.meetings.reason is not None
    assert reason in found.meetings.reason
    assert [(r.waits_ns, r.holds_ns, r.held, r.by_syncs_ns) for r in found.ranks] == [(None, None, None, None)] * 2
    assert [site.holds_ns for site in found.sites] == [None]
    assert [site.events for site in found.sites] == [[None, run.steps]]


def test_without_collectives_the_rest_is_still_said(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for rank in (0, 1):
        thread = trace.process(1000 + rank).thread()
        thread.launch(0, 5, (10, 100), device=rank, context=1 + rank)
        thread.sync(STREAM_SYNC, 20, 105, device=rank, context=1 + rank)
    found = ranks(scale(trace).write(tmp_path / "t.sqlite"))
    assert found.meetings.reason == "fewer than two ranks have collectives (NCCL kernels) in the traces"
    assert [r.events for r in found.ranks] == [1, 1]


def test_a_saved_report_has_no_collectives(tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    saved.write_bytes(read(BOTH).to_json())
    found = ranks(saved)
    assert found.meetings.reason is not None
    assert [r.step_ns for r in found.ranks] == [r.step_ns for r in ranks(BOTH).ranks]


def test_one_rank_is_no_comparison() -> None:
    with pytest.raises(UsageError, match="only one rank"):
        ranks(APART[0])


def test_a_rank_cannot_come_twice() -> None:
    with pytest.raises(UsageError, match=r"Rank 1 is in two places: ddp-both\.sqlite\.xz and ddp-rank1\.sqlite\.xz"):
        ranks(BOTH, APART[1])


# --- against a plain model ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Meetings of some ranks: by rank when each came, how long its GPU was idle before, and behind syncs; ends."""

    came: list[list[int]]
    idle: list[list[int]]
    syncs: list[list[int]]
    ends: list[int]
    clocks: list[int]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    size, count = draw(st.integers(2, 4)), draw(st.integers(2, 6))
    small = st.integers(0, 50)
    came: list[list[int]] = [[] for _ in range(size)]
    ends: list[int] = []
    for k in range(count):
        arrivals = [1000 * (k + 1) + draw(small) for _ in range(size)]
        for own, at in zip(came, arrivals, strict=True):
            own.append(at)
        ends.append(max(arrivals) + draw(st.integers(1, 100)))
    idle = [[draw(small) for _ in range(count)] for _ in range(size)]
    syncs = [[draw(st.integers(0, ns)) for ns in own] for own in idle]
    return World(came, idle, syncs, ends, [draw(st.integers(-(10**12), 10**12)) for _ in range(size)])


def member(world: World, rank: int, file: int, clock: int) -> Member:
    def column(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, dtype=np.int64)

    begin = [world.came[rank][0], *world.ends[:-1]]
    return Member(
        file,
        make_report([]),
        41,
        rank,
        Collectives(
            pid=41,
            devices=[rank],
            steps=True,
            step=column(range(len(world.ends))),
            name=["nccl"] * len(world.ends),
            start=column(world.came[rank]) + clock,
            end=column(world.ends) + clock,
            since=column(world.came[rank]) - column(begin),
            idle=column(world.idle[rank]),
            from_syncs=column(world.syncs[rank]),
            by_site={"a": column(world.syncs[rank])},
            measured=True,
        ),
    )


@given(worlds(), st.booleans())
def test_any_ranks_are_compared_as_defined(world: World, one_clock: bool) -> None:
    size = len(world.came)
    clocks = [0] * size if one_clock else world.clocks
    found = compare_ranks([member(world, r, 0 if one_clock else r, clocks[r]) for r in range(size)])

    waits, holds, idle, behind = ([0] * size for _ in range(4))
    for k in range(1, len(world.ends)):
        arrivals = sorted((world.came[r][k], r) for r in range(size))
        (at, last), (before, second) = arrivals[-1], arrivals[-2]
        for own, r in arrivals:
            waits[r] += at - own
        if at > before:
            holds[last] += at - before
            idle[last] += world.idle[last][k] - world.idle[second][k]
            behind[last] += min(world.syncs[last][k], at - before)
    assert [r.waits_ns for r in found.ranks] == waits
    assert [r.holds_ns for r in found.ranks] == holds
    assert [r.held.idle if r.held else None for r in found.ranks] == idle
    assert [r.by_syncs_ns for r in found.ranks] == behind
    for rank in found.ranks:
        assert rank.held is not None
        assert rank.held.idle + rank.held.work + rank.held.clock == rank.holds_ns
        # The collectives before ended for all at once.
        assert rank.held.clock == 0


def test_where_idle_is_withheld_only_the_holding_is_said() -> None:
    world = World([[0, 1000], [0, 1200]], [[0, 0]] * 2, [[0, 0]] * 2, [50, 1300], [])
    first, second = (member(world, rank, 0, 0) for rank in (0, 1))
    assert second.collectives is not None
    second = replace(second, collectives=replace(second.collectives, measured=False))
    found = compare_ranks([first, second])
    assert [(r.holds_ns, r.held, r.by_syncs_ns) for r in found.ranks] == [(0, None, None), (200, None, None)]


def test_what_clocks_cannot_tell_counts_as_coming_together() -> None:
    # The second clock runs within ±10 of the first, and the second rank comes 8 late, once 300.
    count = 21
    ends = [1000 * k + 500 for k in range(count)]
    came = [[1000 * k for k in range(count)], [1000 * k + 8 for k in range(count)]]
    came[1][7] += 292
    world = World(came, [[0] * count] * 2, [[0] * count] * 2, ends, [])
    first, second = member(world, 0, 0, 0), member(world, 1, 1, 5_000)
    assert second.collectives is not None
    off = np.array([0, *([-10, 10] * (count // 2))])
    second = replace(second, collectives=replace(second.collectives, end=second.collectives.end + off))
    found = compare_ranks([first, second])
    assert found.meetings.tolerance_ns == 10
    assert [r.holds_ns for r in found.ranks] == [0, 300]


def test_runs_that_have_nothing_to_do_with_each_other_are_not_matched() -> None:
    def world(pace: int) -> World:
        came = [[pace * k for k in range(20)]] * 2
        return World(came, [[0] * 20] * 2, [[0] * 20] * 2, [at + 50 for at in came[0]], [])

    found = compare_ranks([member(world(1000), 0, 0, 0), member(world(1200), 1, 1, 0)])
    assert found.meetings.reason is not None
    assert "do not end together" in found.meetings.reason


# --- recorded -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paths", [[BOTH], APART, [GIVEN]], ids=["both", "apart", "given"])
def test_recorded_ranks_add_up(paths: list[Path]) -> None:
    found = ranks(*paths)
    first, second = found.ranks
    # Of two ranks one waits for just as long as the other holds it.
    assert (first.waits_ns, first.holds_ns) == (second.holds_ns, second.waits_ns)
    for rank in found.ranks:
        assert rank.held is not None
        assert rank.by_syncs_ns is not None
        assert rank.holds_ns == rank.held.idle + rank.held.work + rank.held.clock
        assert 0 <= rank.by_syncs_ns <= rank.holds_ns
    bound = sum(r.by_syncs_ns or 0 for r in found.ranks)
    assert all(0 <= (site.holds_ns or 0) <= bound for site in found.sites)
    assert ranks(*paths).to_json() == found.to_json()


def test_one_rank_of_the_recorded_run_makes_syncs_that_the_other_does_not() -> None:
    found = ranks(*APART)
    assert [(r.rank, r.devices, r.steps) for r in found.ranks] == [(0, [0], 20), (1, [1], 20)]
    program = (SAMPLES / "programs/ddp.py").read_text().splitlines()
    marked = {number for number, line in enumerate(program, 1) if line.endswith("# sync")}
    lines = {site.line: [events is not None for events in site.events] for site in found.sites}
    assert {line: lines[line] for line in marked} == {25: [True, True], 27: [True, False], 28: [True, False]}


def test_clocks_found_by_the_ends_of_collectives_are_those_that_one_trace_has(tmp_path: Path) -> None:
    # One clock timed both ranks of this run. Taking it for two finds the same, within what it claims.
    together = members(read_ranks([BOTH]))
    apart = compare_ranks([on_its_own_clock(m, file) for file, m in enumerate(together)])
    known = compare_ranks(together)
    assert 0 < apart.meetings.tolerance_ns < 20 * US
    for found, true in zip(apart.ranks, known.ranks, strict=True):
        assert found.holds_ns is not None
        assert true.holds_ns is not None
        assert abs(found.holds_ns - true.holds_ns) <= known.meetings.count * apart.meetings.tolerance_ns


def on_its_own_clock(member: Member, file: int) -> Member:
    return Member(file, member.report, member.pid, member.rank, member.collectives)


def test_the_json_is_read_back_as_it_was() -> None:
    found = ranks(GIVEN)
    assert msgspec.json.decode(found.to_json(), type=Ranks) == found
