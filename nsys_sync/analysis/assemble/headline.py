"""The one sentence on top: what the GPU's idle time is about, and what fixing the syncs can give back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from nsys_sync.analysis.findings import Capture, DeviceTime, Headline, Site, Totals

#: Shares of the window from which idle time and what comes back are worth a headline.
_WORTH = 0.10
_LITTLE = 0.05
#: Share of what comes back from which the site that gives back the most is worth naming.
_ONE_SITE = 0.1
#: Step times of two stretches of one run differ by less than this for other reasons.
_SLOWER = 0.01
#: Causes of idle time that neither fewer syncs nor a faster host would mend.
_OTHER_CAUSES = {
    "device": "after a launch, waiting for other streams or for the GPU to start",
    "alloc": "during allocations",
    "tail": "after the last work",
    "unknown": "before work whose launch was not recorded",
}


def ms(ns: int) -> str:
    """Milliseconds with three significant digits: 0.527 ms, 6.20 ms, 421 ms; seconds from 10 s on: 576 s."""
    if ns >= 10**10:
        return f"{ns / 1e9:,.{1 if ns < 10**11 else 0}f} s"
    value = ns / 1e6
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} ms"


def percent(share: float) -> str:
    """A share as a whole number: 10 %."""
    return f"{100 * share:.0f} %"


@dataclass(frozen=True)
class Pauses:
    """Idle intervals at least as long as a step: loading, a checkpoint, the profiler's own start; not the loop.

    ns: their time that no sync caused.
    """

    count: int = 0
    ns: int = 0


def choose_headline(
    devices: Sequence[DeviceTime],
    totals: Totals,
    sites: Sequence[Site],
    capture: Capture,
    pauses: Pauses = Pauses(),
) -> Headline:
    """The sentence that these findings support, and no more. What the loop suffers from is judged without pauses."""
    window = sum(d.window_ns for d in devices)
    if not window:
        return Headline(
            slug="nothing_measured", text="Nothing was measured: the trace holds no GPU work in this window."
        )
    withheld = next((d.idle_reason for d in devices if d.idle_reason), None)
    if withheld is not None or totals.idle_ns is None or totals.recoverable_all_ns is None:
        return Headline(
            slug="withheld",
            text=f"The CPU waited {ms(totals.wait_ns)} in {totals.sync_events} syncs; GPU idle time is withheld: "
            f"{withheld or 'it was not measured'}.",
        )
    idle, back = totals.idle_ns, totals.recoverable_all_ns
    on = f"{ms(window)}" + (f" on {len(devices)} GPUs" if len(devices) > 1 else "")
    are, do = ("the GPUs are", "do") if len(devices) > 1 else ("the GPU is", "does")
    number = "a pause" if pauses.count == 1 else f"{pauses.count} pauses"
    paused = f", {ms(pauses.ns)} of it in {number} longer than a step" if pauses.ns else ""
    lead = f"GPU idle {percent(idle / window)} of {on}" + (f" ({ms(idle)}{paused})" if pauses.ns else "")
    little = f"fixing every sync gives back {_at_most(back)}"
    if not totals.sync_events:
        return Headline(slug="no_syncs", text=f"{lead}; no call blocked the CPU.")
    rest, loop = idle - pauses.ns, max(window - pauses.ns, 1)
    if back >= _WORTH * loop or (rest >= _LITTLE * loop and back >= rest / 2):
        return Headline(
            slug="sync_bound",
            text=f"Fixing every sync gives back up to {ms(back)}{_share(sites, back)}; of {on} {are} idle "
            f"{percent(idle / window)} ({ms(idle)}{paused}){_copying(do, devices) if back > idle else ''}.",
        )
    if rest < _WORTH * loop:
        busy = f"busy {percent(1 - rest / loop)} of"
        first = f"{lead} and {busy} the rest" if pauses.ns else f"GPU {busy} {on}"
        return Headline(slug="gpu_bound", text=f"{first}; {little}: syncs are not the problem.")
    other = _other_cause(devices)
    if other:
        return Headline(slug="mixed", text=f"{lead}, most of it {other}; {little}.")
    if rest - min(back, rest) > max(rest / 2, _WORTH * loop):
        return Headline(
            slug="launch_bound",
            text=f"{lead}; {little}: the program is launch-bound, syncs are not the problem; "
            f"look at CUDA graphs or torch.compile. {_profiler(capture)}",
        )
    return Headline(slug="mixed", text=f"{lead}; fixing every sync gives back up to {ms(back)}{_share(sites, back)}.")


def _other_cause(devices: Sequence[DeviceTime]) -> str | None:
    """What most of the idle time is, if it is neither syncs nor the host between calls."""
    known = [d.idle_by_cause_ns for d in devices if d.idle_by_cause_ns is not None]
    total = sum(causes.total for causes in known)
    named = (name for name in _OTHER_CAUSES if 2 * sum(getattr(causes, name) for causes in known) > total)
    return next((_OTHER_CAUSES[name] for name in named), None)


def _at_most(ns: int) -> str:
    if ns < 500:
        return "less than 0.001 ms" if ns else "nothing"
    return f"at most {ms(ns)}"


def _share(sites: Sequence[Site], back: int) -> str:
    best = max(sites, key=lambda s: (s.recoverable_ns or 0, s.id), default=None)
    if best is None or not best.recoverable_ns or best.recoverable_ns < _ONE_SITE * back:
        return ""
    where = f"{PurePosixPath(best.file).name}:{best.line}" if best.file else (best.leaf.function if best.leaf else "")
    return f", {ms(best.recoverable_ns)} of it from {where or 'one place'}"


def _copying(do: str, devices: Sequence[DeviceTime]) -> str:
    """What more can come back than idle time: while a blocking copy runs the GPU does nothing else."""
    copying = sum(d.copy_only_ns.blocking for d in devices if d.copy_only_ns is not None)
    return f" and {do} nothing but blocking copies for {ms(copying)}"


def _profiler(capture: Capture) -> str:
    if capture.slowdown is None:
        return "How much of the idle time is the profiler's own doing was not measured."
    more = capture.slowdown.ratio - 1
    slower = more >= _SLOWER
    return f"Profiling itself made the steps {percent(more)} longer." if slower else "Profiling did not slow the steps."
