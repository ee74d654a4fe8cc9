"""Two sides, each one or several captures of a program, to one ``Comparison`` (see ``comparison``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_sync.analysis.findings import TOOL
from nsys_sync.compare.comparison import FORMAT, CaptureSummary, Comparison, Outcome, Side, SideName
from nsys_sync.compare.measures import QUANTITIES, step_count, window
from nsys_sync.compare.prediction import find_prediction
from nsys_sync.compare.sides import Sides
from nsys_sync.compare.sites import incomparable, site_changes
from nsys_sync.compare.warnings import find_warnings
from nsys_sync.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nsys_sync.analysis.findings import Report
    from nsys_sync.compare.noise import Change


def compare(before: Sequence[Report], after: Sequence[Report]) -> Comparison:
    """Compare two sides, each of one or more captures of the same program.

    A capture that was given twice on one side counts once. Raises UsageError when a side is empty.
    """
    if not before or not after:
        raise UsageError("no-captures", "A comparison needs at least one capture before and one after.")
    sides = Sides(before, after)
    quantities = [sides.total(q) for q in QUANTITIES]
    reason = incomparable(sides)
    sites = None if reason else site_changes(sides)
    return Comparison(
        format=FORMAT,
        tool=TOOL,
        basis=sides.basis,
        before=_side("before", sides.before),
        after=_side("after", sides.after),
        outcome=_outcome(quantities[0]),
        noise_known=min(len(sides.before), len(sides.after)) > 1,
        quantities=quantities,
        sites=sites,
        sites_reason=reason,
        prediction=find_prediction(sides, sites) if sites else None,
        warnings=find_warnings(sides, before, after),
    )


def _side(name: SideName, reports: Sequence[Report]) -> Side:
    return Side(
        name=name,
        captures=[
            CaptureSummary(
                file=r.trace.file,
                sha256=r.trace.sha256,
                steps=step_count(r),
                stepping_processes=sum(s.count > 0 for s in r.steps),
                window_ns=window(r),
                sync_events=r.totals.sync_events,
            )
            for r in reports
        ],
        gpus=sorted({d.name for r in reports for d in r.trace.devices}),
        drivers=sorted({r.trace.driver for r in reports if r.trace.driver}),
        nsys_versions=sorted({r.trace.nsys_version for r in reports if r.trace.nsys_version}),
    )


def _outcome(step: Change) -> Outcome:
    outcomes: dict[str, Outcome] = {
        "lower": "faster",
        "higher": "slower",
        "equal": "same",
        "within_noise": "within_noise",
        "noise_unknown": "noise_unknown",
    }
    return outcomes.get(step.verdict, "unmeasured")
