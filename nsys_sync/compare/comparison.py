"""What a comparison says: plain values with a JSON form.

``Comparison.quantities`` holds the totals in the order in which they are read, step time first; ``Comparison.sites``
every site of either side, sorted by state (gone, new, changed, same) and then by weight; ``Comparison.prediction`` what
the before side had predicted for the sites that are gone. Times are nanoseconds, per step of one process where
``basis`` is "step", else of the whole capture. A value that was not measured is null and its change "unmeasured"; it is
never 0. What counts as a change is said in ``noise``. Sentences are the renderers'
(``nsys_sync.report.compare_words``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from nsys_sync.analysis.findings import Confidence, Document, Note, Plain, SiteClass, StackOrigin
from nsys_sync.compare.noise import Change, Sample

FORMAT = 1

Basis = Literal["step", "capture"]
SideName = Literal["before", "after"]
State = Literal["gone", "new", "changed", "same"]
Outcome = Literal["faster", "slower", "within_noise", "noise_unknown", "same", "unmeasured"]


class CaptureSummary(Plain, frozen=True, kw_only=True):
    """One capture of a side. window_ns: its devices' longest window; steps: over all processes that have any."""

    file: str
    sha256: str
    steps: int
    stepping_processes: int
    window_ns: int
    sync_events: int


class Side(Plain, frozen=True, kw_only=True):
    """How the captures of one side were taken; lists hold every value that occurs, sorted."""

    name: SideName
    captures: list[CaptureSummary]
    gpus: list[str]
    drivers: list[str]
    nsys_versions: list[str]


class SiteSide(Plain, frozen=True, kw_only=True):
    """A site as one side saw it: the capture in which it waited longest. seen: captures of the side that have it.

    source: its line of code, stripped; events, calls, wait_ns: in that whole capture.
    """

    id: str
    file: str | None
    line: int | None
    function: str | None
    source: str | None
    leaf: str | None
    stack_origin: StackOrigin
    apis: dict[str, int]
    calls: int
    events: int
    wait_ns: int
    seen: int


class SiteChange(Plain, frozen=True, kw_only=True):
    """One site. before or after is null when that side does not have it (state "new" or "gone").

    id: the after side's id where it has the site, else the before side's. moved: both sides have it, at different
    lines. events, wait, recoverable: per step or capture, as ``Comparison.basis`` says; a side without the site counts
    as a measured 0. Per step, events and wait are those of the loop: from a process's first step to its last.
    """

    id: str
    state: State
    moved: bool
    rule: str
    title: str
    class_: SiteClass = msgspec.field(name="class")
    before: SiteSide | None
    after: SiteSide | None
    events: Change
    wait: Change
    recoverable: Change


class Prediction(Plain, frozen=True, kw_only=True):
    """What the before side's what-if said about exactly the sites that are gone, and what was measured after.

    scope: "all" (every sync in the loop), "class" or "site"; name: the class, or the site's id. Step times in ns.
    holds: whether the measured range touches the predicted one.
    """

    scope: Literal["all", "class", "site"]
    name: str
    sites: list[str]
    step_ns_now: int
    step_ns_low: int
    step_ns_high: int
    gpu_bound_ns: int
    confidence: Confidence
    measured: Sample
    holds: bool


class Comparison(Document, frozen=True, kw_only=True):
    """Everything that changed between two sides.

    outcome: of the step time. noise_known: both sides have two captures or more. sites is null where sites cannot be
    told apart on both sides; ``sites_reason`` says why.
    """

    basis: Basis
    before: Side
    after: Side
    outcome: Outcome
    noise_known: bool
    quantities: list[Change]
    sites: list[SiteChange] | None
    sites_reason: str | None
    prediction: Prediction | None
    warnings: list[Note]

    def quantity(self, name: str) -> Change:
        """The change of one total, by its name in ``QUANTITIES``."""
        return next(q for q in self.quantities if q.name == name)
