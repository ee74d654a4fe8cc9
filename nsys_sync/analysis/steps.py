"""Steps of a program, and their time: from one GPU completion to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nsys_sync.analysis.calls import NEVER, Activity
from nsys_sync.errors import UsageError
from nsys_sync.trace.capture_info import MARK_PREFIX
from nsys_sync.trace.columns import distinct
from nsys_sync.trace.tables import Column, Ranges, process_of

_DIGITS = re.compile(r"\d+")
STEP_PREFIX = f"{MARK_PREFIX}step "
_ENOUGH = 3


@dataclass(frozen=True)
class ProcessSteps:
    """The steps of one process in time order: host ranges [start, end) in ns; row: rows in Ranges.

    completion: when the GPU had finished all that was launched by the end of each step (ns; NEVER = nothing was).
    """

    pid: int
    source: Literal["marks", "nvtx"]
    name: str
    row: Column
    start: Column
    end: Column
    completion: Column

    def within(self, low: int, high: int) -> ProcessSteps:
        """Those of the steps that share an instant with [low, high) (ns)."""
        kept = np.flatnonzero((self.start < high) & (self.end > low))
        columns = {name: getattr(self, name)[kept] for name in ("row", "start", "end", "completion")}
        return replace(self, **columns)

    @property
    def durations(self) -> Column:
        """Time between consecutive completions (ns), one fewer than steps."""
        return np.diff(self.completion)

    @property
    def mean(self) -> int | None:
        """Mean step time (ns), None with fewer than two steps."""
        times = self.durations
        return int(times.mean()) if len(times) else None

    @property
    def median(self) -> int | None:
        """Median step time (ns), None with fewer than two steps."""
        times = self.durations
        return int(np.median(times)) if len(times) else None


def find_steps(ranges: Ranges, activity: Activity, name: str | None = None) -> list[ProcessSteps]:
    """Steps by process, sorted by process: the launcher's marks, else NVTX ranges that are equal but for digits.

    name: use the ranges with this text (digits are ignored) instead. Raises UsageError when no range has it.
    """
    found = []
    pid = process_of(ranges.tid)
    patterns = [_pattern(text) for text in ranges.names]
    for process in distinct(np.sort(pid)):
        mine = np.flatnonzero((pid == process) & (ranges.pushed >= 0))
        chosen = _choose(ranges, mine, patterns, name)
        if chosen is None:
            continue
        source, label, rows = chosen
        start, end = ranges.start[rows], ranges.end[rows]
        found.append(
            ProcessSteps(int(process), source, label, rows, start, end, _completions(activity, int(process), end))
        )
    if name is not None and not found:
        raise no_such_range(name, ranges)
    return found


def no_such_range(name: str, ranges: Ranges) -> UsageError:
    """What to say to a name that no range has: one name of each kind that there is."""
    own = (STEP_PREFIX, f"{MARK_PREFIX}region ")
    named = [text for text in ranges.names if text and (text.startswith(own) or not text.startswith(MARK_PREFIX))]
    plain = [text.removeprefix(MARK_PREFIX).removeprefix("region ") for text in named]
    kinds = {_pattern(text): text for text in reversed(plain)}
    there = ", ".join(list(reversed(kinds.values()))[:8])
    return UsageError("window", f"No range is named {name!r}.", f"The trace has: {there or 'no ranges'}")


def _pattern(text: str) -> str:
    return _DIGITS.sub("#", text)


_Chosen = tuple[Literal["marks", "nvtx"], str, Column]


def _choose(ranges: Ranges, mine: Column, patterns: Sequence[str], name: str | None) -> _Chosen | None:
    """Source, name and rows of a process's steps among its ranges."""
    if name is not None:
        wanted = {_pattern(f"{prefix}{name}") for prefix in ("", MARK_PREFIX, f"{MARK_PREFIX}region ")}
        rows = mine[[patterns[i] in wanted for i in ranges.name[mine]]] if len(mine) else mine
        return ("nvtx", name, rows) if len(rows) else None
    marked = np.array([text.startswith(MARK_PREFIX) for text in ranges.names] or [False], dtype=bool)
    steps = np.array([text.startswith(STEP_PREFIX) for text in ranges.names] or [False], dtype=bool)
    marks = mine[steps[ranges.name[mine]]]
    if len(marks):
        return "marks", "step", marks
    groups: dict[str, list[int]] = {}
    for row in mine[(ranges.pushed[mine] == 1) & ~marked[ranges.name[mine]]]:
        groups.setdefault(patterns[ranges.name[row]], []).append(int(row))
    best: tuple[int, str, Column] | None = None
    for pattern, listed in groups.items():
        rows = np.array(listed, dtype=np.int64)
        start, end = ranges.start[rows], ranges.end[rows]
        one_thread = len(distinct(np.sort(ranges.tid[rows]))) == 1
        if pattern and len(rows) >= _ENOUGH and one_thread and (start[1:] >= end[:-1]).all():
            span = int((end - start).sum())
            if best is None or (span, pattern) > (best[0], best[1]):
                best = (span, pattern, rows)
    return None if best is None else ("nvtx", best[1], best[2])


def _completions(activity: Activity, process: int, end: Column) -> Column:
    mine = np.flatnonzero(activity.ops.pid == process)
    by = mine[np.argsort(activity.launched[mine], kind="stable")]
    reach = np.maximum.accumulate(activity.ops.end[by])
    last = np.searchsorted(activity.launched[by], end, side="right") - 1
    return np.where(last >= 0, reach[last], NEVER) if len(by) else np.full(len(end), NEVER, dtype=np.int64)
