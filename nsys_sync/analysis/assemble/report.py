"""The report of what was found: devices, totals, gaps and what-ifs here, sites and the rest beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys_sync.analysis import findings as f
from nsys_sync.analysis import timeline as t
from nsys_sync.analysis.assemble.found import Findings
from nsys_sync.analysis.assemble.headline import Pauses, choose_headline
from nsys_sync.analysis.assemble.sites import make_sites
from nsys_sync.analysis.assemble.trace_info import trace_info
from nsys_sync.analysis.calls import blocked_time
from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.idle import REFILL, WAIT, Blame, DeviceBusy
from nsys_sync.analysis.sites import site_ids
from nsys_sync.analysis.source import Sources
from nsys_sync.trace.tables import os_pid

_SHOWN_GAPS = 200
_STEPS = 3


def make_report(found: Findings, sources: Sources, catalogue: Catalogue) -> f.Report:
    """The report of these findings: sites by wait, most first."""
    devices = [_device(d, found.charged) for d in found.charged.devices]
    measured = bool(devices) and all(d.idle_status == "measured" for d in devices)
    totals = _totals(found, devices, measured=measured)
    sites = make_sites(found, sources, catalogue, measured=measured)
    info = trace_info(found)
    return f.Report(
        format=f.FORMAT,
        tool=f.TOOL,
        trace=info,
        headline=choose_headline(devices, totals, sites, info.capture, _pauses(found)),
        devices=devices,
        totals=totals,
        sites=sites,
        steps=[
            f.Steps(
                pid=os_pid(s.pid), count=len(s.row), source=s.source, mean_ns=s.mean, median_ns=s.median, name=s.name
            )
            for s in found.steps
        ],
        gaps=_gaps(found),
        what_if=_what_ifs(found, sites),
    )


# --- devices, totals -------------------------------------------------------------------------------------


def _device(device: DeviceBusy, charged: Blame) -> f.DeviceTime:
    window = device.high - device.low
    if device.withheld is not None:
        return f.DeviceTime.withheld(device.device, window, device.withheld)
    first, stop = np.searchsorted(charged.gaps.device, [device.device, device.device + 1])
    causes = charged.gaps.causes[first:stop].sum(axis=0, dtype=np.int64)
    return f.DeviceTime(
        device=device.device,
        window_ns=window,
        busy_ns=device.busy,
        compute_busy_ns=device.compute,
        copy_only_ns=f.CopyOnly(blocking=device.blocking_copy, async_=device.async_copy),
        idle_ns=window - device.busy,
        idle_by_cause_ns=f.IdleByCause(**{name: int(ns) for name, ns in zip(t.CAUSES, causes, strict=True)}),
        idle_status="measured",
        idle_reason=None,
        gaps=device.gaps,
    )


def _totals(found: Findings, devices: Sequence[f.DeviceTime], *, measured: bool) -> f.Totals:
    counted = found.counted
    mine = np.isin(found.blocking.event, counted)
    inside = replace(found.blocking, row=found.blocking.row[mine])
    wall, threads = blocked_time(found.activity, inside)
    idle = found.charged.idle[counted].sum(axis=(0, 1))
    return f.Totals(
        host_blocking_calls=int(mine.sum()),
        sync_events=len(counted),
        device_waits=int(found.activity.waits_on_device.sum()),
        wait_ns=int(found.events.wait[counted].sum()),
        host_blocked_ns=wall,
        thread_blocked_ns=threads,
        idle_ns=sum(d.idle_ns or 0 for d in devices) if measured else None,
        idle_from_syncs_ns=int(idle[WAIT] + idle[REFILL]) if measured else None,
        recoverable_ns=int(found.charged.recoverable[counted].sum()) if measured else None,
        recoverable_all_ns=found.charged.recoverable_all if measured else None,
    )


def _what_ifs(found: Findings, sites: Sequence[f.Site]) -> f.WhatIfs:
    ids = site_ids(found.places, found.users)
    class_of = {s.id: s.class_ for s in sites}
    classes = (
        np.array([class_of.get(i, "") for i in ids] or [""], dtype=object)[found.site] if len(found.site) else None
    )
    if classes is None:
        return f.WhatIfs(all=None, by_class={})
    by_class: dict[str, f.WhatIf] = {}
    for name in sorted(set(class_of.values())):
        prediction = found.predictor.of(classes == name)
        if prediction is not None:
            by_class[name] = prediction
    return f.WhatIfs(all=found.predictor.of(np.ones(len(found.events), dtype=bool)), by_class=by_class)


def _pauses(found: Findings) -> Pauses:
    """The gaps in which a step would have had room; none where steps are too few to know how long one is."""
    step = max((s.median or 0 for s in found.steps if len(s.row) >= _STEPS), default=0)
    gaps = found.charged.gaps
    if not step:
        return Pauses()
    long = np.flatnonzero(gaps.end - gaps.start >= step)
    caused = gaps.causes[long][:, [t.CAUSES.index("sync_wait"), t.CAUSES.index("sync_refill")]].sum(dtype=np.int64)
    return Pauses(len(long), int((gaps.end - gaps.start)[long].sum() - caused))


def _gaps(found: Findings) -> f.Gaps:
    gaps = found.charged.gaps
    ids = site_ids(found.places, found.users)
    length = gaps.end - gaps.start
    enough = (
        np.flatnonzero(length >= np.partition(length, -_SHOWN_GAPS)[-_SHOWN_GAPS])
        if len(length) > _SHOWN_GAPS
        else (np.arange(len(length)))
    )
    longest = enough[np.lexsort((gaps.start[enough], gaps.device[enough], -length[enough]))][:_SHOWN_GAPS]
    items = []
    for gap in longest:
        event = int(gaps.event[gap])
        items.append(
            f.Gap(
                device=int(gaps.device[gap]),
                start_ns=int(gaps.start[gap]),
                end_ns=int(gaps.end[gap]),
                cause=t.CAUSES[int(gaps.causes[gap].argmax())],
                site=ids[int(found.site[event])] if event >= 0 else None,
            )
        )
    return f.Gaps(total=len(gaps.start), shown=len(items), items=items)
