"""The columns that leave this room: int64 arrays of one length a table; times in ns of the session; -1 = none.

``tid`` is nsys's global thread id and ``pid`` the global process id (``tid & ~0xFFFFFF``): both are unique over all
processes of a trace; ``os_pid`` and ``os_tid`` give the operating system's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]

KERNEL, MEMCPY, MEMSET, GRAPH = range(4)
PAGEABLE, PINNED, DEVICE = 0, 1, 2

_PROCESS_MASK = ~0xFFFFFF


def process_of(tid: Column) -> Column:
    """Global process ids of global thread ids."""
    return tid & np.int64(_PROCESS_MASK)


def os_pid(global_pid: int) -> int:
    """The operating system's process id (24 bits) in a global process or thread id."""
    return (global_pid >> 24) & 0xFFFFFF


def os_tid(global_tid: int) -> int:
    """The operating system's thread id (24 bits) in a global thread id."""
    return global_tid & 0xFFFFFF


@dataclass(frozen=True)
class Calls:
    """CUDA runtime and driver calls (eventClass 0 and 1), sorted by (start, -end, tid, correlation, name).

    name: index into ``names``, the bare names in alphabetical order.
    """

    start: Column
    end: Column
    tid: Column
    correlation: Column
    name: Column
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Ops:
    """GPU operations, sorted by (start, end, pid, device, context, stream, correlation, kind).

    kind: KERNEL, MEMCPY, MEMSET or GRAPH (one whole graph run). name: a string id (kernels; -1 for the others).
    bytes: of copies and memsets. src, dst: memory kinds of copies (PAGEABLE, PINNED, DEVICE, others as in CUPTI).
    """

    start: Column
    end: Column
    pid: Column
    device: Column
    context: Column
    stream: Column
    correlation: Column
    kind: Column
    name: Column
    copies: Copies

    def __len__(self) -> int:
        return len(self.start)

    def only(self, kept: npt.NDArray[np.bool_]) -> Ops:
        """The operations for which the mask is true."""
        number = np.cumsum(kept) - 1
        copies, still = self.copies, kept[self.copies.op]
        op = number[copies.op[still]].astype(copies.op.dtype)
        columns = {f.name: getattr(self, f.name)[kept] for f in fields(self) if f.name != "copies"}
        return Ops(**columns, copies=Copies(op, copies.bytes[still], copies.src[still], copies.dst[still]))


@dataclass(frozen=True)
class Copies:
    """The MEMCPY rows among the ops, sorted by op: op is a row in Ops; bytes; src and dst memory kinds."""

    op: Column
    bytes: Column
    src: Column
    dst: Column


@dataclass(frozen=True)
class SyncRecords:
    """What a synchronising call waited for, sorted by (pid, correlation). event: as in EventRecords (-1 = none)."""

    pid: Column
    correlation: Column
    device: Column
    context: Column
    stream: Column
    event: Column


@dataclass(frozen=True)
class EventRecords:
    """Event record calls, sorted by (pid, event). event is unique a record within a process."""

    pid: Column
    correlation: Column
    device: Column
    context: Column
    stream: Column
    event: Column


@dataclass(frozen=True)
class Brackets:
    """nsys's own second row (eventClass 67) around a call that can block, sorted by (tid, start). name: index into
    ``names``, bare names in alphabetical order; chain: id of the native call chain.
    """

    start: Column
    tid: Column
    correlation: Column
    name: Column
    chain: Column
    names: tuple[str, ...]


@dataclass(frozen=True)
class Marks:
    """Python stacks that nsys recorded, sorted by (tid, start). row: id to hand to ``Trace.python_stacks``."""

    start: Column
    tid: Column
    row: Column


@dataclass(frozen=True)
class Ranges:
    """NVTX push/pop and start/end ranges of the default domain, and this project's own marks, sorted by (start, -end).

    name: index into ``names``; pushed: 1 for push/pop, 0 for start/end; a mark has start = end and pushed -1.
    """

    start: Column
    end: Column
    tid: Column
    name: Column
    pushed: Column
    names: tuple[str, ...]


@dataclass(frozen=True)
class GilSpans:
    """When threads held Python's global lock or waited for it, sorted by (tid, start). holding: 1 held, 0 waited."""

    start: Column
    end: Column
    tid: Column
    holding: Column


class StackFrame(NamedTuple):
    """One Python frame; line 0 where none is known."""

    function: str
    file: str
    line: int


class NativeFrame(NamedTuple):
    """One native frame: demangled symbol and the file name of its module."""

    symbol: str
    module: str
