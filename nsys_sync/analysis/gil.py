"""Waits during which the waiting thread kept Python's global lock and other Python threads stood still."""

from __future__ import annotations

import numpy as np

from nsys_sync.analysis import intervals
from nsys_sync.analysis.calls import Activity, Blocking, Events
from nsys_sync.trace.columns import distinct
from nsys_sync.trace.tables import Column, GilSpans, process_of


def held_while_others_waited(gil: GilSpans, activity: Activity, blocking: Blocking, events: Events) -> Column:
    """By sync event the time (ns) inside its blocking calls in which its thread held the lock and another wanted it."""
    calls, row = activity.calls, blocking.row
    held = np.zeros(len(events), dtype=np.int64)
    for tid in distinct(np.sort(calls.tid[row])):
        own = (gil.tid == tid) & (gil.holding == 1)
        others = (gil.tid != tid) & (process_of(gil.tid) == process_of(np.array([tid]))[0]) & (gil.holding == 0)
        by = np.argsort(gil.start[others], kind="stable")
        wanted = intervals.union(gil.start[others][by], gil.end[others][by])
        contested = intervals.common(intervals.union(gil.start[own], gil.end[own]), wanted)
        mine = np.flatnonzero(calls.tid[row] == tid)
        time = intervals.measure(*contested, calls.start[row[mine]], calls.end[row[mine]])
        np.add.at(held, blocking.event[mine], time)
    return held
