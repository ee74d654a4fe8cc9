"""Steps of a program, and their time: from one GPU completion to the next."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nsys_sync.analysis.calls import NEVER, Activity
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

    name: use the ranges with this text (digits are ignored) instead.
    """
    found = []
    pid = process_of(ranges.tid)
    patterns = np.array([_intern_pattern(text) for text in ranges.names], dtype=object)
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
    return found


def _intern_pattern(text: str) -> str:
    return _DIGITS.sub("#", text)


def _choose(
    ranges: Ranges, mine: Column, patterns: np.ndarray, name: str | None
) -> tuple[Literal["marks", "nvtx"], str, Column] | None:
    texts = ranges.names
    if name is None:
        marks = mine[[texts[i].startswith(STEP_PREFIX) for i in ranges.name[mine]]] if len(mine) else mine
        if len(marks):
            return "marks", "step", marks
    pushed = mine[ranges.pushed[mine] == 1] if name is None else mine
    groups: dict[str, list[int]] = {}
    for row in pushed:
        pattern = str(patterns[ranges.name[row]])
        if not texts[ranges.name[row]].startswith(MARK_PREFIX) or name is not None:
            groups.setdefault(pattern, []).append(int(row))
    if name is not None:
        rows = groups.get(_intern_pattern(name), []) or groups.get(_intern_pattern(f"{MARK_PREFIX}region {name}"), [])
        return ("nvtx", name, np.array(rows, dtype=np.int64)) if rows else None
    best: tuple[int, str, Column] | None = None
    for pattern, listed in groups.items():
        rows = np.array(listed, dtype=np.int64)
        if len(rows) < _ENOUGH or len(distinct(np.sort(ranges.tid[rows]))) > 1 or not pattern:
            continue
        if (ranges.start[rows][1:] < ranges.end[rows][:-1]).any():
            continue
        span = int((ranges.end[rows] - ranges.start[rows]).sum())
        if best is None or (span, pattern) > (best[0], best[1]):
            best = (span, pattern, rows)
    return None if best is None else ("nvtx", best[1], best[2])


def _completions(activity: Activity, process: int, end: Column) -> Column:
    mine = np.flatnonzero(activity.ops.pid == process)
    by = mine[np.argsort(activity.launched[mine], kind="stable")]
    reach = np.maximum.accumulate(activity.ops.end[by])
    last = np.searchsorted(activity.launched[by], end, side="right") - 1
    return np.where(last >= 0, reach[last], NEVER) if len(by) else np.full(len(end), NEVER, dtype=np.int64)
