"""The replay: nothing left out is the trace itself, leaving out a wait never delays, and where all costs are known it
is what would have happened.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_sync.analysis import calls
from nsys_sync.analysis.calls import COPY, Activity, Blocking, Mask, connect, find_blocking
from nsys_sync.analysis.steps import find_steps
from nsys_sync.analysis.whatif import build
from nsys_sync.analysis.whatif.model import Model
from nsys_sync.analysis.whatif.replay import Scenario, blocks, op_shifts, run
from nsys_sync.trace.tables import Column
from tests.analysis.whatif import programs
from tests.analysis.whatif.programs import Do
from tests.analysis.worlds import WAITING, World, worlds

any_worlds = worlds() | worlds(WAITING, processes=1, threads=3, calls=10, longest=5)


def model_of(world: World) -> tuple[Activity, Blocking, Model]:
    trace = world.trace()
    activity = connect(trace)
    blocking, _ = find_blocking(trace, activity)
    steps = find_steps(trace.ranges, activity)
    return activity, blocking, build.build_model(trace, activity, blocking, steps[0] if steps else None)


def by_op(model: Model, shifts: Column) -> Column:
    """Shifts by row of the operations."""
    result = np.empty(len(shifts), dtype=np.int64)
    result[model.chains.op] = shifts
    return result


@settings(max_examples=150)
@given(any_worlds)
def test_nothing_left_out_is_the_trace(world: World) -> None:
    with mock.patch.multiple(calls, DEFAULT_SYNC_BASE=1, DEFAULT_COPY_BASE=2), no_silence():
        _, blocking, model = model_of(world)
    assert not op_shifts(model, Scenario([False] * len(blocking.row))).any()


def no_silence() -> mock._patch[int]:
    """Any silence may be a hand-over in worlds that last some ns."""
    return mock.patch.object(build, "HAND_OFF_SILENCE", 3)


@settings(max_examples=200)
@given(any_worlds, st.data())
def test_leaving_out_more_never_delays(world: World, data: st.DataObject) -> None:
    with mock.patch.multiple(calls, DEFAULT_SYNC_BASE=1, DEFAULT_COPY_BASE=2), no_silence():
        _, blocking, model = model_of(world)
    some = data.draw(st.lists(st.booleans(), min_size=len(blocking.row), max_size=len(blocking.row)))
    also = data.draw(st.lists(st.booleans(), min_size=len(blocking.row), max_size=len(blocking.row)))
    fewer = op_shifts(model, Scenario(some))
    more = op_shifts(model, Scenario([a or b for a, b in zip(some, also, strict=True)]))
    assert (fewer >= 0).all()
    assert (more >= fewer).all()


@settings(max_examples=100)
@given(programs.programs(), st.integers(3, 6))
def test_steps_are_completed_when_they_were(ranks: list[list[Do]], number: int) -> None:
    world = programs.in_steps(programs.run(ranks).world, number)
    trace = world.trace()
    _, blocking, model = model_of(world)
    (steps,) = find_steps(trace.ranges, connect(trace))
    outcome = run(model, blocks(model), Scenario([False] * len(blocking.row)))
    assert outcome.settled
    assert outcome.completions.tolist() == steps.completion.tolist()


@settings(max_examples=300)
@given(programs.programs(), st.data())
def test_the_replay_is_what_would_have_happened(ranks: list[list[Do]], data: st.DataObject) -> None:
    blocks_host = [
        (rank, place)
        for rank, program in enumerate(ranks)
        for place, do in enumerate(program)
        if do.what in programs.BLOCKING
    ]
    removed = frozenset(data.draw(st.lists(st.sampled_from(blocks_host), max_size=len(blocks_host))))
    before, after = programs.run(ranks), programs.run(ranks, removed)
    activity, blocking, model = model_of(before.world)
    called = places(activity.process(blocking.row), activity.calls.correlation[blocking.row])
    gone = np.array([place in removed for place in called], dtype=bool)
    found = by_op(model, op_shifts(model, Scenario(gone.tolist(), saved(activity, blocking, model, gone))))
    wanted = [before.ended[at] - after.ended[at] for at in places(activity.ops.pid, activity.ops.correlation)]
    assert found.tolist() == wanted


def places(pid: Column, correlation: Column) -> list[programs.Place]:
    """(rank, place in its program) of calls or operations."""
    return [((p >> 24) - 1, c - 1) for p, c in zip(pid.tolist(), correlation.tolist(), strict=True)]


def saved(activity: Activity, blocking: Blocking, model: Model, gone: Mask) -> Column:
    """By position in the chains the time (ns) that copies save from pinned memory."""
    ops, copies = activity.ops, activity.ops.copies
    result = np.zeros(len(ops), dtype=np.int64)
    own = np.isin(activity.launch[copies.op], blocking.row[gone & (blocking.kind == COPY)])
    rows = copies.op[own]
    faster = -(-copies.bytes[own] // programs.PINNED_SPEED)
    result[np.argsort(model.chains.op)[rows]] = ops.end[rows] - ops.start[rows] - faster
    return result
