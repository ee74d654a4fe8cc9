"""The columns that the timeline pages draw."""

from __future__ import annotations

import numpy as np

from nsys_sync.analysis import findings as f
from nsys_sync.analysis import timeline as t
from nsys_sync.analysis.assemble.found import Findings
from nsys_sync.analysis.sites import site_ids
from nsys_sync.trace.columns import distinct
from nsys_sync.trace.tables import Column, process_of


def make_timeline(found: Findings, shown: f.Report) -> t.Timeline:
    """The columns that the pages draw; site numbers are positions in the report's sites."""
    activity, gaps = found.activity, found.charged.gaps
    calls, ops = activity.calls, activity.ops
    position = {site.id: i for i, site in enumerate(shown.sites)}
    place = np.array([position.get(i, -1) for i in site_ids(found.places, found.users)] or [-1], dtype=np.int64)
    event_site = place[found.site] if len(found.site) else found.site
    name_ids = distinct(ops.name[ops.name >= 0])
    texts = found.trace.strings(name_ids)
    starts = [int(c.start.min()) for c in (calls, ops) if len(c)]
    ends = [int(c.end.max()) for c in (calls, ops) if len(c)]
    return t.Timeline(
        calls=_calls(found, event_site),
        ops=t.OpColumns(
            ops.start,
            ops.end,
            ops.device,
            ops.context,
            ops.stream,
            ops.pid,
            ops.kind,
            np.where(ops.name >= 0, np.searchsorted(name_ids, ops.name), -1),
            activity.launch,
        ),
        gaps=t.GapColumns(
            gaps.device,
            gaps.start,
            gaps.end,
            gaps.next_op,
            np.where(gaps.event >= 0, event_site[gaps.event], -1) if len(event_site) else gaps.event,
            gaps.causes.astype(np.int64),
        ),
        ranges=_ranges(found),
        call_names=list(calls.names),
        op_names=[texts.get(int(i), "?") for i in name_ids],
        range_names=list(found.trace.ranges.names),
        thread_names=dict(found.trace.threads),
        start_ns=max(min(starts, default=0), found.window.low),
        end_ns=min(max(ends, default=0), found.window.high),
    )


def _calls(found: Findings, event_site: Column) -> t.CallColumns:
    activity, calls, blocking = found.activity, found.activity.calls, found.blocking
    category = np.zeros(len(calls), dtype=np.int64)
    category[activity.launches] = 1
    category[activity.is_api("alloc")] = 3
    category[activity.waits_on_device] = 4
    category[blocking.row] = 2
    site = np.full(len(calls), -1, dtype=np.int64)
    event = np.full(len(calls), -1, dtype=np.int64)
    event[blocking.row] = blocking.event
    site[blocking.row] = event_site[blocking.event]
    return t.CallColumns(calls.start, calls.end, calls.tid, process_of(calls.tid), calls.name, category, site, event)


def _ranges(found: Findings) -> t.RangeColumns:
    ranges = found.trace.ranges
    step = np.full(len(ranges.start), -1, dtype=np.int64)
    for steps in found.steps:
        step[steps.row] = np.arange(len(steps.row))
    drawn = ranges.pushed >= 0
    tid = ranges.tid[drawn]
    return t.RangeColumns(ranges.start[drawn], ranges.end[drawn], tid, process_of(tid), ranges.name[drawn], step[drawn])
