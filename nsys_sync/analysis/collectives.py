"""The collectives of a process (NCCL kernels), and what its GPU did before each: what ranks are compared by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nsys_sync.analysis.timeline import CAUSES, KINDS
from nsys_sync.trace.tables import os_pid

if TYPE_CHECKING:
    from nsys_sync.analysis.findings import Report
    from nsys_sync.analysis.timeline import Column, Timeline

_NUMBER = re.compile(r"(\d+)\D*$")
_FROM_SYNCS = [CAUSES.index("sync_wait"), CAUSES.index("sync_refill")]


@dataclass(frozen=True)
class Collectives:
    """The NCCL kernels of one process in the order in which its host launched them; times in ns of the trace's clock.

    pid: the system's. devices: that they ran on. step: number of the step in which each was launched (-1 = before the
    first; all 0 without steps, then ``steps`` is False). Between the end of the one before (for the first one its own
    start) and the start of each: since is how long that was, idle how long the device had nothing to do, from_syncs the
    part of idle that syncs caused, by_site that part by site id (only sites that caused any). measured: whether the
    device's idle time is known.
    """

    pid: int
    devices: list[int]
    steps: bool
    step: Column
    name: list[str]
    start: Column
    end: Column
    since: Column
    idle: Column
    from_syncs: Column
    by_site: dict[str, Column]
    measured: bool


def find_collectives(report: Report, timeline: Timeline) -> list[Collectives]:
    """The collectives of every process that has any, in the order of the global process ids."""
    ops = timeline.ops
    nccl = [code for code, name in enumerate(timeline.op_names) if name.lower().startswith("nccl")]
    rows = np.flatnonzero(np.isin(ops.name, nccl) & (ops.kind == KINDS.index("kernel")))
    known = {d.device for d in report.devices if d.idle_status == "measured"}
    ids = [site.id for site in report.sites]
    return [_of(timeline, rows[ops.pid[rows] == pid], int(pid), known, ids) for pid in np.unique(ops.pid[rows])]


def _of(timeline: Timeline, rows: Column, pid: int, known: set[int], sites: list[str]) -> Collectives:
    ops, calls = timeline.ops, timeline.calls
    launched = np.where(ops.call[rows] >= 0, calls.start[ops.call[rows]], ops.start[rows])
    by = np.lexsort((ops.start[rows], launched))
    rows, launched = rows[by], launched[by]
    start, end = ops.start[rows], ops.end[rows]
    begin = np.concatenate((start[:1], end[:-1]))
    devices = np.unique(ops.device[rows])
    step = _steps(timeline, pid, launched)
    gaps = timeline.gaps
    mine = np.flatnonzero(gaps.device == devices[0])
    # Gaps touch no operation, so each lies wholly between two collectives or beside them.
    first = np.searchsorted(gaps.start[mine], begin, side="left")
    stop = np.maximum(np.searchsorted(gaps.end[mine], start, side="right"), first)
    caused = gaps.causes[mine][:, _FROM_SYNCS].sum(axis=1)
    by_site = {
        sites[site]: _between(np.where(gaps.site[mine] == site, caused, 0), first, stop)
        for site in np.unique(gaps.site[mine][caused > 0])
        if site >= 0
    }
    return Collectives(
        pid=os_pid(pid),
        devices=[int(d) for d in devices],
        steps=step is not None,
        step=np.zeros(len(rows), dtype=np.int64) if step is None else step,
        name=[timeline.op_names[n] for n in ops.name[rows]],
        start=start,
        end=end,
        since=start - begin,
        idle=_between(gaps.end[mine] - gaps.start[mine], first, stop),
        from_syncs=_between(caused, first, stop),
        by_site=by_site,
        measured=known.issuperset(int(d) for d in devices),
    )


def _between(values: Column, first: Column, stop: Column) -> Column:
    """Sums of values[first:stop]."""
    sums = np.concatenate(([0], np.cumsum(values)))
    return sums[stop] - sums[first]


def _steps(timeline: Timeline, pid: int, launched: Column) -> Column | None:
    """Number of the step of each launch: the last number in the step's name, else its place; None without steps."""
    ranges = timeline.ranges
    rows = np.flatnonzero((ranges.step >= 0) & (ranges.pid == pid))
    if not len(rows):
        return None
    rows = rows[np.argsort(ranges.start[rows], kind="stable")]
    found = [_NUMBER.search(timeline.range_names[n]) for n in ranges.name[rows]]
    numbers = [int(f[1]) for f in found if f is not None and len(f[1]) < 18]
    if len(numbers) < len(rows) or len(set(numbers)) < len(rows):
        numbers = list(range(len(rows)))
    at = np.searchsorted(ranges.start[rows], launched, side="right") - 1
    return np.where(at >= 0, np.array(numbers, dtype=np.int64)[at], -1)
