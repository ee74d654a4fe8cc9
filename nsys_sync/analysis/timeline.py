"""What the timeline pages draw: columns of calls, operations, gaps and steps. Never part of the JSON.

Columns named pid and tid hold nsys's global ids (``trace.tables.os_pid``, ``os_tid`` make the system's of them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]

CAUSES = ("sync_wait", "sync_refill", "sync_overhead", "host", "device", "alloc", "tail", "unknown")
KINDS = ("kernel", "memcpy", "memset", "graph")


@dataclass(frozen=True)
class CallColumns:
    """Host API calls, sorted by (start, -end). Times in ns of the trace's clock; -1 = none.

    name: index into Timeline.call_names; tid: nsys global thread id; site: index into Report.sites (blocking calls
    only); event: id of the sync event that the call belongs to, equal for a copy and its sync; category: 0 other,
    1 launch, 2 blocking, 3 allocation, 4 wait for an event on the device.
    """

    start: Column
    end: Column
    tid: Column
    pid: Column
    name: Column
    category: Column
    site: Column
    event: Column


@dataclass(frozen=True)
class OpColumns:
    """GPU operations, sorted by (start, end). kind: index into KINDS; name: index into Timeline.op_names (-1 = none);
    call: row of the launching call in Timeline.calls (-1 = none).
    """

    start: Column
    end: Column
    device: Column
    context: Column
    stream: Column
    pid: Column
    kind: Column
    name: Column
    call: Column


@dataclass(frozen=True)
class GapColumns:
    """Idle intervals of the devices, sorted by (device, start).

    causes: shape (gaps, 8), ns by CAUSES, each row adds up to end - start; next_op: row in ops that ends the gap
    (-1 = tail); site: index into Report.sites of the site with the largest share of sync_wait + sync_refill (-1 =
    none).
    """

    device: Column
    start: Column
    end: Column
    next_op: Column
    site: Column
    causes: Column


@dataclass(frozen=True)
class RangeColumns:
    """Steps and NVTX ranges, sorted by (start, -end). name: index into Timeline.range_names; step: 0-based number of
    the step or -1 for other ranges.
    """

    start: Column
    end: Column
    tid: Column
    pid: Column
    name: Column
    step: Column


@dataclass(frozen=True)
class Timeline:
    """Columns for drawing. thread_names: by nsys global thread id."""

    calls: CallColumns
    ops: OpColumns
    gaps: GapColumns
    ranges: RangeColumns
    call_names: list[str]
    op_names: list[str]
    range_names: list[str]
    thread_names: dict[int, str]
    start_ns: int
    end_ns: int
