"""What the before side had predicted for the sites that are gone, and what was measured."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Literal

from nsys_sync.compare.comparison import Prediction, SiteChange
from nsys_sync.compare.measures import step_time
from nsys_sync.compare.noise import sample
from nsys_sync.compare.sides import Sides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nsys_sync.analysis.findings import Report, WhatIf


def find_prediction(sides: Sides, sites: Sequence[SiteChange]) -> Prediction | None:
    """The before side's what-if for exactly the sites in the loop that are gone, if it made one.

    No prediction is claimed when another site came into the loop.
    """
    measured = sample([step_time(r) for r in sides.after])
    loop, loop_after = _in_loop(sides.before), _in_loop(sides.after)
    if sides.basis != "step" or measured is None or any(s.state == "new" and s.id in loop_after for s in sites):
        return None
    gone = {s.before.id for s in sites if s.state == "gone" and s.before} & loop
    found = [_predicted(r, gone, loop) for r in sides.before]
    known = [f for f in found if f is not None]
    if not gone or len(known) < len(found):
        return None
    scope, name, _ = known[0]
    what_ifs = [what_if for _, _, what_if in known]
    low = round(statistics.median(w.step_ns_low for w in what_ifs))
    high = round(statistics.median(w.step_ns_high for w in what_ifs))
    return Prediction(
        scope=scope,
        name=name,
        sites=sorted(gone),
        step_ns_now=round(statistics.median(w.step_ns_now for w in what_ifs)),
        step_ns_low=low,
        step_ns_high=high,
        gpu_bound_ns=round(statistics.median(w.gpu_bound_ns for w in what_ifs)),
        confidence=max((w.confidence for w in what_ifs), key=("high", "medium", "low").index),
        measured=measured,
        holds=measured.low <= high and measured.high >= low,
    )


def _in_loop(reports: Sequence[Report]) -> set[str]:
    """Ids of the sites that some process of some capture has in at least every second step."""
    found = set()
    for report in reports:
        steps = {s.pid: s.count for s in report.steps}
        for site in report.sites:
            if any(p.in_loop and 0 < steps.get(p.pid, 0) <= 2 * p.in_loop.events for p in site.by_process):
                found.add(site.id)
    return found


def _predicted(
    report: Report, gone: set[str], loop: set[str]
) -> tuple[Literal["all", "class", "site"], str, WhatIf] | None:
    """The prediction of one report whose sites in the loop are exactly ``gone``: all, a class, or one site."""
    mine = [s for s in report.sites if s.id in loop]
    if report.what_if.all and gone == {s.id for s in mine}:
        return "all", "all", report.what_if.all
    for name, what_if in sorted(report.what_if.by_class.items()):
        if gone == {s.id for s in mine if s.class_ == name}:
            return "class", name, what_if
    single = next((s for s in mine if gone == {s.id}), None)
    return ("site", single.id, single.what_if) if single and single.what_if else None
