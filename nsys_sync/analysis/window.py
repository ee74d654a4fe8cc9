"""The part of the trace that is reported on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_sync.analysis.options import Options
from nsys_sync.analysis.steps import ProcessSteps, no_such_range
from nsys_sync.errors import NothingToAnalyze, UsageError
from nsys_sync.trace.capture_info import MARK_PREFIX
from nsys_sync.trace.columns import distinct
from nsys_sync.trace.tables import Column, Ranges, process_of


@dataclass(frozen=True, eq=False)
class Parts:
    """Ranges of processes: [start, end) in ns, pid: global process id."""

    pid: Column
    start: Column
    end: Column

    def hold(self, pid: Column, at: Column) -> np.ndarray:
        """Which instants lie in a range of their process."""
        inside = np.zeros(len(at), dtype=bool)
        for process in distinct(np.sort(self.pid)):
            mine, own = np.flatnonzero(pid == process), self.pid == process
            begun = np.searchsorted(np.sort(self.start[own]), at[mine], side="right")
            ended = np.searchsorted(np.sort(self.end[own]), at[mine], side="right")
            inside[mine] = begun > ended
        return inside


@dataclass(frozen=True)
class Window:
    """[low, high) in ns of the trace's clock; ALL where nothing was narrowed.

    parts: the ranges that were asked for by name; devices are looked at from the first to the last of them, but only
    events that begin in one of them are counted.
    """

    low: int
    high: int
    parts: Parts | None = None

    def counts(self, pid: Column, start: Column, end: Column) -> np.ndarray:
        """Which events of these processes, [start, end) in ns, are reported on."""
        inside = self.overlaps(start, end)
        return inside if self.parts is None else inside & self.parts.hold(pid, start)

    def overlaps(self, start: Column, end: Column) -> np.ndarray:
        """Which intervals share an instant with the window (an empty interval: lies in it)."""
        return (start < self.high) & (np.maximum(end, start + 1) > self.low)


ALL = Window(-(1 << 62), 1 << 62)


def choose_window(options: Options, ranges: Ranges, steps: list[ProcessSteps]) -> Window:
    """The window that the options name. Raises UsageError when they leave nothing, or name what is not there."""
    low, high, parts = ALL.low, ALL.high, None
    if options.skip_first:
        if not steps:
            raise NothingToAnalyze(
                "no-steps", "There are no steps to skip: the trace has no step marks.", "Name the ranges: --step NAME"
            )
        if any(options.skip_first >= len(s.start) for s in steps):
            most = min(len(s.start) for s in steps)
            raise UsageError(
                "window", f"--skip-first {options.skip_first} leaves no steps: a process has {most}.", "Skip fewer."
            )
        low = max(int(s.end[options.skip_first - 1]) for s in steps)
    if options.within is not None:
        wanted = (options.within, f"{MARK_PREFIX}region {options.within}", f"{MARK_PREFIX}{options.within}")
        rows = np.flatnonzero(np.isin(ranges.name, [i for i, n in enumerate(ranges.names) if n in wanted]))
        if not len(rows):
            raise no_such_range(options.within, ranges)
        parts = Parts(process_of(ranges.tid[rows]), ranges.start[rows], ranges.end[rows])
        low, high = max(low, int(parts.start.min())), min(high, int(parts.end.max()))
    if options.low is not None:
        low = max(low, options.low)
    if options.high is not None:
        high = min(high, options.high)
    if low >= high:
        raise UsageError("window", "The window is empty: its end is not after its start.", "Widen --from and --to.")
    return Window(low, high, parts)
