"""The replay and its predictions on the recorded traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from nsys_sync.analysis.calls import Blocking, Events, connect, find_blocking
from nsys_sync.analysis.steps import ProcessSteps, find_steps
from nsys_sync.analysis.whatif.build import build_model
from nsys_sync.analysis.whatif.model import Model
from nsys_sync.analysis.whatif.replay import Scenario, blocks, op_shifts, run
from nsys_sync.trace.reader import open_trace
from tests.real.conftest import Analyzed
from tests.real.test_expected import NAMES

Sample = Callable[[str], Path]


class Replayed(NamedTuple):
    """The model of a trace with the steps of one process."""

    blocking: Blocking
    events: Events
    steps: ProcessSteps
    model: Model


def models(path: Path) -> Iterator[Replayed]:
    with open_trace(path) as trace:
        activity = connect(trace)
        blocking, events = find_blocking(trace, activity)
        for steps in find_steps(trace.ranges, activity):
            yield Replayed(blocking, events, steps, build_model(trace, activity, blocking, steps))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_left_out_is_the_trace(name: str, sample: Sample) -> None:
    for blocking, _, steps, model in models(sample(name)):
        nothing = Scenario([False] * len(blocking.row))
        shifts = op_shifts(model, nothing)
        assert len(shifts) >= 20
        assert not shifts.any()
        outcome = run(model, blocks(model), nothing)
        assert outcome.settled
        assert outcome.completions.tolist() == steps.completion.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_leaving_out_more_never_delays(name: str, sample: Sample) -> None:
    random = np.random.default_rng(15)
    for blocking, _, _, model in models(sample(name)):
        for share in (0.1, 0.5, 0.9):
            some = random.random(len(blocking.row)) < share
            more = some | (random.random(len(blocking.row)) < 0.3)
            few, many = (op_shifts(model, Scenario(removed.tolist())) for removed in (some, more))
            assert (few >= 0).all()
            assert (many >= few).all()


def replayed_step(found: Replayed) -> float:
    """Median step (ns) of a replay without any sync but the last of each process."""
    last = {int(pid): at for at, pid in enumerate(found.events.pid)}
    removed = [int(event) not in last.values() for event in found.blocking.event]
    return float(np.median(np.diff(run(found.model, blocks(found.model), Scenario(removed)).completions)))


def test_graph_fix0(analyzed: Analyzed) -> None:
    predicted = analyzed("graph-fix0").what_if.all
    assert predicted is not None
    # The same work without the syncs was captured, too: 2.765 ms a step.
    measured = analyzed("graph-fix1").steps[0].median_ns
    assert measured is not None
    assert predicted.step_ns_low <= measured <= predicted.step_ns_high
    assert predicted.step_ns_low <= 2_765_000 <= predicted.step_ns_high
    assert predicted.step_ns_high <= 1.10 * predicted.step_ns_low
    assert predicted.step_ns_now == analyzed("graph-fix0").steps[0].median_ns


def test_prefetch_fix0(analyzed: Analyzed) -> None:
    predicted = analyzed("prefetch-fix0").what_if.all
    assert predicted is not None
    # Measured without the syncs: 0.527 (median) and 0.544 (mean) ms a step. The bound is what the GPU alone needs.
    assert predicted.step_ns_low <= 527_000
    assert predicted.step_ns_high >= 544_000
    assert 0.5e6 < predicted.gpu_bound_ns < 0.544e6


def test_ddp_fix0_holds_what_was_measured_without_syncs(analyzed: Analyzed) -> None:
    predicted = analyzed("ddp-fix0").what_if.all
    assert predicted is not None
    assert predicted.step_ns_low <= 7_130_000 <= predicted.step_ns_high


def test_gpt_train_fix0_is_not_about_syncs(sample: Sample, analyzed: Analyzed) -> None:
    report = analyzed("gpt_train-fix0")
    assert report.headline.slug == "launch_bound"
    (found,) = models(sample("gpt_train-fix0"))
    now = report.steps[0].median_ns
    assert now is not None
    assert 0.003 < 1 - replayed_step(found) / now < 0.007
    totals = report.totals
    assert totals.recoverable_all_ns is not None
    assert totals.idle_ns is not None
    # 2 of 358 ms.
    assert totals.recoverable_all_ns / totals.idle_ns < 0.006
