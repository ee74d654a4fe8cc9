"""Ask the analysis about a trace made by hand. Everything here is in µs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nsys_sync.analysis.calls import connect, find_blocking
from nsys_sync.analysis.idle import blame
from nsys_sync.analysis.timeline import CAUSES
from nsys_sync.analysis.window import ALL, Window
from nsys_sync.trace.reader import open_trace
from tests.builder import TraceBuilder

US = 1_000

STREAM_SYNC = "cudaStreamSynchronize_v3020"
DEVICE_SYNC = "cudaDeviceSynchronize_v3020"
EVENT_SYNC = "cudaEventSynchronize_v3020"
MALLOC = "cudaMalloc_v3020"
HOST_TO_DEVICE, PINNED_TO_DEVICE = "pageable->device", "pinned->device"

Sums = dict[str, int]


@dataclass(frozen=True)
class Gpu:
    """A device's time; copies are what it does beside computing; causes without those that are 0."""

    window: tuple[int, int]
    compute: int = 0
    blocking_copy: int = 0
    async_copy: int = 0
    causes: Sums = field(default_factory=dict)
    withheld: bool = False


@dataclass(frozen=True)
class Answer:
    """gpus by device; events in time order: wait, what it caused, recoverable, without what is 0; together."""

    gpus: dict[int, Gpu]
    events: list[Sums]
    together: int

    @property
    def gpu(self) -> Gpu:
        (only,) = self.gpus.values()
        return only


def in_us(ns: int) -> int:
    """A whole number of µs; cases are made so that nothing else comes out."""
    assert ns % US == 0, f"{ns} ns is no whole number of µs"
    return int(ns) // US


def scale(t: TraceBuilder) -> TraceBuilder:
    """The same trace with its times, which are in µs, in ns."""
    for rows in t.tables.values():
        for row in rows:
            for name in ("start", "end"):
                value = row.get(name)
                if isinstance(value, int):
                    row[name] = value * US
    return t


def nonzero(values: Sums) -> Sums:
    return {name: value for name, value in values.items() if value}


def ask(t: TraceBuilder, folder: Path, window: tuple[int, int] | None = None) -> Answer:
    """What the analysis says about a trace whose times are in µs, in whatever order its rows come."""
    scale(t)
    answer = read(t.write(folder / "trace.sqlite"), window)
    assert read(t.write(folder / "shuffled.sqlite", shuffle=1), window) == answer
    return answer


def read(path: Path, window: tuple[int, int] | None) -> Answer:
    with open_trace(path) as trace:
        activity = connect(trace)
        blocking, events = find_blocking(trace, activity)
        within = ALL if window is None else Window(window[0] * US, window[1] * US)
        found = blame(activity, blocking, events, within)
    gpus = {}
    for device in found.devices:
        causes = found.gaps.causes[found.gaps.device == device.device].sum(axis=0)
        gpus[device.device] = Gpu(
            (in_us(device.low), in_us(device.high)),
            in_us(device.compute),
            in_us(device.blocking_copy),
            in_us(device.async_copy),
            nonzero({name: in_us(ns) for name, ns in zip(CAUSES, causes, strict=True)}),
            device.withheld is not None,
        )
    columns = {
        "wait": events.wait,
        "sync_wait": found.idle[:, :, 0].sum(axis=1),
        "sync_refill": found.idle[:, :, 1].sum(axis=1),
        "sync_overhead": found.idle[:, :, 2].sum(axis=1),
        "copy_in_call": found.copy_in_call,
        "recoverable": found.recoverable,
    }
    rows = [nonzero({name: in_us(column[i]) for name, column in columns.items()}) for i in range(len(events))]
    return Answer(gpus, rows, in_us(found.recoverable_all))
