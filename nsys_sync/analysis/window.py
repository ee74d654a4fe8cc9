"""The part of the trace that is reported on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_sync.analysis.options import Options
from nsys_sync.analysis.steps import ProcessSteps
from nsys_sync.errors import NothingToAnalyze, UsageError
from nsys_sync.trace.capture_info import MARK_PREFIX
from nsys_sync.trace.tables import Column, Ranges


@dataclass(frozen=True)
class Window:
    """[low, high) in ns of the trace's clock; ALL where nothing was narrowed."""

    low: int
    high: int

    def overlaps(self, start: Column, end: Column) -> np.ndarray:
        """Which intervals share an instant with the window (an empty interval: lies in it)."""
        return (start < self.high) & (np.maximum(end, start + 1) > self.low)


ALL = Window(-(1 << 62), 1 << 62)


def choose_window(options: Options, ranges: Ranges, steps: list[ProcessSteps]) -> Window:
    """The window that the options name. Raises UsageError when they leave nothing, or name what is not there."""
    low, high = ALL.low, ALL.high
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
            raise UsageError(
                "window",
                f"No range is named {options.within!r}.",
                f"The trace has: {', '.join(ranges.names[:8]) or 'no ranges'}",
            )
        low, high = max(low, int(ranges.start[rows].min())), min(high, int(ranges.end[rows].max()))
    if options.low is not None:
        low = max(low, options.low)
    if options.high is not None:
        high = min(high, options.high)
    if low >= high:
        raise UsageError("window", "The window is empty: its end is not after its start.", "Widen --from and --to.")
    return Window(low, high)
